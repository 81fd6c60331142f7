"""What an indexing run tells: each step while it runs, and at its end what became of every file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from untrimmed.search.store.records import VideoRecord


@dataclass(frozen=True)
class Failure:
    """A file that could not be indexed, and the reason in one line."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Timings:
    """Where the time of an indexing run went, in seconds; decoding and encoding overlap and may exceed the wall."""

    wall_s: float = 0.0
    decode_s: float = 0.0
    encode_s: float = 0.0
    write_s: float = 0.0
    video_s: float = 0.0  # seconds of video that were encoded

    @property
    def speed(self) -> float:
        """Seconds of video per second of wall time."""
        return self.video_s / self.wall_s if self.wall_s > 0 else 0.0


@dataclass(frozen=True)
class IndexReport:
    """What became of every file: encoded, already known (unchanged, moved or a copy), or failed with its reason."""

    done: tuple[Path, ...] = ()
    skipped: tuple[Path, ...] = ()
    failed: tuple[Failure, ...] = ()
    moved: tuple[Path, ...] = ()  # those of `skipped` that were found at a new place
    warnings: tuple[Failure, ...] = ()  # indexed, but something is odd (a truncated file, guessed times)
    timings: Timings = field(default_factory=Timings)
    linked: tuple[Path, ...] = ()  # links to folders, which are not entered where they are met below another
    notice: str | None = None  # one line: an encoder stands in for the default, or the sampling has changed


@dataclass(frozen=True)
class Progress:
    """One step of an indexing run, for a progress display."""

    path: Path
    state: str  # encoding, done, skipped, moved, copied, failed
    position: int  # files dealt with so far
    total: int
    done_s: float = 0.0  # seconds of this video encoded so far
    duration_s: float = 0.0
    reason: str = ""


ProgressCallback = Callable[[Progress], None]  # called with every step, from the thread that called `index`


class Outcome:
    """The report as it grows, told to the progress display step by step."""

    def __init__(self, total: int, progress: ProgressCallback | None):
        self._total, self._progress = total, progress
        self._done: list[Path] = []
        self._skipped: list[Path] = []
        self._moved: list[Path] = []
        self._failed: list[Failure] = []
        self._warnings: list[Failure] = []
        self._video_s = 0.0
        self.encode_s = 0.0
        self.write_s = 0.0

    def finish(self, record: VideoRecord) -> None:
        """A video was encoded and is in the index."""
        self._done.append(Path(record.path))
        self._video_s += record.duration_s
        if record.warnings:
            self._warnings.append(Failure(Path(record.path), record.warnings))
        self.tell(Path(record.path), "done", done_s=record.duration_s, duration_s=record.duration_s)

    def skip(self, path: Path, state: Literal["skipped", "moved", "copied"] = "skipped") -> None:
        """The index knows the content of a file, which was there, has moved there, or is a copy of another file."""
        self._skipped.append(path)
        if state == "moved":
            self._moved.append(path)
        self.tell(path, state)

    def fail(self, failure: Failure) -> None:
        """A file cannot be used."""
        self._failed.append(failure)
        self.tell(failure.path, "failed", reason=failure.reason)

    def tell(self, path: Path, state: str, *, done_s: float = 0.0, duration_s: float = 0.0, reason: str = "") -> None:
        """Show one step, where somebody looks."""
        if self._progress is not None:
            position = len(self._done) + len(self._skipped) + len(self._failed)
            self._progress(Progress(path, state, position, self._total, done_s, duration_s, reason))

    def report(self, *, wall_s: float, decode_s: float) -> IndexReport:
        """What became of every file, at the end."""
        timings = Timings(wall_s, decode_s, self.encode_s, self.write_s, self._video_s)
        return IndexReport(
            tuple(self._done),
            tuple(self._skipped),
            tuple(self._failed),
            moved=tuple(self._moved),
            warnings=tuple(self._warnings),
            timings=timings,
        )
