"""The table of videos of a library: one row per video in an embedded, versioned table (see `lance_table`).

A lock allows one writing process per machine.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xxhash
from jaxtyping import Float16

from untrimmed.errors import IndexBusyError, IndexMismatchError, UntrimmedError, shown
from untrimmed.search.store.lance_table import LanceTable
from untrimmed.search.store.proxies import remove_unused_proxies
from untrimmed.search.store.records import (
    RESTORE,
    TABLE,
    Settings,
    VideoRecord,
    read_settings,
    require_settings,
    write_records_copy,
    write_settings,
)
from untrimmed.search.store.thumbnails import remove_unused_thumbnails
from untrimmed.types import FrameFeatures
from untrimmed.video.timing import Timing

if TYPE_CHECKING:
    import pyarrow as pa
    from filelock import FileLock

    from untrimmed.search.store.lance import lance

_INT32 = ("width", "height", "num_frames")
_RECORD_COLUMNS = [field.name for field in fields(VideoRecord)]
_UNKNOWN = {  # columns of `Timing`, which tables of older libraries lack, with their default values in SQL
    "frame_rate": "''",
    "has_variable_rate": "false",
    "start_timecode": "''",
    "num_audio_tracks": "CAST(0 AS BIGINT)",
}
_DIGESTS = ("record_digest", "vectors_digest")
_ARRAYS = ("times_s", "frames")
_OLD_COLUMNS = [*(name for name in _RECORD_COLUMNS if name not in _UNKNOWN), *_ARRAYS, "encoded", *_DIGESTS]
_COLUMNS = [*_OLD_COLUMNS, *_UNKNOWN]
_VIDEOS_AT_A_TIME = 16  # number of videos whose vectors are in memory at once


def new_video_id() -> str:
    """Return a random id of 16 hexadecimal digits."""
    return uuid.uuid4().hex[:16]


@dataclass(frozen=True)
class StoredVideo:
    """One row of the table: the record, the frame vectors (float16), and the search model's encoding of the video."""

    record: VideoRecord
    features: FrameFeatures
    encoded: bytes = b""


class VideoIndex(LanceTable):
    """The table of videos of one library. To write, use it as a context manager, which holds the library's lock."""

    columns = (_COLUMNS, _OLD_COLUMNS)
    rows_per_fragment = 1024

    def __init__(self, folder: Path, *, create: bool = False, follow: bool = True, version: int | None = None):
        """Open the table of a library. The library must exist unless `create` is true.

        Args:
            follow: Read the newest version in each call. Otherwise, stay at the version of the first call.
            version: Read only this version.
        """
        super().__init__(folder, TABLE, follow=follow, version=version)
        if not create:
            require_settings(self.folder)
        else:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UntrimmedError(
                    f"{shown(self.folder)}: a library cannot be created ({error.strerror}); choose another --library"
                ) from None
        self._lock: FileLock | None = None  # held while this object writes

    # -- settings

    @property
    def settings(self) -> Settings | None:
        """The settings of the library, see `read_settings`."""
        return read_settings(self.folder)

    def write_settings(self, settings: Settings) -> None:
        """Write the settings atomically."""
        with self._guarded("written to"):
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
        with contextlib.suppress(OSError):  # remove incomplete copies of readers that were killed
            for file in self.folder.glob(".*.json.*"):
                file.unlink(missing_ok=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if self._commits and kind is None:  # after an error or Ctrl-C, the next writer does this
                self.compact()
                records = self.scan()  # writes the copy of the records
                content_hashes = {record.content_hash for record in records}
                remove_unused_thumbnails(self.folder, content_hashes)
                remove_unused_proxies(self.folder, content_hashes)
        finally:
            assert self._lock is not None, "entered before"
            self._lock.release()

    # -- reading

    def scan(self) -> list[VideoRecord]:
        """Return all records sorted by path. Raises IndexMismatchError if the checksum of a record is wrong."""
        table = self._open_table()
        if table is None:
            return []
        # read the version before the scan, because another thread may switch the table to a newer version
        version = table.version
        with self._guarded("read"):
            rows = list(_records(table.to_table(columns=_record_columns(table.schema))))
        if damaged := [record for record, is_intact in rows if not is_intact]:
            raise IndexMismatchError(
                f"{shown(self.folder)}: {len(damaged)} records are damaged, e.g. that of "
                f"{shown(Path(damaged[0].path))}; run: untrimmed doctor --repair"
            )
        records = sorted((record for record, _ in rows), key=lambda record: record.path)
        write_records_copy(self.folder, version, records)
        return records

    def get(self, video_id: str) -> StoredVideo | None:
        """Return the video with this id and its vectors, or None if there is none."""
        return next(self.read([video_id]), None)

    def read(self, video_ids: Sequence[str]) -> Iterator[StoredVideo]:
        """Yield these videos with their vectors, in any order. Only a few videos are in memory at a time."""
        table = self._open_table()
        if table is None:
            return
        with self._guarded("read"):
            table = table.checkout_version(table.version)  # row numbers change if a video is added during the read
            places = _places(table, video_ids)
        for start in range(0, len(places), _VIDEOS_AT_A_TIME):
            with self._guarded("read"):  # only for reading, not for the caller's work on the videos
                rows = table.take(places[start : start + _VIDEOS_AT_A_TIME])
                videos = [video for batch in rows.to_batches() for video in _stored(batch)]
            yield from videos

    def damaged(self) -> list[VideoRecord]:
        """Return the videos with a damaged record or damaged vectors. This reads the whole table."""
        table = self._open_table()
        if table is None:
            return []
        with self._guarded("read"):
            batches = table.to_batches(batch_size=_VIDEOS_AT_A_TIME)
            return [record for batch in batches for record, _, damage in _rows_with_damage(batch) if damage]

    # -- writing: each call is one atomic commit

    def put(self, video: StoredVideo) -> None:
        """Add a video, or replace the one with the same `video_id`."""
        self.put_all([video])

    def put_all(self, videos: Sequence[StoredVideo]) -> None:
        """Add or replace several videos, at least one, in one commit."""
        from untrimmed.search.store.lance import create_table, pa

        table = self._open_table_to_write()
        rows = pa.concat_tables(map(_row, videos))
        with self._guarded("written to"):
            if table is None:
                self._table = create_table(rows, self._uri, self._options)
            elif table.count_rows(_where_ids([video.record.video_id for video in videos])):
                merge = table.merge_insert("video_id").when_matched_update_all().when_not_matched_insert_all()
                merge.execute(rows)
            else:
                table.insert(rows)
        self._committed()

    def relocate(self, record: VideoRecord, *, path: Path, size: int, mtime_ns: int) -> VideoRecord:
        """Store a new path, size in bytes and modification time of a video. Return the new record."""
        moved = replace(record, path=str(path), size=size, mtime_ns=mtime_ns)
        changes = {"path": _literal(moved.path), "size": str(moved.size), "mtime_ns": str(moved.mtime_ns)}
        self._update(moved, changes)
        return moved

    def put_timing(self, record: VideoRecord, timing: Timing) -> VideoRecord:
        """Store frame rate, timecode and number of audio tracks of a video's file. Return the new record."""
        timed = replace(record, **timing.stored)
        changes = {
            "frame_rate": _literal(timing.frame_rate),
            "has_variable_rate": str(timing.has_variable_rate).lower(),
            "start_timecode": _literal(timing.start_timecode),
            "num_audio_tracks": str(timing.num_audio_tracks),
        }
        self._update(timed, changes)
        return timed

    def _update(self, record: VideoRecord, changes: dict[str, str]) -> None:
        """Store changes of a record. `changes` is an SQL expression for each changed column."""
        table = self._open_table_to_write()
        assert table is not None, "a record comes from a table"
        with self._guarded("written to"):
            digest = {"record_digest": _literal(_record_digest(record))}
            table.update(changes | digest, where=_where_ids([record.video_id]))
        self._committed()

    def remove(self, video_ids: Sequence[str]) -> int:
        """Remove videos. Return how many of them were in the table."""
        table = self._open_table()
        if table is None or not video_ids:
            return 0
        with self._guarded("written to"):
            before = table.count_rows()
            table.delete(_where_ids(video_ids))
        self._committed()
        return before - table.count_rows()

    def _open_table_to_write(self) -> lance.LanceDataset | None:
        """Return the table. Columns that older libraries lack are added."""
        table = self._open_table()
        if table is not None and table.schema.names == _OLD_COLUMNS:
            with self._guarded("written to"):
                table.add_columns(_UNKNOWN)
        return table


def _places(table: lance.LanceDataset, video_ids: Sequence[str]) -> pa.Array:
    """Return the row numbers of these videos. This reads the ids once; a filter would read them again for each part."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = table.to_table(columns=["video_id"])["video_id"]
    return pc.indices_nonzero(pc.is_valid(pc.index_in(ids, value_set=pa.array(video_ids, ids.type))))


def _where_ids(video_ids: Sequence[str]) -> str:
    """Return the SQL condition that selects rows by their ids."""
    return "video_id IN (" + ", ".join(map(_literal, video_ids)) + ")"


def _literal(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


@cache
def _schema() -> pa.Schema:
    import pyarrow as pa

    types = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    record = {f.name: pa.int32() if f.name in _INT32 else types[str(f.type)] for f in fields(VideoRecord)}
    vectors = {
        "times_s": pa.list_(pa.float64()),
        "frames": pa.large_list(pa.float16()),  # the array [T, D] in row-major order
        "encoded": pa.large_binary(),  # the search model's encoding of the video; empty for the model `frames`
    }
    columns = record | vectors | dict.fromkeys(_DIGESTS, pa.string())
    return pa.schema([(name, columns[name]) for name in _COLUMNS])


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
    types = {"str": str, "int": int, "float": float, "bool": bool}  # for example, a column of floats contains 1.0 for 1
    # if the timing is unknown, the digest is the same as in older libraries, which store no timing
    stored = [field for field in fields(record) if record.frame_rate or field.name not in _UNKNOWN]
    values = [types[str(field.type)](getattr(record, field.name)) for field in stored]
    return xxhash.xxh3_64_hexdigest(repr(values).encode())


def _vectors_digest(times_s: np.ndarray, frames: np.ndarray, encoded: bytes) -> str:
    digest = xxhash.xxh3_64(repr((len(times_s), len(frames))).encode())
    for values in (times_s.data, frames.data, encoded):
        digest.update(values)
    return digest.hexdigest()


def _record_columns(schema: pa.Schema) -> list[str]:
    """Return the names of the columns in the table that belong to a record, including its digest."""
    return [name for name in (*_RECORD_COLUMNS, "record_digest") if name in schema.names]


def _records(rows: pa.RecordBatch | pa.Table) -> Iterator[tuple[VideoRecord, bool]]:
    """Yield each record, and whether its digest is right."""
    for row in rows.to_pylist():
        digest = row.pop("record_digest")
        if None in row.values():
            raise IndexMismatchError(f"a record of the library's table lacks values; {RESTORE}")
        record = VideoRecord(**row)
        yield record, digest == _record_digest(record)


def _rows_with_damage(batch: pa.RecordBatch) -> Iterator[tuple[VideoRecord, tuple[np.ndarray, np.ndarray, bytes], str]]:
    """Yield each record, its arrays (times, flattened frames, encoding), and what is damaged ("" if nothing)."""
    if any(batch.column(name).null_count for name in _ARRAYS):
        raise IndexMismatchError(f"vectors of the library's table lack values; {RESTORE}")
    digests = batch.column("vectors_digest").to_pylist()
    for row, (record, is_intact) in enumerate(_records(batch.select(_record_columns(batch.schema)))):
        times_s, frames = (batch.column(name)[row].values.to_numpy(zero_copy_only=False) for name in _ARRAYS)
        encoded = batch.column("encoded")[row].as_py() or b""
        damage = ""
        if not is_intact or digests[row] != _vectors_digest(times_s, frames, encoded):
            damage = "wrong checksum"
        elif not (np.isfinite(times_s).all() and _all_finite(frames)):
            damage = "not finite"
        yield record, (times_s, frames, encoded), damage


def _stored(batch: pa.RecordBatch) -> Iterator[StoredVideo]:
    for record, (times_s, frames, encoded), damage in _rows_with_damage(batch):
        if damage:
            raise IndexMismatchError(
                f"{shown(Path(record.path))}: its stored vectors are damaged ({damage}); run "
                "`untrimmed doctor --repair`, which removes them, then `untrimmed index`"
            )
        features = FrameFeatures(frames.reshape(record.num_frames, -1), times_s, record.duration_s)
        yield StoredVideo(record, features, encoded)


def _all_finite(vectors: Float16[np.ndarray, " N"]) -> bool:
    """Return `np.isfinite(vectors).all()`, but 14 times faster. Only infinity and NaN have an exponent of all ones."""
    return not ((vectors.view(np.uint16) & 0x7C00) == 0x7C00).any()
