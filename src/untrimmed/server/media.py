"""The files that may be served: those that were indexed, as they were then, and nothing else."""

from __future__ import annotations

import io
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from starlette.responses import FileResponse
from starlette.types import Receive, Scope, Send

from untrimmed.search.store.records import VideoRecord
from untrimmed.server.access import IS_HEAD
from untrimmed.server.problems import PublicError
from untrimmed.video.messages import identity_of

_KINDS = {  # by suffix; a browser plays some of them, and what it cannot play is shown as frames
    ".mp4": "video/mp4",
    ".m4v": "video/mp4",
    ".mov": "video/quicktime",
    ".webm": "video/webm",
    ".mkv": "video/x-matroska",
    ".ogv": "video/ogg",
    ".ogg": "video/ogg",
}


@dataclass(frozen=True)
class MediaFile:
    """A file that was indexed, at the place that its links lead to."""

    path: Path
    status: os.stat_result
    kind: str

    @property
    def identity(self) -> list[int]:
        """What a decoder that opens the path again compares: another file may stand there by then."""
        return identity_of(self.status)


def media_file(record: VideoRecord) -> MediaFile:
    """The file of a record, if it is the one that was indexed; see `open_media`."""
    file, opened = open_media(record)
    opened.close()
    return file


class OpenedResponse(FileResponse):
    """Sends an open file, whole or by ranges, whatever stands at its path by now; and closes it."""

    def __init__(self, file: MediaFile, opened: io.FileIO, headers: dict[str, str]) -> None:
        self._opened = opened
        super().__init__(f"/dev/fd/{opened.fileno()}", media_type=file.kind, stat_result=file.status, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        with self._opened:
            of_head = {**scope, "method": "HEAD"} if scope.get(IS_HEAD) else scope  # nothing is read for it
            await super().__call__(of_head, receive, send)


def open_media(record: VideoRecord) -> tuple[MediaFile, io.FileIO]:
    """The file of a record, if it is the one that was indexed, and the same opened.

    Raises:
        PublicError: 404 where it is gone; 409 where another file has come in its place, or a link that leads out of its
            folder.
    """
    path = Path(record.path)
    try:
        real = Path(os.path.realpath(path, strict=True))
        if path.is_symlink() and not real.is_relative_to(os.path.realpath(path.parent)):
            raise PublicError(409, f"{path.name!r} is a link that leads out of its folder; index the file it leads to")
        # Opened, not only looked at: what may not be read is told now, and never waits for a pipe.
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        status = os.fstat(descriptor)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PublicError(404, f"{path.name!r} cannot be opened ({reason}); bring it back, or index it anew") from None
    if not stat.S_ISREG(status.st_mode) or (status.st_size, status.st_mtime_ns) != (record.size, record.mtime_ns):
        os.close(descriptor)
        raise PublicError(409, f"{path.name!r} has changed since it was indexed; index it again")
    kind = _KINDS.get(path.suffix.lower(), "application/octet-stream")
    return MediaFile(real, status, kind), io.FileIO(descriptor)
