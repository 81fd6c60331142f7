"""Index files: recognise known files, decode and encode other files, and commit each video to the table.

A decoding thread hashes files and requests frames from a child process. The calling thread encodes and commits. A short
queue connects the threads, so memory use does not grow with the length or number of videos.
"""

import contextlib
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Literal

import numpy as np

from untrimmed.encoders.encoder import Encoder
from untrimmed.errors import FeatureError, names_file_beside, shown
from untrimmed.search.corpora.corpus import SearchModel
from untrimmed.search.indexing.estimate import Estimate
from untrimmed.search.indexing.video_files import (
    DecodingStep,
    EncodedFile,
    EndOfFrames,
    Failure,
    FileToIndex,
    HashedFile,
    StartedFile,
    Workers,
    decode,
)
from untrimmed.search.store.records import Settings, VideoRecord
from untrimmed.search.store.table import StoredVideo, VideoIndex, new_video_id
from untrimmed.search.store.thumbnails import thumbnails_file, write_thumbnails
from untrimmed.video.reader import FrameBatch, TimingReader, VideoReader
from untrimmed.video.thumbnails import ThumbnailMaker

_QUEUED_BATCHES = 8


@dataclass
class Timings:
    """Times of an indexing run. Decoding and encoding overlap, so their sum may exceed `wall_s`."""

    wall_s: float = 0.0
    decode_s: float = 0.0
    encode_s: float = 0.0
    write_s: float = 0.0
    video_s: float = 0.0  # duration of the encoded videos

    @property
    def speed(self) -> float:
        """Seconds of encoded video per second of wall time."""
        return self.video_s / self.wall_s if self.wall_s > 0 else 0.0


@dataclass
class IndexReport:
    """The result for each file: `done` (encoded), `skipped` (its content is unchanged, moved or copied) or `failed`."""

    done: list[Path] = field(default_factory=list)
    skipped: list[Path] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    moved: list[Path] = field(default_factory=list)  # files in `skipped` that have a new path
    thumbnails: list[Path] = field(default_factory=list)  # known files whose missing thumbnails were added
    # number of passages that were read, also from changed files, by source
    passages: dict[str, int] = field(default_factory=dict)
    # number of earlier passages that the sources do not find any more, by source
    removed_passages: dict[str, int] = field(default_factory=dict)
    # problems of indexed files, such as truncated files or estimated times
    warnings: list[Failure] = field(default_factory=list)
    timings: Timings = field(default_factory=Timings)
    linked: tuple[Path, ...] = ()  # links to folders, which were not followed
    notice: str | None = None  # one line if `builtin` replaces the default encoder, or the sampling has changed


@dataclass(frozen=True)
class Progress:
    """A step of an indexing run, for a progress display."""

    path: Path
    # "encoding", "done", "skipped", "moved", "copied" or "failed"; then "thumbnails" if thumbnails were added; then
    # "reading" and "passages" for each source of passages that reads the file
    state: str
    position: int  # number of finished files
    total: int
    done_s: float = 0.0  # seconds of this video that are already encoded
    duration_s: float = 0.0
    reason: str = ""
    video_s: float = 0.0  # seconds of video that the run has encoded
    speed: float | None = None  # seconds of video encoded per second; None at first
    remaining_s: float | None = None  # estimated time until the end of the run; None at first
    source: str = ""  # name of the source of passages
    passages: int = 0  # number of passages that were read


# Called with each step, in the thread that called `index`. While the callback waits, indexing is paused.
ProgressCallback = Callable[[Progress], None]
_Step = DecodingStep | EncodedFile


class Indexer:
    """Brings a library's table up to date with files. The caller must have opened the table for writing."""

    def __init__(
        self, index: VideoIndex, encoder: Encoder, reader: VideoReader, settings: Settings, model: SearchModel
    ):
        self._index = index
        self._encoder = encoder
        self._reader = reader
        self._model = model
        self._sampling = settings.sampling
        self._fps = settings.fps
        self._with_thumbnails = settings.thumbnails
        # The calling thread updates `_by_path` and `_by_hash`. The decoding thread is ahead of it. So the decoding
        # thread predicts in `_copies` how many records will have a given content when the calling thread reaches the
        # same file.
        self._by_path = {record.path: record for record in index.scan()}
        # records with the current sampling, by content hash, then by id
        self._by_hash: dict[str, dict[str, VideoRecord]] = {}
        for record in self._by_path.values():
            self._add_content(record)
        self._copies = Counter({digest: len(records) for digest, records in self._by_hash.items()})
        self._stop = Event()

    def run(
        self,
        paths: Sequence[Path],
        progress: ProgressCallback | None = None,
        workers: Workers | None = None,
        pictures_fps: float | None = None,
        *,
        add_thumbnails: bool = False,
    ) -> IndexReport:
        """Index files, and return the report. A file that cannot be used does not affect the others.

        Args:
            workers: Decode and encode the files. If they are given, this process only recognises known files, and
                commits the results.
            pictures_fps: The frame rate of folders of pictures.
            add_thumbnails: Whether to decode known files again if they have no thumbnails. Their frames are not
                encoded again.
        """
        started = time.perf_counter()
        self._report = IndexReport()
        self._total = len(paths)
        self._pictures_fps = pictures_fps
        self._progress = progress
        self._estimate = Estimate(self._sizes_to_encode(paths))
        # New paths come first, to recognise moved files. Otherwise a new file at the old path of a moved file would
        # replace the record of the moved file.
        new_first = sorted(paths, key=lambda path: str(path) in self._by_path)
        files = [FileToIndex(path, self._by_path.get(str(path)), pictures_fps) for path in new_first]
        steps = self._decoding_steps(files) if workers is None else self._worker_steps(files, workers)
        with contextlib.closing(steps), TimingReader() as self._timing_reader:
            for step in steps:
                self._handle(step)
        if add_thumbnails:
            for path in paths:
                self._add_missing_thumbnails(path)
        self._report.timings.wall_s = time.perf_counter() - started
        return self._report

    def _sizes_to_encode(self, paths: Sequence[Path]) -> dict[Path, int]:
        """Return the sizes of files that will probably be encoded: new files, and files with another sampling.

        Changed files are not included, because they are only found by their hashes.
        """
        sizes = {}
        for path in paths:
            record = self._by_path.get(str(path))
            if record is None:
                with contextlib.suppress(OSError):  # the error is reported when the file is indexed
                    sizes[path] = path.stat().st_size
            elif record.sampling != self._sampling:
                sizes[path] = record.size
        return sizes

    def _worker_steps(self, files: Sequence[FileToIndex], workers: Workers) -> Generator[_Step]:
        """Yield the steps that the workers return."""
        digests = frozenset(digest for digest, records in self._by_hash.items() if records)
        # Workers skip files with known content. If the content has been removed since, the file is encoded here.
        unknown: list[FileToIndex] = []
        for step in workers(files, digests):
            if isinstance(step, HashedFile) and not self._by_hash.get(step.digest):
                unknown.append(FileToIndex(step.path, None, self._pictures_fps))
            else:
                yield step
        yield from workers(unknown, frozenset())

    def _decoding_steps(self, files: Sequence[FileToIndex]) -> Generator[_Step]:
        """Yield the steps of the decoding thread, and stop it when the caller stops."""
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
                    while True:  # the thread may be waiting for space in the queue
                        steps.get_nowait()
                thread.join(0.05)

    # -- the decoding thread

    def _decode(self, files: Sequence[FileToIndex], steps: queue.Queue[_Step | BaseException | None]) -> None:
        try:
            for file in files:
                is_known = partial(self._will_be_known, file.record)
                steps_of_file = decode(
                    file,
                    self._sampling,
                    self._reader.read,
                    is_known,
                    self._stop,
                    with_thumbnails=self._with_thumbnails,
                )
                for step in steps_of_file:
                    if isinstance(step, EndOfFrames):
                        self._copies[step.file.digest] += 1
                    steps.put(step)
                    if self._stop.is_set():
                        return
            steps.put(None)
        except BaseException as error:
            steps.put(error)  # the calling thread raises it again

    def _will_be_known(self, record: VideoRecord | None, file: HashedFile) -> bool:
        """Return whether the table will have this content when the calling thread reaches the file."""
        if record is not None and record.sampling == self._sampling and file.digest != record.content_hash:
            self._copies[record.content_hash] -= 1  # because this file will replace the record
        return self._copies[file.digest] > 0

    # -- the calling thread

    def _handle(self, step: _Step) -> None:
        match step:
            case StartedFile():
                self._started = step
                self._notify_encoding(0.0)
            case FrameBatch():
                self._started.encode(step, self._encoder, self._fps)
                self._notify_encoding(float(step.times_s[-1]))
            case EndOfFrames():
                self._commit(self._started.finish())
            case EncodedFile() if self._by_hash.get(step.file.digest):  # another worker has encoded a copy
                self._record_known(step.file)
            case EncodedFile():
                self._commit(step)
            case HashedFile():
                self._record_known(step)
            case Failure():
                self._fail(step.path, step.reason)

    def _notify_encoding(self, done_s: float) -> None:
        file = self._started.file
        duration_s = self._started.stream.info.duration_s
        self._estimate.encode(file.path, file.size, done_s, duration_s)
        self._notify(file.path, "encoding", done_s=done_s, duration_s=duration_s)

    def _skip(self, path: Path, state: Literal["skipped", "moved", "copied"] = "skipped") -> None:
        self._report.skipped.append(path)
        if state == "moved":
            self._report.moved.append(path)
        self._notify(path, state)

    def _fail(self, path: Path, reason: str) -> None:
        self._report.failed.append(Failure(path, reason))
        self._notify(path, "failed", reason=reason)

    def _notify(
        self, path: Path, state: str, *, done_s: float = 0.0, duration_s: float = 0.0, reason: str = ""
    ) -> None:
        """Report one step to the progress display, if there is one."""
        estimate = self._estimate
        if state not in ("encoding", "thumbnails"):
            estimate.finish(path)
        if self._progress is not None:
            position = len(self._report.done) + len(self._report.skipped) + len(self._report.failed)
            times_s = estimate.video_s, estimate.speed, estimate.remaining_s
            step = Progress(path, state, position, self._total, done_s, duration_s, reason, *times_s)
            with estimate.exclude():
                self._progress(step)

    def _commit(self, video: EncodedFile) -> None:
        path = video.file.path
        duration_s = video.features.duration_s
        self._estimate.encode(path, video.file.size, duration_s, duration_s)
        timings = self._report.timings
        timings.decode_s += video.decode_s
        timings.encode_s += video.encode_s
        if not np.isfinite(video.features.vectors).all():
            self._fail(path, f"{shown(path)}: the encoder returned numbers that are not finite")
            return
        started = time.perf_counter()
        record = self._new_record(video)
        stored = StoredVideo(record, video.features)
        try:
            stored = replace(stored, encoded=encode_with(self._model, stored))
            if video.thumbnails is not None:
                write_thumbnails(self._index.folder, record.content_hash, video.thumbnails)
            self._index.put(stored)
        except FeatureError as error:
            self._fail(path, str(error))
            return
        self._update_record(record)
        timings.write_s += time.perf_counter() - started
        timings.video_s += record.duration_s
        self._report.done.append(path)
        if record.warnings:
            self._report.warnings.append(Failure(path, record.warnings))
        self._notify(path, "done", done_s=record.duration_s, duration_s=record.duration_s)

    def _add_missing_thumbnails(self, path: Path) -> None:
        record = self._by_path.get(str(path))
        if record is None or thumbnails_file(self._index.folder, record.content_hash).is_file():
            return
        maker = ThumbnailMaker()
        file = HashedFile(path, record.size, record.mtime_ns, record.content_hash)
        try:
            file.require_unchanged()
            for batch in self._reader.read(path, self._pictures_fps):
                maker.add(batch.times_s, batch.frames)
                self._notify(path, "encoding", done_s=float(batch.times_s[-1]), duration_s=record.duration_s)
            file.require_unchanged()
        except (FeatureError, OSError) as error:  # only the thumbnails failed; the video was indexed earlier
            self._report.warnings.append(Failure(path, f"its thumbnails cannot be made ({error})"))
            return
        write_thumbnails(self._index.folder, record.content_hash, maker.finish())
        self._report.thumbnails.append(path)
        self._notify(path, "thumbnails")

    def read_passages(
        self, paths: Sequence[Path], sources: Mapping[str, Mapping[str, Any]], again: Collection[str]
    ) -> None:
        """Read the missing and outdated passages of files that `run` has indexed.

        The sources in `again` also read passages that were removed.
        """
        from untrimmed.search.indexing.passages import PassageReader, PassageStep

        report = self._report
        about_files: set[str] = set()  # warnings that several videos can have

        def on_step(step: PassageStep) -> None:
            path = Path(step.record.path)
            # sources may find the damage that the record of the video already lists
            known = step.record.warnings
            lines = [line for line in step.warnings if line not in known and line not in about_files]
            report.warnings += [Failure(path, line) for line in lines]
            about_files.update(line for line in lines if names_file_beside(path, line))
            if step.failure:
                reason = step.failure.removeprefix(f"{shown(path)}: ")
                report.warnings.append(Failure(path, f"the text source {step.source!r} cannot be read ({reason})"))
            elif step.passages is not None:
                report.passages[step.source] = report.passages.get(step.source, 0) + step.passages
                if step.removed:
                    removed = report.removed_passages
                    removed[step.source] = removed.get(step.source, 0) + step.removed
            if self._progress is not None and not step.failure:
                self._progress(
                    Progress(
                        path,
                        "reading" if step.passages is None else "passages",
                        self._total,
                        self._total,
                        step.done_s,
                        step.record.duration_s,
                        video_s=self._estimate.video_s,
                        source=step.source,
                        passages=step.passages or 0,
                    )
                )

        started = time.perf_counter()
        reader = PassageReader(self._index, self._encoder, sources, on_step, self._reader, again)
        reader.table.keep({record.video_id for record in self._by_path.values()})
        reader.read([self._by_path[str(path)] for path in paths if str(path) in self._by_path])
        report.timings.wall_s += time.perf_counter() - started

    def _new_record(self, video: EncodedFile) -> VideoRecord:
        file = video.file
        replaced = self._by_path.get(str(file.path))
        return VideoRecord(
            video_id=replaced.video_id if replaced else new_video_id(),
            path=str(file.path),
            content_hash=file.digest,
            size=file.size,
            mtime_ns=file.mtime_ns,
            duration_s=video.features.duration_s,
            width=video.width,
            height=video.height,
            num_frames=len(video.features.vectors),
            sampling=self._sampling,
            encoder_identity=self._encoder.identity,
            model=self._model.identity,
            indexed_at=time.time(),
            warnings="; ".join(video.warnings),
            **video.timing.stored,
        )

    def _record_known(self, file: HashedFile) -> None:
        """Record a file with known content: it is unchanged or moved, has a new modification time, or is a copy."""
        record = self._by_path.get(str(file.path))
        if record is not None and record.sampling == self._sampling and file.digest == record.content_hash:
            if (record.size, record.mtime_ns) != (file.size, file.mtime_ns):
                self._relocate(record, file)
            self._measure_timing(file)
            self._skip(file.path)
            return
        copies = self._by_hash.get(file.digest, {}).values()
        # prefer a record whose path no longer exists, because that file was moved
        copy = min(copies, key=lambda record: os.path.lexists(record.path), default=None)
        if copy is None:  # the first file with this content failed, so there is nothing to copy
            self._fail(file.path, f"{shown(file.path)}: has the same content as a file that failed before it")
        elif record is None and not os.path.lexists(copy.path):
            del self._by_path[copy.path]
            self._relocate(copy, file)
            self._measure_timing(file)
            self._skip(file.path, "moved")
        else:
            self._copy_from(copy, file, video_id=record.video_id if record else new_video_id())

    def _relocate(self, record: VideoRecord, file: HashedFile) -> None:
        self._update_record(self._index.relocate(record, path=file.path, size=file.size, mtime_ns=file.mtime_ns))

    def _measure_timing(self, file: HashedFile) -> None:
        """Add the timing to the record of a file that was indexed before timing was stored."""
        record = self._by_path[str(file.path)]
        if record.timing is None and file.path.is_file():
            with contextlib.suppress(FeatureError):  # the file is damaged or has just been removed
                self._update_record(self._index.put_timing(record, self._timing_reader.read(file.path)))

    def _copy_from(self, copy: VideoRecord, file: HashedFile, *, video_id: str) -> None:
        stored = self._index.get(copy.video_id)
        assert stored is not None, "the writer's lock is held, so nobody else removes a known record"
        record = replace(
            copy,
            video_id=video_id,
            path=str(file.path),
            size=file.size,
            mtime_ns=file.mtime_ns,
            indexed_at=time.time(),
        )
        self._index.put(replace(stored, record=record))
        self._update_record(record)
        self._skip(file.path, "copied")

    def _update_record(self, record: VideoRecord) -> None:
        if (previous := self._by_path.get(record.path)) is not None:  # the content at this path may have changed
            self._by_hash.get(previous.content_hash, {}).pop(previous.video_id, None)
        self._by_path[record.path] = record
        self._add_content(record)

    def _add_content(self, record: VideoRecord) -> None:
        if record.sampling == self._sampling:
            self._by_hash.setdefault(record.content_hash, {})[record.video_id] = record


def encode_with(model: SearchModel, video: StoredVideo) -> bytes:
    """Return a model's encoding of a stored video. The message of a FeatureError begins with the path of the video."""
    try:
        return model.encode_video(video.features)
    except FeatureError as error:
        raise FeatureError(f"{shown(Path(video.record.path))}: {error}") from error
