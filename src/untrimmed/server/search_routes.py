"""Routes that search: by a sentence, by a frame of an indexed video, by a picture that is sent."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from untrimmed.search.engine import Hits
from untrimmed.server.depends import AService
from untrimmed.server.media import media_file
from untrimmed.server.pictures import LIMITS
from untrimmed.server.problems import PublicError
from untrimmed.server.schemas import MOST_HITS, MOST_MOMENTS, SearchAnswer, SearchRequest, SimilarRequest, Wanted
from untrimmed.server.service import Service
from untrimmed.video.reader import frame_at, read_image

MOST_PICTURE_BYTES = 32 << 20

router = APIRouter(prefix="/api", tags=["search"])


@router.post("/search")
async def search(service: AService, request: SearchRequest) -> SearchAnswer:
    """The videos that fit a sentence best, each with its best moments."""
    return await _answer(service, service.library.search, request.text, request)


@router.post("/similar")
async def similar(service: AService, request: SimilarRequest) -> SearchAnswer:
    """The videos with frames like the one on screen at a time of an indexed video."""
    record = await service.read(service.record, request.video_id)
    file = await service.read(media_file, record)

    def frame() -> Any:
        return frame_at(file.path, request.time_s, last_for_s=record.duration_s, limits=LIMITS)

    return await _answer(service, service.library.similar, await service.decode(frame), request)


@router.post(
    "/similar/picture",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def similar_to_picture(
    service: AService,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=MOST_HITS)] = 10,
    moments: Annotated[int, Query(ge=1, le=MOST_MOMENTS)] = 3,
) -> SearchAnswer:
    """The videos with frames like a picture (PNG, JPEG, WebP, BMP, GIF), which is the body of the request."""
    with tempfile.NamedTemporaryFile(prefix="untrimmed-") as file:
        size = 0
        async for piece in request.stream():
            size += len(piece)
            if size > MOST_PICTURE_BYTES:
                raise PublicError(413, f"the picture has more than {MOST_PICTURE_BYTES >> 20} MB; send a smaller one")
            file.write(piece)
        file.flush()
        picture = await service.decode(_picture, Path(file.name))
    return await _answer(
        service, service.library.similar, picture, Wanted(limit=limit, moments=moments, min_score=None, within=None)
    )


def _picture(path: Path) -> Any:
    return read_image(path, limits=LIMITS)


async def _answer(service: Service, ask: Callable[..., Hits], what: Any, wanted: Wanted) -> SearchAnswer:
    started = time.perf_counter()
    options = wanted.model_dump(include=set(Wanted.model_fields))
    hits = await service.search(ask, what, **options)
    return SearchAnswer.of(hits, time.perf_counter() - started)
