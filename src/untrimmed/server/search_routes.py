"""The routes that search: with a query, and with an uploaded picture."""

import asyncio
import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi import Query as InAddress
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from untrimmed.errors import UntrimmedError, VideoError
from untrimmed.search.query.hits import Hit
from untrimmed.search.query.query import LONGEST_TEXT, Cutoff, specs
from untrimmed.server.depends import ServiceDependency
from untrimmed.server.problems import PublicError
from untrimmed.server.schemas import HitJson, SearchAnswer, SearchLine, SearchRequest
from untrimmed.server.service import Service

MAX_PICTURE_BYTES = 32 << 20
# in characters; a character takes up to 12 bytes in a URL, and servers limit URLs to 64 kB
_MAX_QUERY_LENGTH = 4000
_MAX = {name: spec.service_maximum for name, (_, spec) in specs(Cutoff).items()}

router = APIRouter(prefix="/api", tags=["search"])


@router.post("/search", summary="Search", response_model_exclude_unset=True)
async def search(service: ServiceDependency, request: SearchRequest) -> SearchAnswer:
    """Find the videos or moments that match a query best. docs/queries.md explains how query parts are combined."""
    return await answer(service, request)


class _NdjsonResponse(StreamingResponse):
    media_type = "application/x-ndjson"


@router.post(
    "/search/lines",
    summary="Search and stream the results",
    response_class=_NdjsonResponse,
    responses={200: {"model": SearchLine, "description": "JSON lines."}},
)
async def search_lines(service: ServiceDependency, request: SearchRequest) -> Response:
    """Search and stream the results: a line for each hit, best first, then the complete answer.

    Finding moments in a long video takes longer the first time. The stream sends the best hit before the others.
    """
    lines: asyncio.Queue[SearchLine | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    ranks = itertools.count(1)

    def send(hit: Hit) -> None:
        loop.call_soon_threadsafe(lines.put_nowait, SearchLine(hit=HitJson(**hit.to_json(next(ranks)))))

    work = asyncio.create_task(answer(service, request, on_hit=send))

    def done(work: asyncio.Task[SearchAnswer]) -> None:
        lines.put_nowait(None)
        if not work.cancelled():
            work.exception()  # without this call, asyncio would log a warning if the client has disconnected

    work.add_done_callback(done)
    first = await lines.get()
    if first is None:
        await work  # if the query is refused, raise the error before the stream begins, to send the right status

    async def stream() -> AsyncIterator[str]:
        line = first
        while line is not None:
            yield _line(line)
            line = await lines.get()
        try:
            yield _line(SearchLine(answer=await work))
        except UntrimmedError as error:
            yield _line(SearchLine(problem=str(error)))

    return _NdjsonResponse(stream())


def _line(line: SearchLine) -> str:
    return line.model_dump_json(exclude_unset=True) + "\n"


@router.post(
    "/search/picture",
    summary="Search with a picture",
    response_model_exclude_unset=True,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def search_picture(
    service: ServiceDependency,
    request: Request,
    text: Annotated[str, InAddress(max_length=LONGEST_TEXT, description="A sentence in addition to the picture.")] = "",
    limit: Annotated[int, InAddress(ge=1, le=_MAX["limit"])] = 10,
    moments: Annotated[int, InAddress(ge=1, le=_MAX["moments"])] = 3,
    query: Annotated[
        str,
        InAddress(
            max_length=_MAX_QUERY_LENGTH,
            description="A search request as JSON (see /api/search). It replaces the other parameters.",
        ),
    ] = "",
) -> SearchAnswer:
    """Find videos with frames similar to the picture in the request body (PNG, JPEG, WebP, BMP or GIF)."""
    search_request = _read(query) if query else SearchRequest(text=text, limit=limit, moments=moments)
    with tempfile.NamedTemporaryFile(prefix="untrimmed-") as file:
        size = 0
        try:
            async for piece in request.stream():
                size += len(piece)
                if size > MAX_PICTURE_BYTES:
                    raise PublicError(
                        413, f"the picture is larger than {MAX_PICTURE_BYTES >> 20} MB; send a smaller one"
                    )
                file.write(piece)
        except ClientDisconnect:  # nobody gets the response, but the disconnect must not be logged as a bug
            raise PublicError(400, "the picture was not received completely; send it again") from None
        file.flush()
        try:
            picture = await service.decode(service.pictures.image, Path(file.name))
        except VideoError as error:
            raise VideoError(str(error).replace(file.name, "the uploaded picture")) from error
    return await answer(service, search_request, picture)


def _read(query: str) -> SearchRequest:
    try:
        return SearchRequest.model_validate_json(query)
    except ValidationError as error:
        raise RequestValidationError([{**entry, "loc": ("query", *entry["loc"])} for entry in error.errors()]) from None


async def answer(
    service: Service, request: SearchRequest, picture: Any = None, on_hit: Callable[[Hit], None] | None = None
) -> SearchAnswer:
    """Search, and return the response.

    `on_hit` is called in another thread; see `Library.search`.

    Raises:
        UntrimmedError: The library refuses the query.
    """
    started = time.perf_counter()
    limits = vars(request.cutoff())
    hits = await service.search(service.library.search, request.query(picture), on_hit=on_hit, **limits)
    return SearchAnswer.of(hits, time.perf_counter() - started)
