"""Estimate the remaining time of an indexing run from the number of bytes encoded so far."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_EVIDENCE_S = 5.0  # there is no estimate until this much time has been measured


class Estimate:
    """The speed of an indexing run, and its remaining time.

    The remaining files are assumed to take as much time per byte as the encoded files.
    """

    def __init__(self, sizes: Mapping[Path, int], clock: Callable[[], float] = time.monotonic) -> None:
        """Create an estimate for a run that will encode files of these sizes in bytes."""
        self._sizes = dict(sizes)  # sizes of the files that are not finished
        self._remaining_bytes = float(sum(sizes.values()))
        self._clock = clock
        self._started_at: float | None = None  # when the first file was started
        self._excluded_s = 0.0
        self._encoded_bytes = 0.0  # bytes of finished files
        self._current_bytes = 0.0  # encoded bytes of the current file
        self._encoded_s = 0.0  # seconds of video in finished files
        self._current_s = 0.0  # encoded seconds of the current file

    def encode(self, path: Path, size: int, done_s: float, duration_s: float) -> None:
        """Record that `done_s` of the `duration_s` seconds of a file are encoded. `size` is in bytes."""
        if self._started_at is None:
            self._started_at = self._clock()
        self._remaining_bytes += size - self._sizes.get(path, 0)  # the file may have changed, or was not expected
        self._sizes[path] = size
        self._current_bytes = size * min(1.0, done_s / duration_s) if duration_s > 0 else 0.0
        self._current_s = done_s

    def finish(self, path: Path) -> None:
        """Record that a file is finished: it was encoded, it failed, or its content was already known."""
        self._remaining_bytes -= self._sizes.pop(path, 0)
        self._encoded_bytes += self._current_bytes
        self._encoded_s += self._current_s
        self._current_bytes = self._current_s = 0.0

    @contextmanager
    def exclude(self) -> Iterator[None]:
        """Exclude the time of a `with` block, for example because the run is paused."""
        started_at = self._clock()
        yield
        self._excluded_s += self._clock() - started_at

    @property
    def video_s(self) -> float:
        """Seconds of video encoded so far."""
        return self._encoded_s + self._current_s

    @property
    def speed(self) -> float | None:
        """Seconds of video encoded per second, or None until enough time has been measured."""
        return self.video_s / self._measured_s if self._has_evidence else None

    @property
    def remaining_s(self) -> float | None:
        """The estimated remaining time in seconds, or None until enough time has been measured."""
        if not self._has_evidence:
            return None
        done_bytes = self._encoded_bytes + self._current_bytes
        return max(0.0, self._remaining_bytes - self._current_bytes) * self._measured_s / done_bytes

    @property
    def _measured_s(self) -> float:
        return 0.0 if self._started_at is None else self._clock() - self._started_at - self._excluded_s

    @property
    def _has_evidence(self) -> bool:
        return self._measured_s >= _EVIDENCE_S and self._encoded_bytes + self._current_bytes > 0
