"""List the folders that users of the page can choose.

These are the folders below the roots of the service, without hidden folders and links to folders outside the roots.
Requests contain the ids from these lists instead of paths.
"""

import hashlib
import os
import stat
import sys
import time
import unicodedata
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from pathlib import Path

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
_UNKNOWN = "no folder has this id; list the folders again: /api/browse"


def folder_id_of(folder: Path) -> str:
    """Return the opaque id of a folder. It is the same in every service."""
    return hashlib.blake2b(os.fsencode(folder), digest_size=8).hexdigest()


class FolderBrowser:
    """The folders below some roots. Without roots there are none."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = tuple(roots)
        self._listed: OrderedDict[str, Path] = OrderedDict()  # real paths by id

    def folder(self, folder_id: str) -> Path:
        """Return the path of the folder with this id, with links resolved.

        Raises:
            PublicError: No response contained this id, or the folder no longer exists below the roots.
        """
        folder = self._listed.get(folder_id)
        if folder is None or self._real(folder) != folder:
            raise PublicError(404, _UNKNOWN)
        return folder

    def roots(self) -> FolderListing:
        """Return the content of the root if there is only one, otherwise the list of roots.

        Raises:
            PublicError: There are no roots, or the only root cannot be read.
        """
        roots = list(dict.fromkeys(real for root in self._roots if (real := self._real(root)) is not None))
        if not roots:
            raise PublicError(409, "this service offers no folders; start it with --videos DIR")
        if len(roots) == 1:
            return self._listing(roots[0])
        return FolderListing(folder=None, parents=[], folders=self._counted(roots), num_omitted=0)

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
        queue = deque(real for root in self._roots if (real := self._real(root)) is not None)
        while queue and len(matches) < _MAX_MATCHES and time.monotonic() < deadline:
            folder = queue.popleft()
            for entry in _entries(folder):
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder:
                    queue.append(Path(entry.path))
                if unicodedata.normalize("NFC", entry.name) == normal_name and (is_folder or is_video_path(entry.name)):
                    matches[Path(entry.path) if is_folder else folder] = None
        return self._counted(matches)

    def _listing(self, folder: Path) -> FolderListing:
        try:
            os.scandir(folder).close()
        except OSError as error:
            raise PublicError(
                409, f"{shown(folder)}: cannot be read ({error.strerror}); choose another folder"
            ) from None
        num_videos = 0
        inner: dict[Path, None] = {}
        for entry in _entries(folder):
            if not entry.is_dir():
                num_videos += is_video_path(entry.name)
            elif (real := self._real(Path(entry.path))) is not None:
                inner[real] = None
        folders = sorted(inner, key=lambda path: (path.name.casefold(), path))
        counted = self._counted(folders[:_MAX_LISTED])
        complete = len(counted) == len(folders) and all(one.is_complete for one in counted)
        return FolderListing(
            folder=CountedFolder(
                **vars(self._named(folder)),
                num_videos=num_videos + sum(one.num_videos or 0 for one in counted),
                is_complete=complete,
            ),
            parents=[self._named(parent) for parent in reversed(folder.parents) if self._real(parent) == parent],
            folders=counted,
            num_omitted=len(folders) - len(counted),
        )

    def _counted(self, folders: Iterable[Path]) -> list[CountedFolder]:
        end = time.monotonic() + _COUNT_ALL_S
        counted = []
        for folder in folders:
            num_videos, is_complete = _count_videos(folder, min(end, time.monotonic() + _COUNT_S))
            counted.append(CountedFolder(**vars(self._named(folder)), num_videos=num_videos, is_complete=is_complete))
        return counted

    def _named(self, folder: Path) -> NamedFolder:
        """Return a folder as part of a response, and remember its id."""
        folder_id = folder_id_of(folder)
        self._listed[folder_id] = folder
        self._listed.move_to_end(folder_id)
        while len(self._listed) > _MAX_KNOWN:
            self._listed.popitem(last=False)
        return NamedFolder(folder_id=folder_id, name=folder.name or str(folder), path=str(folder))

    def _real(self, folder: Path) -> Path | None:
        """Return the path of a folder with links resolved, or None if it does not exist or must not be listed."""
        real = Path(os.path.realpath(folder))
        for root in self._roots:
            real_root = os.path.realpath(root)
            if real.is_relative_to(real_root):
                inner = real.relative_to(real_root)
                if real.is_dir() and not any(part.startswith(".") for part in inner.parts):
                    return real
        return None


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder that are not hidden. Yields nothing if the folder cannot be read."""
    try:
        with os.scandir(folder) as entries:
            yield from (entry for entry in entries if not _is_hidden(entry))
    except OSError:
        return


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
        for entry in _entries(queue.popleft()):
            if entry.is_dir(follow_symlinks=False):
                queue.append(Path(entry.path))
            elif is_video_path(entry.name):
                num_videos += 1
    return num_videos, True
