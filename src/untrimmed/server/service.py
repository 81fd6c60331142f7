"""The state that all routes share: the library, decoders, indexing runs and threads.

Searching, reading, decoding and cutting have separate limits on the number of threads, so that they do not wait for
each other.
"""

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
from untrimmed.search.store.bins import Bins
from untrimmed.search.store.bucket import address_of
from untrimmed.search.store.listing import read_records
from untrimmed.search.store.records import Records, VideoRecord, newest_commit, settings_file
from untrimmed.search.store.thumbnails import ThumbnailFiles
from untrimmed.server.browsing import FolderBrowser, folder_id_of
from untrimmed.server.jobs import Jobs
from untrimmed.server.media import frame_source
from untrimmed.server.pictures import PictureDecoder
from untrimmed.server.problems import PublicError
from untrimmed.server.proxies import DEFAULT_CACHE_BYTES, Proxies
from untrimmed.server.schemas import Job
from untrimmed.server.stored_folders import CHOSEN, WATCHED, read_folders, write_folders
from untrimmed.server.watching import Pace, Watches

log = logging.getLogger(__name__)
T = TypeVar("T")
_NUM_DECODERS = 2
# time between checks for new commits of a library in object storage; each check takes several requests
_BUCKET_CHECK_S = 1.0


@dataclass(eq=False)
class Service:
    """The service of one library.

    Users may index `folders`, and folders that already have indexed videos. On the page, users with the token may
    choose any folder below `roots`.
    """

    library: Library
    folders: tuple[Path, ...] = ()
    roots: tuple[Path, ...] = ()
    pictures: PictureDecoder = field(default_factory=lambda: PictureDecoder(children=_NUM_DECODERS))
    pace: Pace = field(default_factory=Pace)
    proxy_bytes: int = DEFAULT_CACHE_BYTES  # maximum total size of the cached proxies
    # called with every finished run that was started by a change in a watched folder
    on_job: Callable[[Job], None] = lambda job: None
    # stops the server; None if another program runs the application
    stop: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        self.thumbnails = ThumbnailFiles(self.library.folder)
        self.bins = Bins(self.library.folder)
        self.browser = FolderBrowser(self.roots)
        self.proxies = Proxies(self.library.folder, max_bytes=self.proxy_bytes)
        self.jobs = Jobs(self.library)
        self.watches = Watches(self.jobs, self._has_videos, self.on_job, self.pace)
        self._search = CapacityLimiter(4)
        self._read = CapacityLimiter(8)
        self._decode = CapacityLimiter(_NUM_DECODERS)
        self._cut = CapacityLimiter(1)
        self._lock = threading.Lock()
        self.ends = threading.Event()  # set when the service shuts down
        self._warming: threading.Thread | None = None
        self._records: tuple[object, Records] = (None, Records())
        self._next_check_at = 0.0  # time of the next check for new commits, by `time.monotonic`

    async def search(self, work: Callable[..., T], *values: object, **options: object) -> T:
        """Run a search in a thread, and return its result."""
        self._next_check_at = 0.0  # check again after the search, because hits may be in a newer commit
        return await anyio.to_thread.run_sync(partial(work, *values, **options), limiter=self._search)

    async def read(self, work: Callable[..., T], *values: object) -> T:
        """Run, in a thread, a function that reads files quickly, and return its result."""
        return await anyio.to_thread.run_sync(partial(work, *values), limiter=self._read)

    async def decode(self, work: Callable[..., T], *values: object) -> T:
        """Run, in a thread, a function that decodes frames, and return its result."""
        return await anyio.to_thread.run_sync(partial(work, *values), limiter=self._decode)

    async def cut(self, work: Callable[..., T], *values: object) -> T:
        """Run, in a thread and one call at a time, a function that writes clips, and return its result."""
        return await anyio.to_thread.run_sync(partial(work, *values), limiter=self._cut)

    def records(self) -> Records:
        """Return the records of all videos. If the library is in object storage, they may be up to one second old."""
        folder = self.library.folder
        with self._lock:
            if time.monotonic() < self._next_check_at:
                return self._records[1]
            commit = newest_commit(folder)
            if commit is None or not settings_file(folder).exists():
                return Records()
            if self._records[0] != commit:
                self._records = commit, Records(read_records(folder))
            self._next_check_at = 0.0 if address_of(folder) is None else time.monotonic() + _BUCKET_CHECK_S
            return self._records[1]

    def record(self, video_id: str) -> VideoRecord:
        """Return the record of the video with an id.

        Raises:
            PublicError: No video has this id.
        """
        try:
            return self.records().of(video_id)
        except KeyError:
            raise PublicError(404, "no video has this id; search again, or list the videos again") from None

    async def frame(self, record: VideoRecord, time_s: float, short_side: int) -> bytes:
        """Return the frame of a video at a time as JPEG, or the last frame if the time is after the end.

        Raises:
            PublicError: The file is missing or has changed since it was indexed.
            VideoError: The file cannot be decoded.
        """
        file = await self.read(frame_source, record)
        return await self.decode(
            self.pictures.jpeg, file.path, record.content_hash, time_s, short_side, record.duration_s, file.identity
        )

    async def frame_or_thumbnail(self, record: VideoRecord, time_s: float, short_side: int) -> tuple[bytes, str]:
        """Return the frame of a video at a time and "jpeg", or a stored picture and "webp" if the file is missing.

        Raises: The errors of `frame`. If the file is missing, only if no stored picture is within 0.5 s.
        """
        try:
            return await self.frame(record, time_s, short_side), "jpeg"
        except PublicError as error:
            is_missing = error.status == 404  # for example because its drive is not connected
            picture = await self.read(self.thumbnails.at, record, time_s) if is_missing else None
            if picture is None:
                raise
            return picture, "webp"

    def indexable(self) -> dict[str, Path]:
        """Return the folders that may be indexed, by opaque id.

        These are `folders` and the folders with indexed videos. A folder inside another of these folders is left out.
        """
        top: list[Path] = []
        for folder in sorted({*self.folders, *(Path(record.path).parent for record in self.records())}):
            if not any(folder.is_relative_to(parent) for parent in top):
                top.append(folder)
        return {folder_id_of(folder): folder for folder in top}

    def choose(self, folder_ids: Iterable[str], has_token: bool) -> tuple[Path, ...]:
        """Return the folders with these ids. With a token, ids from `FolderBrowser` are accepted too.

        Folders from `FolderBrowser` are stored, so that they can be indexed again after a restart.

        Raises:
            PublicError: An id is unknown.
            UntrimmedError: The list of folders cannot be written.
        """
        indexable = self.indexable()
        chosen = []
        for folder_id in dict.fromkeys(folder_ids):
            if folder_id in indexable:
                chosen.append(indexable[folder_id])
            elif has_token:
                chosen.append(self.browser.folder(folder_id))
            else:
                raise PublicError(404, f"no folder has the id {folder_id}; list the folders again: /api/folders")
        if browsed := [folder for folder in chosen if folder not in indexable.values()]:
            with self._lock:
                write_folders(self.library.folder, CHOSEN, [*read_folders(self.library.folder, CHOSEN), *browsed])
        self.folders = tuple(dict.fromkeys([*self.folders, *chosen]))
        return tuple(chosen)

    def remove(self, folder_id: str) -> int:
        """Remove the videos of a folder from the library, and stop watching the folder. Files are kept.

        Returns the number of removed videos.

        Raises:
            PublicError: No indexable folder has this id, or an indexing run is open.
            UntrimmedError: The library cannot be changed.
        """
        if (folder := self.indexable().get(folder_id)) is None:
            raise PublicError(404, f"no folder has the id {folder_id}; list the folders again: /api/folders")
        if self.jobs.num_open:
            raise PublicError(409, "videos are being indexed; stop indexing or wait, then remove the folder")
        for watched in self.watches.status():
            if Path(watched.path).is_relative_to(folder):
                self.stop_watching(watched.folder_id)
        self.folders = tuple(other for other in self.folders if not other.is_relative_to(folder))
        with self._lock:
            stored = read_folders(self.library.folder, CHOSEN)
            remaining = [other for other in stored if not other.is_relative_to(folder)]
            if len(remaining) < len(stored):
                write_folders(self.library.folder, CHOSEN, remaining)
        return len(self.library.remove([folder])) if self._has_videos(folder) else 0

    def _has_videos(self, path: Path) -> bool:
        return bool(self.records().below(path))

    def watch(self, folders: Iterable[Path]) -> None:
        """Watch folders until this service ends."""
        for folder in folders:
            self.watches.add(folder_id_of(folder), folder)

    def start_watching(self, folders: Iterable[Path]) -> None:
        """Start watching folders, and store them so that they are watched again after a restart.

        Raises:
            UntrimmedError: The list of folders cannot be written.
        """
        folders = tuple(folders)
        with self._lock:
            write_folders(self.library.folder, WATCHED, [*read_folders(self.library.folder, WATCHED), *folders])
        self.watch(folders)

    def stop_watching(self, folder_id: str) -> None:
        """Stop watching a folder. After a restart, it is watched only if `--watch` names it. Its videos stay indexed.

        Raises:
            PublicError: The folder is not watched.
            UntrimmedError: The list of folders cannot be written.
        """
        folder = self.watches.remove(folder_id)
        with self._lock:
            if folder in (folders := read_folders(self.library.folder, WATCHED)):
                write_folders(self.library.folder, WATCHED, [path for path in folders if path != folder])

    def warm_up(self) -> None:
        """Load the encoder and the vectors in the background, so that the first search is fast."""

        def load() -> None:
            try:
                self.library.search("warm up", limit=1, moments=1)
            except UntrimmedError as error:
                log.info("nothing to warm up: %s", error)

        self._warming = threading.Thread(target=load, daemon=True, name="warm up")
        self._warming.start()

    def cancel_long_work(self) -> None:
        """Cancel work that takes long: indexing, writing clips, and event streams."""
        self.ends.set()
        self.watches.close()
        self.jobs.stop()

    def close(self) -> None:
        """Cancel long work and stop the decoders."""
        self.cancel_long_work()
        self.jobs.close()
        self.pictures.close()
        self.proxies.close()
        if self._warming is not None:
            # the process would abort if it exited while this thread loads a C++ library
            self._warming.join()


def real_folders(folders: Iterable[Path], option: str) -> tuple[Path, ...]:
    """Return the absolute paths of folders. `option` is the name of their option in error messages.

    Raises:
        UntrimmedError: A path is not a folder.
    """
    absolute = [Path(os.path.abspath(folder.expanduser())) for folder in folders]
    for folder in absolute:
        if not folder.is_dir():
            raise UntrimmedError(f"{option} {folder}: is not an existing folder; check the path")
    return tuple(absolute)
