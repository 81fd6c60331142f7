"""`untrimmed mcp`: let AI agents search a library."""

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
    service_option,
)
from untrimmed.errors import ConfigError
from untrimmed.precision import read_precision


def mcp(
    library: LibraryOption = None,
    clips: Annotated[
        Path | None,
        typer.Option(parser=parse_path, metavar="DIR", help="Let agents save clips and timelines in this folder."),
    ] = None,
    http: Annotated[
        int | None,
        service_option(
            "--http", min=0, max=65535, metavar="PORT", help="Use HTTP on this port, not stdin. 0: any free port."
        ),
    ] = None,
    host: HostOption = "127.0.0.1",
    token: TokenOption = None,
    allow_host: AllowHostOption = None,
    precision: PrecisionOption = "auto",
) -> None:
    """Let AI agents search the library (an MCP server).

    An MCP client starts this command and uses its stdin and stdout. With
    --http, clients connect to the printed address (path /mcp) instead.
    docs/agents.md shows how to configure a client.
    Tools: search, list videos, show frames and contact sheets, compute the
    relevance over time, and with --clips, save clips and export timelines.
    """
    import untrimmed
    from untrimmed.cli.serve import print_library
    from untrimmed.server.access import Access
    from untrimmed.server.agents import serve_http, serve_stdio

    # --token is not listed, because the token may come from the environment
    http_options = {"--host": host != "127.0.0.1", "--allow-host": bool(allow_host)}
    if http is None and (set_options := [name for name, is_set in http_options.items() if is_set]):
        raise ConfigError(f"{' and '.join(set_options)} can only be used with HTTP; add --http PORT")
    access = Access.for_host(host, token, allow_host or ())
    if clips is not None:
        clips = clips.expanduser().absolute()
        clips.mkdir(parents=True, exist_ok=True)
    opened = untrimmed.open(library, precision=read_precision(precision))
    if http is None:
        print_library(opened.folder)
        if sys.stdin.isatty():
            progress_console.print("waiting for an MCP client on stdin; stop with Ctrl-D")
        serve_stdio(opened, clips=clips)
        return

    def print_address(address: str) -> None:
        result_console.print(address)
        print_library(opened.folder)
        if token is not None:
            progress_console.print(f"clients send the header  Authorization: Bearer {token}", soft_wrap=True)

    serve_http(opened, host=host, port=http, access=access, clips=clips, on_start=print_address)
