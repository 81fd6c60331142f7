"""The passages of one version of a library, which can be found by words and by vectors.

`PassagesView` belongs to a `View`. It has one corpus with the vectors of spoken passages and one corpus with the
vectors of written passages. Like a `FrameCorpus`, both use cached blocks and codes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from untrimmed.moments.clearest import SpanSettings
from untrimmed.passages.passage import TEXT_MODES, TextMode
from untrimmed.search.corpora.best_vector import TIMES, VECTORS, BestVectorCorpus, VectorVideo
from untrimmed.search.store.passages import PassageTable, old_words_warnings
from untrimmed.search.store.readings import StoredReading
from untrimmed.search.store.records import Records
from untrimmed.search.store.table import StoredVideo
from untrimmed.types import FrameFeatures

if TYPE_CHECKING:
    from untrimmed.search.store.records import VideoRecord


PLACES = "places"  # array with the number of each passage in its reading, plus 2^32 times the index of the reading


class PassageCorpus(BestVectorCorpus):
    """The vectors of the passages of all videos in one mode. The score of a video is the score of its best passage.

    The vectors of a video are in the order of its passages, which are sorted by time, reading and number.
    """

    def __init__(self, mode: TextMode):
        self.mode = mode
        super().__init__(SpanSettings())

    @property
    def block_format(self) -> str:
        """The name of the format.

        It contains a version number, which must be increased whenever the format of the arrays changes.
        """
        return f"passages-{self.mode} 2"

    def vector_video(self, stored: StoredVideo) -> VectorVideo:
        """Return the vectors of a video's passages. Their times are the starts of the passages."""
        features = stored.features
        vectors = np.asarray(features.vectors, dtype=np.float16)
        places = np.frombuffer(stored.encoded, dtype=np.int64)
        arrays = {VECTORS: vectors, TIMES: features.times_s, PLACES: places}
        return VectorVideo(stored.record.video_id, features.duration_s, vectors.shape[1], arrays)

    def spans(self, video: VectorVideo) -> Int[np.ndarray, "N 2"]:
        """Return no spans: a moment is the span of a passage, which the table stores."""
        return np.empty((0, 2), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class PassagesView:
    """The passages of one version of a library, without the passages of videos that were removed or have changed."""

    table: PassageTable
    stored_readings: Sequence[StoredReading]
    records: Records
    encoder: str  # identity of the encoder of queries; only vectors of this encoder are used
    load_corpus: Callable[[PassagesView, TextMode], PassageCorpus]

    @cached_property
    def readings(self) -> dict[str, list[StoredReading]]:
        """The valid readings of each video, by video id."""
        by_video: dict[str, list[StoredReading]] = {}
        contents = {record.video_id: record.content_hash for record in self.records}
        for reading in self.stored_readings:
            if contents.get(reading.video_id) == reading.content_hash:
                by_video.setdefault(reading.video_id, []).append(reading)
        return by_video

    @cached_property
    def modes(self) -> frozenset[TextMode]:
        """The modes that at least one passage has."""
        return frozenset(reading.mode for reading in self._all_readings() if reading.num_passages)

    @cached_property
    def valid_readings(self) -> frozenset[str]:
        """The ids of valid readings."""
        return frozenset(reading.reading_id for reading in self._all_readings())

    @cached_property
    def warnings(self) -> Sequence[str]:
        """A warning if searches may miss words, because another version of untrimmed indexed them."""
        return old_words_warnings(self._all_readings())

    def _all_readings(self) -> Iterator[StoredReading]:
        return itertools.chain.from_iterable(self.readings.values())

    def corpus(self, mode: TextMode) -> PassageCorpus:
        """Return the vectors of all passages in this mode."""
        return self.load_corpus(self, mode)

    @cached_property
    def _vectors(self) -> dict[TextMode, tuple[Records, dict[str, list[str]]]]:
        """For each mode, the records of videos, and the ids of each video's readings with vectors of `encoder`.

        A record changes whenever the vectors of its video change.
        """
        result: dict[TextMode, tuple[Records, dict[str, list[str]]]] = {}
        for mode in TEXT_MODES:
            records: list[VideoRecord] = []
            ids: dict[str, list[str]] = {}
            for video_id, readings in self.readings.items():
                used = [reading for reading in readings if (reading.mode, reading.encoder) == (mode, self.encoder)]
                if count := sum(reading.num_passages for reading in used):
                    ids[video_id] = sorted(reading.reading_id for reading in used)
                    content = " ".join(ids[video_id])
                    records.append(replace(self.records.of(video_id), content_hash=content, num_frames=count))
            result[mode] = Records(records), ids
        return result

    def vector_records(self, mode: TextMode) -> Records:
        """Return a record for each video with passages in this mode.

        A record changes with the vectors of the passages.
        """
        return self._vectors[mode][0]

    def read_vectors(self, video_ids: Sequence[str], mode: TextMode) -> Iterator[StoredVideo]:
        """Yield each of these videos with its passages in place of frames: one vector and start time per passage.

        Videos without vectors of passages are left out. The field `encoded` contains the array `PLACES`.
        """
        records, ids = self._vectors[mode]
        for start in range(0, len(video_ids), 64):
            rows = self.table.vectors(video_ids[start : start + 64], mode)
            for video_id, group in itertools.groupby(rows, key=itemgetter(0)):
                index = {reading_id: number for number, reading_id in enumerate(ids[video_id])}
                vectors = bytearray()  # grows in place, so that a video with many passages is not copied
                times_s: list[float] = []
                places: list[int] = []
                for _, reading_id, number, start_s, vector in group:
                    if reading_id in index:
                        vectors += vector
                        times_s.append(start_s)
                        places.append((index[reading_id] << 32) + number)
                if places:
                    record = records.of(video_id)
                    rows_of_video = np.frombuffer(vectors, dtype=np.float16).reshape(len(places), -1)
                    features = FrameFeatures(rows_of_video, np.array(times_s), record.duration_s)
                    yield StoredVideo(record, features, np.array(places, dtype=np.int64).tobytes())

    def places(self, corpus: PassageCorpus, video_id: str) -> list[tuple[str, int]]:
        """Return the reading and number of each passage of a video, in the order of the passages' vectors."""
        ids = self._vectors[corpus.mode][1][video_id]
        return [(ids[place >> 32], place & 0xFFFFFFFF) for place in corpus.video(video_id).arrays[PLACES].tolist()]
