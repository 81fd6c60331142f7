"""Parts of a library that many machines index, and one library of several.

A file belongs to the part that a hash of its path gives, relative to the folder that was named. So the parts are
disjoint and together everything, wherever the folder is mounted, and no machine needs to know of the others.

A merge copies rows as they are; nothing is decoded or encoded again. A new library has its settings written last: until
all is there, it is none. What a killed merge has copied is known by its rows, so that the same call goes on.
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

_NAMED = re.compile(r"(.+)\.part-(\d+)-of-(\d+)")
_BYTES_A_COMMIT = 1 << 26
_COMPARED = ("encoder_identity", "frame_dim", "word_dim", "model")


@dataclass(frozen=True)
class Part:
    """Part `number` of `total`, counted from 1."""

    number: int
    total: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.total:
            raise ConfigError(f"part is {self}; parts are counted from 1: the last of 16 is 16/16")

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    @classmethod
    def parse(cls, text: str) -> Part:
        """A part as it is typed.

        >>> Part.parse("3/16")
        Part(number=3, total=16)

        Raises:
            ConfigError: It is none.
        """
        found = re.fullmatch(r"(\d+)/(\d+)", text.strip())
        if found is None:
            raise ConfigError(f"part is {text!r}; write which one of how many: 3/16")
        return cls(int(found[1]), int(found[2]))

    def folder(self, library: Path) -> Path:
        """Where the part's own library lies: beside the one that it is a part of.

        >>> Part(3, 16).folder(Path("films")).name
        'films.part-03-of-16'
        """
        return library.with_name(f"{library.name}.part-{self.number:0{len(str(self.total))}d}-of-{self.total}")

    def holds(self, name: str) -> bool:
        """Whether a file of this name, relative to the folder that was given, is of this part."""
        digest = hashlib.blake2b(os.fsencode(name), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.total == self.number - 1

    def choose(self, files: Iterable[Path], given: Sequence[Path]) -> tuple[Path, ...]:
        """The files of this part, among those found in the paths that were given.

        A file that was given itself goes by its name alone, one below several folders by the first of them.
        """
        roots = [absolute(path) for path in given]
        return tuple(file for file in files if self.holds(_relative(file, roots)))


def missing_parts(folders: Iterable[Path]) -> list[Path]:
    """The libraries of parts that are not there, going by the names of those that are."""
    missing: dict[Path, None] = {}
    named = {folder: _NAMED.fullmatch(folder.name) for folder in folders}
    for folder, found in named.items():
        if found is not None and (total := int(found[3])):
            whole = folder.with_name(found[1])
            missing |= dict.fromkeys(Part(number, total).folder(whole) for number in range(1, total + 1))
    return [folder for folder in missing if folder not in named]


def _relative(file: Path, roots: Sequence[Path]) -> str:
    for root in roots:
        if file == root:
            return file.name
        if root in file.parents:
            return file.relative_to(root).as_posix()
    return str(file)


@dataclass(frozen=True)
class MergeReport:
    """What came of a merge, in videos: in the library now, copied by this call, and left out as duplicates."""

    videos: int
    copied: int
    duplicates: int


@dataclass(frozen=True)
class _Row:
    """A row as it will be, and where it is copied from: the number of the library, the id there."""

    record: VideoRecord
    library: int
    video_id: str


def merge(out: Path, folders: Sequence[Path], *, progress: Callable[[int, int], None] | None = None) -> MergeReport:
    """Bring a library up to date with others, in the order given; it is made if it is not there.

    A file that several of them hold is taken as `index` would take it: of one path the content that was indexed last,
    under the first id; of one content a row for each path, but for what lies no longer at a path and was indexed at
    another one later, which is the same video, moved.

    Raises:
        ConfigError: The libraries make no sense together.
        IndexMismatchError: They were made by different encoders, or are searched with different models.
        IndexBusyError: Another process is writing to one of them.
        UntrimmedError: One is not there.
    """
    folders = list(dict.fromkeys(folders))
    if not folders or out in folders:
        raise ConfigError(f"{shown(out)}: merged into itself, or from nothing; name it first, then other libraries")
    parts = [VideoIndex(folder, follow=False) for folder in folders]
    if lacking := missing_parts(folders):
        raise UntrimmedError(
            f"{named(shown(folder) for folder in lacking)}: not among the parts that were named; index that part, then "
            "merge all of them"
        )
    with ExitStack() as held:
        target = held.enter_context(VideoIndex(out, create=True))
        for part in parts:
            held.enter_context(part)
        before = target.settings
        libraries = [target, *parts] if before else parts
        settings = _shared([library.settings for library in libraries], libraries)
        rows, duplicates = plan([library.scan() for library in libraries])
        copied = _bring(target, rows, libraries, progress)
        if settings != before:
            target.write_settings(settings)
    return MergeReport(len(rows), copied, duplicates)


def plan(libraries: Sequence[Sequence[VideoRecord]]) -> tuple[list[_Row], int]:
    """The rows of the merged library, by path, and how many records none is made of; see `merge`."""
    chosen: dict[str, _Row] = {}
    for number, records in enumerate(libraries):
        for record in records:
            held = chosen.get(record.path)
            if held is None:
                chosen[record.path] = _Row(record, number, record.video_id)
            elif _content(held.record) != _content(record) and held.record.indexed_at < record.indexed_at:
                chosen[record.path] = _Row(replace(record, video_id=held.record.video_id), number, record.video_id)
    by_content: dict[tuple[str, str], list[_Row]] = {}
    for row in chosen.values():
        by_content.setdefault(_content(row.record), []).append(row)
    for same in by_content.values():
        for gone, moved in _moves(same) if len({row.library for row in same}) > 1 else ():
            del chosen[gone.record.path]
            kept = replace(moved.record, video_id=gone.record.video_id)
            chosen[moved.record.path] = replace(moved, record=kept)
    rows = list(_with_own_ids(chosen[path] for path in sorted(chosen)))
    return rows, sum(map(len, libraries)) - len(rows)


def _content(record: VideoRecord) -> tuple[str, str]:
    return record.content_hash, record.sampling


def _moves(same: Sequence[_Row]) -> Iterator[tuple[_Row, _Row]]:
    """Among rows of one content, those of files that are gone, each with the one of where it lies by now."""
    rows = sorted(same, key=lambda row: row.record.indexed_at)
    gone = [row for row in rows if not os.path.lexists(row.record.path)]
    for row in (row for row in rows if row not in gone):
        before = (g for g in gone if g.library != row.library and g.record.indexed_at < row.record.indexed_at)
        if (moved := next(before, None)) is not None:
            gone.remove(moved)
            yield moved, row


def _with_own_ids(rows: Iterable[_Row]) -> Iterator[_Row]:
    """With another id, always the same, for one that is taken: a library may be copied and its files moved."""
    taken: set[str] = set()
    for row in rows:
        while row.record.video_id in taken:
            digest = hashlib.blake2b(f"{row.record.video_id} {row.record.path}".encode(), digest_size=8).hexdigest()
            row = replace(row, record=replace(row.record, video_id=digest))
        taken.add(row.record.video_id)
        yield row


def _shared(found: Sequence[Settings | None], libraries: Sequence[VideoIndex]) -> Settings:
    """What the merged library is made with: as the first, which all others must agree with."""
    first = found[0]
    assert first is not None, "a library has settings"
    for library, settings in zip(libraries[1:], found[1:], strict=True):
        assert settings is not None, "a library has settings"
        for name in _COMPARED:
            if getattr(settings, name) != getattr(first, name):
                raise IndexMismatchError(
                    f"{shown(library.folder)}: its {name.replace('_', ' ')} is {getattr(settings, name)}, that of "
                    f"{shown(libraries[0].folder)} {getattr(first, name)}; index both with one encoder, and search "
                    "both with one model (untrimmed index --model)"
                )
    return replace(first, products=joined_products(settings.products for settings in found if settings is not None))


def _bring(
    target: VideoIndex,
    rows: Sequence[_Row],
    libraries: Sequence[VideoIndex],
    progress: Callable[[int, int], None] | None,
) -> int:
    """Make the library's rows these; gives how many had to be copied."""
    present = {record.video_id: record for record in target.scan()}
    todo = [row for row in rows if present.get(row.record.video_id) != row.record]
    wanted = {row.record.video_id for row in rows}
    done = 0
    for number, library in enumerate(libraries):
        records = {row.video_id: row.record for row in todo if row.library == number}
        copies = (replace(video, record=records[video.record.video_id]) for video in library.read(list(records)))
        for videos in _commits(copies):
            target.put_all(videos)
            done += len(videos)
            if progress is not None:
                progress(done, len(todo))
    if done != len(todo):
        raise UntrimmedError(f"{shown(target.folder)}: {len(todo) - done} videos to merge were not read; merge again")
    target.remove([video_id for video_id in present if video_id not in wanted])
    return done


def _commits(videos: Iterable[StoredVideo]) -> Iterator[list[StoredVideo]]:
    """As many as make a commit: a few dozen megabytes."""
    gathered: list[StoredVideo] = []
    size = 0
    for video in videos:
        gathered.append(video)
        size += video.features.vectors.nbytes + video.features.times_s.nbytes + len(video.encoded)
        if size >= _BYTES_A_COMMIT:
            yield gathered
            gathered, size = [], 0
    if gathered:
        yield gathered
