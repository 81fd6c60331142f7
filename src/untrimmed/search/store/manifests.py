"""Check manifests: the files that describe the versions of a table.

Lance panics (a Rust error) if a manifest is truncated, or has extra bytes at its end.
"""

import contextlib
import os
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

# the last bytes of a manifest: position of the description, two version numbers, and the magic word
_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_MAGIC = b"LANC"


def manifests(versions: Path) -> list[Path]:
    """Return the manifests in a folder, the newest first."""
    return sorted(versions.glob("*.manifest"), key=lambda file: file.name)


def is_complete(manifest: Path) -> bool:
    """Return whether a manifest has a valid start and end. A changed byte between them is not detected."""
    content = manifest.read_bytes()
    if len(content) < _FOOTER.size + _LENGTH.size:
        return False
    position, _, _, magic = _FOOTER.unpack(content[-_FOOTER.size :])
    if magic != _MAGIC or position > len(content) - _FOOTER.size - _LENGTH.size:
        return False
    (length,) = _LENGTH.unpack_from(content, position)
    return bool(position + _LENGTH.size + length + _FOOTER.size == len(content))


def set_aside_damaged(versions: Path, can_be_opened: Callable[[Path], bool]) -> list[Path]:
    """Rename the manifests that are newer than the newest readable manifest. Return their new paths.

    Afterwards, the table is at the version of the newest readable manifest. If none is readable, nothing is renamed.
    """
    damaged: list[Path] = []
    for manifest in manifests(versions):
        if is_complete(manifest) and can_be_opened(manifest):
            return [file.replace(file.with_suffix(".damaged")) for file in damaged]
        damaged.append(manifest)
    return []


class _Stderr:
    """Redirects the stderr of this process to a file while at least one thread needs this."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_users = 0
        self._saved = -1
        self._log: IO[bytes] | None = None

    def redirect(self) -> None:
        """Redirect stderr until `restore` has been called as many times as this method."""
        with self._lock:
            self._num_users += 1
            if self._num_users == 1:
                self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `restore`
                self._saved = os.dup(2)
                os.dup2(self._log.fileno(), 2)

    def restore(self) -> None:
        """End one call of `redirect`.

        The last call restores stderr. Unless Rust panicked, it also writes the redirected text to stderr.
        """
        with self._lock:
            self._num_users -= 1
            if self._num_users == 0:
                assert self._log is not None
                os.dup2(self._saved, 2)
                os.close(self._saved)
                with self._log:
                    self._log.seek(0)
                    if (text := self._log.read()) and b"panicked at" not in text:
                        os.write(2, text)


_stderr = _Stderr()


@contextlib.contextmanager
def without_panic_messages() -> Iterator[None]:
    """Hide the message on stderr if Rust panics in a `with` block. The exception is raised as usual. Thread-safe."""
    _stderr.redirect()
    try:
        yield
    finally:
        _stderr.restore()
