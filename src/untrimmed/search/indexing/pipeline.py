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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event

import numpy as np

from untrimmed.encoders.encoder import Encoder
from untrimmed.errors import FeatureError, shown
from untrimmed.search.corpora.corpus import SearchModel
from untrimmed.search.indexing.encoded_file import EncodedFile, KnownFile, Workers
from untrimmed.search.indexing.report import Failure, IndexReport, Outcome, ProgressCallback
from untrimmed.search.indexing.video_files import FoundFile, recognise, why_unusable
from untrimmed.search.store.records import Settings, VideoRecord
from untrimmed.search.store.table import StoredVideo, VideoIndex, new_video_id
from untrimmed.types import FrameFeatures
from untrimmed.video.reader import FrameBatch, VideoReader, VideoStream

_QUEUED_BATCHES = 8


@dataclass(frozen=True)
class _Video:
    """The video whose frames are coming in."""

    file: FoundFile
    stream: VideoStream
    vectors: list[np.ndarray] = field(default_factory=list)
    times_s: list[np.ndarray] = field(default_factory=list)


@dataclass(frozen=True)
class _Ended:
    """All frames of the video that started last were handed over."""


# What the decoding thread hands over: a file whose content is in the index already, or in a file before this one; a
# video that starts; some of its frames; its end; one that was encoded elsewhere; a file that cannot be used.
_Step = FoundFile | _Video | FrameBatch | _Ended | EncodedFile | Failure


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
        self._decode_s = 0.0

    def run(self, paths: Sequence[Path], progress: ProgressCallback | None = None) -> IndexReport:
        """Index files; one that cannot be used is reported and costs no other."""
        started = time.perf_counter()
        self._outcome = Outcome(len(paths), progress)
        steps: queue.Queue[_Step | BaseException | None] = queue.Queue(_QUEUED_BATCHES)
        worker = threading.Thread(target=self._fill, args=(paths, steps), daemon=True)
        worker.start()
        try:
            while (step := steps.get()) is not None:
                if isinstance(step, BaseException):
                    raise step
                self._take(step)
        finally:
            self._stop.set()
            while worker.is_alive():
                with contextlib.suppress(queue.Empty):
                    while True:  # it may be waiting for room
                        steps.get_nowait()
                worker.join(0.05)
        return self._outcome.report(wall_s=time.perf_counter() - started, decode_s=self._decode_s)

    def run_on(self, workers: Workers, paths: Sequence[Path], progress: ProgressCallback | None = None) -> IndexReport:
        """`run`, where others encode: this process alone decides what is known, and commits."""
        started = time.perf_counter()
        self._outcome = Outcome(len(paths), progress)
        digests = frozenset(digest for digest, records in self._by_hash.items() if records)
        again: list[Path] = []  # their content was known until the only file that had it was found changed
        new_first = sorted(paths, key=lambda path: str(path) in self._by_path)
        for step in workers.encode((KnownFile(path, self._by_path.get(str(path))) for path in new_first), digests):
            if isinstance(step, FoundFile) and not self._by_hash.get(step.digest):
                again.append(step.path)
            else:
                self._take(step)
        for step in workers.encode((KnownFile(path, None) for path in again), frozenset()):
            self._take(step)
        return self._outcome.report(wall_s=time.perf_counter() - started, decode_s=self._decode_s)

    # -- the decoding thread

    def _fill(self, paths: Sequence[Path], steps: queue.Queue[_Step | BaseException | None]) -> None:
        last: BaseException | None = None
        try:
            # New places first: what moved away from a path that holds another file by now is still known then.
            for path in sorted(paths, key=lambda path: str(path) in self._by_path):
                for step in self._decode(path):
                    steps.put(step)
                    if self._stop.is_set():
                        return
        except BaseException as error:
            last = error  # a bug: raised again in the calling thread
        finally:
            if last is not None:
                steps.put(last)
            steps.put(None)

    def _decode(self, path: Path) -> Iterator[_Step]:
        started = time.perf_counter()
        try:
            file = self._recognise(path)
            if self._copies[file.digest]:
                yield file
                return
            stream = self._reader.read(path)
            yield _Video(file, stream)
            batches = iter(stream)
            while True:
                batch = next(batches, None)
                self._decode_s += time.perf_counter() - started
                if batch is None:
                    break
                yield batch
                started = time.perf_counter()
            file.require_unchanged()
            self._copies[file.digest] += 1
            yield _Ended()
        except (FeatureError, OSError) as error:
            yield Failure(path, why_unusable(path, error))

    def _recognise(self, path: Path) -> FoundFile:
        known = self._by_path.get(str(path))
        file = recognise(path, known, self._sampling, self._stop)
        if known is not None and known.sampling == self._sampling and file.digest != known.content_hash:
            self._copies[known.content_hash] -= 1  # its row is about to hold this file
        return file

    # -- the calling thread

    def _take(self, step: _Step) -> None:
        outcome = self._outcome
        match step:
            case _Video():
                self._video = step
                outcome.tell(step.file.path, "encoding", duration_s=step.stream.info.duration_s)
            case FrameBatch():
                started = time.perf_counter()
                self._video.vectors.append(self._encoder.encode_frames(step.frames).astype(np.float16))
                self._video.times_s.append(step.times_s)
                outcome.encode_s += time.perf_counter() - started
                duration_s = self._video.stream.info.duration_s
                outcome.tell(self._video.file.path, "encoding", done_s=float(step.times_s[-1]), duration_s=duration_s)
            case _Ended():
                stream = self._video.stream
                vectors, times_s = np.concatenate(self._video.vectors), np.concatenate(self._video.times_s)
                features = FrameFeatures(vectors, times_s, stream.duration_s)
                size = stream.info.width, stream.info.height
                self._commit(EncodedFile(self._video.file, features, *size, stream.warnings))
            case EncodedFile() if self._by_hash.get(step.file.digest):  # a copy was done meanwhile
                self._settle(step.file)
            case EncodedFile():
                self._decode_s += step.decode_s
                outcome.encode_s += step.encode_s
                self._commit(step)
            case FoundFile():
                self._settle(step)
            case Failure():
                outcome.fail(step)

    def _commit(self, video: EncodedFile) -> None:
        file, features = video.file, video.features
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
        try:
            encoded = self._own.encode_video(features)
        except FeatureError as error:
            self._outcome.fail(Failure(file.path, f"{shown(file.path)}: {error}"))
            return
        self._index.put(StoredVideo(record, features, encoded))
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
