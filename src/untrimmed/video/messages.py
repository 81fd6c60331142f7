"""Messages between a program and its decoding child: a JSON object and, behind it, raw pixels.

On the wire a message is two lengths (little endian: 4 bytes for the JSON text, 8 for the pixels), then both parts.
Nothing is pickled, so the side that decodes untrusted files can make the other side run nothing.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any

HEADER = struct.Struct("<IQ")
MAX_TEXT_BYTES = 1 << 20
MAX_PIXEL_BYTES = 1 << 30


def write_message(descriptor: int, message: dict[str, Any], pixels: list[bytes] | None = None) -> None:
    """Send one message; the parts of `pixels` are sent one after another.

    The text is plain ASCII: a file name that is not valid UTF-8 travels as escaped surrogates.

    By system calls: Python's buffered writer loses bytes when a process that waits for room in a pipe is stopped and
    goes on (Ctrl-Z and `fg`, a debugger), because such a write comes back short.
    """
    text, parts = json.dumps(message).encode("ascii"), pixels or []
    for data in (HEADER.pack(len(text), sum(map(len, parts))) + text, *parts):
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]


def identity_of(status: os.stat_result) -> list[int]:
    """What tells a file from any other that may come to stand under its name."""
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns]
