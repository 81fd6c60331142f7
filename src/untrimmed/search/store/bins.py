"""Bins: named, ordered lists of moments that users keep in a library.

The folder `bins` of the library has one JSON file per bin, with a checksum. A change must name the version of the bin
that it replaces, so that two users do not overwrite each other's changes.

A moment contains the path of its video. So the moment can be shown after the video was removed from the library.
If the file is indexed again, the moment belongs to the video again.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from untrimmed.errors import ConfigError, StaleVersionError, UnknownNameError, UntrimmedError, shown
from untrimmed.files import write_whole
from untrimmed.search.store.records import Records, VideoRecord, checksum

FOLDER = "bins"
MAX_BINS = 200
MAX_MOMENTS = 500
MAX_NAME = 100  # largest number of characters
_ID = re.compile(r"[0-9a-f]{16}")
_FORMAT = 1
_LOCK_S = 10.0  # longest wait for the lock, which a writer usually holds for milliseconds


@dataclass(frozen=True)
class BinMoment:
    """A moment in a bin. `path` is the path that the video had when the bin was written."""

    video_id: str
    path: str
    start_s: float
    end_s: float
    note: str = ""
    sentence: str = ""  # the query that found the moment

    def record(self, records: Records) -> VideoRecord | None:
        """Return the record of the video, found by its id or else its path, or None if it is not in the library."""
        try:
            return records.of(self.video_id)
        except KeyError:
            return records.at(Path(self.path)) if self.path else None


@dataclass(frozen=True)
class Bin:
    """A bin. `changed_at` is in seconds since 1970."""

    bin_id: str
    name: str
    moments: tuple[BinMoment, ...]
    changed_at: float

    @property
    def version(self) -> str:
        """A hash of the name and the moments."""
        return checksum({"name": self.name, "moments": [asdict(moment) for moment in self.moments]})

    @property
    def duration_s(self) -> float:
        """The total length of the moments, in seconds."""
        return sum(moment.end_s - moment.start_s for moment in self.moments)


class Bins:
    """The bins of a library. Several threads and processes may use them.

    All methods that write raise an UntrimmedError if the folder cannot be written.
    """

    def __init__(self, library: Path) -> None:
        self.folder = library / FOLDER

    def all(self) -> list[Bin]:
        """Return all bins sorted by name, except those whose files are damaged."""
        bins = []
        for bin_id in self._ids():
            with contextlib.suppress(UntrimmedError):  # the file is damaged or has just been removed
                bins.append(self.of(bin_id))
        return sorted(bins, key=lambda bin: (bin.name.casefold(), bin.bin_id))

    def damaged(self) -> list[Path]:
        """Return the files of damaged bins."""
        readable = {bin.bin_id for bin in self.all()}
        return [file for bin_id in self._ids() if bin_id not in readable and (file := self._file(bin_id)).exists()]

    def of(self, bin_id: str) -> Bin:
        """Return the bin with an id.

        Raises:
            UnknownNameError: No bin has this id.
            UntrimmedError: The file of the bin is damaged.
        """
        file = self._file(bin_id)
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            if values.pop("checksum") == checksum(values) and values.pop("format") == _FORMAT:
                values["moments"] = tuple(BinMoment(**moment) for moment in values["moments"])
                return Bin(bin_id, **values)
        except FileNotFoundError:
            raise UnknownNameError("no bin has this id; list the bins again") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # the file is unreadable or has another form
            pass
        raise UntrimmedError(f"{shown(file)}: is damaged; restore this file from a copy, or delete it")

    def named(self, name: str) -> Bin:
        """Return the bin with a name.

        Raises:
            UnknownNameError: No bin has this name.
        """
        bins = self.all()
        for bin in bins:
            if bin.name == name:
                return bin
        raise UnknownNameError.among("bin", name, [bin.name for bin in bins])

    def create(self, name: str, moments: Iterable[BinMoment] = ()) -> Bin:
        """Add a bin and return it.

        Raises:
            ConfigError: The name or a span is invalid, or there are too many moments.
            UntrimmedError: Another bin has this name, or there are too many bins.
        """
        with self._locked():
            if len(self._ids()) >= MAX_BINS:
                raise UntrimmedError(f"the library has {MAX_BINS} bins, which is the maximum; delete one first")
            return self._write(Bin(secrets.token_hex(8), name, tuple(moments), time.time()))

    def replace(self, bin_id: str, version: str, name: str, moments: Iterable[BinMoment]) -> Bin:
        """Replace the name and all moments of a bin that still has this version; return the new bin.

        Raises:
            StaleVersionError: The bin has another version.
            UnknownNameError: No bin has this id.
            ConfigError: The name or a span is invalid, or there are too many moments.
            UntrimmedError: Another bin has this name.
        """
        with self._locked():
            self._require(bin_id, version)
            return self._write(Bin(bin_id, name, tuple(moments), time.time()))

    def remove(self, bin_id: str, version: str) -> None:
        """Delete a bin that still has this version.

        Raises:
            StaleVersionError: The bin has another version.
            UnknownNameError: No bin has this id.
        """
        with self._locked():
            self._require(bin_id, version)
            self._file(bin_id).unlink()

    def add_copies(self, bins: Iterable[Bin], new_moment: Callable[[BinMoment], BinMoment]) -> None:
        """Add bins of another library, except those whose ids this library already has.

        `new_moment` converts each moment. If a name is already used, a number is appended.
        """
        with self._locked():
            known = {bin.bin_id: bin.name for bin in self.all()}
            for bin in bins:
                if bin.bin_id not in known:
                    name = bin.name
                    number = 2
                    while name in known.values():
                        name = f"{bin.name[: MAX_NAME - 6]} ({number})"
                        number += 1
                    known[bin.bin_id] = name
                    self._write(replace(bin, name=name, moments=tuple(map(new_moment, bin.moments))))

    def _ids(self) -> list[str]:
        try:
            names = sorted(file.stem for file in self.folder.iterdir() if file.suffix == ".json")
        except OSError:  # there are no bins yet
            return []
        return [name for name in names if _ID.fullmatch(name)]

    def _file(self, bin_id: str) -> Path:
        return self.folder / f"{bin_id}.json"

    def _require(self, bin_id: str, version: str) -> None:
        bin = self.of(bin_id)
        if bin.version != version:
            raise StaleVersionError(f"the bin {bin.name!r} has been changed since it was read; read it again")

    def _write(self, bin: Bin) -> Bin:
        _check(bin.name, bin.moments)
        if any(other.name == bin.name and other.bin_id != bin.bin_id for other in self.all()):
            raise UntrimmedError(f"a bin named {bin.name!r} exists; choose another name")
        values = {key: value for key, value in asdict(bin).items() if key != "bin_id"} | {"format": _FORMAT}
        text = json.dumps(values | {"checksum": checksum(values)}, indent=1)
        write_whole(self._file(bin.bin_id), text + "\n", is_only_writer=True)
        return bin

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        from filelock import FileLock, Timeout

        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / "writer.lock", timeout=_LOCK_S):
                yield
        except Timeout:
            raise UntrimmedError(
                f"{shown(self.folder)}: another process has been writing for {_LOCK_S:g} s; try again"
            ) from None
        except OSError as error:
            raise UntrimmedError(
                f"{shown(self.folder)}: cannot be written ({error.strerror}); free space or change the permissions of "
                "the folder"
            ) from error


def _check(name: str, moments: Sequence[BinMoment]) -> None:
    """Raise a ConfigError if a name or a moment cannot be stored."""
    if not name.strip() or not name.isprintable() or len(name) > MAX_NAME:
        raise ConfigError(f"name is {name[:MAX_NAME]!r}, expected 1 to {MAX_NAME} printable characters")
    if len(moments) > MAX_MOMENTS:
        raise ConfigError(f"the bin has {len(moments)} moments, expected at most {MAX_MOMENTS}; make a second bin")
    for number, moment in enumerate(moments, start=1):
        if not 0 <= moment.start_s < moment.end_s < math.inf:
            raise ConfigError(
                f"moment {number}: the span is {moment.start_s:g} to {moment.end_s:g} s, expected 0 <= start < end"
            )
