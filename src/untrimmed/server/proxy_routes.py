"""The route of proxies: spans of videos, converted to a format that browsers can play."""

import logging
from collections.abc import AsyncIterator
from typing import Annotated

import anyio
import anyio.to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from untrimmed.errors import VideoError
from untrimmed.server.access import IS_HEAD
from untrimmed.server.depends import RecordDependency, ServiceDependency
from untrimmed.server.export import check_span
from untrimmed.server.media import OpenedResponse, media_file
from untrimmed.server.problems import problems
from untrimmed.server.proxies import MAX_PROXY_S, Proxies, Rendering, kind_of, read_head
from untrimmed.server.schemas import Seconds

log = logging.getLogger(__name__)
_VIDEO = {"video/*": {"schema": {"type": "string", "format": "binary"}}}

router = APIRouter(prefix="/api", tags=["videos"])


class _RenderingResponse(StreamingResponse):
    """Sends a proxy while it is rendered."""

    def __init__(self, proxies: Proxies, rendering: Rendering, blocks: AsyncIterator[bytes], kind: str) -> None:
        super().__init__(blocks, media_type=kind)
        self._proxies = proxies
        self._rendering = rendering

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response. If the rendering fails, the response ends early."""
        try:
            await super().__call__(scope, receive, send)
        except VideoError as error:
            log.warning("a proxy is incomplete: %s", error)
        finally:
            # This task may be cancelled when the client disconnects, and `leave` may wait until a proxy is hashed.
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._proxies.leave, self._rendering)


@router.get(
    "/videos/{video_id}/proxy",
    summary="Span of a video for browsers",
    response_class=FileResponse,
    responses={
        200: {"description": "The proxy, possibly while it is rendered.", "content": _VIDEO},
        206: {"description": "A part of a complete proxy.", "content": _VIDEO},
        400: {"description": "The range is malformed.", "content": {"text/plain": {}}},
        416: {"description": "The range is outside the file.", "content": {"text/plain": {}}},
        **problems(503, 507),
    },
)
async def proxy(
    service: ServiceDependency,
    record: RecordDependency,
    request: Request,
    start_s: Annotated[Seconds, Query(examples=[12.5])],
    end_s: Annotated[Seconds, Query(examples=[16.0])],
) -> Response:
    """Return a span of the video, at most 540 pixels high, in a format that browsers can play. It starts at 0 s.

    The file is sent while it is rendered. Once it is complete, range requests are supported.
    """
    check_span(record, start_s, end_s, MAX_PROXY_S)
    file = await service.read(media_file, record)
    proxy = await service.read(service.proxies.enter, record, file, start_s, end_s)
    if not isinstance(proxy, Rendering):
        return OpenedResponse(*proxy, {"cache-control": "private, max-age=600"})
    blocks = proxy.blocks()
    try:
        head = await read_head(blocks)
    except BaseException:
        service.proxies.leave(proxy)
        raise
    if request.scope.get(IS_HEAD):
        service.proxies.leave(proxy)
        return Response(media_type=kind_of(head))
    return _RenderingResponse(service.proxies, proxy, _chained(head, blocks), kind_of(head))


async def _chained(head: bytes, blocks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield head
    async for block in blocks:
        yield block
