"""Make small pictures of a video, about one per second, from the frames that are sampled for indexing."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8

HEIGHT = 160  # largest height of a picture, in pixels
MAX_GAP_S = 1.0  # largest time between pictures, unless fewer frames are sampled
_BYTES_PER_S = 6600  # largest size per second of video (23.8 MB per hour); if it is exceeded, the quality is lowered
_QUALITIES = (10, 60)
_METHOD = 2  # effort of WebP, 0 to 6; 4 takes twice as long and saves 5 % of the bytes
_EPSILON_S = 1e-6


@dataclass(frozen=True)
class Thumbnails:
    """The pictures of one video (WebP, at most 160 pixels high) and their times in seconds, in order.

    The picture at `times_s[i]` is `pictures[rows[i]]`. Consecutive times share a picture if the video does not change.
    """

    times_s: Float[np.ndarray, " T"]
    rows: tuple[int, ...]
    pictures: tuple[bytes, ...]


class ThumbnailMaker:
    """Makes the thumbnails of one video from its sampled frames.

    They show the first and the last frame, and as few others as possible so that gaps are at most `MAX_GAP_S`.
    """

    def __init__(self) -> None:
        self._times_s: list[float] = []
        self._rows: list[int] = []
        self._pictures: list[bytes] = []
        self._num_bytes = 0
        self._quality = _QUALITIES[1]
        self._last: np.ndarray | None = None  # the frame from which the last picture was made
        self._pending: tuple[float, UInt8[np.ndarray, "Y X 3"]] | None = None

    def add(self, times_s: Iterable[float], frames: Iterable[UInt8[np.ndarray, "Y X 3"]]) -> None:
        """Add the next frames of the video, in order of time."""
        for time_s, frame in zip(times_s, frames, strict=True):
            is_first = not self._times_s and self._pending is None
            if self._pending is not None and time_s - self._times_s[-1] > MAX_GAP_S + _EPSILON_S:
                self._keep(*self._pending)
                self._pending = None
            if is_first:
                self._keep(float(time_s), frame)
            else:
                self._pending = float(time_s), frame

    def finish(self) -> Thumbnails:
        """Return the thumbnails. There are none if no frame was added."""
        if self._pending is not None:
            self._keep(*self._pending)
            self._pending = None
        return Thumbnails(np.array(self._times_s, dtype=np.float64), tuple(self._rows), tuple(self._pictures))

    def _keep(self, time_s: float, frame: UInt8[np.ndarray, "Y X 3"]) -> None:
        if self._last is None or not np.array_equal(frame, self._last):
            picture = _webp(frame, self._quality)
            self._pictures.append(picture)
            self._num_bytes += len(picture)
            self._last = frame
        self._times_s.append(time_s)
        self._rows.append(len(self._pictures) - 1)
        is_too_large = self._num_bytes > _BYTES_PER_S * (time_s + MAX_GAP_S)
        low, high = _QUALITIES
        self._quality = max(low, self._quality - 10) if is_too_large else min(high, self._quality + 5)


def _webp(frame: UInt8[np.ndarray, "Y X 3"], quality: int) -> bytes:
    from PIL import Image

    picture = Image.fromarray(frame)
    if picture.height > HEIGHT:
        width = max(1, round(picture.width * HEIGHT / picture.height))
        picture = picture.resize((width, HEIGHT), Image.Resampling.BILINEAR)
    buffer = io.BytesIO()
    picture.save(buffer, "WEBP", quality=quality, method=_METHOD)
    return buffer.getvalue()
