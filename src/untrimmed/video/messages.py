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


def pack_header(message: dict[str, Any], num_pixel_bytes: int) -> bytes:
    """The lengths and the JSON text of a message; the pixels follow.

    The text is plain ASCII: a file name that is not valid UTF-8 travels as escaped surrogates.
    """
    text = json.dumps(message).encode("ascii")
    return HEADER.pack(len(text), num_pixel_bytes) + text


def write_message(descriptor: int, message: dict[str, Any], pixels: list[bytes] | None = None) -> None:
    """Send one message; the parts of `pixels` are sent one after another.

    By system calls: Python's buffered writer loses bytes when a process that waits for room in a pipe is stopped and
    goes on (Ctrl-Z and `fg`, a debugger), because such a write comes back short.
    """
    parts = pixels or []
    _write_all(descriptor, pack_header(message, sum(len(part) for part in parts)))
    for part in parts:
        _write_all(descriptor, part)


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
