"""The routes of videos: lists, relevance curves, frames, files, clips and exports."""

import json
import math
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from untrimmed.passages.words import TextQuery
from untrimmed.search.query.query import LONGEST_TEXT
from untrimmed.search.store.passages import PassageTable
from untrimmed.search.store.records import VideoRecord
from untrimmed.server.depends import RecordDependency, ServiceDependency
from untrimmed.server.export import check_span, clip_name, export, folder_in_name, temporary_folder, write_clip
from untrimmed.server.media import MediaFile, OpenedResponse, media_file, open_media
from untrimmed.server.pictures import UNCHANGED, unchanged_response
from untrimmed.server.problems import PublicError, problems
from untrimmed.server.schemas import (
    ExportRequest,
    RelevanceCurve,
    SearchRequest,
    Seconds,
    Sentence,
    Span,
    TranscriptLine,
    Video,
    VideoDetail,
    VideoList,
)
from untrimmed.server.service import Service

MAX_POINTS = 4000  # largest number of points of a curve
_MAX_FRAMES_S = 20  # longest span whose frames are listed
# possible shorter sides of frames in pixels; few sizes make it likely that a frame is cached
SIDES = (90, 180, 360, 720)

Points = Annotated[
    int, Query(ge=1, le=MAX_POINTS, description="Maximum number of points. Each point is the maximum over a few times.")
]

router = APIRouter(prefix="/api", tags=["videos"])


class _OneTimeFile(FileResponse):
    """Sends a file in a temporary folder, and then deletes the file and the folder."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:  # a background task would not run if the client disconnects
            _remove(Path(self.path))


@router.get("/videos", summary="List the videos")
async def videos(
    service: ServiceDependency,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    name: Annotated[str, Query(max_length=500, description="Only paths that contain this text, ignoring case.")] = "",
) -> VideoList:
    """List the indexed videos by path."""
    return await list_videos(service, name, offset, limit)


async def list_videos(service: Service, name: str, offset: int, limit: int) -> VideoList:
    """Return up to `limit` indexed videos whose path contains `name`, ignoring case. The first `offset` are skipped."""
    records = await service.read(service.records)
    matches = [record for record in records if name.lower() in record.path.lower()] if name else records
    return VideoList(total=len(matches), videos=[Video.of(record) for record in matches[offset : offset + limit]])


@router.get("/videos/{video_id}", summary="Read a video")
async def video(service: ServiceDependency, record: RecordDependency) -> VideoDetail:
    """Return a video, and whether its file can be read."""
    fields = Video.of(record).model_dump()
    try:
        file = await service.read(media_file, record)
    except PublicError as error:
        return VideoDetail(**fields, can_be_read=False, problem=error.detail, kind=None, picture_start_s=0.0)
    start_s = await service.decode(service.pictures.picture_start_s, file.path, file.identity)
    return VideoDetail(**fields, can_be_read=True, problem=None, kind=file.kind, picture_start_s=start_s)


@router.get("/videos/{video_id}/relevance", summary="Relevance curve of a sentence")
async def relevance(
    service: ServiceDependency,
    record: RecordDependency,
    text: Annotated[str, Query(min_length=1, max_length=LONGEST_TEXT, examples=["a dog jumps into a lake"])],
    points: Points = 1000,
) -> RelevanceCurve:
    """Return how well each time of the video matches a sentence."""
    return RelevanceCurve.of(*await service.search(service.library.relevance, text, record.path), points)


@router.post("/videos/{video_id}/relevance", summary="Relevance curve of a query")
async def relevance_of_query(
    service: ServiceDependency, record: RecordDependency, request: SearchRequest, points: Points = 1000
) -> RelevanceCurve:
    """Return how well the pictures of a video match a query at each time. With `then`, only the first moment counts.

    If `modes` does not contain `seen`, the value is the strength of the best passage at each time.
    """
    return RelevanceCurve.of(*await service.search(service.library.relevance, request.query(), record.path), points)


@router.get("/videos/{video_id}/transcript", summary="Transcript of a video")
async def transcript(
    service: ServiceDependency,
    record: RecordDependency,
    text: Annotated[list[Sentence] | None, Query(max_length=3, description="Sentences whose words are marked.")] = None,
) -> list[TranscriptLine]:
    """Return the passages of a video (what is said and written), in time order."""
    return await service.read(_transcript, service.library.folder, record, text or ())


def _transcript(folder: Path, record: VideoRecord, texts: Sequence[str]) -> list[TranscriptLine]:
    queries = [TextQuery.of(text) for text in texts]
    return [TranscriptLine.of(mode, passage, queries) for mode, passage in PassageTable(folder).transcript(record)]


@router.get(
    "/videos/{video_id}/frame",
    summary="Frame of a video",
    response_class=Response,
    responses={200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}}, **UNCHANGED},
)
async def frame(
    service: ServiceDependency,
    record: RecordDependency,
    request: Request,
    time_s: Annotated[
        Seconds, Query(description="A time after the end returns the last frame.", examples=[12.5])
    ] = 0.0,
    short_side: Annotated[
        int, Query(ge=1, le=720, description=f"Shorter side in pixels, rounded up to one of {SIDES}.")
    ] = 180,
) -> Response:
    """Return the frame at a time as JPEG."""
    side = next(side for side in SIDES if side >= short_side)
    headers = {"cache-control": "private, max-age=600", "etag": f'"{record.content_hash[:16]}-{time_s:.2f}-{side}"'}
    if unchanged := unchanged_response(request, headers):
        return unchanged
    picture = await service.frame(record, time_s, side)
    return Response(picture, media_type="image/jpeg", headers=headers)


@router.get("/videos/{video_id}/edges", summary="Exact edges of a span")
async def edges(
    service: ServiceDependency,
    record: RecordDependency,
    start_s: Annotated[Seconds, Query(examples=[12.5])],
    end_s: Annotated[Seconds, Query(examples=[16.0])],
    extend_only: Annotated[
        bool, Query(description="Do not move edges inwards: for moments with words that are said or written.")
    ] = False,
) -> Span:
    """Return a span with exact edges: an edge within half a second of a shot change is moved to the shot change."""
    check_span(record, start_s, end_s, math.inf)
    await service.read(media_file, record)  # refuses a file that has changed since it was indexed
    exact_span = partial(service.library.exact_span, extend_only=extend_only)
    moment = await service.decode(exact_span, record, start_s, end_s)
    return Span(start_s=moment.start_s, end_s=moment.end_s)


@router.get("/videos/{video_id}/frames", summary="Times of frames")
async def frames(
    service: ServiceDependency,
    record: RecordDependency,
    start_s: Annotated[Seconds, Query(examples=[12.5])],
    end_s: Annotated[Seconds, Query(examples=[14.5])],
) -> list[float]:
    """Return the start time of each frame in a span of up to 20 s. The first frame may start before the span.

    Such times are needed only if the frame rate varies (`has_variable_rate`).
    """
    check_span(record, start_s, end_s, _MAX_FRAMES_S)
    file = await service.read(media_file, record)
    return await service.decode(service.pictures.frame_times, file.path, start_s, end_s, file.identity)


@router.get(
    "/videos/{video_id}/media",
    summary="Video file",
    response_class=FileResponse,
    responses={
        200: {"content": {"video/*": {"schema": {"type": "string", "format": "binary"}}}},
        206: {"description": "A part of the file.", "content": {"video/*": {}}},
        400: {"description": "The range is malformed.", "content": {"text/plain": {}}},
        416: {"description": "The range is outside the file.", "content": {"text/plain": {}}},
    },
)
async def media(service: ServiceDependency, record: RecordDependency) -> Response:
    """Return the video file, or a range of it."""
    file, stream = await service.read(open_media, record)
    return OpenedResponse(file, stream, {"cache-control": "private, max-age=0"})


@router.get(
    "/videos/{video_id}/clip",
    summary="Clip of a video",
    response_class=FileResponse,
    responses={
        200: {"content": {"video/mp4": {"schema": {"type": "string", "format": "binary"}}}},
        **problems(503, 507),
    },
)
async def clip(
    service: ServiceDependency,
    record: RecordDependency,
    start_s: Annotated[Seconds, Query(examples=[12.5])],
    end_s: Annotated[Seconds, Query(examples=[16.0])],
) -> Response:
    """Return a span of the video as an MP4 file with sound.

    Its edges are moved to the nearest frames, unless the frame rate varies or is low.
    """
    check_span(record, start_s, end_s)
    file = await service.read(media_file, record)
    folder = folder_in_name(record, await service.read(service.records))
    path = await service.cut(_clip, file, start_s, end_s, service.ends)
    return _OneTimeFile(path, media_type="video/mp4", filename=clip_name(record, start_s, end_s, folder))


def _clip(file: MediaFile, start_s: float, end_s: float, ends: threading.Event) -> Path:
    folder = temporary_folder()
    try:
        return write_clip(file, start_s, end_s, folder / "clip.mp4", ends)
    except BaseException:
        _remove(folder / "clip.mp4")
        raise


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.parent.rmdir()


@router.post(
    "/export",
    summary="Export moments",
    response_class=FileResponse,
    responses={200: {"content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}, **problems(503, 507)},
)
async def export_moments(service: ServiceDependency, request: ExportRequest) -> Response:
    """Export moments as clips (a ZIP file), as a timeline for an editor, as a table, or as subtitles of each video.

    If there are warnings, the header `X-Warnings` contains them as a JSON list of texts.
    """
    records = await service.read(_records_of, service, request)
    work = service.cut if request.format == "clips" else service.read
    exported = await work(export, request, records, service.ends)
    headers = {"x-warnings": json.dumps(exported.warnings)} if exported.warnings else None  # in ASCII
    return _OneTimeFile(exported.path, media_type=exported.kind, filename=exported.path.name, headers=headers)


def _records_of(service: Service, request: ExportRequest) -> list[VideoRecord]:
    return [service.record(mark.video_id) for mark in request.moments]
