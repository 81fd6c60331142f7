"""The table of passages of a library: one row per sentence, and one row per reading.

A *reading* is everything that one source read from one video. It is added in one commit, so it is never incomplete.
A new reading of the same video and source replaces the old one: the next commit removes the old reading, which is
ignored until then. Each reading has one additional row with the number -1, which describes the reading. Because of this
row, a video without text is not read again. When a file is moved, its passages are kept. If the content of a file has
changed, its passages are ignored until the next indexing run replaces them.

Lance has two inverted indices of words: one for spoken passages and one for written passages. Rows of recent commits
are not in the indices yet, so Lance scans these rows in each search. The vectors are cached in the same way as frame
vectors (`untrimmed.search.corpora.passages`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import xxhash
from jaxtyping import Float16

from untrimmed.errors import IndexMismatchError, counted
from untrimmed.passages.passage import TEXT_MODES, Passage, TextMode, Word
from untrimmed.passages.sentences import Part, Sentence
from untrimmed.passages.words import WORDS_VERSION, TextQuery, indexed_text
from untrimmed.search.store.lance_table import LanceTable
from untrimmed.search.store.manifests import is_complete, manifests
from untrimmed.search.store.readings import StoredReading, new_reading_id, write_readings_copy
from untrimmed.search.store.records import PASSAGES, RESTORE, VideoRecord

if TYPE_CHECKING:
    import pyarrow as pa

    from untrimmed.passages.source import ReadingReport
    from untrimmed.search.store.lance import lance

_MARK = -1  # number of the row that describes a reading
_MANY_ROWS = 10_000  # if more rows are sorted, unused memory is returned to the system
_ROWS_AT_A_TIME = 1 << 14
# `content` has the other fields of a passage as JSON, because each further column adds to the time of a search
_COLUMNS = ["reading", "video_id", "number", "start_s", "content", "said", "written", "vector"]
_WITHOUT_VECTOR = ["reading", "video_id", "number", "start_s", "content"]
_WORDS = [field.name for field in fields(Passage)].index("words")
_DIGEST_SIZE = 8  # number of bytes of the digest that precedes the values of `content` and `vector`
_Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True, eq=False)
class StoredPassage:
    """A sentence of a video and its vector. The vector is empty if the encoder has no vectors of sentences."""

    sentence: Sentence
    vector: Float16[np.ndarray, " D"]


@dataclass(frozen=True, eq=False)
class PassageMatch:
    """A sentence of a video that contains words of a query, with its BM25 score."""

    video_id: str
    reading_id: str
    number: int
    sentence: Sentence
    score: float = 0.0


def old_words_warnings(readings: Iterable[StoredReading]) -> list[str]:
    """Return a warning if the words of passages were made by another version of `indexed_text`."""
    count = len({reading.video_id for reading in readings if _has_old_words(reading)})
    if not count:
        return []
    return [
        f"the text of {counted(count, 'video')} was indexed by another version of untrimmed, so searches may miss "
        "some of its words; run: untrimmed index FOLDER"
    ]


def _has_old_words(reading: StoredReading) -> bool:
    return reading.num_passages > 0 and reading.words_version != WORDS_VERSION


class PassageTable(LanceTable):
    """The passages of one library. It is empty in libraries that were indexed without passages.

    Writers hold the lock of the library (`VideoIndex`).
    """

    columns = (_COLUMNS,)
    without_commit = "to set this table of texts aside, run: untrimmed doctor --repair"
    rows_per_fragment = 1 << 20

    def __init__(self, folder: Path, *, follow: bool = True, version: int | None = None):
        super().__init__(folder, PASSAGES, follow=follow, version=version)

    def set_aside(self) -> Path | None:
        """Rename the folder of the table if all its commits are damaged, and return the new path.

        The next `index` then reads the texts again. Only for a library in a folder.
        """
        folder = self.folder / PASSAGES
        if self._options is not None or self.commit is None or any(map(is_complete, manifests(self._versions))):
            return None
        free = (self.folder / f"{PASSAGES}.damaged{number or ''}" for number in count())
        return folder.rename(next(path for path in free if not path.exists()))

    # -- reading

    def readings(self) -> list[StoredReading]:
        """Return the latest reading of each source and video, in any order."""
        table = self._open_table()
        if table is None:
            return []
        current = self._latest(table)
        if self._version is None:
            write_readings_copy(self.folder, table.version, current)
        return current

    def readings_of(self, record: VideoRecord) -> list[StoredReading]:
        """Return the latest reading of each source of a video, without readings of earlier contents of the file."""
        table = self._open_table()
        if table is None:
            return []
        latest = self._latest(table, f"video_id = {_literal(record.video_id)}")
        return [reading for reading in latest if reading.content_hash == record.content_hash]

    def _latest(self, table: Any, condition: str = "true") -> list[StoredReading]:
        """Return the latest reading of each source and video, among those that meet `condition`."""
        with self._guarded("read"):
            rows = table.to_table(columns=_WITHOUT_VECTOR, filter=f"number = {_MARK} AND {condition}")
        readings = [_reading(row, self._checked(row, "content")) for row in rows.to_pylist()]
        latest: dict[tuple[str, str], StoredReading] = {}
        for reading in sorted(readings, key=lambda reading: (reading.read_at, reading.reading_id)):
            latest[reading.video_id, reading.source] = reading
        return list(latest.values())

    def read(self, video_ids: Sequence[str]) -> Iterator[PassageMatch]:
        """Return all passages of these videos, sorted by video, then by time."""
        return map(self._match, self._rows(video_ids, _WITHOUT_VECTOR))

    def transcript(self, record: VideoRecord) -> list[tuple[TextMode, Passage]]:
        """Return the passages of a video as its sources read them, each with its mode, in time order.

        Equal passages of several tracks are returned once.
        """
        modes = {reading.reading_id: reading.mode for reading in self.readings_of(record)}
        passages = {
            (passage.start_s, passage.end_s, passage.source, passage.language, passage.text): (
                modes[match.reading_id],
                passage,
            )
            for match in self.read([record.video_id])
            if match.reading_id in modes
            for passage in match.sentence.passages
        }
        return sorted(passages.values(), key=lambda entry: (entry[1].start_s, entry[1].end_s))

    def vectors(self, video_ids: Sequence[str], mode: TextMode) -> Iterator[tuple[str, str, int, float, bytes]]:
        """Yield video, reading, number, start and vector (float16) of all passages with vectors, by video and time."""
        names = ["reading", "video_id", "number", "start_s", "vector"]
        for row in self._rows(video_ids, names, f"{mode} IS NOT NULL AND vector IS NOT NULL"):
            yield row["video_id"], row["reading"], row["number"], row["start_s"], self._checked(row, "vector")

    def passages_at(self, places: Collection[tuple[str, int]], video_ids: Sequence[str]) -> Iterator[PassageMatch]:
        """Yield the passages of these videos at these places. A place is a reading's id and a passage's number."""
        if not places:
            return
        numbers = ", ".join(sorted({str(number) for _, number in places}))
        for row in self._rows(video_ids, _WITHOUT_VECTOR, f"number IN ({numbers})"):
            if (row["reading"], row["number"]) in places:
                yield self._match(row)

    def _rows(self, video_ids: Sequence[str], names: Sequence[str], condition: str = "true") -> Iterator[_Row]:
        """Yield the rows of the passages of these videos, with columns `names`, sorted by video, then by time."""
        import pyarrow as pa
        import pyarrow.compute as pc

        table = self._open_table()
        if table is None:
            return
        for start in range(0, len(video_ids), 64):
            ids = ", ".join(_literal(video_id) for video_id in video_ids[start : start + 64])
            selection = f"video_id IN ({ids}) AND number > {_MARK}"
            with self._guarded("read"):
                rows = table.to_table(columns=list(names), filter=f"{selection} AND {condition}")
            keys = [(name, "ascending") for name in ("video_id", "start_s", "reading", "number")]
            order = pc.sort_indices(rows, sort_keys=keys)
            for first in range(0, len(order), 1024):  # without a sorted copy of all rows
                yield from rows.take(order.slice(first, 1024)).to_pylist()
            if len(rows) > _MANY_ROWS:
                del rows, order
                pa.default_memory_pool().release_unused()

    def search(
        self, query: TextQuery, mode: TextMode, *, limit: int, among: Collection[str] | None = None
    ) -> list[PassageMatch]:
        """Return the `limit` passages with the highest BM25 scores for the words of a query.

        Each passage contains all phrases of the query, and at least one of the query's words. If `among` is given, only
        videos with these ids are searched.
        """
        table = self._open_table()
        if table is None or not query.words or (among is not None and not among):
            return []
        condition = None if among is None else f"video_id IN ({', '.join(map(_literal, sorted(among)))})"
        with self._guarded("read"):
            rows = table.to_table(
                columns=[*_WITHOUT_VECTOR, "_score"],
                full_text_query=_full_text_query(query, mode),
                limit=limit,
                filter=condition,
                prefilter=condition is not None,
            )
        matches = [replace(self._match(row), score=row["_score"]) for row in rows.to_pylist()]
        return sorted(matches, key=lambda match: (-match.score, match.video_id, match.sentence.passage.start_s))

    def _match(self, row: _Row) -> PassageMatch:
        return PassageMatch(row["video_id"], row["reading"], row["number"], _sentence(self._checked(row, "content")))

    def _checked(self, row: _Row, column: str) -> bytes:
        """Return a column of a row without its digest. Raises IndexMismatchError if the digest is wrong."""
        if (value := _unsealed(row, column)) is None:
            raise IndexMismatchError(f"{self._name}: a passage is damaged; run: untrimmed doctor --repair")
        return value

    def damaged(self) -> list[StoredReading]:
        """Return the readings with a damaged passage or a wrong number of passages. This reads the whole table."""
        table = self._open_table()
        if table is None:
            return []
        counts: dict[str, int] = {}
        readings: dict[str, StoredReading] = {}
        damaged: set[str] = set()
        wrong_words: set[str] = set()
        video_of: dict[str, str] = {}
        without_vector: set[str] = set()
        with self._guarded("read"):
            for batch in table.to_batches(columns=_COLUMNS):
                for row in batch.to_pylist():
                    video_of[row["reading"]] = row["video_id"]
                    content = _unsealed(row, "content")
                    if content is None or (row["vector"] is not None and _unsealed(row, "vector") is None):
                        damaged.add(row["reading"])
                    elif row["number"] == _MARK:
                        readings[row["reading"]] = _reading(row, content)
                    else:
                        counts[row["reading"]] = counts.get(row["reading"], 0) + 1
                        words = indexed_text(_sentence(content).passage.text)
                        if [row[mode] for mode in TEXT_MODES if row[mode] is not None] != [words]:
                            wrong_words.add(row["reading"])
                        if row["vector"] is None:
                            without_vector.add(row["reading"])
        for reading_id, video_id in video_of.items():
            reading = readings.get(reading_id)
            if reading is None:
                readings[reading_id] = StoredReading(video_id, "", "said", "", "", "", reading_id=reading_id)
                damaged.add(reading_id)
            elif (
                counts.get(reading_id, 0) != reading.num_passages
                or (reading.encoder and reading_id in without_vector)
                or (reading.words_version == WORDS_VERSION and reading_id in wrong_words)
            ):
                damaged.add(reading_id)
        return [readings[reading_id] for reading_id in sorted(damaged)]

    # -- writing: additions are one atomic commit; replaced readings are removed by the next commit

    def put(
        self,
        reading: StoredReading,
        passages: Iterable[StoredPassage],
        report: ReadingReport,
        replaces: Collection[str] = (),
    ) -> StoredReading:
        """Add a reading with its passages and remove the readings with the ids in `replaces`.

        Returns the reading with its number of passages and the warnings of the report, which may grow while passages
        are read. Passages are written while they are read, so any number of them needs little memory. If reading them
        raises an error, nothing is committed.
        """
        number = 0

        def tables() -> Iterator[pa.Table]:
            nonlocal number, reading
            rows: list[_Row] = []
            for passage in passages:
                rows.append(_row(reading, number, passage))
                number += 1
                if len(rows) == _ROWS_AT_A_TIME:
                    yield _table(rows)
                    rows = []
            reading = replace(reading, num_passages=number).with_report(report)
            yield _table([*rows, _mark(reading)])

        self.put_rows(tables(), replaces)
        return reading

    def put_empty(self, readings: Sequence[StoredReading], replaces: Collection[str] = ()) -> None:
        """Add readings without passages in one commit, then remove the readings with the ids in `replaces`."""
        self.put_rows([_table(list(map(_mark, readings)))], replaces)

    def update_words(self, readings: Sequence[StoredReading]) -> list[StoredReading]:
        """Reindex the passages whose words come from another version of `indexed_text`, and return the new readings.

        This is one commit. `readings` are all readings of the table. If their words are current, nothing is read.
        """
        updated = {
            reading.reading_id: replace(
                reading,
                reading_id=new_reading_id(),
                read_at=math.nextafter(reading.read_at, math.inf),  # still older than a later reading
                words_version=WORDS_VERSION,
            )
            for reading in readings
            if _has_old_words(reading)
        }

        def tables() -> Iterator[pa.Table]:
            rows: list[_Row] = []
            for row in self._rows(sorted({reading.video_id for reading in updated.values()}), _COLUMNS):
                if row["reading"] in updated:
                    vector = b"" if row["vector"] is None else self._checked(row, "vector")
                    sentence = _sentence(self._checked(row, "content"))
                    passage = StoredPassage(sentence, np.frombuffer(vector, dtype=np.float16))
                    rows.append(_row(updated[row["reading"]], row["number"], passage))
                if len(rows) == _ROWS_AT_A_TIME:
                    yield _table(rows)
                    rows = []
            yield _table([*rows, *map(_mark, updated.values())])

        if updated:
            self.put_rows(tables(), updated)
        return [updated.get(reading.reading_id, reading) for reading in readings]

    def copy(self, source: PassageTable, reading: StoredReading, video_id: str, replaces: Collection[str] = ()) -> None:
        """Copy a reading from the table of another library. The copy belongs to the video with this id."""
        import pyarrow as pa

        table = source._open_table()
        assert table is not None, "the reading comes from this table"
        copied = replace(reading, video_id=video_id)

        def tables() -> Iterator[pa.Table]:
            condition = f"reading = {_literal(reading.reading_id)} AND number > {_MARK}"
            for batch in table.to_batches(columns=_COLUMNS, filter=condition, batch_size=_ROWS_AT_A_TIME):
                rows = pa.Table.from_batches([batch]).cast(_schema())
                ids = pa.array([video_id] * len(rows), pa.string())
                yield rows.set_column(_COLUMNS.index("video_id"), "video_id", ids)
            yield _table([_mark(copied)])

        self.put_rows(tables(), replaces)

    def put_rows(self, tables: Iterable[pa.Table], replaces: Collection[str] = ()) -> None:
        """Add rows in one commit, then remove the readings with the ids in `replaces`."""
        from untrimmed.search.store.lance import commit_first, lance, write_fragments

        table = self._open_table()
        fragments: list[lance.FragmentMetadata] = []
        for rows in tables:
            with self._guarded("written to"):
                fragments += write_fragments(rows, self._uri, mode="append", storage_options=self._options)
        with self._guarded("written to"):
            if table is None:
                self._table = commit_first(_schema(), fragments, self._uri, self._options)
            else:
                self._table = lance.LanceDataset.commit(
                    self._uri,
                    lance.LanceOperation.Append(fragments),
                    read_version=table.version,
                    storage_options=self._options,
                )
        self.remove(replaces)
        self._committed()

    def remove(self, readings: Collection[str]) -> None:
        """Remove readings with their passages, by id."""
        self._delete("reading", readings)

    def _delete(self, column: str, values: Collection[str]) -> None:
        table = self._open_table()
        if table is None or not values:
            return
        with self._guarded("written to"):
            table.delete(f"{column} IN ({', '.join(map(_literal, sorted(values)))})")
        self._committed()

    def keep(self, video_ids: Collection[str]) -> None:
        """Remove the readings of all other videos. Also remove replaced readings that an interrupted run has left."""
        table = self._open_table()
        if table is None:
            return
        with self._guarded("read"):
            marks = table.to_table(columns=["reading", "video_id"], filter=f"number = {_MARK}").to_pydict()
        # by video and not by reading, because a reading that was copied to another video has the same id
        self._delete("video_id", set(marks["video_id"]).difference(video_ids))
        self.remove(set(marks["reading"]) - {reading.reading_id for reading in self.readings()})

    def compact(self) -> None:
        """Merge small fragments, add their rows to the indices, and remove old versions."""
        from untrimmed.search.store.lance import ignored_conflicts

        super().compact()
        if (table := self._open_table()) is not None:
            with self._guarded("written to"), ignored_conflicts():
                if table.count_rows(f"number > {_MARK}"):  # most libraries have no passages, and need no indices
                    self._create_indices()
                    table.optimize.optimize_indices()

    def finish(self) -> None:
        """Compact the table if something was committed. It is called at the end of each change of the library."""
        if self._commits:
            self.compact()
            self.readings()  # writes the copy of the readings

    def _create_indices(self) -> None:
        """Create missing indices: of the videos' ids, and of the words of each mode."""
        table = self._open_table()
        assert table is not None, "the table has just been opened"
        present = {name for index in table.describe_indices() for name in index.field_names}
        if "video_id" not in present:
            table.create_scalar_index("video_id", "BTREE")
        for mode in TEXT_MODES:
            if mode not in present:
                table.create_scalar_index(
                    mode,
                    "INVERTED",
                    with_position=True,  # for phrases
                    # `indexed_text` has already split the text into words and folded their case and accents
                    base_tokenizer="whitespace",
                    lower_case=False,
                    stem=False,
                    remove_stop_words=False,
                    ascii_folding=False,
                    max_token_length=None,
                )


def _full_text_query(query: TextQuery, mode: TextMode) -> Any:
    from lance.query import BooleanQuery, MatchQuery, Occur, PhraseQuery

    words = MatchQuery(" ".join(query.words), mode)
    if not query.phrases:
        return words
    phrases = [
        PhraseQuery(" ".join(phrase), mode) if len(phrase) > 1 else MatchQuery(phrase[0], mode)
        for phrase in query.phrases
    ]
    return BooleanQuery([*((Occur.MUST, phrase) for phrase in phrases), (Occur.SHOULD, words)])


def _literal(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


@cache
def _schema() -> pa.Schema:
    import pyarrow as pa

    types = {"number": pa.int32(), "start_s": pa.float64(), "content": pa.binary(), "vector": pa.binary()}
    return pa.schema([(name, types.get(name, pa.string())) for name in _COLUMNS])


def _table(rows: Sequence[_Row]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(list(rows), schema=_schema())


def _row(reading: StoredReading, number: int, stored: StoredPassage) -> _Row:
    passage = stored.sentence.passage
    row: _Row = dict.fromkeys(_COLUMNS)
    row |= {"reading": reading.reading_id, "video_id": reading.video_id, "number": number}
    row["start_s"] = float(passage.start_s)  # a source may give an integer or a NumPy number
    row[reading.mode] = indexed_text(passage.text)
    row["content"] = _sealed(row, json.dumps(astuple(stored.sentence), default=float).encode())
    if len(stored.vector):
        row["vector"] = _sealed(row, np.asarray(stored.vector, dtype=np.float16).tobytes())
    return row


def _mark(reading: StoredReading) -> _Row:
    """Return the row that describes a reading. It has no words, so searches do not find it."""
    state = asdict(reading)
    del state["video_id"], state["reading_id"]
    row: _Row = dict.fromkeys(_COLUMNS)
    row |= {"reading": reading.reading_id, "video_id": reading.video_id, "number": _MARK, "start_s": 0.0}
    return row | {"content": _sealed(row, json.dumps(state).encode())}


def _reading(row: _Row, content: bytes) -> StoredReading:
    try:
        state = json.loads(content)
        warnings = tuple(state.pop("warnings"))
        return StoredReading(row["video_id"], reading_id=row["reading"], warnings=warnings, **state)
    except (ValueError, TypeError, KeyError):
        raise IndexMismatchError(
            f"its passages were written by another version of untrimmed and cannot be read; {RESTORE}"
        ) from None


def _sentence(content: bytes) -> Sentence:
    values, parts = json.loads(content)
    values[_WORDS] = tuple(Word(*word) for word in values[_WORDS])
    passage = Passage(*values)
    return Sentence(passage, tuple(Part(*part) for part in parts))


def _sealed(row: _Row, value: bytes) -> bytes:
    """Return a value for this row, after a digest of the value and its place."""
    place = f"{row['reading']} {row['number']} {row['start_s']!r} "
    return xxhash.xxh3_64_digest(place.encode() + value) + value


def _unsealed(row: _Row, column: str) -> bytes | None:
    """Return the value that `_sealed` was given, or None if the value or its place has changed."""
    value: bytes = (row[column] or b"")[_DIGEST_SIZE:]
    return value if row[column] == _sealed(row, value) else None
