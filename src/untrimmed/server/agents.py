"""A library for agents: four tools of the Model Context Protocol (MCP), over stdio or HTTP.

They answer what the routes of the service answer, by the same calls, and take the same opaque ids.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from inspect import Parameter, signature
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import BaseModel, Field, ValidationError
from starlette.types import ASGIApp

from untrimmed.errors import UnknownNameError, UntrimmedError, missing_package
from untrimmed.search.library import Library
from untrimmed.search.query.query import Cutoff, Query
from untrimmed.server.access import MOST_BODY_BYTES, Access, Guard
from untrimmed.server.export import check_span, clip_name, write_clip
from untrimmed.server.media import MediaFile, media_file
from untrimmed.server.problems import PublicError, what_is_wrong
from untrimmed.server.run import listening_at, run_app
from untrimmed.server.schemas import Curve, SearchAnswer, SearchRequest, Seconds, Sentence, VideoId, asked_fields
from untrimmed.server.search_routes import answer
from untrimmed.server.service import Service
from untrimmed.version import __version__

INSTRUCTIONS = """\
Finds moments inside long videos by what is seen in them (not by what is said). Times are seconds from a video's first
frame. First `search` with a plain sentence; each hit is a video with the spans that fit best. Scores compare hits of
one search only; `confidence`, where it is given, is the chance that the video holds what was asked for. Look at a span
with `show` before you rely on it; where it is wrong, search again in other words, or with `then` and `without`."""
_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
Tool = TypeVar("Tool", bound=Callable[..., Any])
_MOST_POINTS = 500  # of a curve: an agent reads all of them


class CutClip(BaseModel):
    """A clip that was written."""

    file: str = Field(description="Its path on the machine of the library.")
    num_bytes: int


def _takes(asked: dict[str, Any]) -> Callable[[Tool], Tool]:
    """Give a tool these arguments, of which each may be left out."""

    def decorate(tool: Tool) -> Tool:
        made = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=field.default, annotation=Annotated[kind, field])
            for name, (kind, field) in asked.items()
        ]
        own = signature(tool, eval_str=True)
        first = next(iter(own.parameters.values()))
        tool.__signature__ = own.replace(parameters=[first, *made])  # type: ignore[attr-defined]
        return tool

    return decorate


class Tools:
    """What an agent may do with a library: every docstring here is read by the agent. Clips are written to `clips`."""

    def __init__(self, service: Service, clips: Path | None) -> None:
        self.service, self.clips = service, clips

    @_takes({**asked_fields(Query), **asked_fields(Cutoff, limit=(5, 50), moments=(3, 20))})
    async def search(self, **asked: Any) -> SearchAnswer:
        """Find the videos, and the moments in them, that fit a sentence best. Nothing but `text` is needed.

        An empty list of hits means that nothing was found; `warnings` name words that are not known.
        """
        return await answer(self.service, SearchRequest(**asked))

    async def show(self, video_id: VideoId, time_s: Seconds, short_side: Literal[180, 360, 720] = 360) -> Image:
        """Look at a video: the frame on screen at a time, as an image whose shorter side has so many pixels."""
        record = await self.service.read(self.service.record, video_id)
        return Image(data=await self.service.frame(record, time_s, short_side), format="jpeg")

    async def curve(
        self,
        video_id: VideoId,
        text: Sentence,
        points: Annotated[
            int, Field(ge=1, le=_MOST_POINTS, description="At most so many; each the best of some.")
        ] = 60,
    ) -> Curve:
        """How well each time of one video fits a sentence: where in it to look, and whether anything stands out."""
        record = await self.service.read(self.service.record, video_id)
        times_s, relevance = await self.service.search(self.service.library.relevance, text, record.path)
        return Curve.of(times_s, relevance, points)

    async def cut(self, video_id: VideoId, start_s: Seconds, end_s: Seconds) -> CutClip:
        """Write a span of a video, picture and sound, to an MP4 file in the folder that is kept for clips."""
        if self.clips is None:
            raise UntrimmedError("no folder for clips was named; who starts this server names one with --clips DIR")
        record = await self.service.read(self.service.record, video_id)
        check_span(record, start_s, end_s)
        file = await self.service.read(media_file, record)
        wanted = self.clips / clip_name(record, start_s, end_s)
        written = await self.service.cut(_cut, file, start_s, end_s, wanted, self.service.ends)
        return CutClip(file=str(written), num_bytes=written.stat().st_size)


def _cut(file: MediaFile, start_s: float, end_s: float, wanted: Path, ends: threading.Event) -> Path:
    """Write a clip to the file that is wanted, or one with a number behind its name: nothing is overwritten."""
    names = (wanted.with_stem(f"{wanted.stem}_{number}") for number in count(2))
    out = wanted
    while out.exists():
        out = next(names)
    return write_clip(file, start_s, end_s, out, ends)


class _Server(MCPServer[Any]):
    """Takes only arguments that are known, and says in one line what is wrong."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        schema = self._tool_input_schema(name)
        known: dict[str, Any] = schema["properties"] if schema else arguments
        for given in arguments:
            if given not in known:
                raise ToolError(str(UnknownNameError.among(f"argument of {name}", given, known)))
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            line = _line(error.__cause__)
            if line is None:
                raise
            raise ToolError(line) from error.__cause__


def _line(cause: BaseException | None) -> str | None:
    """What to tell an agent; None for what is a bug, or is told well enough."""
    if isinstance(cause, ValidationError):
        return what_is_wrong(dict(cause.errors()[0]))[0]
    if isinstance(cause, ModuleNotFoundError):
        return missing_package(cause)
    if isinstance(cause, OSError) and cause.filename is not None:
        return f"{cause.filename}: {cause.strerror}; check the folder for clips and the space left"
    return str(cause) if isinstance(cause, UntrimmedError | PublicError) else None


def create_server(service: Service, *, clips: Path | None = None) -> MCPServer[Any]:
    """The four tools over a served library; `clips` is the folder that `cut` writes to, which else is refused."""
    server = _Server(
        "untrimmed",
        title="untrimmed",
        description="Find, by a sentence, the moment inside long untrimmed videos.",
        instructions=INSTRUCTIONS,
        version=__version__,
        log_level="WARNING",
    )
    tools = Tools(service, clips)
    for tool in (tools.search, tools.show, tools.curve):
        server.add_tool(tool, annotations=_READS)
    server.add_tool(tools.cut, annotations=_WRITES)
    return server


def create_agents_app(service: Service, access: Access, *, clips: Path | None = None) -> ASGIApp:
    """The same as an ASGI application, at /mcp (streamable HTTP), behind the guard of the service."""
    app = create_server(service, clips=clips).streamable_http_app(
        stateless_http=True,
        json_response=True,
        max_request_body_size=MOST_BODY_BYTES,
        # The guard has looked at Host and Origin already, by rules that know --allow-host.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return Guard(app, access)


def serve_stdio(library: Library, *, clips: Path | None = None) -> None:
    """Answer the program that has started this process, on stdin and stdout, until it closes them."""
    with closing(Service(library)) as service:
        service.warm_up()
        create_server(service, clips=clips).run("stdio")


def serve_http(
    library: Library,
    *,
    host: str,
    port: int,
    access: Access,
    clips: Path | None = None,
    tell: Callable[[str], None],
) -> None:
    """Answer over HTTP until Ctrl-C; `tell` is given the address.

    Raises:
        ConfigError: The address cannot be had.
    """
    with listening_at(host, port) as (listening, address), closing(Service(library)) as service:
        service.warm_up()
        tell(f"{address}mcp")
        run_app(create_agents_app(service, access, clips=clips), listening, service)
