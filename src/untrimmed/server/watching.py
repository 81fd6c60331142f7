"""Watched folders: what is new, changed or gone below them is indexed once it has come to rest.

The system tells of changes (`watchfiles`); folders are also looked through now and then, those on other machines, of
which the system tells nothing, every few seconds. A file counts as written once it has not changed for a while.
"""

from __future__ import annotations

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
from untrimmed.search.indexing.video_files import find_videos
from untrimmed.search.store.listing import is_gone
from untrimmed.server import schemas
from untrimmed.server.jobs import IndexJob, Jobs
from untrimmed.server.problems import PublicError
from untrimmed.video.reader import is_video_path

log = logging.getLogger(__name__)

_MOST_NAMED = 100  # files that are waited for
_REMOTE = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "gluster", "lustre", "fuse", "vboxsf", "virtiofs", "prl_fs")
_ESCAPED = re.compile(rb"\\([0-3][0-7]{2})")  # blanks in the names of mount points
_NO_NEWS_MS = 500  # after which a listener looks whether it is to end


@dataclass(frozen=True)
class Pace:
    """How long is waited, in seconds."""

    settle_s: float = 2.0  # until what has changed has come to rest
    look_s: float = 0.5  # between two looks at it
    poll_s: float = 5.0  # between two looks through a folder of which the system tells nothing
    sweep_s: float = 600.0  # between two looks through any other: news can be lost
    again_s: float = 5.0  # until a run that failed as a whole is tried again; twice as long each time, up to 64 times


class Settling:
    """What has changed, until it has been the same for some time."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._seen: dict[Path, tuple[str, float]] = {}  # how it looked, and since when

    def note(self, paths: Iterable[Path], now: float) -> None:
        """Something has happened at these paths."""
        for path in paths:
            self._seen[path] = stamp(path), now

    def take(self, now: float) -> list[Path]:
        """Those that have come to rest; each is given once."""
        ready = []
        for path, (before, since) in list(self._seen.items()):
            if (seen := stamp(path)) != before:
                self._seen[path] = seen, now
            elif now - since >= self._settle_s:
                ready.append(path)
                del self._seen[path]
        return ready

    @property
    def paths(self) -> list[Path]:
        """Those that are waited for."""
        return list(self._seen)


def stamp(path: Path) -> str:
    """How a video, or all videos below a folder, look from outside: names, sizes and times of change."""
    digest = hashlib.blake2b(digest_size=16)
    with contextlib.suppress(UntrimmedError):  # nothing is there
        for file in find_videos([path]).files:
            with contextlib.suppress(OSError):
                status = file.stat()
                digest.update(repr((os.fsencode(file), status.st_size, status.st_mtime_ns)).encode())
    return digest.hexdigest()


@dataclass(eq=False)
class Watched:
    """One folder, the thread that listens, and how the folder looked last."""

    folder_id: str
    folder: Path
    is_remote: bool
    ends: threading.Event = field(default_factory=threading.Event)
    stamp: str = ""
    looked_at: float = -math.inf
    inode: tuple[int, int] | None = None  # of the folder; None while it is not there
    problem: str | None = None  # why the system cannot tell of its changes

    @property
    def is_polled(self) -> bool:
        """Whether it is looked through instead of listened to."""
        return self.is_remote or self.problem is not None


class Watches:
    """The watched folders of one service, and the runs that they start: one at a time."""

    def __init__(
        self, jobs: Jobs, holds: Callable[[Path], bool], tell: Callable[[schemas.Job], None], pace: Pace = Pace()
    ) -> None:
        """`holds` says whether the library has videos there; `tell` is given every run that has ended."""
        self._jobs, self._holds, self._tell, self._pace = jobs, holds, tell, pace
        self._watched: dict[str, Watched] = {}
        self._lock = threading.Lock()
        self._news: queue.SimpleQueue[Path] = queue.SimpleQueue()
        self._settling = Settling(pace.settle_s)
        self._waiting: list[Path] = []  # for the run before to end
        self._job: IndexJob | None = None  # that works
        self._last_id: str | None = None
        self._failed: dict[Path, str] = {}  # files, and why
        self._again_at, self._num_failed = 0.0, 0
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, folder_id: str, folder: Path) -> None:
        """Watch a folder from now on, and bring the library up to date with it."""
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
        self._news.put(folder)

    def remove(self, folder_id: str) -> Path:
        """Watch a folder, which is given back, no more; its videos stay.

        Raises:
            PublicError: It is not watched.
        """
        with self._lock:
            if (watched := self._watched.pop(folder_id, None)) is None:
                raise PublicError(404, "no watched folder has this id; list them anew: /api/watches")
            watched.ends.set()
            return watched.folder

    def shown(self) -> list[schemas.Watch]:
        """The watched folders, as they are answered."""
        with self._lock:
            watched = list(self._watched.values())
        waited_for, failed = {*self._settling.paths, *self._waiting}, self._failed.items()
        return [
            schemas.Watch(
                folder_id=one.folder_id,
                path=str(one.folder),
                state="missing" if not one.inode else "polling" if one.is_polled else "watching",
                problem=one.problem,
                waiting=sorted(str(path) for path in waited_for if path.is_relative_to(one.folder))[:_MOST_NAMED],
                failed=[
                    schemas.FailedFile(path=str(path), reason=reason)
                    for path, reason in failed
                    if path.is_relative_to(one.folder) and not is_gone(str(path))
                ],
                job_id=self._last_id,
            )
            for one in watched
        ]

    def close(self) -> None:
        """Watch nothing more."""
        self._ends.set()
        with self._lock:
            for watched in self._watched.values():
                watched.ends.set()

    # -- the listening threads

    def _listen(self, watched: Watched) -> None:
        """Pass on what the system tells of one folder, or of another that has come in its place."""
        while True:
            inode, is_new = watched.inode, True
            try:
                for changes in watchfiles.watch(
                    watched.folder,
                    watch_filter=None,
                    stop_event=watched.ends,
                    rust_timeout=_NO_NEWS_MS,
                    yield_on_timeout=True,
                    raise_interrupt=False,
                    ignore_permission_denied=True,
                ):
                    for path in [watched.folder] if is_new else [Path(changed) for _, changed in changes]:
                        if _counts(path, watched.folder):
                            self._news.put(path)
                    is_new = False  # before the first answer, nobody listened
                    if watched.inode != inode:
                        break
            except (OSError, RuntimeError) as error:  # gone, or more folders than the system listens to
                if watched.folder.is_dir():
                    watched.problem = f"the system does not tell of its changes ({error}); it is looked through instead"
                    log.warning("%s: %s", watched.folder, watched.problem)
                    return
            if watched.ends.wait(self._pace.look_s):
                return

    # -- the working thread

    def _work(self) -> None:
        while not self._ends.wait(self._pace.look_s):
            try:
                self._look(time.monotonic())
            except Exception:
                log.exception("watching folders failed; it goes on")

    def _look(self, now: float) -> None:
        news = []
        while not self._news.empty():
            news.append(self._news.get())
        with self._lock:
            watched = list(self._watched.values())
        for one in watched:
            news += [one.folder] if self._has_changed(one, now) else []
        self._settling.note(dict.fromkeys(news), now)
        rested = [path for path in self._settling.take(now) if _has_videos(path) or self._may_hold(path)]
        waiting = [*self._waiting, *rested]
        self._waiting = [path for path in waiting if any(path.is_relative_to(one.folder) for one in watched)]
        if self._job is not None and not self._job.is_open:
            self._end(self._job, now)
        if self._job is None and self._waiting and now >= self._again_at:
            with contextlib.suppress(PublicError):  # too many others are open
                self._job = self._jobs.start(dict.fromkeys(self._waiting), follows=True)
                self._waiting, self._last_id = [], self._job.job_id

    def _may_hold(self, path: Path) -> bool:
        """Whether the library has videos there; where it cannot be read now, the run says so and is tried again."""
        try:
            return self._holds(path)
        except (UntrimmedError, OSError):
            return True

    def _has_changed(self, watched: Watched, now: float) -> bool:
        """Whether a folder has come, or looks otherwise than the last time it was looked through."""
        before, watched.inode = watched.inode, _inode(watched.folder)
        if watched.inode is None:
            return False
        is_same = watched.inode == before
        if is_same and now - watched.looked_at < (self._pace.poll_s if watched.is_polled else self._pace.sweep_s):
            return False
        looked, watched.stamp, watched.looked_at = watched.stamp, stamp(watched.folder), now
        return watched.stamp != looked or not is_same

    def _end(self, job: IndexJob, now: float) -> None:
        """Note what became of a run; one that failed as a whole is tried again later."""
        self._job = None
        others = {path: reason for path, reason in self._failed.items() if not any(map(path.is_relative_to, job.paths))}
        self._failed = others | {Path(failed.path): failed.reason for failed in job.shown.failed}
        self._tell(job.shown)
        if job.shown.state == "failed":
            self._waiting = [*job.paths, *self._waiting]
            self._again_at = now + self._pace.again_s * 2 ** min(self._num_failed, 6)
            self._num_failed += 1
        else:
            self._num_failed = 0


def _counts(path: Path, folder: Path) -> bool:
    """Whether a change there concerns videos that indexing the folder would find, or did find."""
    if not path.is_relative_to(folder):
        return False
    inner = path.relative_to(folder)
    if any(part.startswith(".") for part in inner.parts):
        return False
    if any((folder / parent).is_symlink() for parent in inner.parents):
        return False
    return is_video_path(path) or path.is_dir() or not path.exists()


def _has_videos(path: Path) -> bool:
    """Whether indexing a folder would find some there; a file that has come in the place of another may be none."""
    if path.is_file() and not is_video_path(path):
        return False
    with contextlib.suppress(UntrimmedError):  # nothing is there
        return bool(find_videos([path]).files)
    return False


def _inode(folder: Path) -> tuple[int, int] | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if folder.is_dir() else None


def is_remote(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Whether a folder lies on another machine, or where else the system does not tell of changes."""
    try:
        lines = [line.split() for line in mounts.read_bytes().splitlines()]
    except OSError:
        return False
    real, kind, longest = os.path.realpath(folder), "", -1
    for words in lines:
        place = os.fsdecode(_ESCAPED.sub(lambda octal: bytes([int(octal[1], 8)]), words[1]))
        if Path(real).is_relative_to(place) and len(place) >= longest:
            kind, longest = words[2].decode(), len(place)
    return kind.startswith(_REMOTE)
