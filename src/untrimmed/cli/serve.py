"""`untrimmed serve`: the page and the service of a library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from untrimmed.cli.console import print_marked, progress_console, result_console
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

if TYPE_CHECKING:
    from untrimmed.server.schemas import Job

WatchOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--watch",
        parser=parse_path,
        metavar="DIR",
        help="Index what is new, changed or gone below this folder, now and as long as the service runs.",
        show_default=False,
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
    watch: WatchOption = None,
    allow_host: AllowHostOption = None,
    ray: RayOption = None,
    shards: ShardsOption = 1,
    replicas: ReplicasOption = 1,
    precision: PrecisionOption = "auto",
) -> None:
    """Serve a library on this machine: a page to search, watch and collect moments, and a service for programs.

    Open the address that it prints. Ctrl-C ends it. The service is described at /api/openapi.json.
    """
    import untrimmed
    from untrimmed.errors import shown
    from untrimmed.server.access import Access
    from untrimmed.server.remembered import remembered
    from untrimmed.server.run import serve as serve_library
    from untrimmed.server.service import real_folders

    access = Access.to(host, token, allow_host or ())
    opened = untrimmed.open(library, precision=read_precision(precision), ray=ray, shards=shards, replicas=replicas)

    folders, watched = real_folders(videos or (), "--videos"), real_folders(watch or (), "--watch")

    def tell(address: str) -> None:
        result_console.print(address)
        tell_serving(opened.folder)
        for folder in watched:
            progress_console.print(f"watching {shown(folder)}: files that come or change are indexed")
        for folder in sorted({*remembered(opened.folder)} - {*watched}):
            progress_console.print(f"watching {shown(folder)}, as it was told to earlier; the page can end it")

    serve_library(
        opened, host=host, port=port, access=access, folders=folders, watch=watched, tell=tell, tell_run=_Teller()
    )


def tell_serving(folder: Path) -> None:
    """Which library it is, and whether there is one: it may be made while the service runs."""
    from untrimmed.search.store.bucket import name_of
    from untrimmed.search.store.records import how_to_make, settings_file

    name = name_of(folder)
    progress_console.print(f"serving {name}; end with Ctrl-C", soft_wrap=True)
    if not settings_file(folder).exists():
        print_marked("note:", "yellow", f" there is no library here yet; {how_to_make(name)}")


class _Teller:
    """One line on what has changed in watched folders, and one for each file that could not be indexed."""

    def __init__(self) -> None:
        self._notice: str | None = None  # said last; that of the encoder comes with every run

    def __call__(self, job: Job) -> None:
        """Tell of one run that has ended."""
        for failed in job.failed:
            print_marked("failed", "red", f"   {failed.reason}")
        if job.problem is not None:
            print_marked("failed", "red", f"   {job.problem}; it is tried again")
        if job.notice is not None and job.notice != self._notice:
            print_marked("note:", "yellow", f" {job.notice}")
        self._notice = job.notice or self._notice
        if job.num_done or job.num_copied or job.num_moved or job.num_removed:
            known = [f"{num} {how}, " for num, how in ((job.num_copied, "copied"), (job.num_moved, "moved")) if num]
            counts = f"{job.num_done} indexed, {''.join(known)}{job.num_removed} forgotten, {job.num_failed} failed"
            progress_console.print(counts)
