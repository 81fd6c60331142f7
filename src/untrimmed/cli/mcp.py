"""`untrimmed mcp`: a library for agents."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from untrimmed.cli.console import progress_console, result_console
from untrimmed.cli.options import (
    AllowHostOption,
    HostOption,
    LibraryOption,
    PrecisionOption,
    TokenOption,
    parse_path,
)
from untrimmed.errors import ConfigError
from untrimmed.precision import read_precision


def mcp(
    library: LibraryOption = None,
    clips: Annotated[
        Path | None,
        typer.Option(
            parser=parse_path,
            metavar="DIR",
            help="Where agents may write clips; else they may not.",
            show_default=False,
        ),
    ] = None,
    http: Annotated[
        int | None,
        typer.Option(
            "--http",
            min=0,
            max=65535,
            metavar="PORT",
            help="Answer over HTTP instead, at /mcp; 0: any port that is free.",
            show_default=False,
        ),
    ] = None,
    host: HostOption = "127.0.0.1",
    token: TokenOption = None,
    allow_host: AllowHostOption = None,
    precision: PrecisionOption = "auto",
) -> None:
    """Let agents search a library: tools of the Model Context Protocol (MCP).

    A client starts this command and talks with it on stdin and stdout (docs/agents.md has what it wants to be told), or
    asks at the address that --http prints. The tools: search, show a frame, the curve of relevance, cut a clip.
    """
    import untrimmed
    from untrimmed.cli.serve import tell_serving
    from untrimmed.server.access import Access
    from untrimmed.server.agents import serve_http, serve_stdio

    given = {"--host": host != "127.0.0.1", "--allow-host": bool(allow_host)}  # a token may be the shell's
    if http is None and (options := [name for name, is_given in given.items() if is_given]):
        raise ConfigError(f"{' and '.join(options)}: for HTTP alone; add --http PORT")
    access = Access.to(host, token, allow_host or ())
    if clips is not None:
        clips = clips.expanduser().absolute()
        clips.mkdir(parents=True, exist_ok=True)
    opened = untrimmed.open(library, precision=read_precision(precision))
    if http is None:
        tell_serving(opened.folder)
        if sys.stdin.isatty():
            progress_console.print("an agent's program starts this command and talks on stdin; end with Ctrl-D")
        serve_stdio(opened, clips=clips)
        return

    def tell(address: str) -> None:
        result_console.print(address)
        tell_serving(opened.folder)
        if token is not None:
            progress_console.print(f"clients send the header  Authorization: Bearer {token}", soft_wrap=True)

    serve_http(opened, host=host, port=http, access=access, clips=clips, tell=tell)
