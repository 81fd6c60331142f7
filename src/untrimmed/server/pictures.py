"""Decode frames and uploaded pictures in child processes with resource limits, and cache recent frames."""

import io
import queue
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from starlette.requests import Request
from starlette.responses import Response

from untrimmed.errors import VideoError
from untrimmed.video.process import Limits
from untrimmed.video.reader import FrameReader

# OpenAPI documentation of the response for a picture that the client already has
UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "The client has this picture (`If-None-Match`)."}}
_QUALITY = 80
_LIMITS = Limits(cpu_s=20.0, stall_s=20.0, total_s=30.0)  # the limits are short, because a user is waiting


def unchanged_response(request: Request, headers: dict[str, str]) -> Response | None:
    """Return the response with status 304 if the client already has the picture with this `etag`, otherwise None."""
    known = request.headers.get("if-none-match", "")
    tags = {tag.strip().removeprefix("W/") for tag in known.split(",")}
    return Response(status_code=304, headers=headers) if tags & {headers["etag"], "*"} else None


class PictureDecoder:
    """Decodes frames of videos and still pictures. It is thread-safe. A child process decodes one file at a time."""

    def __init__(self, *, children: int = 2, cache_bytes: int = 64 << 20, limits: Limits = _LIMITS) -> None:
        # last in, first out: the reader that was used last still has a running child process
        self._readers: queue.LifoQueue[FrameReader] = queue.LifoQueue()
        self._all = [FrameReader(limits=limits) for _ in range(children)]
        for reader in self._all:
            self._readers.put(reader)
        self._cache: OrderedDict[tuple[str, float, int | None], bytes] = OrderedDict()
        self._num_bytes = 0
        self._max_bytes = cache_bytes
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        """The number of bytes of all cached frames."""
        return self._num_bytes

    def jpeg(
        self,
        path: Path,
        content: str,
        time_s: float,
        short_side: int | None,
        duration_s: float,
        identity: list[int] | None = None,
    ) -> bytes:
        """Return the frame of a file at `time_s` as JPEG, or the last frame if the time is after the end.

        Args:
            content: Hash of the file's content, for the cache.
            time_s: Time in seconds, rounded to 0.01 s.
            short_side: Shorter side of the result in pixels. If None, the frame is not scaled.
            duration_s: Duration of the file in seconds.
            identity: The expected identity of the file (see `identity_of`). If None, every identity is accepted.

        Raises:
            VideoError: The file cannot be decoded, or has another identity.
        """
        time_s = min(time_s, duration_s)
        key = content, round(time_s, 2), short_side
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
        from PIL import Image

        with self._reader() as reader:
            frame = reader.frame_at(path, time_s, short_side=short_side, identity=identity, pictures_s=duration_s)
        buffer = io.BytesIO()
        Image.fromarray(frame).save(buffer, "JPEG", quality=_QUALITY)
        return self._store(key, buffer.getvalue())

    def picture_start_s(self, path: Path, identity: list[int] | None) -> float:
        """Return how many seconds after the start of the sound the first frame appears, or 0 if this is unknown."""
        try:
            with self._reader() as reader:
                return reader.picture_start_s(path, identity)
        except VideoError:
            return 0.0

    def frame_times(self, path: Path, start_s: float, end_s: float, identity: list[int] | None) -> list[float]:
        """Return the start time of each frame between two times. The first frame may start before `start_s`.

        Raises:
            VideoError: The file cannot be decoded, has another identity, or shows nothing between these times.
        """
        with self._reader() as reader:
            return reader.frames_between(path, start_s, end_s, short_side=8, identity=identity).times_s.tolist()

    def image(self, path: Path) -> UInt8[np.ndarray, "Y X 3"]:
        """Return the RGB pixels (height, width, 3) of a still picture (PNG, JPEG, WebP, BMP, GIF).

        Raises:
            VideoError: The file has another format or is damaged.
        """
        with self._reader() as reader:
            return reader.read_image(path)

    @contextmanager
    def _reader(self) -> Iterator[FrameReader]:
        reader = self._readers.get()
        try:
            yield reader
        finally:
            self._readers.put(reader)

    def _store(self, key: tuple[str, float, int | None], picture: bytes) -> bytes:
        with self._lock:
            if key not in self._cache and len(picture) <= self._max_bytes:
                self._cache[key] = picture
                self._num_bytes += len(picture)
                while self._num_bytes > self._max_bytes:
                    self._num_bytes -= len(self._cache.popitem(last=False)[1])
        return picture

    def close(self) -> None:
        """Stop the child processes."""
        for reader in self._all:
            reader.close()
