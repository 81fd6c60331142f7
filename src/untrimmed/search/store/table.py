"""The store of a library: one row a video in an embedded, versioned table (Lance); it knows no method.

Every change is one atomic commit, so a process killed at any time leaves the last committed state. One process of a
machine writes (a lock says so to the second); readers hold a version and are never blocked.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xxhash
from jaxtyping import Float16

from untrimmed.errors import IndexBusyError, IndexMismatchError, UntrimmedError, one_line, shown
from untrimmed.search.store import bucket as remote
from untrimmed.search.store.records import (
    OTHER_VERSION,
    RESTORE,
    Settings,
    VideoRecord,
    clear_leftovers,
    newest_commit,
    read_settings,
    require_settings,
    table_at,
    write_copy,
    write_settings,
)
from untrimmed.types import FrameFeatures

if TYPE_CHECKING:
    import pyarrow as pa
    from filelock import FileLock

    from untrimmed.search.store.lance import lance

_COMMITS_BETWEEN_COMPACTIONS = 500  # a commit's manifest grows with the number of fragments; merging keeps it small
_ROWS_A_PIECE = 1024  # of the table: what compaction writes anew after a run that added little
_KEEP_VERSIONS = timedelta(hours=1)  # a reader may hold an old version this long
_SMALL = ("width", "height", "num_frames")  # in half as many bytes
_RECORD_COLUMNS = [field.name for field in fields(VideoRecord)]
_COLUMNS = [*_RECORD_COLUMNS, "times_s", "frames", "encoded", "record_digest", "vectors_digest"]


def new_video_id() -> str:
    """A fresh opaque id: 16 hexadecimal digits."""
    return uuid.uuid4().hex[:16]


@dataclass(frozen=True)
class StoredVideo:
    """One video as a model receives it: the record, its frame vectors (float16), and the model's own encoding."""

    record: VideoRecord
    features: FrameFeatures
    encoded: bytes = b""


class VideoIndex:
    """Add, replace, remove, get and scan the videos of one library folder."""

    def __init__(self, folder: Path, *, create: bool = False, follow: bool = True, version: int | None = None):
        """With `follow=False` it reads, again and again, the version that it met first; with `version` that one."""
        self.folder = Path(folder)
        self._follow, self._version = follow and version is None, version
        self._uri, self._name = table_at(self.folder), remote.name_of(self.folder)
        self._options = remote.options() if remote.is_address(self._uri) else None
        try:
            self._uri.encode()
        except UnicodeEncodeError:
            raise UntrimmedError(
                f"{shown(self.folder)}: a library's path must be valid UTF-8; choose another --library"
            ) from None
        if not create:
            require_settings(self.folder, self._name)
        else:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UntrimmedError(
                    f"{shown(self.folder)}: a library cannot be made here ({error.strerror}); choose another --library"
                ) from None
        self._table: lance.LanceDataset | None = None
        self._commits = 0
        self._lock: FileLock | None = None  # while it is held for writing

    # -- what the library is made with

    @property
    def settings(self) -> Settings | None:
        """What all rows share; None as long as nothing was ever indexed.

        Raises:
            IndexMismatchError: The file is damaged, or of a version that this program does not read.
        """
        return read_settings(self.folder)

    def write_settings(self, settings: Settings) -> None:
        """Record what the rows share; whole or not at all."""
        with self._writing():
            write_settings(self.folder, settings)

    # -- one writer

    def __enter__(self) -> VideoIndex:
        from filelock import FileLock, Timeout

        self._lock = FileLock(self.folder / "writer.lock")
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise IndexBusyError(
                f"{self._name}: another process is writing to this library; wait until it ends, or use another "
                "--library (searching is not affected)"
            ) from None
        except OSError as error:
            raise UntrimmedError(
                f"{shown(self.folder)}: cannot be written to ({error.strerror}); change its permissions, or use "
                "another --library"
            ) from None
        clear_leftovers(self.folder)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if self._commits and kind is None:  # after a failure or Ctrl-C nothing heavy; the next run does it
                self.compact()
                self.scan()  # leaves the copy that listing reads
        finally:
            assert self._lock is not None, "entered before"
            self._lock.release()

    # -- reading

    def version(self) -> int:
        """A number that grows with every commit, by whichever process; 0 while nothing was committed."""
        return 0 if (table := self._open_table()) is None else table.version

    def __len__(self) -> int:
        table = self._open_table()
        with self._reading():
            return table.count_rows() if table is not None else 0

    def scan(self) -> list[VideoRecord]:
        """All records without vectors, by path.

        Raises: IndexMismatchError where one is not as it was written.
        """
        table = self._open_table()
        if table is None:
            return []
        version = table.version  # of the rows: another thread of this reader may move on while they are read
        with self._reading():
            rows = list(_records(table.to_table(columns=[*_RECORD_COLUMNS, "record_digest"])))
        if lost := [record for record, is_whole in rows if not is_whole]:
            raise IndexMismatchError(
                f"{shown(self.folder)}: {len(lost)} of its records are not as they were written, that of "
                f"{shown(Path(lost[0].path))} among them; run: untrimmed doctor --repair"
            )
        records = sorted((record for record, _ in rows), key=lambda record: record.path)
        write_copy(self.folder, version, records)
        return records

    def get(self, video_id: str) -> StoredVideo | None:
        """One video with its vectors, or None."""
        return next(self.read([video_id]), None)

    def read(self, video_ids: Sequence[str]) -> Iterator[StoredVideo]:
        """The named videos with their vectors, in any order, a few at a time (memory stays flat)."""
        table = self._open_table()
        if table is None:
            return
        with self._reading():
            for start in range(0, len(video_ids), 64):
                for batch in table.to_batches(filter=_among(video_ids[start : start + 64]), batch_size=16):
                    yield from _stored(batch)

    def damaged(self) -> list[VideoRecord]:
        """The records of videos that are not as they were written, vectors included: all are read."""
        table, found = self._open_table(), []
        if table is not None:
            with self._reading():
                for batch in table.to_batches(batch_size=16):
                    found += [record for record, why in _checked(batch) if why]
        return found

    # -- writing: each call is one atomic commit

    def put(self, video: StoredVideo) -> None:
        """Add a video, or replace the one with the same `video_id`."""
        self.put_all([video])

    def put_all(self, videos: Sequence[StoredVideo]) -> None:
        """Add or replace several videos, at least one, in one commit."""
        from untrimmed.search.store.lance import pa, started

        table = self._open_table()
        rows = pa.concat_tables(map(_row, videos))
        with self._writing():
            if table is None:
                self._table = started(rows, self._uri, self._options)
            elif table.count_rows(_among([video.record.video_id for video in videos])):
                merged = table.merge_insert("video_id").when_matched_update_all().when_not_matched_insert_all()
                merged.execute(rows)
            else:
                table.insert(rows)
        self._committed()

    def relocate(self, record: VideoRecord, *, path: Path, size: int, mtime_ns: int) -> VideoRecord:
        """Note that a known video now lies elsewhere, or was touched without a change of content."""
        moved = replace(record, path=str(path), size=size, mtime_ns=mtime_ns)
        table = self._open_table()
        assert table is not None, "a record comes from a table"
        with self._writing():
            changes = {"path": _literal(moved.path), "size": str(moved.size), "mtime_ns": str(moved.mtime_ns)}
            changes["record_digest"] = _literal(_record_digest(moved))
            table.update(changes, where=_among([record.video_id]))
        self._committed()
        return moved

    def remove(self, video_ids: Sequence[str]) -> int:
        """Forget videos; gives how many there were."""
        table = self._open_table()
        if table is None or not video_ids:
            return 0
        with self._writing():
            before = table.count_rows()
            table.delete(_among(video_ids))
        self._committed()
        return before - table.count_rows()

    def compact(self) -> None:
        """Merge the many small pieces that single commits leave."""
        from untrimmed.search.store.lance import left_to_others

        if (table := self._open_table()) is not None:
            with self._writing(), left_to_others():
                table.optimize.compact_files(target_rows_per_fragment=_ROWS_A_PIECE)
                table.cleanup_old_versions(_KEEP_VERSIONS)
        self._commits = 0

    def _reading(self) -> contextlib.AbstractContextManager[None]:
        """Files of the table may be damaged or gone, with a disk or cleared away as an old version's."""
        return self._guarded("read", f"run the same command again; if that fails too, {RESTORE}")

    def _writing(self) -> contextlib.AbstractContextManager[None]:
        """A disk that is full or gone is the user's to put right; the store itself stays at its last commit."""
        advice = "make room or change its permissions and run the same command again: what was reported done is kept"
        return self._guarded("written to", advice)

    @contextlib.contextmanager
    def _guarded(self, what: str, advice: str) -> Iterator[None]:
        try:
            yield
        except UntrimmedError:
            raise
        except BaseException as error:
            # What the store raises, Arrow's errors being ValueErrors, and where it gives up a thread of its own.
            if not isinstance(error, (OSError, RuntimeError, ValueError)) and type(error).__name__ != "PanicException":
                raise
            if self._options is not None:
                raise UntrimmedError(f"{self._name}: cannot be {what}: {remote.reason(error)}") from error
            raise UntrimmedError(f"{self._name}: cannot be {what} ({_line(error)}); {advice}") from error

    def _committed(self) -> None:
        self._commits += 1
        if self._commits >= _COMMITS_BETWEEN_COMPACTIONS:
            self.compact()

    def _open_table(self) -> lance.LanceDataset | None:
        from untrimmed.search.store.lance import lance  # not before it is needed: a search may do without the table

        with self._guarded("opened", RESTORE):
            if self._table is None:
                if newest_commit(self.folder) is None:  # a first commit that was killed leaves a folder without one
                    return None
                self._table = lance.dataset(self._uri, version=self._version, storage_options=self._options)
            elif self._follow:
                self._table.checkout_latest()
            names = self._table.schema.names
        if names != _COLUMNS:
            raise IndexMismatchError(f"{self.folder}: {OTHER_VERSION}")
        return self._table


def _among(video_ids: Sequence[str]) -> str:
    """The condition that picks rows by their ids."""
    return "video_id IN (" + ", ".join(map(_literal, video_ids)) + ")"


def _literal(text: str) -> str:
    """Text as the table's language writes it."""
    return "'" + text.replace("'", "''") + "'"


def _line(error: BaseException) -> str:
    """What the system or the store says, on one line, without the line of the store's source."""
    return getattr(error, "strerror", None) or re.sub(r", \S+\.rs:\d+:\d+$", "", one_line(error))


@cache
def _schema() -> pa.Schema:
    import pyarrow as pa

    types = {"str": pa.string(), "int": pa.int64(), "float": pa.float64()}
    record = ((f.name, pa.int32() if f.name in _SMALL else types[str(f.type)]) for f in fields(VideoRecord))
    times, frames = pa.list_(pa.float64()), pa.large_list(pa.float16())  # frames are row-major [T, D]
    encoded = pa.large_binary()  # a model's own encoding of the video (safetensors); empty: it needs none
    others = times, frames, encoded, pa.string(), pa.string()
    return pa.schema([*record, *zip(_COLUMNS[-len(others) :], others, strict=True)])


def _row(video: StoredVideo) -> pa.Table:
    import pyarrow as pa

    frames = np.ascontiguousarray(video.features.vectors, dtype=np.float16).ravel()
    columns = {name: [value] for name, value in asdict(video.record).items()}
    lengths = np.array([0, len(frames)])
    columns["times_s"] = [np.asarray(video.features.times_s, dtype=np.float64)]
    columns["frames"] = pa.LargeListArray.from_arrays(lengths, pa.array(frames, type=pa.float16()))
    columns["encoded"] = [video.encoded]
    columns["record_digest"] = [_record_digest(video.record)]
    columns["vectors_digest"] = [_vectors_digest(columns["times_s"][0], frames, video.encoded)]
    return pa.table(columns, schema=_schema())


def _record_digest(record: VideoRecord) -> str:
    """Of all that a record says, as it is read back."""
    kinds = {"str": str, "int": int, "float": float}
    said = repr([kinds[str(field.type)](getattr(record, field.name)) for field in fields(record)])
    return xxhash.xxh3_64_hexdigest(said.encode())


def _vectors_digest(times_s: np.ndarray, frames: np.ndarray, encoded: bytes) -> str:
    digest = xxhash.xxh3_64(repr((len(times_s), len(frames))).encode())
    for part in (times_s.data, frames.data, encoded):
        digest.update(part)
    return digest.hexdigest()


def _records(rows: pa.RecordBatch | pa.Table) -> Iterator[tuple[VideoRecord, bool]]:
    """And whether each is as it was written; of one that is damaged columns may be gone."""
    for row in rows.to_pylist():
        digest = row.pop("record_digest")
        if None in row.values():
            raise IndexMismatchError(f"the library's table lacks columns of its records; {RESTORE}")
        record = VideoRecord(**row)
        yield record, digest == _record_digest(record)


def _checked(batch: pa.RecordBatch) -> Iterator[tuple[VideoRecord, str]]:
    """The records, and what is wrong with each video; empty if nothing is."""
    digests = batch.column("vectors_digest").to_pylist()
    for row, (record, is_whole) in enumerate(_records(batch.select([*_RECORD_COLUMNS, "record_digest"]))):
        times_s, frames, encoded = _arrays(batch, row)
        if not is_whole or digests[row] != _vectors_digest(times_s, frames, encoded):
            yield record, "not as they were written"
        elif not (np.isfinite(times_s).all() and _all_finite(frames)):
            yield record, "not all are finite"
        else:
            yield record, ""


def _arrays(batch: pa.RecordBatch, row: int) -> tuple[np.ndarray, np.ndarray, bytes]:
    """Times, frames side by side, and the model's own encoding."""
    times, frames, encoded = (batch.column(name)[row] for name in ("times_s", "frames", "encoded"))
    return *(part.values.to_numpy(zero_copy_only=False) for part in (times, frames)), encoded.as_py() or b""


def _stored(batch: pa.RecordBatch) -> Iterator[StoredVideo]:
    for row, (record, wrong) in enumerate(_checked(batch)):
        if wrong:
            path = shown(Path(record.path))
            raise IndexMismatchError(
                f"{path}: its stored vectors are damaged ({wrong}); run `untrimmed doctor --repair`, which removes "
                "them, then `untrimmed index`"
            )
        times_s, frames, encoded = _arrays(batch, row)
        features = FrameFeatures(frames.reshape(record.num_frames, -1), times_s, record.duration_s)
        yield StoredVideo(record, features, encoded)


def _all_finite(vectors: Float16[np.ndarray, " N"]) -> bool:
    """As `np.isfinite` has it, by the bits: an exponent of ones is infinite or no number."""
    return not ((vectors.view(np.uint16) & 0x7C00) == 0x7C00).any()
