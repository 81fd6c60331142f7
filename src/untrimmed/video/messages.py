"""Messages between the program and its decoding child process: a JSON object followed by raw pixels.

A message starts with the length of each part (little endian: 4 bytes for the JSON text, 8 for the pixels). Nothing is
pickled, so the process that decodes untrusted files cannot run code in the other process.
"""

import json
import os
import struct
from typing import Any

HEADER = struct.Struct("<IQ")
MAX_TEXT_BYTES = 1 << 20
MAX_PIXEL_BYTES = 1 << 30
SOUND_HZ = 16_000  # samples per second of `sound` messages, which have 16-bit mono samples in place of pixels


def write_message(descriptor: int, message: dict[str, Any], pixels: list[bytes] | None = None) -> None:
    """Send one message. The byte strings in `pixels` are sent one after another.

    The JSON text is ASCII, and file names that are not valid UTF-8 are sent as escaped surrogates.

    If the process is stopped and continued (Ctrl-Z and `fg`) while the pipe is full, the system writes only a part of
    the bytes. Python's buffered writer would lose the rest, so this function uses `os.write`.
    """
    text = json.dumps(message).encode("ascii")
    parts = pixels or []
    for data in (HEADER.pack(len(text), sum(map(len, parts))) + text, *parts):
        remaining = memoryview(data)
        while remaining:
            remaining = remaining[os.write(descriptor, remaining) :]


def identity_of(status: os.stat_result) -> list[int]:
    """Return numbers that identify a file. If another file replaces it under the same name, the numbers change."""
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns]
