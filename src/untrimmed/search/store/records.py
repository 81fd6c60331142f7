"""The settings of a library, and one record per video with everything about the video except its vectors.

The records are in the table, but opening the table takes longer than the rest of `untrimmed ls`. So each process that
reads records from the table writes a copy to `records.json`. The copy is only valid for the commit that it names.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload

import platformdirs
import xxhash

from untrimmed.errors import ConfigError, IndexMismatchError, UnknownNameError, UntrimmedError, require_type, shown
from untrimmed.files import write_whole
from untrimmed.search.store import bucket
from untrimmed.video.timing import Timing

FORMAT = 1
TABLE = "videos.lance"
PASSAGES = "passages.lance"  # see `untrimmed.search.store.passages`
READINGS_COPY = "readings.json"  # see `untrimmed.search.store.readings`
VERSIONS = "_versions"  # folder of the table with a file for each commit
THUMBNAILS = "thumbnails"  # name of the folder with thumbnails, see `untrimmed.search.store.thumbnails`
DEFAULT_SOURCES: Mapping[str, Mapping[str, Any]] = {"subtitle": {}}  # sources of passages of new libraries
T = TypeVar("T")

_SETTINGS = "library.json"
_CHECKSUM = "checksum"  # key in library.json: checksum of the other values
_COPY = "records.json"
_get_path = attrgetter("path")
# At least one of these fields changes when a video's frame vectors change. Path and model are not among these fields,
# so a corpus does not read a video again if only path or model change.
_get_content = attrgetter("content_hash", "sampling", "encoder_identity", "indexed_at", "num_frames", "duration_s")
_LAST_VERSION = (1 << 64) - 1  # the name of a manifest is this number minus the version, so the newest sorts first

RESTORE = "restore the folder from a copy, or index into another --library"
OTHER_VERSION = "was made by an earlier development version of untrimmed; index again into another --library"
NO_SETTINGS = (  # message if there is a table, but no settings file
    "library.json is missing; if a merge into this library was interrupted, run the same `untrimmed merge` again; "
    "otherwise restore that file, or index into another --library"
)


@dataclass(frozen=True)
class Settings:
    """The encoder of a library's videos, and the sampling and the model for new videos."""

    encoder: str  # the name with which the encoder is loaded
    # names the exact weights of the encoder; vectors with different identities are never compared
    encoder_identity: str
    frame_dim: int
    word_dim: int
    fps: float
    keyframes_only: bool
    model: str = "frames"
    model_folder: str | None = None  # folder of a trained model; None for a training-free model
    products: str = "float32"  # number formats with which frames were encoded, e.g. "bfloat16 and float32"
    thumbnails: bool = True  # whether thumbnails of new videos are stored
    # the sources of passages that are read from videos, each with its settings (`untrimmed.passages.source`)
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: DEFAULT_SOURCES)
    # the settings of sources that are turned off, for when they are turned on again
    unused_sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def sampling(self) -> str:
        """The sampling as text, as in `VideoRecord.sampling`."""
        return "key frames" if self.keyframes_only else f"{self.fps:g} fps"


@dataclass(frozen=True)
class VideoRecord:
    """An indexed video without its vectors. The `video_id` stays the same if the file is moved or changed."""

    video_id: str
    path: str
    content_hash: str
    size: int
    mtime_ns: int
    duration_s: float
    width: int
    height: int
    num_frames: int
    sampling: str  # how frames were sampled, such as "2 fps" or "key frames"
    encoder_identity: str
    model: str
    indexed_at: float
    warnings: str = ""
    # `Timing.stored`. Older libraries lack these fields until the file is indexed again.
    frame_rate: str = ""
    has_variable_rate: bool = False
    start_timecode: str = ""
    num_audio_tracks: int = 0

    @property
    def timing(self) -> Timing | None:
        """The frame rate, timecode and audio tracks of the file, or None if they are unknown."""
        if not self.frame_rate:
            return None
        return Timing(self.frame_rate, self.has_variable_rate, self.start_timecode, self.num_audio_tracks)

    @property
    def changed_s(self) -> float:
        """The time at which the file was last changed, in seconds since 1970."""
        return self.mtime_ns / 1e9


class Changes(NamedTuple):
    """The ids of videos that are new or have new vectors, and the ids of removed videos."""

    added: list[str]
    removed: list[str]


class Records(Sequence[VideoRecord]):
    """All records of one version of a library, sorted by path. Lookups by id or path are fast."""

    def __init__(self, records: Iterable[VideoRecord] = ()):
        self._records = sorted(records, key=_get_path)
        self._paths = [record.path for record in self._records]
        self._by_id = {record.video_id: record for record in self._records}

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, index: int) -> VideoRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[VideoRecord]: ...
    def __getitem__(self, index: int | slice) -> VideoRecord | list[VideoRecord]:
        return self._records[index]

    def of(self, video_id: str) -> VideoRecord:
        """Return the record with this id. Raises KeyError if there is none."""
        return self._by_id[video_id]

    def at(self, path: Path) -> VideoRecord | None:
        """Return the video with this path, or None."""
        return next(iter(self._between(str(path), f"{path}\0")), None)

    def named(self, name: str) -> list[VideoRecord]:
        """Return all videos with this path, file name or file name without suffix."""
        return self._by_name.get(name) or self._by_name.get(os.path.abspath(name)) or []

    def find(self, name: str) -> VideoRecord | None:
        """Return the video with this path, file name or file name without suffix, or None if there is none.

        Raises:
            UnknownNameError: Several videos match.
        """
        matches = self.named(name)
        if len(matches) > 1:
            raise UnknownNameError(
                f"video {name!r} fits {len(matches)} files, e.g. {matches[0].path}; name it by its path"
            )
        return matches[0] if matches else None

    def below(self, path: Path) -> list[VideoRecord]:
        """Return the video with this path, or all videos in this folder and its subfolders. Links are not resolved."""
        name = str(path)
        folder = os.path.join(name, "")
        videos = self._between(folder, folder[:-1] + chr(ord(os.sep) + 1))
        if name == os.sep:  # the root; "//" is a different root
            videos = [record for record in videos if not record.path.startswith(2 * os.sep)]
        return [*self._between(name, f"{name}\0"), *(record for record in videos if record.path != name)]

    def matching(self, path: str | os.PathLike[str]) -> list[VideoRecord]:
        """Return the videos that `below` returns for a path, or if there are none, the video with this name.

        Raises:
            UnknownNameError: Several videos have the name.
        """
        if videos := self.below(absolute(path)):
            return videos
        video = self.find(os.fspath(path))
        return [] if video is None else [video]

    def changes_since(self, before: Records) -> Changes:
        """Return the changes from another version to this one. `before` may also be a later version."""
        if self is before:
            return Changes([], [])
        known = {video_id: _get_content(record) for video_id, record in before._by_id.items()}
        added = [video_id for video_id, record in self._by_id.items() if known.get(video_id) != _get_content(record)]
        return Changes(added, [video_id for video_id in known if video_id not in self._by_id])

    @cached_property
    def _by_name(self) -> dict[str, list[VideoRecord]]:
        names: dict[str, list[VideoRecord]] = {}
        for record in self._records:
            path = Path(record.path)
            for name in {record.path, path.name, path.stem}:
                names.setdefault(name, []).append(record)
        return names

    def _between(self, first: str, stop: str) -> list[VideoRecord]:
        return self._records[bisect_left(self._paths, first) : bisect_left(self._paths, stop)]


def folders_of_equal_names(paths: Iterable[str | Path]) -> dict[Path, str]:
    """Return, for each path whose file name is not unique, the name of a folder that distinguishes it.

    >>> folders_of_equal_names(["/a/1/x.mp4", "/b/1/x.mp4", "/b/1/y.mp4"])
    {PosixPath('/a/1/x.mp4'): 'a', PosixPath('/b/1/x.mp4'): 'b'}
    """
    by_name: dict[str, set[Path]] = {}
    for path in map(Path, paths):
        by_name.setdefault(path.stem, set()).add(path)
    folders = {}
    for path in sorted(path for equal in by_name.values() if len(equal) > 1 for path in equal):
        others = [other.parent.parts[::-1] for other in by_name[path.stem] if other != path]
        parts = path.parent.parts[::-1]
        levels = (
            part for level, part in enumerate(parts) if any(other[level : level + 1] != (part,) for other in others)
        )
        folders[path] = next(levels, path.parent.name)
    return folders


def content_stamp(record: VideoRecord) -> str:
    """Return a hash that changes whenever the vectors of the video change."""
    return hashlib.blake2b(repr(_get_content(record)).encode(), digest_size=8).hexdigest()


def library_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the absolute path of a library's folder, or of its local folder if it is on object storage.

    The default is the library in $UNTRIMMED_LIBRARY, or else a folder in the user's data folder.

    Raises:
        ConfigError: `folder` is not a path.
    """
    require_type(folder, str | os.PathLike | None, "library", "the path of a folder")
    location = folder if folder is not None else os.environ.get("UNTRIMMED_LIBRARY")
    if location is not None and bucket.is_address(str(location)):
        return bucket.local_folder(str(location))
    return Path(os.path.abspath(Path(location or platformdirs.user_data_path("untrimmed") / "library").expanduser()))


def absolute(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path, with links not resolved. Raises ConfigError if it is empty or names an unknown user."""
    if not os.fspath(path):
        raise ConfigError("a path is empty; name a file or a folder ('.' is the current one)")
    try:
        return Path(os.path.abspath(Path(path).expanduser()))
    except RuntimeError as error:
        raise ConfigError(f"{shown(Path(path))}: {error}; if the name begins with '~', write ./~NAME") from None


def joined_products(products: Iterable[str]) -> str:
    """Return the number formats of several libraries as one text, without duplicates.

    >>> joined_products(["float32", "bfloat16 and float32"])
    'bfloat16 and float32'
    """
    return " and ".join(sorted({name for names in products for name in names.split(" and ")}))


def settings_file(folder: Path) -> Path:
    """Return the path of a library's settings file. From object storage, the file is downloaded first.

    A folder without this file is not a library.
    """
    file = folder / _SETTINGS
    if (address := bucket.address_of(folder)) is not None:
        bucket.fetch(address, file.name, file)
    return file


def require_settings(folder: Path) -> None:
    """Raise an UntrimmedError if a folder is not a library."""
    if not settings_file(folder).exists():
        name = bucket.name_of(folder)
        if newest_commit(folder) is not None:
            raise UntrimmedError(f"{name}: {NO_SETTINGS}")
        raise UntrimmedError(f"{name}: no library here; {how_to_make(name)}")


def how_to_make(name: str) -> str:
    """Return advice on how to make a missing library.

    >>> how_to_make("my films")
    "make one with: untrimmed index FOLDER --library 'my films'"
    """
    return f"make one with: untrimmed index FOLDER --library {shlex.quote(name)}"


def write_settings(folder: Path, settings: Settings) -> None:
    """Write the settings atomically."""
    file = folder / _SETTINGS
    values = asdict(settings)
    write_whole(file, json.dumps(values | {_CHECKSUM: checksum(values)}, indent=2) + "\n", is_only_writer=True)
    if (address := bucket.address_of(folder)) is not None:
        bucket.send(address, file.name, file)


def read_settings(folder: Path) -> Settings | None:
    """Return the settings of a library, or None if nothing was ever indexed.

    Raises:
        IndexMismatchError: The file is damaged, or is from a version of the program that this version cannot read.
    """
    file = settings_file(folder)
    if not file.exists():
        return None
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        stored_checksum = values.pop(_CHECKSUM, None)  # older libraries have none
        if stored_checksum is not None and stored_checksum != checksum(values):
            raise IndexMismatchError(
                f"{file}: was changed or is damaged (wrong checksum); restore it or index into another --library"
            )
        values = {"thumbnails": True, "sources": DEFAULT_SOURCES, "unused_sources": {}} | values
        if values["format"] == FORMAT and values.keys() == Settings.__dataclass_fields__.keys():
            return Settings(**values)
    except (ValueError, KeyError, TypeError, AttributeError):  # the file is not text, is not JSON, or lacks fields
        raise IndexMismatchError(
            f"{file}: not a library's settings file; restore it or index into another --library"
        ) from None
    raise IndexMismatchError(f"{file}: {OTHER_VERSION}")


def checksum(values: dict[str, Any]) -> str:
    """Return a hash of values that can be written as JSON."""
    return xxhash.xxh3_64_hexdigest(json.dumps(values, sort_keys=True).encode())


def newest_commit(folder: Path, table: str = TABLE) -> list[Any] | None:
    """Return a list that identifies the last commit of a table, or None before the first commit.

    For a library in a folder, the list contains name, time and size of the commit's manifest. For a library on object
    storage, it contains the name of the manifest and the random names of its transactions.
    """
    if (address := bucket.address_of(folder)) is not None:
        manifests = [name for name in bucket.names(address, f"{table}/{VERSIONS}") if name.endswith(".manifest")]
        if not manifests:
            return None
        first = [min(manifests)]
        prefix = f"{(version_of(first) or 0) - 1}-"
        transactions = bucket.names(address, f"{table}/_transactions")
        return first + sorted(name for name in transactions if name.startswith(prefix))
    try:
        entries = [entry for entry in os.scandir(folder / table / VERSIONS) if entry.name.endswith(".manifest")]
        newest = min(entries, key=lambda entry: entry.name, default=None)
        return None if newest is None else [newest.name, newest.stat().st_mtime_ns, newest.stat().st_size]
    except FileNotFoundError:
        return None


def version_of(commit: list[Any] | None) -> int | None:
    """Return the table version of a commit, or None if the name of its manifest does not contain the version."""
    name = "" if commit is None else str(commit[0]).removesuffix(".manifest")
    return _LAST_VERSION - int(name) if len(name) == len(str(_LAST_VERSION)) and name.isdigit() else None


def read_records_copy(folder: Path, commit: list[Any] | None) -> list[VideoRecord] | None:
    """Return the records in the copy, by path, or None if there is no valid copy for this commit."""
    rows = read_copy(folder / _COPY, commit)
    try:
        return None if rows is None else [VideoRecord(**row) for row in rows]
    except TypeError:  # another program wrote the file
        return None


def read_copy(file: Path, commit: list[Any] | None) -> list[dict[str, Any]] | None:
    """Return the rows in a file of `write_copy`, or None if it is missing, damaged or of another commit."""
    try:
        digest, _, content = file.read_bytes().partition(b"\n")
        if digest != _digest(content) or (copy := json.loads(content))["commit"] != commit:
            return None
        return list(copy["records"])
    except (OSError, ValueError, KeyError, TypeError):  # the copy is missing, or another program wrote it
        return None


def write_records_copy(folder: Path, version: int, records: list[VideoRecord]) -> None:
    """Write the copy of the records, if they belong to the newest version and the folder is writable.

    An identical copy is not written again, because writing megabytes takes longer than most searches.
    """
    with contextlib.suppress(OSError):
        commit = newest_commit(folder)
        if commit is None or version_of(commit) != version or read_records_copy(folder, commit) == records:
            return
        write_copy(folder / _COPY, commit, [vars(record) for record in records])


def write_copy(file: Path, commit: list[Any], rows: list[dict[str, Any]]) -> None:
    """Write rows with a checksum, and the commit of the table from which they were read."""
    content = json.dumps({"commit": commit, "records": rows}).encode()
    write_whole(file, _digest(content) + b"\n" + content)


def remove_damaged_copies(folder: Path) -> list[Path]:
    """Remove copies (of records or of readings) whose checksum is wrong. Return the paths of the removed files."""
    removed = []
    for copy in (folder / _COPY, folder / READINGS_COPY):
        with contextlib.suppress(OSError):
            digest, _, content = copy.read_bytes().partition(b"\n")
            if digest != _digest(content):
                copy.unlink(missing_ok=True)
                removed.append(copy)
    return removed


def _digest(content: bytes) -> bytes:
    return xxhash.xxh3_128_hexdigest(content).encode()


def batched_by_size(items: Iterable[T], size: Callable[[T], int], least: int) -> Iterator[list[T]]:
    """Yield lists of items whose sizes add up to `least` or more. The last list may be smaller.

    >>> list(batched_by_size([1, 2, 3, 4, 5], lambda item: item, least=3))
    [[1, 2], [3], [4], [5]]
    """
    batch: list[T] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= least:
            yield batch
            batch = []
            total = 0
    if batch:
        yield batch
