"""`untrimmed serve`: the page and the service of a library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from untrimmed.cli.console import progress_console, result_console
from untrimmed.cli.options import (
    AllowHostOption,
    HostOption,
    LibraryOption,
    PrecisionOption,
    RayOption,
    ShardsOption,
    TokenOption,
    parse_path,
)
from untrimmed.precision import read_precision

RecallOption = Annotated[
    float,
    typer.Option(
        metavar="X",
        help="How many of the best hits a search has to find, in the mean; with less than 1 large libraries answer "
        "sooner. Scores stay exact.",
    ),
]
ReplicasOption = Annotated[
    int, typer.Option(min=1, metavar="N", help="How many processes of --ray have the same videos.")
]


def serve(
    library: LibraryOption = None,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8765,
    token: TokenOption = None,
    videos: Annotated[
        list[Path] | None,
        typer.Option(
            "--videos",
            parser=parse_path,
            metavar="DIR",
            help="May be indexed from the page; folders that hold indexed videos may already.",
            show_default=False,
        ),
    ] = None,
    allow_host: AllowHostOption = None,
    recall: RecallOption = 1.0,
    ray: RayOption = None,
    shards: ShardsOption = 1,
    replicas: ReplicasOption = 1,
    precision: PrecisionOption = "auto",
) -> None:
    """Serve a library on this machine: a page to search, watch and collect moments, and a service for programs.

    Open the address that it prints. Ctrl-C ends it. The service is described at /api/openapi.json.
    """
    import untrimmed
    from untrimmed.server.access import Access
    from untrimmed.server.run import serve as serve_library
    from untrimmed.server.service import real_folders

    access = Access.to(host, token, allow_host or ())
    opened = untrimmed.open(
        library, precision=read_precision(precision), ray=ray, shards=shards, replicas=replicas, recall=recall
    )

    def tell(address: str) -> None:
        result_console.print(address)
        progress_console.print(f"serving {opened.folder}; end with Ctrl-C")

    serve_library(opened, host=host, port=port, access=access, folders=real_folders(videos or ()), tell=tell)
