"""Check the manifests, the files that describe the versions of the table.

Lance panics (a Rust error) if a manifest is truncated or has extra bytes at its end.
"""

import contextlib
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

# the last bytes of a manifest: position of the description, two version numbers, and the magic word
_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_MAGIC = b"LANC"


def manifests(versions: Path) -> list[Path]:
    """Return the manifests in a folder of versions, the newest first."""
    return sorted(versions.glob("*.manifest"), key=lambda file: file.name)


def is_complete(manifest: Path) -> bool:
    """Return whether a manifest has its beginning and its end. A changed byte between them is not detected."""
    content = manifest.read_bytes()
    if len(content) < _FOOTER.size + _LENGTH.size:
        return False
    position, _, _, magic = _FOOTER.unpack(content[-_FOOTER.size :])
    if magic != _MAGIC or position > len(content) - _FOOTER.size - _LENGTH.size:
        return False
    (length,) = _LENGTH.unpack_from(content, position)
    return bool(position + _LENGTH.size + length + _FOOTER.size == len(content))


def set_aside_damaged(versions: Path, can_be_opened: Callable[[Path], bool]) -> list[Path]:
    """Rename the manifests that are newer than the newest readable one, and return their new paths.

    The table is then at the version of the newest readable manifest. If none is readable, nothing is renamed.
    """
    damaged: list[Path] = []
    for manifest in manifests(versions):
        if is_complete(manifest) and can_be_opened(manifest):
            return [file.replace(file.with_suffix(".damaged")) for file in damaged]
        damaged.append(manifest)
    return []


@contextlib.contextmanager
def without_panic_messages() -> Iterator[None]:
    """Hide what Rust writes to stderr if it panics. The exception is raised as usual."""
    saved = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            log.seek(0)
            if (text := log.read()) and b"panicked at" not in text:
                os.write(2, text)
