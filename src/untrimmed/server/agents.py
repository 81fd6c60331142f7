"""Seven tools for agents with the Model Context Protocol (MCP), over stdin and stdout or over HTTP.

The tools call the same functions as the routes of the service, and use the same opaque ids.
"""

import contextlib
import io
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from inspect import Parameter, signature
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import BaseModel, Field, ValidationError
from starlette.types import ASGIApp

from untrimmed.errors import UnknownNameError, UntrimmedError, missing_package
from untrimmed.files import write_whole
from untrimmed.search.library import Library
from untrimmed.search.query.query import Cutoff, Query
from untrimmed.search.store.records import VideoRecord
from untrimmed.server.access import MAX_BODY_BYTES, Access, Guard
from untrimmed.server.export import check_span, clip_name, export, folder_in_name, write_clip
from untrimmed.server.media import MediaFile, media_file
from untrimmed.server.problems import PublicError, validation_message
from untrimmed.server.run import listening_at, run_app
from untrimmed.server.schemas import (
    ExportFormat,
    ExportRequest,
    FrameRate,
    Marks,
    RelevanceCurve,
    SearchAnswer,
    SearchRequest,
    Seconds,
    Sentence,
    VideoId,
    VideoList,
    request_fields,
)
from untrimmed.server.search_routes import answer
from untrimmed.server.service import Service
from untrimmed.server.thumbnails import contact_sheet
from untrimmed.server.video_routes import list_videos
from untrimmed.version import __version__

INSTRUCTIONS = """\
Finds moments in long videos by what they show and, if the library has passages, by what is said or written in them.
Times are seconds from the first frame of a video. Start with `search` and a plain sentence. Each hit is a video with
its best matching spans. Compare scores within one search only. `confidence`, if present, is the probability that the
video matches. Check a span with `show` before you rely on it. If it is wrong, rephrase the sentence, or add `then` or
`without`."""
_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
Tool = TypeVar("Tool", bound=Callable[..., Any])
# Matches escapes in JSON. Group 1 is a complete character, such as a surrogate pair. If group 1 is empty, the match is
# an unpaired surrogate.
_SURROGATES = re.compile(
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\[^u]|\\u(?![dD][89a-fA-F]))"
    r"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
_MAX_PICTURES = 36  # largest number of pictures on a contact sheet
_MAX_VIDEOS = 200  # largest number of videos in a list
_MAX_POINTS = 500  # largest number of points of a curve; agents read every point


class WrittenFile(BaseModel):
    """A file that a tool wrote to the clips folder."""

    file: str = Field(description="Path on the machine that serves the library.")
    num_bytes: int
    warnings: list[str] = Field(default=[], description="Problems with the file, one line each.")


def _with_arguments(fields: dict[str, Any]) -> Callable[[Tool], Tool]:
    """Return a decorator that adds these optional arguments to a tool."""

    def decorate(tool: Tool) -> Tool:
        parameters = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=field.default, annotation=Annotated[kind, field])
            for name, (kind, field) in fields.items()
        ]
        original = signature(tool, eval_str=True)
        first = next(iter(original.parameters.values()))
        tool.__signature__ = original.replace(parameters=[first, *parameters])  # type: ignore[attr-defined]
        return tool

    return decorate


class Tools:
    """The tools of the server, one method each. The methods' docstrings are the descriptions that agents read.

    `clips` is the folder for clips and exports.
    """

    def __init__(self, service: Service, clips: Path | None) -> None:
        self.service = service
        self.clips = clips

    @_with_arguments(
        {**request_fields(Query), **request_fields(Cutoff, for_display=False, limit=(5, 50), moments=(3, 20))}
    )
    async def search(self, **arguments: Any) -> SearchAnswer:
        """Find the videos and moments that match a sentence best. Only `text` is required.

        `hits` is empty if nothing matches. `warnings` lists unknown words.
        """
        return await answer(self.service, SearchRequest(**arguments))

    async def show(self, video_id: VideoId, time_s: Seconds, short_side: Literal[180, 360, 720] = 360) -> Image:
        """Show the frame of a video at a time, as an image. `short_side` is its shorter side in pixels."""
        record = await self.service.read(self.service.record, video_id)
        picture, kind = await self.service.frame_or_thumbnail(record, time_s, short_side)
        return Image(data=picture, format=kind)

    async def sheet(
        self,
        video_id: VideoId,
        start_s: Seconds = 0.0,
        end_s: Annotated[Seconds | None, Field(description="Default: the end of the video.")] = None,
        pictures: Annotated[int, Field(ge=1, le=_MAX_PICTURES, description="Number of pictures.")] = 12,
    ) -> Image:
        """Show a contact sheet: pictures of a video or a span at equal intervals, each with its time in seconds."""
        record = await self.service.read(self.service.record, video_id)
        end_s = record.duration_s if end_s is None else min(end_s, record.duration_s)
        if start_s >= end_s:
            raise UntrimmedError(f"the span from {start_s:g} to {end_s:g} s is empty; choose a time before {end_s:g} s")
        step_s = (end_s - start_s) / pictures
        times_s = [start_s + (number + 0.5) * step_s for number in range(pictures)]
        return Image(
            data=await self.service.read(
                contact_sheet, [(time_s, await self._small_picture(record, time_s)) for time_s in times_s]
            ),
            format="jpeg",
        )

    async def _small_picture(self, record: VideoRecord, time_s: float) -> bytes:
        """Return the stored picture nearest to a time, or the decoded frame if no pictures are stored."""
        stored: bytes | None = await self.service.read(self.service.thumbnails.at, record, time_s)
        return stored or await self.service.frame(record, time_s, 180)

    async def videos(
        self,
        name: Annotated[str, Field(max_length=500, description="Only paths that contain this text.")] = "",
        offset: Annotated[int, Field(ge=0)] = 0,
        limit: Annotated[int, Field(ge=1, le=_MAX_VIDEOS)] = 50,
    ) -> VideoList:
        """List the videos of the library by path, with durations in seconds. `total` is the number of all matches."""
        return await list_videos(self.service, name, offset, limit)

    async def curve(
        self,
        video_id: VideoId,
        text: Sentence,
        points: Annotated[
            int,
            Field(
                ge=1,
                le=_MAX_POINTS,
                description="Maximum number of points. Each point is the maximum over a few times.",
            ),
        ] = 60,
    ) -> RelevanceCurve:
        """Return how well each time of a video matches a sentence. Use it to see where to look in a long video."""
        record = await self.service.read(self.service.record, video_id)
        times_s, relevance = await self.service.search(self.service.library.relevance, text, record.path)
        return RelevanceCurve.of(times_s, relevance, points)

    async def cut(self, video_id: VideoId, start_s: Seconds, end_s: Seconds) -> WrittenFile:
        """Write a span of a video, with sound, to an MP4 file in the clips folder."""
        clips = self._require_clips()
        record = await self.service.read(self.service.record, video_id)
        check_span(record, start_s, end_s)
        file = await self.service.read(media_file, record)
        folder = folder_in_name(record, await self.service.read(self.service.records))
        out = clips / clip_name(record, start_s, end_s, folder)
        clip = await self.service.cut(_cut, file, start_s, end_s, out, self.service.ends)
        return WrittenFile(file=str(clip), num_bytes=clip.stat().st_size)

    async def export(self, moments: Marks, format: ExportFormat, rate: FrameRate | None = None) -> WrittenFile:
        """Write moments to a file in the clips folder: a timeline for an editor, a table, or subtitles of each video.

        `otio`, `xml` (Premiere), `fcpxml`, `edl` and `kdenlive` are timelines that play the moments one after another.
        A moment's `note` becomes a marker.
        """
        clips = self._require_clips()
        request = ExportRequest(format=format, moments=moments, rate=rate)
        records = [await self.service.read(self.service.record, mark.video_id) for mark in moments]
        file, warnings = await self.service.read(_export, request, records, clips, self.service.ends)
        return WrittenFile(file=str(file), num_bytes=file.stat().st_size, warnings=list(warnings))

    def _require_clips(self) -> Path:
        if self.clips is None:
            raise UntrimmedError("writing files is disabled; start the server with --clips DIR")
        return self.clips


def _cut(file: MediaFile, start_s: float, end_s: float, out: Path, ends: threading.Event) -> Path:
    """Write a clip and return its path. A number is appended to the name if `out` exists."""
    with _unused(out) as path:
        return write_clip(file, start_s, end_s, path, ends, overwrite=True)  # `_unused` has created an empty file


def _export(
    request: ExportRequest, records: list[VideoRecord], folder: Path, ends: threading.Event
) -> tuple[Path, tuple[str, ...]]:
    """Write moments to a new file in a folder. Return the path of the file and warnings about it."""
    exported = export(request, records, ends)
    try:
        with _unused(folder / exported.path.name) as out:
            write_whole(out, exported.path.read_bytes())
            return out, exported.warnings
    finally:
        shutil.rmtree(exported.path.parent, ignore_errors=True)


@contextlib.contextmanager
def _unused(out: Path) -> Iterator[Path]:
    """Reserve an unused path with an empty file, and yield the path. A number is added to the name if `out` exists.

    If the `with` block fails, the file is deleted.
    """
    paths = chain([out], (out.with_stem(f"{out.stem}_{number}") for number in count(2)))
    for path in paths:
        try:
            path.open("x").close()
        except FileExistsError:
            continue
        break
    try:
        yield path
    except BaseException:
        path.unlink(missing_ok=True)
        raise


class _ToolServer(MCPServer[Any]):
    """An MCP server that rejects unknown arguments and reports errors in one line."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        schema = self._tool_input_schema(name)
        properties: dict[str, Any] = schema["properties"] if schema else arguments
        for argument in arguments:
            if argument not in properties:
                raise ToolError(str(UnknownNameError.among(f"argument of {name}", argument, properties)))
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            line = _line(error.__cause__)
            if line is None:
                raise
            raise ToolError(line) from error.__cause__


def _line(cause: BaseException | None) -> str | None:
    """Return a one-line message for the agent, or None for bugs and for errors that already have a clear message."""
    if isinstance(cause, ValidationError):
        return validation_message(dict(cause.errors()[0]))[0]
    if isinstance(cause, ModuleNotFoundError):
        return missing_package(cause)
    if isinstance(cause, OSError) and cause.filename is not None:
        return f"{cause.filename}: {cause.strerror}; check the clips folder and the free disk space"
    return str(cause) if isinstance(cause, UntrimmedError | PublicError) else None


def create_server(service: Service, *, clips: Path | None = None) -> MCPServer[Any]:
    """Create an MCP server with the seven tools. Without a `clips` folder, `cut` and `export` are refused."""
    server = _ToolServer(
        "untrimmed",
        title="untrimmed",
        description="Find, by a sentence, the moment inside long untrimmed videos.",
        instructions=INSTRUCTIONS,
        version=__version__,
        log_level="WARNING",
    )
    tools = Tools(service, clips)
    for tool in (tools.search, tools.videos, tools.show, tools.sheet, tools.curve):
        server.add_tool(tool, annotations=_READS)
    for writer in (tools.cut, tools.export):
        server.add_tool(writer, annotations=_WRITES)
    return server


def create_agents_app(service: Service, access: Access, *, clips: Path | None = None) -> ASGIApp:
    """Create an ASGI application that serves the tools at /mcp (streamable HTTP), with access control."""
    app = create_server(service, clips=clips).streamable_http_app(
        stateless_http=True,
        json_response=True,
        max_request_body_size=MAX_BODY_BYTES,
        # `Guard` checks Host and Origin before this application, and it knows --allow-host
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return Guard(app, access)


class _JsonLines(io.TextIOWrapper):
    """A stream of JSON lines that replaces unpaired surrogates.

    Clients that truncate texts send unpaired surrogates. They are valid JSON, but the MCP SDK never answers a request
    with them.
    """

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # as in the base class
        """Return the next line, without unpaired surrogates."""
        return _SURROGATES.sub(lambda match: match[1] or "\\ufffd", super().readline(size))


async def _run_over_stdio(server: MCPServer[Any]) -> None:
    """Run a server on stdin and stdout, like `server.run("stdio")`, but read stdin with `_JsonLines`."""
    lines = anyio.wrap_file(_JsonLines(sys.stdin.buffer, encoding="utf-8", errors="replace"))
    async with stdio_server(stdin=lines) as (requests, answers):
        # version 2.3 of the SDK has no public function that runs a server on other streams
        lowlevel = server._lowlevel_server
        await lowlevel.run(requests, answers, lowlevel.create_initialization_options())


def serve_stdio(library: Library, *, clips: Path | None = None) -> None:
    """Serve the parent process over stdin and stdout, until the parent closes them."""
    with closing(Service(library)) as service:
        service.warm_up()
        anyio.run(_run_over_stdio, create_server(service, clips=clips))


def serve_http(
    library: Library,
    *,
    host: str,
    port: int,
    access: Access,
    clips: Path | None = None,
    on_start: Callable[[str], None],
) -> None:
    """Serve the tools over HTTP until Ctrl-C. `on_start` is called with the address.

    Raises:
        ConfigError: The address is in use or cannot be bound.
    """
    with listening_at(host, port) as (listening, address), closing(Service(library)) as service:
        service.warm_up()
        on_start(f"{address}mcp")
        run_app(create_agents_app(service, access, clips=clips), listening, service)
