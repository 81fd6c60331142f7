"""List the folders that users of the page can choose.

These are the folders below the roots of the service, without hidden folders and links to folders outside the roots.
Requests contain the ids from these lists instead of paths. Threads with a time limit read the folders, because a folder
on a disconnected network disk may never answer.
"""

import hashlib
import os
import stat
import sys
import threading
import time
import unicodedata
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from untrimmed.errors import shown
from untrimmed.server.problems import PublicError
from untrimmed.server.schemas import CountedFolder, FolderListing, NamedFolder
from untrimmed.server.watching import is_remote
from untrimmed.video.reader import is_video_path

_MAX_LISTED = 1000  # largest number of folders in a listing
_MAX_KNOWN = 100_000  # largest number of remembered ids; the oldest are forgotten
_MAX_MATCHES = 20
_COUNT_S = 0.05  # time limit for counting the videos of one folder
_COUNT_ALL_S = 0.4  # time limit for counting the videos of all listed folders
_FIND_S = 2.0  # time limit for finding a folder or file by name
_ANSWER_S = 2.0  # a folder that takes longer counts as silent
_NUM_THREADS = 8
_UNKNOWN = "no folder has this id; list the folders again: /api/browse"
T = TypeVar("T")


def folder_id_of(folder: Path) -> str:
    """Return the opaque id of a folder. It is the same in every service."""
    return hashlib.blake2b(os.fsencode(folder), digest_size=8).hexdigest()


class _Entry(NamedTuple):
    """An entry of a folder. For a link, `is_folder` is false."""

    path: Path
    is_folder: bool
    is_link: bool


class _Threads:
    """Threads that read folders. A folder that did not answer an earlier call is skipped until that call ends."""

    def __init__(self) -> None:
        self._hung: dict[tuple[str, Path], threading.Thread] = {}
        self._lock = threading.Lock()

    def answers(self, folders: Iterable[Path], work: Callable[[Path], T], limit_s: float = _ANSWER_S) -> dict[Path, T]:
        """Return {folder: `work(folder)`} for the folders for which `work` returns within `limit_s` seconds."""
        with self._lock:
            self._hung = {key: thread for key, thread in self._hung.items() if thread.is_alive()}
            waiting = deque(folder for folder in folders if (work.__name__, folder) not in self._hung)
        answers: dict[Path, T] = {}
        current: dict[threading.Thread, Path] = {}

        def run() -> None:
            with suppress(IndexError):  # all folders are taken
                while True:
                    current[threading.current_thread()] = folder = waiting.popleft()
                    answers[folder] = work(folder)

        threads = [threading.Thread(target=run, daemon=True) for _ in range(min(len(waiting), _NUM_THREADS))]
        end = time.monotonic() + limit_s
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        waiting.clear()
        with self._lock:
            self._hung |= {(work.__name__, current[thread]): thread for thread in threads if thread.is_alive()}
        return dict(answers)


class FolderBrowser:
    """The folders that users can choose: the roots and the folders below them. Without roots, there are none."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = tuple(roots)
        self._listed: OrderedDict[str, Path] = OrderedDict()  # by id; links are resolved, except for silent folders
        self._threads = _Threads()

    def folder(self, folder_id: str) -> Path:
        """Return the path of the folder with this id, with links resolved.

        Raises:
            PublicError: No response contained this id, the folder no longer exists below the roots, or it is silent.
        """
        folder = self._listed.get(folder_id)
        if folder is None:
            raise PublicError(404, _UNKNOWN)
        reals = self._reals([folder])
        if folder not in reals:
            raise _silent(folder)
        if reals[folder] != folder:
            raise PublicError(404, _UNKNOWN)
        return folder

    def roots(self) -> FolderListing:
        """Return the content of the root if there is only one, otherwise the list of roots.

        Raises:
            PublicError: There are no roots, or the only root cannot be read.
        """
        reals = self._reals(self._roots)
        roots = list(dict.fromkeys(real for real in reals.values() if real is not None))
        silent = [root for root in self._roots if root not in reals]
        if not roots and not silent:
            raise PublicError(409, "this service offers no folders; start it with --videos DIR")
        if len(roots) + len(silent) == 1:
            return self._listing((roots + silent)[0])
        return FolderListing(folder=None, parents=[], folders=self._counted(roots + silent, silent), num_omitted=0)

    def listing(self, folder_id: str) -> FolderListing:
        """Return the subfolders of a folder.

        Raises:
            PublicError: The id is unknown, or the folder cannot be read.
        """
        return self._listing(self.folder(folder_id))

    def find(self, name: str) -> list[CountedFolder]:
        """Return the folders with this name, and the folders that contain a video file with this name.

        Folders are searched level by level from the roots, for at most two seconds.
        """
        matches: dict[Path, None] = {}
        normal_name = unicodedata.normalize("NFC", name)  # macOS stores letters and accents separately
        deadline = time.monotonic() + _FIND_S
        level = [real for real in self._reals(self._roots).values() if real is not None]
        while level and len(matches) < _MAX_MATCHES and (remaining_s := deadline - time.monotonic()) > 0:
            contents = self._threads.answers(level, _scan, min(_ANSWER_S, remaining_s))
            entries = [(folder, entry) for folder in level for entry in _readable(contents.get(folder))]
            for folder, entry in entries:
                is_match = unicodedata.normalize("NFC", entry.path.name) == normal_name
                if is_match and (entry.is_folder or is_video_path(entry.path)):
                    matches[entry.path if entry.is_folder else folder] = None
            level = [entry.path for _, entry in entries if entry.is_folder]
        return self._counted(list(matches)[:_MAX_MATCHES])

    def _listing(self, folder: Path) -> FolderListing:
        contents = self._threads.answers([folder], _scan).get(folder)
        if contents is None:
            raise _silent(folder)
        if isinstance(contents, OSError):
            raise PublicError(409, f"{shown(folder)}: cannot be read ({contents.strerror}); choose another folder")
        reals = self._reals([*folder.parents, *(entry.path for entry in contents if entry.is_folder or entry.is_link)])
        num_videos = 0
        inner: dict[Path, None] = {}
        silent = []
        for path, is_folder, is_link in contents:
            if (is_folder or is_link) and path not in reals:
                silent.append(path)
            elif (real := reals.get(path)) is not None:
                inner[real] = None
            elif not is_folder:
                num_videos += is_video_path(path)
        folders = sorted([*inner, *silent], key=lambda path: (path.name.casefold(), path))
        counted = self._counted(folders[:_MAX_LISTED], silent)
        complete = len(counted) == len(folders) and all(one.is_complete for one in counted)
        return FolderListing(
            folder=CountedFolder(
                **vars(self._named(folder)),
                num_videos=num_videos + sum(one.num_videos or 0 for one in counted),
                is_complete=complete,
                is_silent=False,
            ),
            parents=[self._named(parent) for parent in reversed(folder.parents) if reals.get(parent) == parent],
            folders=counted,
            num_omitted=len(folders) - len(counted),
        )

    def _counted(self, folders: list[Path], silent: Iterable[Path] = ()) -> list[CountedFolder]:
        end = time.monotonic() + _COUNT_ALL_S

        def count(folder: Path) -> tuple[int | None, bool]:
            return _count_videos(folder, min(end, time.monotonic() + _COUNT_S))

        unread = set(silent)
        counts = self._threads.answers((one for one in folders if one not in unread), count)
        return [
            CountedFolder(
                **vars(self._named(folder)),
                num_videos=counts.get(folder, (None, False))[0],
                is_complete=counts.get(folder, (None, False))[1],
                is_silent=folder in unread,
            )
            for folder in folders
        ]

    def _named(self, folder: Path) -> NamedFolder:
        """Return a folder as part of a response, and remember its id."""
        folder_id = folder_id_of(folder)
        self._listed[folder_id] = folder
        self._listed.move_to_end(folder_id)
        while len(self._listed) > _MAX_KNOWN:
            self._listed.popitem(last=False)
        return NamedFolder(folder_id=folder_id, name=folder.name or str(folder), path=str(folder))

    def _reals(self, folders: Iterable[Path]) -> dict[Path, Path | None]:
        """Return the path of each folder with links resolved. Silent folders are left out.

        The path is None if the folder must not be listed, or does not exist.
        """
        roots = self._threads.answers(self._roots, _real_path).values()

        def real_folder(folder: Path) -> Path | None:
            real = _real_path(folder)
            for root in roots:
                if real.is_relative_to(root):
                    is_hidden = any(part.startswith(".") for part in real.relative_to(root).parts)
                    if real.is_dir() and not is_hidden:
                        return real
            return None

        reals = self._threads.answers(folders, real_folder)
        return {folder: reals[folder] for folder in folders if folder in reals}


def _silent(folder: Path) -> PublicError:
    return PublicError(503, f"{shown(folder)}: did not answer; check its drive or network connection, and try again")


def _real_path(folder: Path) -> Path:
    return Path(os.path.realpath(folder))


def _scan(folder: Path) -> list[_Entry] | OSError:
    """Return the entries of a folder that are not hidden, or the reason why it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [
                _Entry(Path(entry.path), entry.is_dir(follow_symlinks=False), entry.is_symlink())
                for entry in entries
                if not _is_hidden(entry)
            ]
    except OSError as error:
        return error


def _readable(contents: list[_Entry] | OSError | None) -> list[_Entry]:
    return contents if isinstance(contents, list) else []


def _is_hidden(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith(".") or sys.platform != "darwin":
        return entry.name.startswith(".")
    try:  # macOS hides folders such as ~/Library by a flag
        return bool(entry.stat(follow_symlinks=False).st_flags & stat.UF_HIDDEN)
    except OSError:
        return True


def _count_videos(folder: Path, end: float) -> tuple[int | None, bool]:
    """Return the number of videos in a folder and its subfolders, and whether all were counted before `end`."""
    if time.monotonic() >= end or is_remote(folder):
        return None, False
    queue = deque([folder])
    num_videos = 0
    while queue:
        if time.monotonic() >= end:
            return num_videos, False
        for entry in _readable(_scan(queue.popleft())):
            if entry.is_folder:
                queue.append(entry.path)
            elif is_video_path(entry.path):
                num_videos += 1
    return num_videos, True
