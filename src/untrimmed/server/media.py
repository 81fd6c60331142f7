"""The files that may be served: those that were indexed, as they were then, and nothing else."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from untrimmed.search.records import VideoRecord
from untrimmed.server.problems import PublicError

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


def media_file(record: VideoRecord) -> MediaFile:
    """The file of a record, if it is the one that was indexed.

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
        try:
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PublicError(404, f"{path.name!r} cannot be opened ({reason}); bring it back, or index it anew") from None
    if not stat.S_ISREG(status.st_mode) or (status.st_size, status.st_mtime_ns) != (record.size, record.mtime_ns):
        raise PublicError(409, f"{path.name!r} has changed since it was indexed; index it again")
    return MediaFile(real, status, _KINDS.get(path.suffix.lower(), "application/octet-stream"))
