"""Files in, rows out: which videos need work, and the pipeline that does it.

One thread hashes and decodes (in the reader's child process), the calling thread encodes and commits; a small bounded
queue joins them, so memory stays flat however long or many the videos are.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Literal

import numpy as np

from untrimmed.encoders.encoder import Encoder
from untrimmed.errors import FeatureError, shown
from untrimmed.search.corpora.corpus import SearchModel
from untrimmed.search.indexing.video_files import (
    Decoded,
    DecodedFile,
    EncodedFile,
    Failure,
    FoundFile,
    KnownFile,
    StartedFile,
    Workers,
    decode,
)
from untrimmed.search.store.records import Settings, VideoRecord
from untrimmed.search.store.table import StoredVideo, VideoIndex, new_video_id
from untrimmed.video.reader import FrameBatch, VideoReader

_QUEUED_BATCHES = 8


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
        self.decode_s = 0.0
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

    def report(self, *, wall_s: float) -> IndexReport:
        """What became of every file, at the end."""
        timings = Timings(wall_s, self.decode_s, self.encode_s, self.write_s, self._video_s)
        return IndexReport(
            tuple(self._done),
            tuple(self._skipped),
            tuple(self._failed),
            moved=tuple(self._moved),
            warnings=tuple(self._warnings),
            timings=timings,
        )


_Step = Decoded | EncodedFile


class Indexer:
    """Brings an index up to date with files; the caller holds the index for writing."""

    def __init__(
        self,
        index: VideoIndex,
        encoder: Encoder,
        reader: VideoReader,
        settings: Settings,
        model: SearchModel,
    ):
        self._index, self._encoder, self._reader = index, encoder, reader
        self._model, self._own = settings.model, model
        self._sampling = settings.sampling
        # What the index holds, kept by the calling thread; the decoding thread only looks paths up, its own before
        # they change, and runs ahead: it counts by itself which contents will be there when a file's turn comes.
        self._by_path = {record.path: record for record in index.scan()}
        self._by_hash: dict[str, dict[str, VideoRecord]] = {}  # content -> id -> record, of this sampling
        for record in self._by_path.values():
            self._learn(record)
        self._copies = Counter({digest: len(records) for digest, records in self._by_hash.items()})
        self._stop = Event()

    def run(
        self, paths: Sequence[Path], progress: ProgressCallback | None = None, workers: Workers | None = None
    ) -> IndexReport:
        """Index files; one that cannot be used is reported and costs no other.

        With `workers` these decode and encode. This process alone decides what is known, and commits.
        """
        started = time.perf_counter()
        self._outcome = Outcome(len(paths), progress)
        # New places first: what moved away from a path that holds another file by now is still known then.
        new_first = sorted(paths, key=lambda path: str(path) in self._by_path)
        files = [KnownFile(path, self._by_path.get(str(path))) for path in new_first]
        with contextlib.closing(self._decoded(files) if workers is None else self._encoded(files, workers)) as steps:
            for step in steps:
                self._take(step)
        return self._outcome.report(wall_s=time.perf_counter() - started)

    def _encoded(self, files: Sequence[KnownFile], workers: Workers) -> Generator[_Step]:
        """Yield what workers make of files."""
        digests = frozenset(digest for digest, records in self._by_hash.items() if records)
        again: list[KnownFile] = []  # their content was known until the only file that had it was found changed
        for step in workers.encode(files, digests):
            if isinstance(step, FoundFile) and not self._by_hash.get(step.digest):
                again.append(KnownFile(step.path, None))
            else:
                yield step
        yield from workers.encode(again, frozenset())

    def _decoded(self, files: Sequence[KnownFile]) -> Generator[_Step]:
        """Yield what the decoding thread makes of files."""
        steps: queue.Queue[_Step | BaseException | None] = queue.Queue(_QUEUED_BATCHES)
        thread = threading.Thread(target=self._decode, args=(files, steps), daemon=True)
        thread.start()
        try:
            while (step := steps.get()) is not None:
                if isinstance(step, BaseException):
                    raise step
                yield step
        finally:
            self._stop.set()
            while thread.is_alive():
                with contextlib.suppress(queue.Empty):
                    while True:  # it may be waiting for room
                        steps.get_nowait()
                thread.join(0.05)

    # -- the decoding thread

    def _decode(self, files: Sequence[KnownFile], steps: queue.Queue[_Step | BaseException | None]) -> None:
        last: BaseException | None = None
        try:
            for file in files:
                is_known = partial(self._is_known, file.record)
                for step in decode(file, self._sampling, self._reader.read, is_known, self._stop):
                    if isinstance(step, DecodedFile):
                        self._copies[step.file.digest] += 1
                    steps.put(step)
                    if self._stop.is_set():
                        return
        except BaseException as error:
            last = error  # a bug: raised again in the calling thread
        finally:
            if last is not None:
                steps.put(last)
            steps.put(None)

    def _is_known(self, known: VideoRecord | None, file: FoundFile) -> bool:
        """Whether the content of a file will be there at its turn; `known` is what the library has at its path."""
        if known is not None and known.sampling == self._sampling and file.digest != known.content_hash:
            self._copies[known.content_hash] -= 1  # its row is about to hold this file
        return self._copies[file.digest] > 0

    # -- the calling thread

    def _take(self, step: _Step) -> None:
        outcome = self._outcome
        match step:
            case StartedFile():
                self._started = step
                outcome.tell(step.file.path, "encoding", duration_s=step.stream.info.duration_s)
            case FrameBatch():
                file, stream = self._started.file, self._started.stream
                self._started.encode(step, self._encoder)
                done_s = float(step.times_s[-1])
                outcome.tell(file.path, "encoding", done_s=done_s, duration_s=stream.info.duration_s)
            case DecodedFile():
                self._commit(self._started.finish())
            case EncodedFile() if self._by_hash.get(step.file.digest):  # a copy was done meanwhile
                self._settle(step.file)
            case EncodedFile():
                self._commit(step)
            case FoundFile():
                self._settle(step)
            case Failure():
                outcome.fail(step)

    def _commit(self, video: EncodedFile) -> None:
        file, features = video.file, video.features
        self._outcome.decode_s += video.decode_s
        self._outcome.encode_s += video.encode_s
        if not np.isfinite(features.vectors).all():
            reason = f"{shown(file.path)}: the encoder gave numbers that are not finite"
            self._outcome.fail(Failure(file.path, reason))
            return
        started = time.perf_counter()
        replaced = self._by_path.get(str(file.path))
        record = VideoRecord(
            video_id=replaced.video_id if replaced else new_video_id(),
            path=str(file.path),
            content_hash=file.digest,
            size=file.size,
            mtime_ns=file.mtime_ns,
            duration_s=features.duration_s,
            width=video.width,
            height=video.height,
            num_frames=len(features.vectors),
            sampling=self._sampling,
            encoder_identity=self._encoder.identity,
            model=self._model,
            indexed_at=time.time(),
            warnings="; ".join(video.warnings),
        )
        stored = StoredVideo(record, features)
        try:
            self._index.put(replace(stored, encoded=encoded_by(self._own, stored)))
        except FeatureError as error:
            self._outcome.fail(Failure(file.path, str(error)))
            return
        self._remember(record)
        self._outcome.write_s += time.perf_counter() - started
        self._outcome.finish(record)

    def _settle(self, file: FoundFile) -> None:
        """A file whose content is known: unchanged, touched, moved here, or a copy."""
        here = self._by_path.get(str(file.path))
        if here is not None and here.sampling == self._sampling and file.digest == here.content_hash:
            if (here.size, here.mtime_ns) != (file.size, file.mtime_ns):
                self._remember(self._index.relocate(here, path=file.path, size=file.size, mtime_ns=file.mtime_ns))
            self._outcome.skip(file.path)
            return
        twins = self._by_hash.get(file.digest, {}).values()
        known = min(twins, key=lambda record: os.path.lexists(record.path), default=None)  # rather one that moved here
        if known is None:  # its twin earlier in this run could not be indexed
            reason = f"{shown(file.path)}: has the same content as a file that failed before it"
            self._outcome.fail(Failure(file.path, reason))
        elif here is None and not os.path.lexists(known.path):
            del self._by_path[known.path]
            self._remember(self._index.relocate(known, path=file.path, size=file.size, mtime_ns=file.mtime_ns))
            self._outcome.skip(file.path, "moved")
        else:
            self._copy(known, file, video_id=here.video_id if here else new_video_id())

    def _copy(self, known: VideoRecord, file: FoundFile, *, video_id: str) -> None:
        stored = self._index.get(known.video_id)
        assert stored is not None, "the writer's lock is held, so a known record stays"
        record = replace(
            known,
            video_id=video_id,
            path=str(file.path),
            size=file.size,
            mtime_ns=file.mtime_ns,
            indexed_at=time.time(),
        )
        self._index.put(replace(stored, record=record))
        self._remember(record)
        self._outcome.skip(file.path, "copied")

    def _remember(self, record: VideoRecord) -> None:
        if (before := self._by_path.get(record.path)) is not None:  # its content may be another one now
            self._by_hash.get(before.content_hash, {}).pop(before.video_id, None)
        self._by_path[record.path] = record
        self._learn(record)

    def _learn(self, record: VideoRecord) -> None:
        if record.sampling == self._sampling:
            self._by_hash.setdefault(record.content_hash, {})[record.video_id] = record


def encoded_by(model: SearchModel, video: StoredVideo) -> bytes:
    """What a model makes of a stored video.

    Raises: FeatureError, naming the video.
    """
    try:
        return model.encode_video(video.features)
    except FeatureError as error:
        raise FeatureError(f"{shown(Path(video.record.path))}: {error}") from error
