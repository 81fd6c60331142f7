"""Render and cache proxies: small copies of spans of videos, for browsers that cannot decode the original files.

A proxy is streamed while it is still being rendered. All viewers of a span share one rendering, which stops when nobody
views it. The files are in the library, or in a temporary folder if the library cannot be written.
"""

import contextlib
import io
import os
import queue
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
from filelock import FileLock, Timeout

from untrimmed.errors import VideoError, shown
from untrimmed.search.store.proxies import PROXIES, named_by_hash, proxy_name, remove_oldest_proxies
from untrimmed.search.store.records import VideoRecord
from untrimmed.server.media import MediaFile, require_free_space
from untrimmed.server.problems import PublicError
from untrimmed.video.messages import identity_of
from untrimmed.video.process import Limits
from untrimmed.video.reader import ProxyWriter

DEFAULT_CACHE_BYTES = 2 * 10**9
MAX_PROXY_S = 600.0
_LIMITS = Limits(total_s=1800.0, stall_s=60.0)
_GRACE_S = 3.0  # a rendering without viewers stops after this time, because players close and reopen connections
_MAX_WAITING = 8  # largest number of renderings that wait for a child process
_CLOSE_S = 5.0  # longest wait for a cancelled rendering
_CHECK_S = 0.02  # time between checks of a growing file
_BLOCK_BYTES = 1 << 18
_HEAD_BYTES = 4096
_TEMPORARY = "untrimmed-proxies-"  # prefix of temporary folders
_IN_USE = ".lock"
_NEW_S = 10.0  # a younger folder may not be locked yet
# bytes that mark the end of the header: the first fragment (MP4) or the first cluster (WebM)
_AFTER_HEADER = (b"moof", b"\x1f\x43\xb6\x75")


async def read_head(blocks: AsyncIterator[bytes]) -> bytes:
    """Return the first blocks of a proxy, up to the block in which the header ends."""
    head = b""
    async for block in blocks:
        head += block
        if any(mark in head for mark in _AFTER_HEADER):
            break
    return head


def kind_of(head: bytes) -> str:
    """Return the media type of a proxy, including the codecs of its tracks, which the Media Source API needs.

    `head` are the first bytes of the file, with its header.

    >>> kind_of(b"moov avcC\\x01\\x64\\x00\\x1f mp4a")
    'video/mp4; codecs="avc1.64001F,mp4a.40.2"'
    """
    if (place := head.find(b"avcC")) >= 0:
        profile_and_level = head[place + 5 : place + 8].hex().upper()
        sound = ",mp4a.40.2" if b"mp4a" in head else ""
        return f'video/mp4; codecs="avc1.{profile_and_level}{sound}"'
    codec = "vp9" if b"V_VP9" in head else "vp8"
    return f'video/webm; codecs="{codec}{",opus" if b"A_OPUS" in head else ""}"'


class Rendering:
    """A proxy that is being rendered to a file."""

    def __init__(self, path: Path) -> None:
        """Create the file. Raises OSError if this fails."""
        self.path = path
        self.num_viewers = 0
        self.is_done = False
        self.is_cancelled = False
        self.error: VideoError | None = None
        self.writer: ProxyWriter | None = None  # set while it renders
        self.timer: threading.Timer | None = None  # set while there are no viewers
        self._file = path.open("w+b")  # viewers read this open file, because it is renamed when it is complete

    async def blocks(self) -> AsyncIterator[bytes]:
        """Yield the whole file while it grows. Raises a VideoError if the rendering fails."""
        position = 0
        while True:
            is_done = self.is_done  # read it before the file, whose last bytes may be written in between
            if block := os.pread(self._file.fileno(), _BLOCK_BYTES, position):
                position += len(block)
                yield block
            elif is_done:
                break
            else:
                await anyio.sleep(_CHECK_S)
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Proxies:
    """The proxies of a library, with a total size of at most `max_bytes`. Thread-safe."""

    def __init__(self, library: Path, *, max_bytes: int = DEFAULT_CACHE_BYTES, children: int = 2) -> None:
        self.max_bytes = max_bytes
        self._library = library
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._in_use: FileLock | None = None  # in the temporary folder
        self._renderings: dict[str, Rendering] = {}
        self._lock = threading.RLock()
        self._checked: dict[Path, list[int]] = {}  # the states of cached files that were compared with their hashes
        self._all = [ProxyWriter(limits=_LIMITS) for _ in range(children)]
        self._writers: queue.LifoQueue[ProxyWriter] = queue.LifoQueue()
        for writer in self._all:
            self._writers.put(writer)

    def enter(
        self, record: VideoRecord, file: MediaFile, start_s: float, end_s: float
    ) -> tuple[MediaFile, io.FileIO] | Rendering:
        """Return the cached proxy of a span and an open stream of the file, or a rendering if none is cached.

        The rendering is started if necessary. The caller counts as a viewer until it calls `leave`.

        Raises:
            PublicError: The proxy cannot be stored, or too many other renderings are waiting.
        """
        name = proxy_name(record.content_hash, start_s, end_s)
        with self._lock:
            rendering = self._renderings.get(name)
            if rendering is None:
                for abandoned in [other for other in self._renderings.values() if other.num_viewers == 0]:
                    self._cancel(abandoned)
                try:
                    folder = self._folder()
                    if (cached := self._cached(folder, name)) is not None:
                        return cached
                    self._require_capacity(folder)
                    rendering = Rendering(folder / f".{name}.{secrets.token_hex(4)}")
                except OSError as error:
                    raise PublicError(507, f"the proxy cannot be stored ({error.strerror}); free space") from None
                self._renderings[name] = rendering
                arguments = rendering, name, file, start_s, end_s
                threading.Thread(target=self._render, args=arguments, daemon=True, name="proxy").start()
            rendering.num_viewers += 1
            if rendering.timer is not None:
                rendering.timer.cancel()
                rendering.timer = None
            return rendering

    def _cached(self, folder: Path, name: str) -> tuple[MediaFile, io.FileIO] | None:
        """Return a cached proxy and an open stream of it. A file that was changed after its rendering is removed."""
        for path in folder.glob(f"{name}-*"):
            with contextlib.suppress(OSError):
                if self._checked.get(path) != _state(path) and named_by_hash(path, name) != path:
                    path.unlink()
                    continue
                stream = io.FileIO(path)
                os.utime(path)
                self._checked[path] = _state(path)
                kind = kind_of(os.pread(stream.fileno(), _HEAD_BYTES, 0))
                return MediaFile(path, os.fstat(stream.fileno()), kind), stream
        return None

    def _require_capacity(self, folder: Path) -> None:
        if sum(rendering.writer is None for rendering in self._renderings.values()) >= _MAX_WAITING:
            raise PublicError(
                503, f"{_MAX_WAITING} other proxies are waiting to be rendered; try again in a few seconds"
            )
        require_free_space(folder, "proxies")

    def leave(self, rendering: Rendering) -> None:
        """Record that a viewer has left. If no viewers remain, the rendering stops soon."""
        with self._lock:
            rendering.num_viewers -= 1
            if rendering.num_viewers == 0 and rendering.is_done:
                rendering.close()
            elif rendering.num_viewers == 0:
                rendering.timer = threading.Timer(_GRACE_S, self._cancel_unused, [rendering])
                rendering.timer.daemon = True
                rendering.timer.start()

    def close(self) -> None:
        """Stop all renderings and their child processes."""
        with self._lock:
            for rendering in self._renderings.values():
                self._cancel(rendering)
        idle = []
        with contextlib.suppress(queue.Empty):
            for _ in self._all:
                idle.append(self._writers.get(timeout=_CLOSE_S))
        for writer in self._all:
            writer.close()
        for writer in idle:
            self._writers.put(writer)
        if self._temporary is not None:
            self._temporary.cleanup()
        if self._in_use is not None:
            self._in_use.release()

    def _render(self, rendering: Rendering, name: str, file: MediaFile, start_s: float, end_s: float) -> None:
        writer = self._writers.get()
        rendering.error = VideoError(f"{shown(file.path)}: the proxy could not be rendered; try again")
        try:
            with self._lock:
                writer.reset()
                rendering.writer = writer
                if rendering.is_cancelled:
                    writer.cancel()
            writer.write(file.path, start_s, end_s, rendering.path, file.identity)
            rendering.error = None
        except VideoError as error:
            rendering.error = error
        finally:
            with self._lock:
                rendering.writer = None
                self._writers.put(writer)
                self._renderings = {name: other for name, other in self._renderings.items() if other is not rendering}
                with contextlib.suppress(OSError):
                    if rendering.error is None:
                        os.replace(rendering.path, named_by_hash(rendering.path, name))
                    else:
                        rendering.path.unlink()
                rendering.is_done = True
                if rendering.num_viewers == 0:
                    rendering.close()
            remove_oldest_proxies(rendering.path.parent, self.max_bytes)

    def _cancel_unused(self, rendering: Rendering) -> None:
        with self._lock:
            if rendering.num_viewers == 0:
                self._cancel(rendering)

    def _cancel(self, rendering: Rendering) -> None:
        rendering.is_cancelled = True
        self._renderings = {name: other for name, other in self._renderings.items() if other is not rendering}
        if rendering.writer is not None:
            rendering.writer.cancel()

    def _folder(self) -> Path:
        """Return the folder of the proxies. Raises OSError if no folder can be created."""
        if self._temporary is not None:
            return Path(self._temporary.name) / PROXIES
        folder = self._library / PROXIES
        try:
            folder.mkdir(exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
        except OSError:
            pass
        _remove_abandoned()
        self._temporary = tempfile.TemporaryDirectory(prefix=_TEMPORARY)
        self._in_use = FileLock(Path(self._temporary.name) / _IN_USE)
        self._in_use.acquire()
        folder = Path(self._temporary.name) / PROXIES
        folder.mkdir()
        return folder


def _state(path: Path) -> list[int]:
    status = path.stat()
    return [*identity_of(status), status.st_ctime_ns]


def _remove_abandoned() -> None:
    """Remove the temporary folders of services that were killed. A running service holds a lock in its folder."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError, Timeout):  # also raised for folders of other users
            if folder.stat().st_mtime > time.time() - _NEW_S:
                continue
            with FileLock(folder / _IN_USE, timeout=0):
                shutil.rmtree(folder, ignore_errors=True)
