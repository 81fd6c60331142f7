"""Index new and changed videos in watched folders once they stop changing, and remove deleted videos.

If a subtitle file of a video changes, the text of the video is read again.

The operating system reports changes (package `watchfiles`). Reports can be lost, so folders are also scanned every few
minutes. Remote file systems do not report changes, so folders there are scanned every few seconds.
"""

import contextlib
import hashlib
import logging
import math
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import watchfiles

from untrimmed.errors import UntrimmedError
from untrimmed.passages.source import Media
from untrimmed.passages.subtitles import Subtitles, videos_of
from untrimmed.search.indexing.video_files import find_videos
from untrimmed.search.store.listing import is_deleted
from untrimmed.server import schemas
from untrimmed.server.jobs import IndexJob, Jobs
from untrimmed.server.problems import PublicError
from untrimmed.video.reader import is_video_path

log = logging.getLogger(__name__)

_MAX_LISTED = 100  # largest number of changed paths that are listed for a folder until they are indexed
_REMOTE = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "gluster", "lustre", "fuse", "vboxsf", "virtiofs", "prl_fs")
# matches escaped characters in mount points, e.g. spaces
_ESCAPED = re.compile(rb"\\([0-3][0-7]{2})")
_LISTEN_TIMEOUT_MS = 500  # time after which a listener checks whether it must stop


@dataclass(frozen=True)
class Pace:
    """Intervals in seconds."""

    settle_s: float = 2.0  # time for which a path must be unchanged before it is indexed
    look_s: float = 0.5  # time between checks of the reported changes
    poll_s: float = 5.0  # time between scans of a folder whose changes the system does not report
    sweep_s: float = 600.0  # time between scans of the other folders
    # time before a failed run is repeated; it doubles with each failure, up to 64 times this value
    again_s: float = 5.0


class Settling:
    """Changed paths that may still be changing, e.g. files that are being copied."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        # path -> its `stamp`, and the time of its last change
        self._stamps: dict[Path, tuple[str, float]] = {}

    def note(self, paths: Iterable[Path], now: float) -> None:
        """Record that these paths have changed."""
        subtitles = Subtitles()
        for path in paths:
            self._stamps[path] = stamp(path, subtitles), now

    def take(self, now: float) -> list[Path]:
        """Remove and return the paths that have stopped changing."""
        settled = []
        subtitles = Subtitles()
        for path, (last_stamp, changed_at) in list(self._stamps.items()):
            if (current_stamp := stamp(path, subtitles)) != last_stamp:
                self._stamps[path] = current_stamp, now
            elif now - changed_at >= self._settle_s:
                settled.append(path)
                del self._stamps[path]
        return settled

    @property
    def paths(self) -> list[Path]:
        """The changed paths."""
        return list(self._stamps)


def stamp(path: Path, subtitles: Subtitles) -> str:
    """Return a hash of the names, sizes and modification times of a video, or of all videos in a folder.

    The hash includes the subtitle files of the videos. `subtitles` lists each folder once.
    """
    digest = hashlib.blake2b(digest_size=16)
    with contextlib.suppress(UntrimmedError):  # raised if there are no videos
        for file in find_videos([path]).files:
            with contextlib.suppress(OSError):
                status = file.stat()
                files = subtitles.fingerprint(Media(file, 0.0))
                digest.update(repr((os.fsencode(file), status.st_size, status.st_mtime_ns, files)).encode())
    return digest.hexdigest()


@dataclass(eq=False)
class Watched:
    """A watched folder and its state."""

    folder_id: str
    folder: Path
    is_remote: bool
    ends: threading.Event = field(default_factory=threading.Event)
    stamp: str = ""
    scanned_at: float = -math.inf
    inode: tuple[int, int] | None = None  # device and inode of the folder, or None while the folder does not exist
    problem: str | None = None  # why the system does not report changes of this folder

    @property
    def is_polled(self) -> bool:
        """Whether the folder is scanned because the system does not report its changes."""
        return self.is_remote or self.problem is not None


class Watches:
    """The watched folders of a service. If files in them change, an indexing run starts, one at a time."""

    def __init__(
        self, jobs: Jobs, has_videos: Callable[[Path], bool], on_job: Callable[[schemas.Job], None], pace: Pace = Pace()
    ) -> None:
        """Watch no folders at first.

        `has_videos` returns whether the library has videos at a path. `on_job` is called with every finished run.
        """
        self._jobs = jobs
        self._has_videos = has_videos
        self._on_job = on_job
        self._pace = pace
        self._watched: dict[str, Watched] = {}
        self._lock = threading.Lock()
        self._changes: queue.SimpleQueue[Path] = queue.SimpleQueue()
        self._settling = Settling(pace.settle_s)
        self._waiting: list[Path] = []  # paths for the next run
        self._job: IndexJob | None = None  # the current run
        self._last_id: str | None = None
        self._failed: dict[Path, str] = {}  # files that could not be indexed, with the reasons
        self._retry_at = 0.0
        self._num_failed = 0
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, folder_id: str, folder: Path) -> None:
        """Index a folder and start watching it."""
        with self._lock:
            if folder_id in self._watched or self._ends.is_set():
                return
            self._watched[folder_id] = watched = Watched(folder_id, folder, is_remote(folder), inode=_inode(folder))
            if not watched.is_remote:
                name = f"listen {folder}"
                threading.Thread(target=self._listen, args=(watched,), daemon=True, name=name).start()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True, name=f"watch {folder}")
                self._thread.start()
        self._changes.put(folder)

    def remove(self, folder_id: str) -> Path:
        """Stop watching a folder and return it. Its videos stay indexed.

        Raises:
            PublicError: The folder is not watched.
        """
        with self._lock:
            if (watched := self._watched.pop(folder_id, None)) is None:
                raise PublicError(404, "no watched folder has this id; list the folders again: /api/watches")
            watched.ends.set()
            return watched.folder

    def status(self) -> list[schemas.Watch]:
        """Return the watched folders and their states."""
        with self._lock:
            watched = list(self._watched.values())
        waiting = {*self._settling.paths, *self._waiting}
        failed = self._failed.items()
        return [
            schemas.Watch(
                folder_id=watch.folder_id,
                path=str(watch.folder),
                state="missing" if not watch.inode else "polling" if watch.is_polled else "watching",
                problem=watch.problem,
                waiting=sorted(str(path) for path in waiting if path.is_relative_to(watch.folder))[:_MAX_LISTED],
                failed=[
                    schemas.FailedFile(path=str(path), reason=reason)
                    for path, reason in failed
                    if path.is_relative_to(watch.folder) and not is_deleted(str(path))
                ],
                job_id=self._last_id,
            )
            for watch in watched
        ]

    def close(self) -> None:
        """Stop watching all folders."""
        self._ends.set()
        with self._lock:
            for watched in self._watched.values():
                watched.ends.set()

    # the functions of the listening threads

    def _listen(self, watched: Watched) -> None:
        """Record the reported changes of a folder, until the folder is no longer watched.

        If another folder replaces the watched folder, the changes of the new folder are recorded too.
        """
        while True:
            inode = watched.inode
            is_new = True
            try:
                for changes in watchfiles.watch(
                    watched.folder,
                    watch_filter=None,
                    stop_event=watched.ends,
                    rust_timeout=_LISTEN_TIMEOUT_MS,
                    yield_on_timeout=True,
                    raise_interrupt=False,
                    ignore_permission_denied=True,
                ):
                    paths = {watched.folder} if is_new else {Path(changed) for _, changed in changes}
                    for path in paths | videos_of(paths):
                        if _is_relevant(path, watched.folder):
                            self._changes.put(path)
                    # check the whole folder once, because changes before the listener started were not reported
                    is_new = False
                    if watched.inode != inode:
                        break
            # raised if the folder was deleted, or has more subfolders than the system can watch
            except (OSError, RuntimeError) as error:
                if watched.folder.is_dir():
                    watched.problem = f"the system does not report its changes ({error}), so it is scanned instead"
                    log.warning("%s: %s", watched.folder, watched.problem)
                    return
            if watched.ends.wait(self._pace.look_s):
                return

    # the functions of the working thread

    def _work(self) -> None:
        while not self._ends.wait(self._pace.look_s):
            try:
                self._look(time.monotonic())
            except Exception:
                log.exception("checking watched folders failed; it will be tried again")

    def _look(self, now: float) -> None:
        changes = []
        while not self._changes.empty():
            changes.append(self._changes.get())
        with self._lock:
            watched = list(self._watched.values())
        for watch in watched:
            changes += [watch.folder] if self._has_changed(watch, now) else []
        self._settling.note(dict.fromkeys(changes), now)
        settled = [path for path in self._settling.take(now) if _has_videos(path) or self._may_be_indexed(path)]
        waiting = [*self._waiting, *settled]
        self._waiting = [path for path in waiting if any(path.is_relative_to(watch.folder) for watch in watched)]
        if self._job is not None and not self._job.is_open:
            self._end(self._job, now)
        if self._job is None and self._waiting and now >= self._retry_at:
            with contextlib.suppress(PublicError):  # raised if too many runs are open
                self._job = self._jobs.start(dict.fromkeys(self._waiting), follows=True)
                self._waiting = []
                self._last_id = self._job.job_id

    def _may_be_indexed(self, path: Path) -> bool:
        """Whether the library may have videos at a path. True if the library cannot be read. A run reports errors."""
        try:
            return self._has_videos(path)
        except (UntrimmedError, OSError):
            return True

    def _has_changed(self, watched: Watched, now: float) -> bool:
        """Whether a folder has appeared, been replaced or changed since the last scan."""
        last_inode = watched.inode
        watched.inode = _inode(watched.folder)
        if watched.inode is None:
            return False
        is_same = watched.inode == last_inode
        if is_same and now - watched.scanned_at < (self._pace.poll_s if watched.is_polled else self._pace.sweep_s):
            return False
        last_stamp = watched.stamp
        watched.stamp = stamp(watched.folder, Subtitles())
        watched.scanned_at = now
        return watched.stamp != last_stamp or not is_same

    def _end(self, job: IndexJob, now: float) -> None:
        """Record the result of a finished run. The paths of a failed run are indexed again later."""
        self._job = None
        older = {path: reason for path, reason in self._failed.items() if not any(map(path.is_relative_to, job.paths))}
        self._failed = older | {Path(failed.path): failed.reason for failed in job.status.failed}
        self._on_job(job.status)
        if job.status.state == "failed":
            self._waiting = [*job.paths, *self._waiting]
            self._retry_at = now + self._pace.again_s * 2 ** min(self._num_failed, 6)
            self._num_failed += 1
        else:
            self._num_failed = 0


def _is_relevant(path: Path, folder: Path) -> bool:
    """Whether a change at a path can affect the videos that indexing finds in the folder."""
    if not path.is_relative_to(folder):
        return False
    inner = path.relative_to(folder)
    if any(part.startswith(".") for part in inner.parts):
        return False
    if any((folder / parent).is_symlink() for parent in inner.parents):
        return False
    return is_video_path(path) or path.is_dir() or not path.exists()


def _has_videos(path: Path) -> bool:
    """Whether indexing a path would find videos."""
    if path.is_file() and not is_video_path(path):
        return False
    with contextlib.suppress(UntrimmedError):  # raised if there are no videos
        return bool(find_videos([path]).files)
    return False


def _inode(folder: Path) -> tuple[int, int] | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if folder.is_dir() else None


def is_remote(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Whether a folder is on a file system that does not report changes, such as a remote one."""
    try:
        lines = [line.split() for line in mounts.read_bytes().splitlines()]
    except OSError:
        return False
    real = Path(os.path.realpath(folder))
    kind = ""
    longest = -1
    for words in lines:
        mount = os.fsdecode(_ESCAPED.sub(lambda octal: bytes([int(octal[1], 8)]), words[1]))
        if real.is_relative_to(mount) and len(mount) >= longest:
            kind = words[2].decode()
            longest = len(mount)
    return kind.startswith(_REMOTE)
