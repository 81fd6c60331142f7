"""Read missing and outdated passages of indexed videos, and commit the readings."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from untrimmed.encoders.encoder import ClipEncoder, Encoder
from untrimmed.errors import FeatureError, counted, named
from untrimmed.passages.passage import Passage
from untrimmed.passages.sentences import Sentence, sentences_of
from untrimmed.passages.source import Media, PassageSource, ReadingReport, create_source
from untrimmed.passages.words import WORDS_VERSION
from untrimmed.search.corpora.frames import FrameCorpus
from untrimmed.search.store.passages import PassageTable, StoredPassage
from untrimmed.search.store.readings import StoredReading
from untrimmed.search.store.records import VideoRecord
from untrimmed.search.store.table import VideoIndex
from untrimmed.video.reader import VideoReader

_SENTENCES_AT_A_TIME = 256  # number of sentences that are encoded together
# Limits on the passages of a video, because a hostile file may have millions of subtitles. A film has about one every
# two seconds. A track may have `_MAX_PASSAGES`, plus `_MAX_PASSAGES_PER_S` for each second. All tracks of a source
# together may have `_MAX_PASSAGES_OF_SOURCE`, which bounds the memory of indexing and of searches.
_MAX_PASSAGES = 1000
_MAX_PASSAGES_PER_S = 20
_MAX_PASSAGES_OF_SOURCE = 100_000
# readings without passages are committed together, after this number of readings or this time
_EMPTY_READINGS = 256
_EMPTY_READINGS_S = 10.0


@dataclass(frozen=True)
class PassageStep:
    """Progress in reading the passages of a video.

    `done_s` is the number of seconds that have been read. `passages` is the number of passages, once the whole video
    has been read. Passages that were kept from an earlier reading are not counted.
    """

    record: VideoRecord
    source: str
    done_s: float = 0.0
    passages: int | None = None
    removed: int = 0  # by how many the number of passages decreased; 0 if it did not
    warnings: tuple[str, ...] = ()
    failure: str = ""


@dataclass
class PassageReader:
    """Reads the passages of the videos of a library. The caller must have opened the library for writing."""

    index: VideoIndex
    encoder: Encoder
    sources: Mapping[str, Mapping[str, Any]]  # settings by name of the source
    on_step: Callable[[PassageStep], None]
    decoder: VideoReader | None = None  # a running decoder, which sources may use
    again: Collection[str] = ()  # the sources that also read passages that were removed (`Library.remove_text`)
    table: PassageTable = field(init=False)

    def __post_init__(self) -> None:
        self.table = PassageTable(self.index.folder)
        self._empty: list[tuple[StoredReading, StoredReading | None]] = []  # each with the reading that it replaces
        self._emptied_at = time.monotonic()

    def read(self, records: Iterable[VideoRecord]) -> None:
        """Read the missing and outdated passages of these videos.

        Readings are committed during the run, so after an interruption only a few must be repeated. A video that cannot
        be read does not affect the others.

        Raises:
            UnknownNameError, ConfigError: A source or one of its settings does not exist.
            EncoderError: The model of a source is missing.
        """
        readings = self.table.update_words(self.table.readings())
        known = {(reading.video_id, reading.source): reading for reading in readings}
        with ExitStack() as stack:
            sources = [stack.enter_context(create_source(name, settings)) for name, settings in self.sources.items()]
            checked: set[str] = set()
            for record, source in itertools.product(records, sources):
                media = Media(Path(record.path), record.duration_s, partial(self._shot_starts_s, record), self.decoder)
                try:
                    reading = self._reading(record, source, media)
                    previous = known.get((record.video_id, source.name))
                    is_requested = previous is not None and previous.is_removed and source.name in self.again
                    if previous is not None and _state(previous) == _state(reading) and not is_requested:
                        if previous.unread:
                            warnings = tuple(previous.unread.split("\n"))
                            self.on_step(PassageStep(record, source.name, warnings=warnings))
                        continue
                    if source.name not in checked:
                        source.check()
                        checked.add(source.name)
                    self._read(record, source, media, reading, previous)
                except (FeatureError, OSError) as error:
                    problem = error.strerror or str(error) if isinstance(error, OSError) else str(error)
                    self.on_step(PassageStep(record, source.name, failure=problem))
            self._commit_empty()
        self.table.finish()

    def _commit_empty(self) -> None:
        replaced = [previous.reading_id for _, previous in self._empty if previous is not None]
        if self._empty:
            self.table.put_empty([reading for reading, _ in self._empty], replaced)
        self._empty.clear()
        self._emptied_at = time.monotonic()

    def _reading(self, record: VideoRecord, source: PassageSource, media: Media) -> StoredReading:
        """Return the reading that describes the current state of a video, without its passages."""
        encoder = "" if isinstance(self.encoder, ClipEncoder) else self.encoder.identity
        return StoredReading(
            record.video_id,
            source.name,
            source.mode,
            source.identity,
            encoder,
            record.content_hash,
            source.fingerprint(media),
            read_at=time.time(),
            words_version=WORDS_VERSION,
        )

    def _read(
        self,
        record: VideoRecord,
        source: PassageSource,
        media: Media,
        reading: StoredReading,
        previous: StoredReading | None,
    ) -> None:
        report = ReadingReport(lambda done_s: self.on_step(PassageStep(record, source.name, done_s)))

        def inside() -> Iterator[Passage]:
            counts: Counter[str] = Counter()  # the following are counted by track
            late: Counter[str] = Counter()
            excess: Counter[str] = Counter()
            beyond_all: Counter[str] = Counter()
            limit = _MAX_PASSAGES + round(_MAX_PASSAGES_PER_S * record.duration_s)
            room = _MAX_PASSAGES_OF_SOURCE
            for passage in source.read(media, report):
                if record.duration_s and passage.start_s >= record.duration_s:
                    late[passage.track] += 1
                elif counts[passage.track] == limit:
                    excess[passage.track] += 1
                elif not room:
                    beyond_all[passage.track] += 1
                else:
                    counts[passage.track] += 1
                    room -= 1
                    yield passage.until(record.duration_s) if record.duration_s else passage
            reasons = (
                (late, "after the end of the video"),
                (excess, f"beyond the limit of {limit:,} for a track of this length"),
                (beyond_all, f"beyond the limit of {_MAX_PASSAGES_OF_SOURCE:,} for a video"),
            )
            for left_out, reason in reasons:
                if left_out:
                    tracks = ": " + named(sorted(left_out)) if any(left_out) else ""
                    report.warn(f"left out {counted(left_out.total(), 'passage')} {reason} ({source.name}{tracks})")

        num_kept = 0  # passages of an earlier reading

        def sentences() -> Iterator[Sentence]:
            nonlocal num_kept
            yield from sentences_of(inside())
            if previous is not None and previous.content_hash == record.content_hash and report.unread:
                for match in self.table.read([record.video_id]):
                    if match.reading_id == previous.reading_id and match.sentence.passage.track in report.unread:
                        num_kept += 1
                        yield match.sentence

        passages = self._with_vectors(sentences(), report)
        if (first := next(passages, None)) is None:
            reading = reading.with_report(report)
            self._empty.append((reading, previous))
            if len(self._empty) == _EMPTY_READINGS or time.monotonic() - self._emptied_at > _EMPTY_READINGS_S:
                self._commit_empty()
        else:
            replaces = [] if previous is None else [previous.reading_id]
            reading = self.table.put(reading, itertools.chain([first], passages), report, replaces)
        count = reading.num_passages
        removed = 0 if previous is None else max(0, previous.num_passages - count)
        self.on_step(PassageStep(record, source.name, record.duration_s, count - num_kept, removed, reading.warnings))

    def _with_vectors(self, sentences: Iterator[Sentence], report: ReadingReport) -> Iterator[StoredPassage]:
        while batch := list(itertools.islice(sentences, _SENTENCES_AT_A_TIME)):
            report.progress(batch[0].passage.start_s)
            if isinstance(self.encoder, ClipEncoder):
                vectors: Sequence[np.ndarray] = [np.empty(0, np.float16)] * len(batch)
            else:
                texts = self.encoder.encode_texts([sentence.passage.text for sentence in batch])
                vectors = [text.sentence.astype(np.float16) for text in texts]
            yield from map(StoredPassage, batch, vectors)

    def _shot_starts_s(self, record: VideoRecord) -> list[float]:
        """Return the starts of the shots of a video, computed from its stored frames."""
        stored = self.index.get(record.video_id)
        if stored is None or isinstance(self.encoder, ClipEncoder):
            return [0.0]
        corpus = FrameCorpus().update([stored])
        video = corpus.video(record.video_id)
        starts = np.unique(corpus.spans_of(record.video_id)[:, 0])
        edges_s = (video.times_s[starts[1:]] + video.times_s[starts[1:] - 1]) / 2
        return [0.0, *edges_s.tolist()]


def _state(reading: StoredReading) -> tuple[str, ...]:
    """Return everything that a reading depends on. If it is unchanged, the video is not read again."""
    return reading.mode, reading.identity, reading.encoder, reading.content_hash, reading.fingerprint
