"""Frames as JPEG, and pictures that are sent: limited children that stay warm decode them.

The latest frames are kept in memory.
"""

from __future__ import annotations

import io
import queue
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from untrimmed.video.process import Limits
from untrimmed.video.reader import FrameReader

_QUALITY = 80
_LIMITS = Limits(cpu_s=20.0, stall_s=20.0, total_s=30.0)  # somebody is looking at the page


class Pictures:
    """Frames of files at times, and still pictures. Any number of threads may ask; each child decodes one at a time."""

    def __init__(self, *, children: int = 2, cache_bytes: int = 64 << 20, limits: Limits = _LIMITS) -> None:
        self._readers: queue.LifoQueue[FrameReader] = queue.LifoQueue()  # the one used last is the warm one
        self._all = [FrameReader(limits=limits) for _ in range(children)]
        for reader in self._all:
            self._readers.put(reader)
        self._kept: OrderedDict[tuple[str, float, int | None], bytes] = OrderedDict()
        self._num_bytes, self._most_bytes = 0, cache_bytes
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        """Of the pictures that are kept."""
        return self._num_bytes

    def jpeg(
        self,
        path: Path,
        content: str,
        time_s: float,
        short_side: int | None,
        last_for_s: float,
        identity: list[int] | None = None,
    ) -> bytes:
        """The frame of a file at a time, to a hundredth of a second; `content` is the hash of the file's.

        With an `identity` (`messages.identity_of`), of that file alone.

        Raises:
            VideoError: The file cannot be decoded, or the time lies behind its end.
        """
        key = content, round(time_s, 2), short_side
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        from PIL import Image

        with self._reader() as reader:
            frame = reader.frame_at(path, time_s, last_for_s=last_for_s, short_side=short_side, identity=identity)
        written = io.BytesIO()
        Image.fromarray(frame).save(written, "JPEG", quality=_QUALITY)
        return self._keep(key, written.getvalue())

    def image(self, path: Path) -> UInt8[np.ndarray, "Y X 3"]:
        """A still picture (PNG, JPEG, WebP, BMP, GIF) as RGB.

        Raises:
            VideoError: The file is no such picture, or is damaged.
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

    def _keep(self, key: tuple[str, float, int | None], picture: bytes) -> bytes:
        with self._lock:
            if key not in self._kept and len(picture) <= self._most_bytes:
                self._kept[key] = picture
                self._num_bytes += len(picture)
                while self._num_bytes > self._most_bytes:
                    self._num_bytes -= len(self._kept.popitem(last=False)[1])
        return picture

    def close(self) -> None:
        """End the children."""
        for reader in self._all:
            reader.close()
