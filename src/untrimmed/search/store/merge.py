"""Index a library in parts on many machines, and merge the parts.

The part of a file is selected by a hash of its path relative to the indexed folder. So each file is in exactly one
part, wherever the folder is mounted, and the machines need not communicate.

A merge copies rows; nothing is decoded or encoded again. The settings of a new library are written last, so an
incomplete library cannot be opened. To continue an interrupted merge, repeat the call, which recognises copied rows.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from untrimmed.errors import ConfigError, IndexMismatchError, UntrimmedError, named, shown
from untrimmed.search.store.bins import BinMoment, Bins
from untrimmed.search.store.passages import PassageTable
from untrimmed.search.store.records import Settings, VideoRecord, absolute, batched_by_size, joined_products
from untrimmed.search.store.table import StoredVideo, VideoIndex
from untrimmed.search.store.thumbnails import copy_thumbnails

_PART_NAME = re.compile(r"(.+)\.part-(\d+)-of-(\d+)")
_BYTES_PER_COMMIT = 1 << 26
_COMPARED = ("encoder_identity", "frame_dim", "word_dim", "model")


@dataclass(frozen=True)
class LibraryPart:
    """Part `number` of `total` parts of a library, counted from 1."""

    number: int
    total: int

    @classmethod
    def parse(cls, text: str) -> LibraryPart:
        """Return the part that a text such as "3/16" names. Raises ConfigError for other text."""
        match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ConfigError(f"part is {text!r}; expected a number from 1 and how many parts there are, e.g. 3/16")
        return cls(int(match[1]), int(match[2]))

    def folder(self, library: Path) -> Path:
        """Return the folder of the library of this part. It is beside `library`.

        >>> LibraryPart(3, 16).folder(Path("films")).name
        'films.part-03-of-16'
        """
        return library.with_name(f"{library.name}.part-{self.number:0{len(str(self.total))}d}-of-{self.total}")

    def contains(self, name: str) -> bool:
        """Whether a file belongs to this part. `name` is its path relative to the indexed folder."""
        digest = hashlib.blake2b(os.fsencode(name), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.total == self.number - 1

    def choose(self, files: Iterable[Path], paths: Sequence[Path]) -> tuple[Path, ...]:
        """Return the files that belong to this part.

        The part of a file depends on its path relative to the first folder in `paths` that contains it. If `paths`
        contains the file itself, the part depends on the file's name.
        """
        roots = [absolute(path) for path in paths]
        return tuple(file for file in files if self.contains(_relative(file, roots)))


def missing_parts(folders: Iterable[Path]) -> list[Path]:
    """Return the folders of missing parts. A name such as `films.part-03-of-16` means that there must be 16 parts."""
    expected: dict[Path, None] = {}
    matches = {folder: _PART_NAME.fullmatch(folder.name) for folder in folders}
    for folder, match in matches.items():
        if match is not None:
            library = folder.with_name(match[1])
            total = int(match[3])
            expected |= dict.fromkeys(LibraryPart(number, total).folder(library) for number in range(1, total + 1))
    return [folder for folder in expected if folder not in matches]


def _relative(file: Path, roots: Sequence[Path]) -> str:
    for root in roots:
        if file == root:
            return file.name
        if root in file.parents:
            return file.relative_to(root).as_posix()
    return str(file)


@dataclass(frozen=True)
class MergeReport:
    """The numbers of videos: in the merged library, copied into it, and left out as duplicates."""

    videos: int
    copied: int
    duplicates: int


@dataclass(frozen=True)
class _MergedRow:
    """A row of the merged library, and its origin: the index of a library, and the id of the video there."""

    record: VideoRecord
    library: int
    video_id: str

    @property
    def content(self) -> tuple[str, str]:
        return self.record.content_hash, self.record.sampling


def merge(out: Path, folders: Sequence[Path], *, progress: Callable[[int, int], None] | None = None) -> MergeReport:
    """Add the videos of other libraries to a library, and return the report. The library is created if necessary.

    Videos at the same path in several libraries become one row, with the content that was indexed last and the id from
    the first of these libraries. Copies of a file at different paths keep their rows. If a file was moved (it is no
    longer at one path, and was later indexed at another), its two rows become one. The result is the same as if all
    files had been indexed into one library.

    The text of a video (subtitles, speech, text in the picture) comes from all libraries that know its content. If
    several of them have read it with the same source, the latest reading is kept.

    Raises:
        ConfigError: There is nothing to merge, or a library is merged into itself.
        IndexMismatchError: The libraries have different encoders or models.
        IndexBusyError: Another process is writing to one of the libraries.
        UntrimmedError: A library does not exist.
    """
    folders = list(dict.fromkeys(folders))
    if not folders or out in folders:
        problem = "cannot be merged into itself" if folders else "needs libraries to merge"
        raise ConfigError(f"{shown(out)}: {problem}; name it first, then other libraries")
    parts = [VideoIndex(folder, follow=False) for folder in folders]
    if missing := missing_parts(folders):
        raise UntrimmedError(
            f"{named(map(shown, missing))}: missing among the parts; index these parts, then merge all of them"
        )
    with ExitStack() as locks:
        target = locks.enter_context(VideoIndex(out, create=True))
        for part in parts:
            locks.enter_context(part)
        old_settings = target.settings
        libraries = [target, *parts] if old_settings else parts
        settings = _common_settings(libraries)
        records = [library.scan() for library in libraries]
        rows = _merged_rows(records)
        for library in libraries:
            copy_thumbnails(library.folder, out, {row.record.content_hash for row in rows})
        copied = _copy_rows(target, rows, libraries, progress)
        for library in parts:
            _copy_bins(target, library, rows)
        _copy_passages(target, rows, list(zip(libraries, records, strict=True)))
        if settings != old_settings:
            target.write_settings(settings)
    return MergeReport(len(rows), copied, sum(map(len, records)) - len(rows))


def _common_settings(libraries: Sequence[VideoIndex]) -> Settings:
    """Return the settings of the first library. The others must have the same encoder and model."""
    settings = [values for library in libraries if (values := library.settings) is not None]
    for library, values in zip(libraries, settings, strict=True):
        for name in _COMPARED:
            if getattr(values, name) != getattr(settings[0], name):
                raise IndexMismatchError(
                    f"{shown(library.folder)}: its {name.replace('_', ' ')} is {getattr(values, name)}, but "
                    f"{shown(libraries[0].folder)} has {getattr(settings[0], name)}; index both with one encoder, and "
                    "search both with one model (untrimmed index --model)"
                )
    return replace(settings[0], products=joined_products(values.products for values in settings))


def _merged_rows(libraries: Sequence[Sequence[VideoRecord]]) -> list[_MergedRow]:
    """Return the rows of the merged library by path, see `merge`."""
    rows: dict[str, _MergedRow] = {}
    for number, records in enumerate(libraries):
        for record in records:
            row = _MergedRow(record, number, record.video_id)
            first = rows.get(record.path)
            if first is None:
                rows[record.path] = row
            elif first.content != row.content and first.record.indexed_at < record.indexed_at:
                rows[record.path] = replace(row, record=replace(record, video_id=first.record.video_id))
    by_content: dict[tuple[str, str], list[_MergedRow]] = {}
    for row in rows.values():
        by_content.setdefault(row.content, []).append(row)
    for copies in by_content.values():
        if len({row.library for row in copies}) > 1:
            for old, new in _moves(copies):
                del rows[old.record.path]
                rows[new.record.path] = replace(new, record=replace(new.record, video_id=old.record.video_id))
    return list(_with_unique_ids(rows[path] for path in sorted(rows)))


def _moves(copies: Sequence[_MergedRow]) -> Iterator[tuple[_MergedRow, _MergedRow]]:
    """Yield the old and the new row of each moved file among rows with the same content."""
    rows = sorted(copies, key=lambda row: row.record.indexed_at)
    gone = [row for row in rows if not os.path.lexists(row.record.path)]
    for row in (row for row in rows if row not in gone):
        older = (old for old in gone if old.library != row.library and old.record.indexed_at < row.record.indexed_at)
        if (old := next(older, None)) is not None:
            gone.remove(old)
            yield old, row


def _with_unique_ids(rows: Iterable[_MergedRow]) -> Iterator[_MergedRow]:
    """Yield rows with unique ids.

    A repeated id (as in a copy of a library) is replaced by a hash, which is the same in each merge.
    """
    ids: set[str] = set()
    for row in rows:
        while row.record.video_id in ids:
            digest = hashlib.blake2b(f"{row.record.video_id} {row.record.path}".encode(), digest_size=8).hexdigest()
            row = replace(row, record=replace(row.record, video_id=digest))
        ids.add(row.record.video_id)
        yield row


def _copy_rows(
    target: VideoIndex,
    rows: Sequence[_MergedRow],
    libraries: Sequence[VideoIndex],
    progress: Callable[[int, int], None] | None,
) -> int:
    """Replace the content of the target table by these rows. Return the number of rows that had to be copied."""
    present = {record.video_id: record for record in target.scan()}
    missing = [row for row in rows if present.get(row.record.video_id) != row.record]
    copied = 0
    for number, library in enumerate(libraries):
        records = {row.video_id: row.record for row in missing if row.library == number}
        merged_videos = (replace(video, record=records[video.record.video_id]) for video in library.read(list(records)))
        for videos in batched_by_size(merged_videos, _num_bytes, _BYTES_PER_COMMIT):
            target.put_all(videos)
            copied += len(videos)
            if progress is not None:
                progress(copied, len(missing))
    if copied != len(missing):
        raise UntrimmedError(
            f"{shown(target.folder)}: {len(missing) - copied} videos to merge were not read; merge again"
        )
    target.remove(list(present.keys() - {row.record.video_id for row in rows}))
    return copied


def _merged_record(rows: Iterable[_MergedRow]) -> Callable[[VideoRecord], VideoRecord | None]:
    """Return a function that maps a video of a library to the merged video.

    This is the video at its path, or if the path has other content, a copy of the video at another path.
    """
    by_path = {row.record.path: row.record for row in rows}
    by_content = {(record.content_hash, record.sampling): record for record in by_path.values()}

    def merged_record(old: VideoRecord) -> VideoRecord | None:
        at_path = by_path.get(old.path)
        if at_path is not None and at_path.content_hash == old.content_hash:
            return at_path
        return by_content.get((old.content_hash, old.sampling), at_path)

    return merged_record


def _copy_bins(target: VideoIndex, source: VideoIndex, rows: Sequence[_MergedRow]) -> None:
    """Add the bins of a library to the target. Their moments get the ids of the videos in the merged library."""
    bins = Bins(source.folder).all()
    if not bins:
        return
    old = {record.video_id: record for record in source.scan()}
    merged_record = _merged_record(rows)

    def moment_of_merged(moment: BinMoment) -> BinMoment:
        record = old.get(moment.video_id)
        merged = None if record is None else merged_record(record)
        return moment if merged is None else replace(moment, video_id=merged.video_id)

    Bins(target.folder).add_copies(bins, moment_of_merged)


def _copy_passages(
    target: VideoIndex, rows: Sequence[_MergedRow], libraries: Sequence[tuple[VideoIndex, Sequence[VideoRecord]]]
) -> None:
    """Copy the readings of the merged videos to the target. Of several readings by one source, the latest is kept.

    A video that several libraries know gets the readings of all of them. `libraries` are the libraries with the
    records that they had before the merge.
    """
    table = PassageTable(target.folder)
    present = {(reading.video_id, reading.source): reading for reading in table.readings()}
    merged_record = _merged_record(rows)
    for library, records in libraries:
        source = PassageTable(library.folder, follow=False)
        old = {record.video_id: record for record in records}
        for reading in source.readings():
            record = old.get(reading.video_id)
            merged = None if record is None else merged_record(record)
            if merged is None or merged.content_hash != reading.content_hash:
                continue
            key = merged.video_id, reading.source
            previous = present.get(key)
            if previous is None or previous.content_hash != reading.content_hash or previous.read_at < reading.read_at:
                replaces = [] if previous is None else [previous.reading_id]
                table.copy(source, reading, merged.video_id, replaces)
                present[key] = reading
    table.keep({row.record.video_id for row in rows})
    table.finish()


def _num_bytes(video: StoredVideo) -> int:
    return video.features.vectors.nbytes + video.features.times_s.nbytes + len(video.encoded)
