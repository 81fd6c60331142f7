"""What all routes share: the library, warm decoders, indexing runs, and threads for each kind of work.

Searches, decoding and cutting each have threads of their own number, so that none of them waits for another kind.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

from untrimmed.errors import UntrimmedError
from untrimmed.search.library import Library
from untrimmed.search.store.bucket import address_of
from untrimmed.search.store.listing import read_records
from untrimmed.search.store.records import Records, VideoRecord, newest_commit, settings_file
from untrimmed.server.jobs import Jobs
from untrimmed.server.media import media_file
from untrimmed.server.pictures import Pictures
from untrimmed.server.problems import PublicError
from untrimmed.server.remembered import remember, remembered
from untrimmed.server.schemas import Job
from untrimmed.server.watching import Pace, Watches

log = logging.getLogger(__name__)
T = TypeVar("T")
_NUM_DECODERS = 2
_BUCKET_LOOK_S = 1.0  # between two looks for commits in a bucket: each is some requests, and pages have many pictures


@dataclass(eq=False)
class Service:
    """One library, served. `folders` may be indexed from the page, beside those that hold indexed videos."""

    library: Library
    folders: tuple[Path, ...] = ()
    pictures: Pictures = field(default_factory=lambda: Pictures(children=_NUM_DECODERS))
    pace: Pace = field(default_factory=Pace)
    tell: Callable[[Job], None] = lambda job: None  # is given every run of watched folders that has ended

    def __post_init__(self) -> None:
        self.jobs = Jobs(self.library)
        self.watches = Watches(self.jobs, self._holds, self.tell, self.pace)
        self._search, self._read = CapacityLimiter(4), CapacityLimiter(8)
        self._decode, self._cut = CapacityLimiter(_NUM_DECODERS), CapacityLimiter(1)
        self._lock = threading.Lock()
        self.ends = threading.Event()  # set once nothing long is to be begun
        self._warming: threading.Thread | None = None
        self._records: tuple[object, Records] = (None, Records())
        self._look_at = 0.0  # when there may be another commit

    async def search(self, work: Callable[..., T], *values: object, **options: object) -> T:
        """Run what ranks videos."""
        self._look_at = 0.0  # it reads the newest commit, and its pictures are asked for next
        return await anyio.to_thread.run_sync(partial(work, *values, **options), limiter=self._search)

    async def read(self, work: Callable[..., T], *values: object) -> T:
        """Run what only looks into files."""
        return await anyio.to_thread.run_sync(partial(work, *values), limiter=self._read)

    async def decode(self, work: Callable[..., T], *values: object) -> T:
        """Run what decodes a frame."""
        return await anyio.to_thread.run_sync(partial(work, *values), limiter=self._decode)

    async def cut(self, work: Callable[..., T], *values: object) -> T:
        """Run what writes clips, one after another."""
        return await anyio.to_thread.run_sync(partial(work, *values), limiter=self._cut)

    def records(self) -> Records:
        """The videos as they are now; none where nothing was indexed yet.

        Of a library in a bucket they are those of the last search, or of a second ago, whichever is later.
        """
        folder = self.library.folder
        with self._lock:
            if time.monotonic() < self._look_at:
                return self._records[1]
            commit = newest_commit(folder)
            if commit is None or not settings_file(folder).exists():
                return Records()
            if self._records[0] != commit:
                self._records = commit, Records(read_records(folder))
            self._look_at = 0.0 if address_of(folder) is None else time.monotonic() + _BUCKET_LOOK_S
            return self._records[1]

    def record(self, video_id: str) -> VideoRecord:
        """The video of that id.

        Raises:
            PublicError: There is none.
        """
        try:
            return self.records().of(video_id)
        except KeyError:
            raise PublicError(404, "no video has this id; search again, or list the videos anew") from None

    async def frame(self, record: VideoRecord, time_s: float, short_side: int) -> bytes:
        """The frame of a video on screen at a time, as JPEG; behind the end the last one.

        Raises:
            PublicError: Its file is gone, or has changed since it was indexed.
            VideoError: It cannot be decoded.
        """
        file = await self.read(media_file, record)
        return await self.decode(
            self.pictures.jpeg, file.path, record.content_hash, time_s, short_side, record.duration_s, file.identity
        )

    def indexable(self) -> dict[str, Path]:
        """The folders that may be indexed, by opaque ids: those named, and the topmost that hold indexed videos."""
        holding = sorted({Path(record.path).parent for record in self.records()})
        top: list[Path] = []
        for folder in [*self.folders, *holding]:
            if not any(folder.is_relative_to(other) for other in top):
                top.append(folder)
        return {_folder_id(folder): folder for folder in top}

    def _holds(self, path: Path) -> bool:
        return bool(self.records().below(path))

    def watch(self, folders: Iterable[Path]) -> None:
        """Watch folders from now on."""
        for folder in folders:
            self.watches.add(_folder_id(folder), folder)

    def start_watching(self, folders: Iterable[Path]) -> None:
        """Watch folders from now on, and let the services of this library that come later do so.

        Raises:
            UntrimmedError: That cannot be remembered.
        """
        folders = tuple(folders)
        with self._lock:
            remember(self.library.folder, [*remembered(self.library.folder), *folders])
        self.watch(folders)

    def stop_watching(self, folder_id: str) -> None:
        """Watch a folder no more, nor let services that come later do so, unless they are told to; its videos stay.

        Raises:
            PublicError: It is not watched.
            UntrimmedError: That cannot be remembered.
        """
        folder = self.watches.remove(folder_id)
        with self._lock:
            if folder in (known := remembered(self.library.folder)):
                remember(self.library.folder, [one for one in known if one != folder])

    def warm_up(self) -> None:
        """Begin to load the encoder and the vectors, so that the first search finds them there."""

        def load() -> None:
            try:
                self.library.search("warm up", limit=1, moments=1)
            except UntrimmedError as error:
                log.info("nothing to warm up: %s", error)

        self._warming = threading.Thread(target=load, daemon=True, name="warm up")
        self._warming.start()

    def begin_end(self) -> None:
        """Leave what is long: indexing, the writing of clips, and the reports of runs."""
        self.ends.set()
        self.watches.close()
        self.jobs.stop()

    def close(self) -> None:
        """Stop indexing and the writing of clips, and end the decoders."""
        self.begin_end()
        self.jobs.close()
        self.pictures.close()
        if self._warming is not None:
            self._warming.join()  # a process that ends while a library of C++ loads is aborted


def _folder_id(folder: Path) -> str:
    return hashlib.blake2b(os.fsencode(folder), digest_size=8).hexdigest()


def real_folders(folders: Iterable[Path], option: str) -> tuple[Path, ...]:
    """Folders that exist, from the root.

    Raises:
        UntrimmedError: One does not.
    """
    found = [Path(os.path.abspath(folder.expanduser())) for folder in folders]
    for folder in found:
        if not folder.is_dir():
            raise UntrimmedError(f"{folder}: no such folder; check {option}")
    return tuple(found)
