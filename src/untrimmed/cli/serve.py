"""`untrimmed serve`: the web page and the HTTP service of a library."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from untrimmed.cli.console import print_marked, progress_console, result_console
from untrimmed.cli.desktop import has_desktop, open_page
from untrimmed.cli.options import (
    AllowHostOption,
    HostOption,
    LibraryOption,
    PrecisionOption,
    RayOption,
    ShardsOption,
    TokenOption,
    parse_path,
    runtime_option,
    service_option,
)
from untrimmed.precision import read_precision

if TYPE_CHECKING:
    from untrimmed.server.schemas import Job

_INDEXING_PANEL = "Index while the service runs"
WatchOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--watch",
        parser=parse_path,
        metavar="DIR",
        help="Keep the library up to date with this folder (repeatable).",
        rich_help_panel=_INDEXING_PANEL,
    ),
]
ReplicasOption = Annotated[
    int, runtime_option(min=1, metavar="N", help="With --ray: copies of each process, in case one of them fails.")
]
BrowserOption = Annotated[
    bool, typer.Option("--no-browser", help="Do not open the page in a browser (the default without a desktop).")
]


def serve(
    context: typer.Context,
    library: LibraryOption = None,
    no_browser: BrowserOption = False,
    host: HostOption = "127.0.0.1",
    port: Annotated[
        int, service_option(min=0, max=65535, metavar="N", help="Port to listen on. 0: any free port.")
    ] = 8765,
    token: TokenOption = None,
    videos: Annotated[
        list[Path] | None,
        typer.Option(
            "--videos",
            parser=parse_path,
            metavar="DIR",
            help="Let the page index this folder and its subfolders (repeatable).  "
            "\\[default: your home folder, unless --watch is set or other machines can connect]",
            rich_help_panel=_INDEXING_PANEL,
        ),
    ] = None,
    watch: WatchOption = None,
    allow_host: AllowHostOption = None,
    ray: RayOption = None,
    shards: ShardsOption = 1,
    replicas: ReplicasOption = 1,
    precision: PrecisionOption = "auto",
    proxies: Annotated[
        float,
        typer.Option(
            "--proxies",
            min=0.0,
            metavar="GB",
            help="Disk space for converted copies of videos that browsers cannot play.",
        ),
    ] = 2.0,
) -> None:
    """Start the web page and the HTTP service of the library.

    On a desktop, the page opens in the browser; elsewhere, open the printed
    address. If a service already runs, `untrimmed serve` without options only
    opens its page. Ctrl-C stops the service.
    /api/openapi.json describes the HTTP interface.
    """
    import untrimmed
    from untrimmed.errors import shown
    from untrimmed.search.store.records import library_folder
    from untrimmed.server.access import Access, is_loopback, make_pass
    from untrimmed.server.notice import find_notice
    from untrimmed.server.run import serve as serve_library
    from untrimmed.server.service import real_folders
    from untrimmed.server.stored_folders import WATCHED, read_folders

    opens_page = has_desktop() and not no_browser
    options = {name for name in context.params if _is_given(context, name)} - {"library"}
    notice = find_notice(library_folder(library))
    if notice is not None and not options - {"no_browser"}:
        address = notice.address
        result_console.print(address)
        opening = "; its page is opened in the browser" if opens_page else ""
        progress_console.print(f"the service of this library already runs{opening}")
        if opens_page:
            _open(f"{address}?token={make_pass(notice.token)}")
        return
    if notice is not None:
        print_marked(
            "note:", "yellow", f" a service for this library is already running at {notice.address}; starting another"
        )
    access = Access.for_host(host, token, allow_host or ())
    opened = untrimmed.open(library, precision=read_precision(precision), ray=ray, shards=shards, replicas=replicas)

    folders = real_folders(videos or (), "--videos")
    watched = real_folders(watch or (), "--watch")
    home = Path(os.path.expanduser("~"))
    has_home = home.is_dir() and home != Path("/") and is_loopback(host)
    roots = (home,) if has_home and not folders and not watched else ()

    def announce(address: str) -> None:
        result_console.print(address + (f"?token={token}" if token else ""))
        if opens_page:
            page = f"{address}?token={make_pass(access.own_token)}"
            threading.Thread(target=_open, args=(page,), daemon=True, name="browser").start()
        elif token is None:
            progress_console.print(f"to choose folders on the page, open {address}?token={access.own_token}")
        print_library(opened.folder)
        for folder in watched:
            progress_console.print(f"watching {shown(folder)}: new and changed files are indexed")
        for folder in sorted({*read_folders(opened.folder, WATCHED)} - {*watched}):
            progress_console.print(f"watching {shown(folder)}, as in an earlier session; the page can stop this")

    serve_library(
        opened,
        host=host,
        port=port,
        access=access,
        folders=folders,
        watch=watched,
        roots=roots,
        is_port_fixed="port" in options or not opens_page,
        on_start=announce,
        on_job=_JobPrinter(),
        proxy_bytes=round(proxies * 1e9),
    )


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether an option is on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _open(address: str) -> None:
    if not open_page(address):
        progress_console.print("no browser could be started; open the printed address")


def print_library(folder: Path) -> None:
    """Print which library is served.

    If the library does not exist, print a note, because it may be created while the service runs.
    """
    from untrimmed.search.store.bucket import name_of
    from untrimmed.search.store.records import how_to_make, settings_file

    name = name_of(folder)
    progress_console.print(f"serving {name}; stop with Ctrl-C", soft_wrap=True)
    if not settings_file(folder).exists():
        print_marked(
            "note:", "yellow", f" there is no library here yet; choose a folder on the page, or {how_to_make(name)}"
        )


class _JobPrinter:
    """Prints one line per indexing run of the watched folders, and one line per file that failed."""

    def __init__(self) -> None:
        # the last printed notice, to print it only once although every run repeats it
        self._notice: str | None = None

    def __call__(self, job: Job) -> None:
        """Print the result of a finished run."""
        for failure in job.failed:
            print_marked("failed", "red", f"   {failure.reason}")
        if job.problem is not None:
            print_marked("failed", "red", f"   {job.problem}; will be retried")
        if job.notice is not None and job.notice != self._notice:
            print_marked("note:", "yellow", f" {job.notice}")
        self._notice = job.notice or self._notice
        if job.num_done or job.num_copied or job.num_moved or job.num_removed:
            reused = [f"{num} {how}, " for num, how in ((job.num_copied, "copied"), (job.num_moved, "moved")) if num]
            counts = f"{job.num_done} indexed, {''.join(reused)}{job.num_removed} removed, {job.num_failed} failed"
            progress_console.print(counts)
