"""What a library says of itself without its vectors: its settings, and a record a video.

The table of videos holds the records; reading it takes longer than all else that listing a library does. So whoever
reads them leaves a copy beside the table, which names the commit it was made from and counts for that one alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, overload

import platformdirs
import xxhash

from untrimmed.errors import (
    ConfigError,
    IndexMismatchError,
    UnknownNameError,
    UntrimmedError,
    require_type,
    shown,
)
from untrimmed.search.store import bucket as remote

FORMAT = 1
TABLE = "videos.lance"
_COPY = "records.json"
_get_path = attrgetter("path")
# What changes with a video's vectors. Not where its file lies, nor the model: what that makes of a video follows from
# the frames, so that a corpus of another model has it in memory already.
_get_content = attrgetter("content_hash", "sampling", "encoder_identity", "indexed_at", "num_frames", "duration_s")
_LAST_VERSION = (1 << 64) - 1  # manifests are named by their distance from it, so that the newest sorts first


@dataclass(frozen=True)
class Settings:
    """What a library was made with: the encoder for good, sampling and model as new rows get them."""

    encoder: str  # the name that loads it again
    encoder_identity: str  # names the exact weights; vectors of two identities are never compared
    frame_dim: int
    word_dim: int
    fps: float
    keyframes_only: bool
    model: str = "frames"
    model_folder: str | None = None  # where a trained model lies
    products: str = "float32"  # the number formats that frames were encoded in: "float32", "bfloat16 and float32"
    format: int = FORMAT

    @property
    def sampling(self) -> str:
        """How densely videos are looked at, as their records say it."""
        return "key frames" if self.keyframes_only else f"{self.fps:g} fps"


@dataclass(frozen=True)
class VideoRecord:
    """One indexed video without its vectors. `video_id` is opaque and stays through renames, moves and changes."""

    video_id: str
    path: str
    content_hash: str
    size: int
    mtime_ns: int
    duration_s: float
    width: int
    height: int
    num_frames: int
    sampling: str  # "2 fps" or "key frames"
    encoder_identity: str
    model: str
    indexed_at: float
    warnings: str = ""

    @property
    def changed_s(self) -> float:
        """When the file was last changed, in seconds since 1970."""
        return self.mtime_ns / 1e9


class Changes(NamedTuple):
    """The ids of videos that are new or have other vectors than before, and of those that are gone."""

    added: list[str]
    removed: list[str]


class Records(Sequence[VideoRecord]):
    """All records of one version of a library, by path: a place is found without a look at each."""

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
        """The record of that id.

        Raises: KeyError for one that is not there.
        """
        return self._by_id[video_id]

    def at(self, path: Path) -> VideoRecord | None:
        """The video that is this file."""
        return next(iter(self._between(str(path), f"{path}\0")), None)

    def named(self, name: str) -> list[VideoRecord]:
        """Return all videos with this path, file name or file name without suffix."""
        return self._by_name.get(name) or self._by_name.get(os.path.abspath(name)) or []

    def find(self, name: str) -> VideoRecord | None:
        """Return the one video with this path, file name or file name without suffix; None if there is none.

        Raises:
            UnknownNameError: Several videos have it.
        """
        found = self.named(name)
        if len(found) > 1:
            raise UnknownNameError(f"video {name!r} fits {len(found)} files, e.g. {found[0].path}; name it by its path")
        return found[0] if found else None

    def below(self, path: Path) -> list[VideoRecord]:
        """The videos that are this file or lie below this folder, by path.

        Paths count as they are written, from the root on, whatever links are in them.
        """
        name = str(path)
        folder = name if name.endswith(os.sep) else name + os.sep
        inside = self._between(folder, folder[:-1] + chr(ord(os.sep) + 1))
        if name == os.sep:  # with two it is another root
            inside = [record for record in inside if not record.path.startswith(2 * os.sep)]
        return [*self._between(name, f"{name}\0"), *(record for record in inside if record.path != name)]

    def changes_since(self, before: Records) -> Changes:
        """How these videos differ from those of another version, either of the two being the later one."""
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


def content_stamp(record: VideoRecord) -> str:
    """Names what a record says of its video's vectors: another one means other vectors."""
    return hashlib.blake2b(repr(_get_content(record)).encode(), digest_size=8).hexdigest()


def library_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Where a library lies, as an absolute path; if none is named: $UNTRIMMED_LIBRARY, else the user's data folder.

    For one on object storage (s3://BUCKET/NAME) the folder that stands for it here.

    Raises: ConfigError for what is no path.
    """
    require_type(folder, str | os.PathLike | None, "library", "the path of a folder")
    named = folder if folder is not None else os.environ.get("UNTRIMMED_LIBRARY")
    if named is not None and remote.is_address(str(named)):
        return remote.stand_in(str(named))
    return Path(os.path.abspath(Path(named or platformdirs.user_data_path("untrimmed") / "library").expanduser()))


def absolute(path: str | os.PathLike[str]) -> Path:
    """Return the path from the root, links in it kept.

    Raises:
        ConfigError: It is empty, or begins with the name of a user who is not known.
    """
    if not os.fspath(path):
        raise ConfigError("a path is empty; name a file or a folder ('.' is the current one)")
    try:
        return Path(os.path.abspath(Path(path).expanduser()))
    except RuntimeError as error:
        raise ConfigError(f"{shown(Path(path))}: {error}; write ./~NAME for a file that is called so") from None


def joined_products(products: Iterable[str]) -> str:
    """The number formats of several, as settings name them.

    >>> joined_products(["float32", "bfloat16 and float32"])
    'bfloat16 and float32'
    """
    return " and ".join(sorted({name for some in products for name in some.split(" and ")}))


RESTORE = "restore the folder from a copy, or index into another --library"
OTHER_VERSION = "was made by an earlier development version of untrimmed; index again into another --library"
# Where there is a table alone.
NO_SETTINGS = (
    "its library.json is not there: where a merge into it has not ended, run the same `untrimmed merge` again; else "
    "restore that file, or index into another --library"
)


def settings_file(folder: Path) -> Path:
    """Where a library's settings lie; a folder without that file is no library.

    Of a library on object storage it is a copy as new as the call.
    """
    file = folder / "library.json"
    if (address := remote.address_of(folder)) is not None:
        remote.fetch(address, file.name, file)
    return file


def require_settings(folder: Path, name: str) -> None:
    """Refuse a folder that is no library, by the name that people know it by.

    Raises: UntrimmedError with the command that makes one there.
    """
    if not settings_file(folder).exists():
        if newest_commit(folder) is not None:
            raise UntrimmedError(f"{name}: {NO_SETTINGS}")
        raise UntrimmedError(f"{name}: no library here; {how_to_make(name)}")


def how_to_make(name: str) -> str:
    """What to do where there is no library.

    >>> how_to_make("my films")
    "make one with: untrimmed index FOLDER --library 'my films'"
    """
    return f"make one with: untrimmed index FOLDER --library {shlex.quote(name)}"


def write_settings(folder: Path, settings: Settings) -> None:
    """Record what all rows share; whole or not at all."""
    from untrimmed.files import write_whole

    file = folder / "library.json"
    write_whole(file, json.dumps(asdict(settings), indent=2) + "\n", alone=True)
    if (address := remote.address_of(folder)) is not None:
        remote.send(address, file.name, file)


def table_at(folder: Path) -> str:
    """Where a library's table lies."""
    address = remote.address_of(folder)
    return os.path.abspath(folder / TABLE) if address is None else f"{address}/{TABLE}"


def read_settings(folder: Path) -> Settings | None:
    """What all rows of a library share; None as long as nothing was ever indexed.

    Raises:
        IndexMismatchError: The file is damaged, or of a version that this program does not read.
    """
    file = settings_file(folder)
    if not file.exists():
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if found["format"] == FORMAT and found.keys() == Settings.__dataclass_fields__.keys():
            return Settings(**found)
    except (ValueError, KeyError, TypeError):  # bytes that are no text, no JSON, or not these names
        raise IndexMismatchError(
            f"{file}: not a library's settings file; restore it or index into another --library"
        ) from None
    raise IndexMismatchError(f"{file}: {OTHER_VERSION}")


def newest_commit(folder: Path) -> list[Any] | None:
    """The manifest of the table's last commit by name, time and size; None while nothing was committed.

    On object storage by name and the names of what was committed, of which each is drawn.
    """
    if (address := remote.address_of(folder)) is not None:
        return _newest_commit_at(address)
    try:
        manifests = [entry for entry in os.scandir(folder / TABLE / "_versions") if entry.name.endswith(".manifest")]
        newest = min(manifests, key=lambda entry: entry.name, default=None)
        return None if newest is None else [newest.name, newest.stat().st_mtime_ns, newest.stat().st_size]
    except FileNotFoundError:
        return None


def _newest_commit_at(address: str) -> list[Any] | None:
    manifests = [name for name in remote.names(address, f"{TABLE}/_versions") if name.endswith(".manifest")]
    if not manifests:
        return None
    version = version_of(commit := [min(manifests)])
    drawn = (name for name in remote.names(address, f"{TABLE}/_transactions") if version is not None)
    return [*commit, *sorted(name for name in drawn if name.startswith(f"{(version or 0) - 1}-"))]


def version_of(commit: list[Any] | None) -> int | None:
    """The number of the table's version that a commit made; None if its name does not say."""
    name = "" if commit is None else str(commit[0]).removesuffix(".manifest")
    return _LAST_VERSION - int(name) if len(name) == len(str(_LAST_VERSION)) and name.isdigit() else None


def read_copy(folder: Path, commit: list[Any] | None) -> list[VideoRecord] | None:
    """The records by path from the copy; None if it is of another commit, or there is none that is whole."""
    try:
        digest, _, copied = (folder / _COPY).read_bytes().partition(b"\n")
        if digest != _digest(copied) or (copy := json.loads(copied))["commit"] != commit:
            return None
        return [VideoRecord(**row) for row in copy["records"]]
    except (OSError, ValueError, KeyError, TypeError):  # not there, or of another program: the table has them
        return None


def write_copy(folder: Path, version: int, records: list[VideoRecord]) -> None:
    """Leave a copy of the records of one version, if that is the newest and the folder can be written to.

    A copy that is there already stays: to write megabytes and sync them takes longer than most searches.
    """
    from untrimmed.files import write_whole

    with contextlib.suppress(OSError):
        commit = newest_commit(folder)
        if commit is None or version_of(commit) != version or read_copy(folder, commit) == records:
            return
        copied = json.dumps({"commit": commit, "records": [vars(record) for record in records]}).encode()
        write_whole(folder / _COPY, _digest(copied) + b"\n" + copied)


def remove_damaged_copy(folder: Path) -> list[Path]:
    """Remove the copy of the records if it is not as it was written; what went."""
    copy = folder / _COPY
    try:
        digest, _, copied = copy.read_bytes().partition(b"\n")
    except OSError:
        return []
    if digest == _digest(copied):
        return []
    copy.unlink(missing_ok=True)
    return [copy]


def _digest(content: bytes) -> bytes:
    return xxhash.xxh3_128_hexdigest(content).encode()


def clear_leftovers(folder: Path) -> None:
    """Remove what killed processes have left of files that any reader may write; whose file goes does without it."""
    with contextlib.suppress(OSError):
        for file in folder.glob(".*.json.*"):
            file.unlink(missing_ok=True)
