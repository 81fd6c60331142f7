"""Write hits as one web page with embedded thumbnails and with links that open each video at the moment."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from untrimmed.cli.console import clock
from untrimmed.errors import FeatureError
from untrimmed.files import write_whole
from untrimmed.search.store.listing import read_records
from untrimmed.search.store.thumbnails import ThumbnailFiles

if TYPE_CHECKING:
    from untrimmed.search.query.hits import Hit
    from untrimmed.types import Moment
    from untrimmed.video.reader import FrameReader

_SHORT_SIDE = 180
_QUALITY = 80
_STYLE = """
:root { color-scheme: light dark; font: 16px/1.45 system-ui, sans-serif; }
body { max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { margin: 1.6rem 0 .4rem; font-size: 1rem; overflow-wrap: anywhere; }
h2 span, figcaption { font-weight: normal; font-size: .85rem; opacity: .75; font-variant-numeric: tabular-nums; }
div { display: flex; flex-wrap: wrap; gap: .75rem; } figure { margin: 0; }
img, .none { display: block; width: 15rem; height: 8.44rem; object-fit: contain; }
img, .none { background: #000; border-radius: .5rem; }
"""


class _Pictures:
    """Pictures of a library's moments: stored thumbnails, or decoded frames if there are no thumbnails."""

    def __init__(self, library: Path, reader: FrameReader) -> None:
        self._records = {record.video_id: record for record in read_records(library)}
        self._stored = ThumbnailFiles(library)
        self._reader = reader

    def address(self, hit: Hit, moment: Moment) -> str | None:
        """Return the picture of a moment as a data URL, or None if the video cannot be read."""
        record = self._records.get(hit.video_id)
        if record is not None:
            picture = self._stored.at(record, moment.picture_s, moment.start_s, moment.end_s)
            if picture is not None:
                return _data_url(picture, "webp")
        from PIL import Image

        try:
            frame = self._reader.frame_at(
                hit.video, moment.picture_s, short_side=_SHORT_SIDE, pictures_s=hit.duration_s
            )
        except FeatureError:
            return None
        jpeg = io.BytesIO()
        Image.fromarray(frame).save(jpeg, "JPEG", quality=_QUALITY)
        return _data_url(jpeg.getvalue(), "jpeg")


def _data_url(picture: bytes, form: str) -> str:
    return f"data:image/{form};base64,{base64.b64encode(picture).decode()}"


def write_sheet(file: Path, title: str, hits: Sequence[Hit], library: Path) -> None:
    """Write hits to one HTML file.

    A moment has no picture if its video has no thumbnail and cannot be read. A link opens the video file at the moment
    (`#t=`, W3C media fragments). It works on any machine that has the video at the same path.
    """
    from untrimmed.video.reader import FrameReader

    with FrameReader() as reader:
        pictures = _Pictures(library, reader)
        body = "\n".join(_hit(rank, hit, pictures) for rank, hit in enumerate(hits, start=1))
    heading = html.escape(title)
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    write_whole(
        file,
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{heading}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body><h1>{heading}</h1>\n{body or '<p>nothing found</p>'}\n</body></html>\n",
    )


def _hit(rank: int, hit: Hit, pictures: _Pictures) -> str:
    figures = "\n".join(_figures(hit, pictures))
    name = html.escape(str(hit.video))
    facts = f"{hit.score:.3f}" if hit.confidence is None else f"{hit.score:.3f}, {hit.confidence:.0%}"
    return f'<h2 dir="auto">{rank}. {name} <span>{facts}</span></h2>\n<div>\n{figures}\n</div>'


def _figures(hit: Hit, pictures: _Pictures) -> Iterator[str]:
    address = html.escape(hit.video.as_uri())
    labelled_moments = [("", moment) for moment in hit.moments]
    if hit.then:
        pairs = zip(hit.moments, hit.then, strict=True)
        labelled_moments = [entry for first, second in pairs for entry in (("", first), ("then ", second))]
    for label, moment in labelled_moments:
        times = f"{label}{clock(moment.start_s)} – {clock(moment.end_s)}"
        picture = pictures.address(hit, moment)
        image = f'<img src="{picture}" alt="frame of {times}">' if picture else '<span class="none"></span>'
        link = f"{address}#t={moment.start_s:.3f},{moment.end_s:.3f}"
        yield f'<figure><a href="{link}">{image}</a><figcaption>{times}</figcaption></figure>'
