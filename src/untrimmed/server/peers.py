"""Find the user of this machine who opened a connection. Only Linux lists connections with their users."""

import ipaddress
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_TABLES = {4: Path("/proc/self/net/tcp"), 6: Path("/proc/self/net/tcp6")}


def is_foreign(client: Sequence[Any] | None, server: Sequence[Any] | None) -> bool:
    """Whether another user of this machine opened the connection from `client` to `server`.

    `client` and `server` are the host and port of each end, as in an ASGI scope. Root counts as the same user. For
    connections from other machines, and on other systems than Linux, the result is False.
    """
    if client is None or server is None:
        return False
    try:
        addresses = [ipaddress.ip_address(host) for host, _ in (client, server)]
        rows = _TABLES[addresses[0].version].read_text().splitlines()[1:]
    except (ValueError, OSError):
        return False
    if not addresses[0].is_loopback:
        return False
    ends = [_encoded(address.packed, port or 0) for address, (_, port) in zip(addresses, (client, server), strict=True)]
    for words in map(str.split, rows):
        # a closed connection has the inode 0 and no user
        if words[1:3] == ends and words[9] != "0":
            return int(words[7]) not in (0, os.geteuid())
    return True


def _encoded(packed: bytes, port: int) -> str:
    """Return an address and a port as the kernel's table has them: hexadecimal 32-bit words in native byte order."""
    words = [int.from_bytes(packed[start : start + 4], sys.byteorder) for start in range(0, len(packed), 4)]
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
