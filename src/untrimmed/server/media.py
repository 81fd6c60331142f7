"""Open indexed files, if they have not changed since they were indexed."""

import io
import os
import shutil
import stat
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from starlette.responses import FileResponse
from starlette.types import Receive, Scope, Send

from untrimmed.search.indexing.video_files import content_hash
from untrimmed.search.store.records import VideoRecord
from untrimmed.server.access import IS_HEAD
from untrimmed.server.problems import PublicError
from untrimmed.video.messages import identity_of
from untrimmed.video.pictures import read_pictures

_KINDS = {  # types of files that browsers may play; for other videos, the page shows single frames
    ".mp4": "video/mp4",
    ".m4v": "video/mp4",
    ".mov": "video/quicktime",
    ".webm": "video/webm",
    ".mkv": "video/x-matroska",
    ".ogv": "video/ogg",
    ".ogg": "video/ogg",
}
_MAX_COMPARED_BYTES = 256 << 20  # a file of this size is read in half a second
_MIN_FREE_BYTES = 256 << 20
_MAX_HASHES = 10_000
_one_large_file = threading.Lock()
# hashes of compared files, by device, inode and time of the last status change
_content_hashes: dict[tuple[int, int, int], str] = {}


def require_free_space(folder: Path, use: str) -> None:
    """Raise a PublicError if less than 256 MB are free on the disk of a folder. `use` names the files to be written."""
    if shutil.disk_usage(folder).free < _MIN_FREE_BYTES:
        raise PublicError(507, f"less than {_MIN_FREE_BYTES >> 20} MB are free for {use}; free space")


@dataclass(frozen=True)
class MediaFile:
    """An indexed file that exists and is unchanged. Symbolic links in its path are resolved."""

    path: Path
    status: os.stat_result
    kind: str

    @property
    def identity(self) -> list[int]:
        """The identity of the file. A decoder that opens the path compares it, to detect a replaced file."""
        return identity_of(self.status)


def media_file(record: VideoRecord) -> MediaFile:
    """Return the file of a record if it is unchanged. Raises the errors of `open_media`."""
    file, stream = open_media(record)
    stream.close()
    return file


def frame_source(record: VideoRecord) -> MediaFile:
    """Return the file of a record, or its folder of pictures, if it is unchanged. Raises the errors of `open_media`."""
    path = Path(record.path)
    try:
        # read the status before the pictures, to detect that the folder is replaced in between
        status = path.lstat()
        pictures = read_pictures(path, 1.0) if stat.S_ISDIR(status.st_mode) else None
        if pictures is not None and pictures.state() == (record.size, record.mtime_ns):
            return MediaFile(path, status, "")
    except OSError:
        pass  # `media_file` below raises an error with the reason
    return media_file(record)


class OpenedResponse(FileResponse):
    """Sends an open file or a range of it, and closes it. The path is not opened again."""

    def __init__(self, file: MediaFile, stream: io.FileIO, headers: dict[str, str]) -> None:
        self._stream = stream
        super().__init__(f"/dev/fd/{stream.fileno()}", media_type=file.kind, stat_result=file.status, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response to one request."""
        with self._stream:
            # for a HEAD request, the base class then does not read the file
            head_scope = {**scope, "method": "HEAD"} if scope.get(IS_HEAD) else scope
            await super().__call__(head_scope, receive, send)


def _is_unchanged(record: VideoRecord, descriptor: int, status: os.stat_result) -> bool:
    """Whether an open file is the file that was indexed.

    A program that replaces a file can give the new file the same size and modification time, but not the same time of
    the last status change (`ctime`). If this time is after the time of indexing, the file may have been replaced, or
    only moved. Then the hash of its content is compared. A large file counts as unchanged until another thread has
    computed its hash, which happens only on Linux.
    """
    if (status.st_size, status.st_mtime_ns) != (record.size, record.mtime_ns):
        return False
    if status.st_ctime <= record.indexed_at:
        return True
    key = status.st_dev, status.st_ino, status.st_ctime_ns
    if key not in _content_hashes:
        if len(_content_hashes) >= _MAX_HASHES:
            _content_hashes.clear()
        if status.st_size > _MAX_COMPARED_BYTES:
            _content_hashes[key] = record.content_hash
            # on other systems, a duplicated descriptor shares its position with the stream that is sent
            if sys.platform == "linux":
                arguments = key, os.dup(descriptor)
                threading.Thread(target=_compare_later, args=arguments, daemon=True, name="compare").start()
            return True
        _content_hashes[key] = content_hash(Path(f"/dev/fd/{descriptor}"), threading.Event())
        os.lseek(descriptor, 0, os.SEEK_SET)  # on some systems, both descriptors share the position
    return _content_hashes[key] == record.content_hash


def _compare_later(key: tuple[int, int, int], descriptor: int) -> None:
    """Store the hash of a large file, one file at a time, and close the descriptor."""
    with _one_large_file, suppress(OSError):
        _content_hashes[key] = content_hash(Path(f"/dev/fd/{descriptor}"), threading.Event())
    os.close(descriptor)


def open_media(record: VideoRecord) -> tuple[MediaFile, io.FileIO]:
    """Open the file of a record, and return it with an open stream.

    Raises:
        PublicError: 404 if the file cannot be opened; 409 if it has changed since it was indexed, or is a link to a
            file outside its folder.
    """
    path = Path(record.path)
    try:
        real = Path(os.path.realpath(path, strict=True))
        if path.is_symlink() and not real.is_relative_to(os.path.realpath(path.parent)):
            raise PublicError(409, f"{path.name!r} is a link to a file outside its folder; index that file")
        # Opening the file also checks permissions. O_NONBLOCK prevents waiting if the file is a pipe.
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        status = os.fstat(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        raise PublicError(404, f"{path.name!r} is missing; connect its drive, or restore the file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PublicError(
            404, f"{path.name!r} cannot be opened ({reason}); check its permissions and its drive"
        ) from None
    if stat.S_ISDIR(status.st_mode):
        os.close(descriptor)
        raise PublicError(
            409, f"{path.name!r} is a folder of pictures, which has single frames only, or it has changed"
        )
    if not stat.S_ISREG(status.st_mode) or not _is_unchanged(record, descriptor, status):
        os.close(descriptor)
        raise PublicError(409, f"{path.name!r} has changed since it was indexed; index it again")
    kind = _KINDS.get(path.suffix.lower(), "application/octet-stream")
    return MediaFile(real, status, kind), io.FileIO(descriptor)
