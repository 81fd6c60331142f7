"""`untrimmed index`: bring a library up to date with files and folders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from untrimmed.cli.bars import Bar, counting
from untrimmed.cli.console import SOME_FAILED, print_json, print_marked, print_notice, progress_console, result_console
from untrimmed.cli.options import (
    DeviceOption,
    EncoderOption,
    FpsOption,
    ImportOption,
    LibraryOption,
    PrecisionOption,
    RayOption,
    parse_path,
)
from untrimmed.errors import ConfigError, shown
from untrimmed.precision import read_precision

if TYPE_CHECKING:
    from untrimmed.search.indexing.pipeline import IndexReport, Timings
    from untrimmed.search.indexing.pipeline import Progress as Step
    from untrimmed.search.library import Library

ModelOption = Annotated[
    str | None,
    typer.Option(
        metavar="RUN|tf_prvr|frames",
        help="Search with this trained model (its folder) from now on, or training-free: with tf_prvr, or with frames "
        "(the default; 'none' is the same).",
        show_default=False,
    ),
]
PartOption = Annotated[
    str | None,
    typer.Option(
        metavar="N/TOTAL",
        help="Only this part of the files, into a library beside: for many machines; see: untrimmed merge.",
        show_default=False,
    ),
]
_NUM_NAMED = 10  # links to folders


def index(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH", help="Video files, or folders of them.", parser=parse_path)
    ] = None,
    library: LibraryOption = None,
    encoder: EncoderOption = None,
    fps: FpsOption = None,
    keyframes: Annotated[
        bool | None,
        typer.Option(
            "--keyframes/--no-keyframes",
            help="Decode key frames only: many times faster, but coarser.",
            show_default=False,
        ),
    ] = None,
    model: ModelOption = None,
    part: PartOption = None,
    ray: RayOption = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON lines: one a file, then the report.")] = False,
    imports: ImportOption = None,
) -> None:
    """Index videos: files already known are skipped, moved ones recognised, changed ones encoded anew.

    Every video is kept as soon as it is done: stop at any time and run the same command again.
    Exit code 3: some files could not be indexed (each is named with its reason).
    """
    import untrimmed

    _require_work(paths, model, part)
    opened = untrimmed.open(library, precision=read_precision(precision))
    some_failed = False
    if paths:
        options = {
            "encoder": encoder,
            "fps": fps,
            "keyframes_only": keyframes,
            "device": device,
            "part": part,
            "ray": ray,
        }
        report = index_files(opened, paths, on_step=_print_step if json_output else None, **options)
        some_failed = bool(report.failed)
        if json_output:
            print_json({"event": "report", **asdict(report)}, indent=None)
        else:
            print_report(report)
        if not (report.done or report.skipped or report.failed):
            progress_console.print("note: no video files there; name a file to index it whatever its suffix")
    if model is not None:
        _use(opened, model)
    if some_failed:
        raise typer.Exit(SOME_FAILED)


def _require_work(paths: list[Path] | None, model: str | None, part: str | None) -> None:
    if not paths and model is None:
        raise ConfigError("nothing to index: name video files or folders")
    if part is not None and (model is not None or not paths):
        raise ConfigError("--part is of the files named, without --model; set that once for the merged library")


def _use(library: Library, model: str) -> None:
    with counting("encoding the library's frames through the model", muted=model in ("frames", "none")) as progress:
        library.use(model, progress=progress)
    settings = library.settings()
    progress_console.print(f"searching with {settings.model if settings else 'no model'}")


def index_files(
    library: Library, paths: list[Path], *, on_step: Callable[[Step], None] | None = None, **options: Any
) -> IndexReport:
    """Index behind a display of what is done, and say what else is to be known of encoder and folders."""
    with IndexDisplay() as display:

        def tell(step: Step) -> None:
            display(step)
            if on_step is not None:
                on_step(step)

        report = library.index(paths, progress=tell, **options)
    print_notice(report.notice)
    _print_linked(report.linked)
    return report


def _print_step(step: Step) -> None:
    if step.state != "encoding":
        print_json({"event": "file", **asdict(step)}, indent=None)


def _print_linked(folders: Sequence[Path]) -> None:
    for folder in folders[:_NUM_NAMED]:
        progress_console.print(f"not followed  {shown(folder)} is a link to a folder; name it to index it")
    if len(folders) > _NUM_NAMED:
        progress_console.print(f"not followed  {len(folders) - _NUM_NAMED} links to folders more")


class IndexDisplay(Bar):
    """A bar on a terminal, one line a file elsewhere; failures stay visible in both."""

    def __init__(self) -> None:
        super().__init__(
            TextColumn("{task.fields[files]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[speed]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
            description="getting ready",
            total=None,
            files="",
            speed="",
        )
        self._video_s = 0.0

    def __call__(self, step: Step) -> None:
        """Show one step."""
        within = min(1.0, step.done_s / step.duration_s) if step.state == "encoding" and step.duration_s > 0 else 0.0
        if step.state == "done":
            self._video_s += step.duration_s
        done_s = self._video_s + (step.done_s if step.state == "encoding" else 0.0)
        self.show(
            total=step.total,
            files=f"{step.position}/{step.total} files",
            completed=step.position + within,
            description=shown(Path(step.path.name)) if step.state == "encoding" else "",
            speed=f"{done_s / self.elapsed_s:.1f}x real time" if self.elapsed_s > 0.5 else "",
        )
        if step.state == "failed":
            print_marked("failed", "red", f"   {step.reason}")
        elif step.state == "done":
            print_marked("done", "green", f"     {shown(step.path)}  ({step.duration_s:.1f} s)")
        elif step.state == "moved":
            print_marked("moved", "cyan", f"    {shown(step.path)}")
        elif step.state == "copied":
            print_marked("copied", "cyan", f"   {shown(step.path)}")


def print_report(report: IndexReport) -> None:
    """What became of the files, and where the time went."""
    for warning in report.warnings:
        print_marked("warning", "yellow", f"  {shown(warning.path)}: {warning.reason}")
    moved = f" ({len(report.moved)} of them moved)" if report.moved else ""
    result_console.print(
        f"{len(report.done)} indexed, {len(report.skipped)} already known{moved}, {len(report.failed)} failed"
    )
    if report.done:
        result_console.print(_where_time_went(report.timings))


def _where_time_went(timings: Timings) -> str:
    return (
        f"{timings.video_s:.0f} s of video in {timings.wall_s:.1f} s: {timings.speed:.1f}x real time "
        f"(decode {timings.decode_s:.1f} s, encode {timings.encode_s:.1f} s, write {timings.write_s:.1f} s; "
        "decoding and encoding overlap)"
    )
