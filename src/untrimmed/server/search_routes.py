"""Routes that search: by all that a query can say, and by a picture that is sent."""

from __future__ import annotations

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
from untrimmed.server.depends import AService
from untrimmed.server.problems import PublicError
from untrimmed.server.schemas import FoundVideo, SearchAnswer, SearchLine, SearchRequest
from untrimmed.server.service import Service

MOST_PICTURE_BYTES = 32 << 20
_LONGEST_QUERY = 4000  # characters: servers take addresses of 64 kB, and one may take twelve bytes there
_MOST = {name: spec.served for name, (_, spec) in specs(Cutoff).items()}

router = APIRouter(prefix="/api", tags=["search"])


@router.post("/search", response_model_exclude_unset=True)
async def search(service: AService, request: SearchRequest) -> SearchAnswer:
    """The videos, or moments, that fit best: docs/queries.md says how parts make one score."""
    return await answer(service, request)


class _Lines(StreamingResponse):
    media_type = "application/x-ndjson"


@router.post(
    "/search/lines", response_class=_Lines, responses={200: {"model": SearchLine, "description": "JSON lines."}}
)
async def search_lines(service: AService, request: SearchRequest) -> Response:
    """The same as it becomes known: a line for each video, then the whole answer.

    Moments of long videos take their time when they are first met; the best one need not wait for the others.
    """
    lines: asyncio.Queue[SearchLine | None] = asyncio.Queue()
    loop, ranks = asyncio.get_running_loop(), itertools.count(1)

    def tell(hit: Hit) -> None:
        loop.call_soon_threadsafe(lines.put_nowait, SearchLine(hit=FoundVideo(**hit.to_json(next(ranks)))))

    work = asyncio.create_task(answer(service, request, on_hit=tell))

    def done(work: asyncio.Task[SearchAnswer]) -> None:
        lines.put_nowait(None)
        if not work.cancelled():
            work.exception()  # has been seen, even if whoever asked has gone

    work.add_done_callback(done)
    first = await lines.get()
    if first is None:
        await work  # what the library refuses is answered as such

    async def told() -> AsyncIterator[str]:
        line = first
        while line is not None:
            yield _line(line)
            line = await lines.get()
        try:
            yield _line(SearchLine(answer=await work))
        except UntrimmedError as error:
            yield _line(SearchLine(problem=str(error)))

    return _Lines(told())


def _line(line: SearchLine) -> str:
    return line.model_dump_json(exclude_unset=True) + "\n"


@router.post(
    "/search/picture",
    response_model_exclude_unset=True,
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
    limit: Annotated[int, InAddress(ge=1, le=_MOST["limit"])] = 10,
    moments: Annotated[int, InAddress(ge=1, le=_MOST["moments"])] = 3,
    query: Annotated[
        str, InAddress(max_length=_LONGEST_QUERY, description="Instead of the others: what /api/search takes, as JSON.")
    ] = "",
) -> SearchAnswer:
    """The videos with frames like a picture (PNG, JPEG, WebP, BMP, GIF), which is the body of the request."""
    asked = _read(query) if query else SearchRequest(text=text, limit=limit, moments=moments)
    with tempfile.NamedTemporaryFile(prefix="untrimmed-") as file:
        size = 0
        try:
            async for piece in request.stream():
                size += len(piece)
                if size > MOST_PICTURE_BYTES:
                    raise PublicError(
                        413, f"the picture has more than {MOST_PICTURE_BYTES >> 20} MB; send a smaller one"
                    )
                file.write(piece)
        except ClientDisconnect:  # nobody reads the answer any more, and it is no bug
            raise PublicError(400, "the picture did not arrive whole; send it again") from None
        file.flush()
        try:
            picture = await service.decode(service.pictures.image, Path(file.name))
        except VideoError as error:
            raise VideoError(str(error).replace(file.name, "the picture that was sent")) from error
    return await answer(service, asked, picture)


def _read(query: str) -> SearchRequest:
    try:
        return SearchRequest.model_validate_json(query)
    except ValidationError as error:
        raise RequestValidationError([{**one, "loc": ("query", *one["loc"])} for one in error.errors()]) from None


async def answer(
    service: Service, request: SearchRequest, picture: Any = None, on_hit: Callable[[Hit], None] | None = None
) -> SearchAnswer:
    """Search, and say how long it took; `on_hit` is called from a thread, as `Library.search` says.

    Raises:
        UntrimmedError: What the library refuses.
    """
    started = time.perf_counter()
    amounts = vars(request.cutoff())
    hits = await service.search(service.library.search, request.query(picture), on_hit=on_hit, **amounts)
    return SearchAnswer.of(hits, time.perf_counter() - started)
