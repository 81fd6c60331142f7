"""The routes of stored thumbnails: a single picture, the times of all pictures, and sheets of a hundred pictures."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import Response

from untrimmed.search.cache.mapped import DamagedError
from untrimmed.search.store.records import VideoRecord, content_stamp
from untrimmed.search.store.thumbnails import StoredThumbnails
from untrimmed.server.depends import RecordDependency, ServiceDependency
from untrimmed.server.pictures import UNCHANGED, unchanged_response
from untrimmed.server.problems import PublicError
from untrimmed.server.schemas import MAX_SECONDS, Seconds, ThumbnailSheets
from untrimmed.server.service import Service
from untrimmed.server.thumbnails import PER_SHEET, overview, sheet, size_of

router = APIRouter(prefix="/api", tags=["videos"])

Version = Annotated[
    str,
    Query(
        max_length=64,
        description="The `version` of the thumbnails. Browsers cache URLs that contain the version permanently.",
    ),
]
_WEBP = {"image/webp": {"schema": {"type": "string", "format": "binary"}}}
_JPEG = {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}


@router.get(
    "/videos/{video_id}/thumbnail",
    summary="Thumbnail of a video",
    response_class=Response,
    responses={200: {"content": {**_WEBP, **_JPEG}}, **UNCHANGED},
)
async def thumbnail(
    service: ServiceDependency,
    record: RecordDependency,
    request: Request,
    time_s: Annotated[
        Seconds, Query(description="A time after the end returns the last frame.", examples=[12.5])
    ] = 0.0,
    start_s: Annotated[
        Seconds, Query(description="Start of the span that the picture is from.", examples=[12.2])
    ] = 0.0,
    end_s: Annotated[
        Seconds, Query(description="End of the span that the picture is from.", examples=[14.0])
    ] = MAX_SECONDS,
    version: Version = "",
) -> Response:
    """Return a picture of the video at most 0.5 s from a time, up to 160 pixels high.

    It is a stored picture (WebP) from the span, or otherwise a decoded frame (JPEG). If the video file is missing, it
    may be a stored picture from outside the span.
    """
    headers = _picture_headers(record, f"{time_s:.2f}-{start_s:.3f}-{end_s:.3f}", version)
    if unchanged := unchanged_response(request, headers):
        return unchanged
    if picture := await service.read(service.thumbnails.at, record, time_s, start_s, end_s):
        return Response(picture, media_type="image/webp", headers=headers)
    picture, kind = await service.frame_or_thumbnail(record, time_s, 180)
    if kind == "webp":  # until the file is back
        headers = {"cache-control": "no-store"}
    return Response(picture, media_type=f"image/{kind}", headers=headers)


@router.get("/videos/{video_id}/thumbnails", summary="Times of the stored pictures")
async def thumbnails(service: ServiceDependency, record: RecordDependency) -> ThumbnailSheets:
    """Return the times of a video's stored pictures. The list may be empty."""
    return await service.read(_thumbnails, service, record)


def _thumbnails(service: Service, record: VideoRecord) -> ThumbnailSheets:
    version = content_stamp(record)
    video = service.thumbnails.of(record)
    try:
        if video is not None:
            width, height = size_of(video)
            return ThumbnailSheets(version=version, times_s=video.times_s.round(3).tolist(), width=width, height=height)
    except DamagedError:
        pass
    return ThumbnailSheets(version=version, times_s=[], width=0, height=0)


@router.get(
    "/videos/{video_id}/thumbnails/overview",
    summary="Overview of a video",
    response_class=Response,
    responses={200: {"content": _WEBP}, **UNCHANGED},
)
async def thumbnail_overview(
    service: ServiceDependency,
    record: RecordDependency,
    request: Request,
    pictures: Annotated[int, Query(ge=1, le=PER_SHEET, description="Number of pictures.", examples=[40])] = 50,
    version: Version = "",
) -> Response:
    """Divide a video into equal parts, and return a WebP image with one stored picture of each part, in rows of ten."""
    headers = _picture_headers(record, f"overview-{pictures}", version)
    if unchanged := unchanged_response(request, headers):
        return unchanged
    return Response(await service.read(_overview, service, record, pictures), media_type="image/webp", headers=headers)


def _overview(service: Service, record: VideoRecord, count: int) -> bytes:
    with _readable(service, record) as video:
        return overview(video, record.duration_s, count)


@router.get(
    "/videos/{video_id}/thumbnails/{number}",
    summary="Sheet of stored pictures",
    response_class=Response,
    responses={200: {"content": _WEBP}, **UNCHANGED},
)
async def thumbnail_sheet(
    service: ServiceDependency,
    record: RecordDependency,
    request: Request,
    number: Annotated[int, PathParameter(ge=0, le=10**6, description="Number of the sheet, from 0.", examples=[0])],
    version: Version = "",
) -> Response:
    """Return a sheet of a hundred stored pictures as WebP, in rows of ten. The last sheet may have fewer."""
    headers = _picture_headers(record, f"sheet-{number}", version)
    if unchanged := unchanged_response(request, headers):
        return unchanged
    return Response(await service.read(_sheet, service, record, number), media_type="image/webp", headers=headers)


def _sheet(service: Service, record: VideoRecord, number: int) -> bytes:
    with _readable(service, record) as video:
        num_sheets = -(-len(video.times_s) // PER_SHEET)
        if number >= num_sheets:
            raise PublicError(404, f"sheet {number} does not exist; the video has {num_sheets}, counted from 0")
        return sheet(video, number)


@contextmanager
def _readable(service: Service, record: VideoRecord) -> Iterator[StoredThumbnails]:
    """Yield the stored thumbnails of a video. Raises PublicError if there are none, or if they are damaged."""
    video = service.thumbnails.of(record)
    if video is None:
        raise PublicError(404, "no thumbnails of this video are stored; add them with: untrimmed index --thumbnails")
    try:
        yield video
    except DamagedError:
        raise PublicError(
            404, "the stored thumbnails of this video are damaged; remove them with: untrimmed doctor --repair"
        ) from None


def _picture_headers(record: VideoRecord, name: str, version: str) -> dict[str, str]:
    is_fixed = version == content_stamp(record)
    age = "max-age=31536000, immutable" if is_fixed else "max-age=600"
    return {"cache-control": f"private, {age}", "etag": f'"{content_stamp(record)}-{name}"'}
