"""Stored thumbnails of videos, single or as sheets. Nothing is decoded from the video, and its file may be missing."""

import io
import threading
from collections import OrderedDict
from pathlib import Path

from untrimmed.search.cache.mapped import DamagedError
from untrimmed.search.store.records import VideoRecord
from untrimmed.search.store.thumbnails import StoredThumbnails, open_thumbnails

COLUMNS = 10
ROWS = 10
PER_SHEET = COLUMNS * ROWS
_OPEN_FILES = 64
_QUALITY = 75
_METHOD = 0  # the fastest method of WebP, because a user is waiting


class ThumbnailFiles:
    """The files of a library, a few of which stay mapped. Thread-safe."""

    def __init__(self, library: Path) -> None:
        self._library = library
        # files by content hash; the file used last is at the end
        self._open: OrderedDict[str, StoredThumbnails] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, record: VideoRecord) -> StoredThumbnails | None:
        """The thumbnails of a video; None if it has none, or their file is damaged."""
        content = record.content_hash
        with self._lock:
            if (video := self._open.get(content)) is not None:
                self._open.move_to_end(content)
                return video
        video = open_thumbnails(self._library, content)
        if video is not None:
            with self._lock:
                self._open[content] = video
                if len(self._open) > _OPEN_FILES:
                    self._open.popitem(last=False)
        return video

    def at(self, record: VideoRecord, time_s: float) -> bytes | None:
        """The picture nearest to a time, as WebP; None if none is stored within 0.5 s.

        After the end of the video, it is the last picture.
        """
        try:
            video = self.of(record)
            return None if video is None else video.at(min(time_s, record.duration_s))
        except DamagedError:
            return None


def size_of(video: StoredThumbnails) -> tuple[int, int]:
    """Width and height of the first picture, which the cells of a sheet have too."""
    from PIL import Image

    return Image.open(io.BytesIO(video.picture(0))).size


def sheet(video: StoredThumbnails, number: int) -> bytes:
    """A sheet as WebP, filled by rows.

    Its pictures are `number * PER_SHEET` up to `(number + 1) * PER_SHEET`, if there are so many.

    The last sheet has only as many rows as it needs.
    """
    from PIL import Image

    pictures = range(number * PER_SHEET, min((number + 1) * PER_SHEET, len(video.times_s)))
    width, height = size_of(video)
    image = Image.new("RGB", (min(COLUMNS, len(pictures)) * width, -(-len(pictures) // COLUMNS) * height))
    for cell, picture_number in enumerate(pictures):
        picture: Image.Image = Image.open(io.BytesIO(video.picture(picture_number)))
        if picture.size != (width, height):  # the size changed within the video
            picture = picture.resize((width, height))
        image.paste(picture, (cell % COLUMNS * width, cell // COLUMNS * height))
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=_QUALITY, method=_METHOD)
    return buffer.getvalue()
