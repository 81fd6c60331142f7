"""Index a library in parts on many machines, and merge the parts.

A file belongs to the part that a hash of its path selects, relative to the folder that was named. So the parts are
disjoint and complete wherever the folder is mounted, and no machine needs to know of the others.

A merge copies rows; nothing is decoded or encoded again. The settings of a new library are written last: until then it
is not a library. An interrupted merge recognises the rows it has copied, so the same call continues it.
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
from untrimmed.search.store.records import Settings, VideoRecord, absolute, joined_products
from untrimmed.search.store.table import StoredVideo, VideoIndex

_PART_NAME = re.compile(r"(.+)\.part-(\d+)-of-(\d+)")
_BYTES_PER_COMMIT = 1 << 26
_COMPARED = ("encoder_identity", "frame_dim", "word_dim", "model")


@dataclass(frozen=True)
class LibraryPart:
    """Part `number` of `total`, counted from 1."""

    number: int
    total: int

    @classmethod
    def parse(cls, text: str) -> LibraryPart:
        """Read a part such as "3/16".

        Raises: ConfigError if it is not a part.
        """
        match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ConfigError(f"part is {text!r}; expected a number from 1 and how many parts there are, e.g. 3/16")
        return cls(int(match[1]), int(match[2]))

    def folder(self, library: Path) -> Path:
        """Return the folder of the part's own library, which is beside `library`.

        >>> LibraryPart(3, 16).folder(Path("films")).name
        'films.part-03-of-16'
        """
        return library.with_name(f"{library.name}.part-{self.number:0{len(str(self.total))}d}-of-{self.total}")

    def holds(self, name: str) -> bool:
        """Whether a file with this name, relative to the folder that was named, belongs to this part."""
        digest = hashlib.blake2b(os.fsencode(name), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.total == self.number - 1

    def choose(self, files: Iterable[Path], paths: Sequence[Path]) -> tuple[Path, ...]:
        """Return the files of this part, of those found in `paths`.

        If `paths` has a file itself, its name counts. Otherwise the first folder that contains the file counts.
        """
        roots = [absolute(path) for path in paths]
        return tuple(file for file in files if self.holds(_relative(file, roots)))


def missing_parts(folders: Iterable[Path]) -> list[Path]:
    """Return the libraries of parts that are not among these, judging by their names."""
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
    """The number of videos in the library, of videos that this call copied, and of duplicates that were left out."""

    videos: int
    copied: int
    duplicates: int


@dataclass(frozen=True)
class _Row:
    """A row of the merged library, and its source: the number of a library and the id there."""

    record: VideoRecord
    library: int
    video_id: str

    @property
    def content(self) -> tuple[str, str]:
        return self.record.content_hash, self.record.sampling


def merge(out: Path, folders: Sequence[Path], *, progress: Callable[[int, int], None] | None = None) -> MergeReport:
    """Bring a library up to date with others, in this order; create it if necessary.

    If several libraries have a file, the result is what `index` would make of it. A path has one row, with the content
    that was indexed last and the first id. Each path of the same content has a row, unless the file was moved: if it
    is no longer at a path and was later indexed at another one, that is the same video.

    Raises:
        ConfigError: There is nothing to merge, or a library is merged into itself.
        IndexMismatchError: They were made by different encoders, or are searched with different models.
        IndexBusyError: Another process is writing to one of them.
        UntrimmedError: One does not exist.
    """
    folders = list(dict.fromkeys(folders))
    if not folders or out in folders:
        raise ConfigError(f"{shown(out)}: merged into itself, or from nothing; name it first, then other libraries")
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
        copied = _copy_rows(target, rows, libraries, progress)
        if settings != old_settings:
            target.write_settings(settings)
    return MergeReport(len(rows), copied, sum(map(len, records)) - len(rows))


def _common_settings(libraries: Sequence[VideoIndex]) -> Settings:
    """Return the settings of the first library, with which the others must agree."""
    settings = [values for library in libraries if (values := library.settings) is not None]
    for library, values in zip(libraries, settings, strict=True):
        for name in _COMPARED:
            if getattr(values, name) != getattr(settings[0], name):
                raise IndexMismatchError(
                    f"{shown(library.folder)}: its {name.replace('_', ' ')} is {getattr(values, name)}, that of "
                    f"{shown(libraries[0].folder)} {getattr(settings[0], name)}; index both with one encoder, and "
                    "search both with one model (untrimmed index --model)"
                )
    return replace(settings[0], products=joined_products(values.products for values in settings))


def _merged_rows(libraries: Sequence[Sequence[VideoRecord]]) -> list[_Row]:
    """Return the rows of the merged library, by path; see `merge`."""
    rows: dict[str, _Row] = {}
    for number, records in enumerate(libraries):
        for record in records:
            row = _Row(record, number, record.video_id)
            first = rows.get(record.path)
            if first is None:
                rows[record.path] = row
            elif first.content != row.content and first.record.indexed_at < record.indexed_at:
                rows[record.path] = replace(row, record=replace(record, video_id=first.record.video_id))
    by_content: dict[tuple[str, str], list[_Row]] = {}
    for row in rows.values():
        by_content.setdefault(row.content, []).append(row)
    for twins in by_content.values():
        if len({row.library for row in twins}) > 1:
            for old, new in _moves(twins):
                del rows[old.record.path]
                rows[new.record.path] = replace(new, record=replace(new.record, video_id=old.record.video_id))
    return list(_with_unique_ids(rows[path] for path in sorted(rows)))


def _moves(twins: Sequence[_Row]) -> Iterator[tuple[_Row, _Row]]:
    """Among rows with the same content, find files that were moved; yield their old and new rows."""
    rows = sorted(twins, key=lambda row: row.record.indexed_at)
    gone = [row for row in rows if not os.path.lexists(row.record.path)]
    for row in (row for row in rows if row not in gone):
        older = (old for old in gone if old.library != row.library and old.record.indexed_at < row.record.indexed_at)
        if (old := next(older, None)) is not None:
            gone.remove(old)
            yield old, row


def _with_unique_ids(rows: Iterable[_Row]) -> Iterator[_Row]:
    """Replace repeated ids, which a copied library has if its files were moved, by a hash, the same in each merge."""
    ids: set[str] = set()
    for row in rows:
        while row.record.video_id in ids:
            digest = hashlib.blake2b(f"{row.record.video_id} {row.record.path}".encode(), digest_size=8).hexdigest()
            row = replace(row, record=replace(row.record, video_id=digest))
        ids.add(row.record.video_id)
        yield row


def _copy_rows(
    target: VideoIndex,
    rows: Sequence[_Row],
    libraries: Sequence[VideoIndex],
    progress: Callable[[int, int], None] | None,
) -> int:
    """Make these the rows of the target; return how many had to be copied."""
    present = {record.video_id: record for record in target.scan()}
    missing = [row for row in rows if present.get(row.record.video_id) != row.record]
    copied = 0
    for number, library in enumerate(libraries):
        records = {row.video_id: row.record for row in missing if row.library == number}
        copies = (replace(video, record=records[video.record.video_id]) for video in library.read(list(records)))
        for videos in _commits(copies):
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


def _commits(videos: Iterable[StoredVideo]) -> Iterator[list[StoredVideo]]:
    """Group videos into commits of a few dozen megabytes."""
    group: list[StoredVideo] = []
    size = 0
    for video in videos:
        group.append(video)
        size += video.features.vectors.nbytes + video.features.times_s.nbytes + len(video.encoded)
        if size >= _BYTES_PER_COMMIT:
            yield group
            group = []
            size = 0
    if group:
        yield group
