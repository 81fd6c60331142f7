"""Routes that search: by all that a query can say, and by a picture that is sent."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi import Query as InAddress
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from untrimmed.server.depends import AService
from untrimmed.server.pictures import LIMITS
from untrimmed.server.problems import PublicError
from untrimmed.server.schemas import LONGEST_TEXT, MOST_HITS, MOST_MOMENTS, SearchAnswer, SearchRequest
from untrimmed.server.service import Service
from untrimmed.video.reader import read_image

MOST_PICTURE_BYTES = 32 << 20
_LONGEST_QUERY = 4000  # characters: servers take addresses of 64 kB, and one may take twelve bytes there

router = APIRouter(prefix="/api", tags=["search"])


@router.post("/search", response_model_exclude_none=True)
async def search(service: AService, request: SearchRequest) -> SearchAnswer:
    """The videos, or moments, that fit best: docs/queries.md says how parts make one score."""
    return await answer(service, request)


@router.post(
    "/search/picture",
    response_model_exclude_none=True,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def search_picture(
    service: AService,
    request: Request,
    text: Annotated[str, InAddress(max_length=LONGEST_TEXT, description="A sentence beside the picture.")] = "",
    limit: Annotated[int, InAddress(ge=1, le=MOST_HITS)] = 10,
    moments: Annotated[int, InAddress(ge=1, le=MOST_MOMENTS)] = 3,
    query: Annotated[
        str, InAddress(max_length=_LONGEST_QUERY, description="Instead of the others: what /api/search takes, as JSON.")
    ] = "",
) -> SearchAnswer:
    """The videos with frames like a picture (PNG, JPEG, WebP, BMP, GIF), which is the body of the request."""
    asked = _read(query) if query else SearchRequest(text=text, limit=limit, moments=moments)
    with tempfile.NamedTemporaryFile(prefix="untrimmed-") as file:
        size = 0
        async for piece in request.stream():
            size += len(piece)
            if size > MOST_PICTURE_BYTES:
                raise PublicError(413, f"the picture has more than {MOST_PICTURE_BYTES >> 20} MB; send a smaller one")
            file.write(piece)
        file.flush()
        picture = await service.decode(_picture, Path(file.name))
    return await answer(service, asked, picture)


def _read(query: str) -> SearchRequest:
    try:
        return SearchRequest.model_validate_json(query)
    except ValidationError as error:
        raise RequestValidationError([{**one, "loc": ("query", *one["loc"])} for one in error.errors()]) from None


def _picture(path: Path) -> Any:
    return read_image(path, limits=LIMITS)


async def answer(service: Service, request: SearchRequest, picture: Any = None) -> SearchAnswer:
    """Search, and say how long it took.

    Raises:
        UntrimmedError: What the library refuses.
    """
    started = time.perf_counter()
    amounts = request.model_dump(include={"limit", "moments", "min_score", "min_confidence"})
    hits = await service.search(service.library.search, request.query(picture), **amounts)
    return SearchAnswer.of(hits, time.perf_counter() - started)
