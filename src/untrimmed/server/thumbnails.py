"""Combine stored thumbnails of a video into sheets. The video is not decoded, so its file may be missing."""

import io
from collections.abc import Sequence

from untrimmed.search.store.thumbnails import StoredThumbnails

COLUMNS = 10
ROWS = 10
PER_SHEET = COLUMNS * ROWS
_QUALITY = 75
_SHEET_HEIGHT = 160  # height of a picture on a contact sheet, in pixels
_SHEET_COLUMNS = 4
_METHOD = 0  # WebP's fastest method, because a user is waiting


def size_of(video: StoredThumbnails) -> tuple[int, int]:
    """Return the width and height of the first picture, in pixels. All cells of a sheet have this size."""
    from PIL import Image

    return Image.open(io.BytesIO(video.picture(0))).size


def sheet(video: StoredThumbnails, number: int) -> bytes:
    """Return sheet `number` (from 0) of the thumbnails as WebP, filled row by row.

    A sheet has `PER_SHEET` pictures. The last sheet has only as many rows as it needs.
    """
    return _image_of(video, range(number * PER_SHEET, min((number + 1) * PER_SHEET, len(video.times_s))))


def overview(video: StoredThumbnails, duration_s: float, count: int) -> bytes:
    """Return a sheet of `count` thumbnails as WebP, filled row by row.

    The video is divided into `count` equal parts. Each part is shown by the thumbnail nearest to its middle.
    """
    return _image_of(video, [video.nearest((part + 0.5) * duration_s / count) for part in range(count)])


def _image_of(video: StoredThumbnails, numbers: Sequence[int]) -> bytes:
    from PIL import Image

    width, height = size_of(video)
    image = Image.new("RGB", (min(COLUMNS, len(numbers)) * width, -(-len(numbers) // COLUMNS) * height))
    for cell, number in enumerate(numbers):
        picture: Image.Image = Image.open(io.BytesIO(video.picture(number)))
        if picture.size != (width, height):  # a video's frames can change their size
            picture = picture.resize((width, height))
        image.paste(picture, (cell % COLUMNS * width, cell // COLUMNS * height))
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=_QUALITY, method=_METHOD)
    return buffer.getvalue()


def contact_sheet(pictures: Sequence[tuple[float, bytes]]) -> bytes:
    """Return pictures as one JPEG, in rows of four, each with its time in seconds in the corner."""
    from PIL import Image, ImageDraw

    opened = [(time_s, Image.open(io.BytesIO(data)).convert("RGB")) for time_s, data in pictures]
    first = opened[0][1]
    width = max(1, round(first.width * _SHEET_HEIGHT / first.height))
    columns = min(_SHEET_COLUMNS, len(opened))
    image = Image.new("RGB", (columns * width, -(-len(opened) // columns) * _SHEET_HEIGHT))
    draw = ImageDraw.Draw(image)
    for cell, (time_s, picture) in enumerate(opened):
        left, top = cell % columns * width, cell // columns * _SHEET_HEIGHT
        image.paste(picture.resize((width, _SHEET_HEIGHT)), (left, top))
        label = f"{time_s:.1f} s"
        draw.rectangle(draw.textbbox((left + 3, top + 3), label), fill="black")
        draw.text((left + 3, top + 3), label, fill="white")
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=_QUALITY)
    return buffer.getvalue()
