"""`untrimmed index`: update a library from files and folders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

from untrimmed.cli.bars import ProgressBar, counting
from untrimmed.cli.console import (
    SOME_FAILED,
    print_json,
    print_marked,
    print_notice,
    progress_console,
    result_console,
    round_time,
)
from untrimmed.cli.options import (
    DeviceOption,
    EncoderOption,
    FpsOption,
    ImportOption,
    LibraryOption,
    PicturesFpsOption,
    PrecisionOption,
    RayOption,
    output_option,
    parse_path,
    runtime_option,
    videos_option,
)
from untrimmed.errors import ConfigError, counted, shown
from untrimmed.precision import read_precision

if TYPE_CHECKING:
    from untrimmed.search.indexing.pipeline import IndexReport, Timings
    from untrimmed.search.indexing.pipeline import Progress as Step
    from untrimmed.search.library import Library

ModelOption = Annotated[
    str | None,
    typer.Option(
        metavar="RUN",
        help="Model for searches of this library: a folder that `untrimmed train` wrote, `tf_prvr` (a method without "
        "training) or `none`.  \\[default: the library's; none in a new one]",
    ),
]
PartOption = Annotated[
    str | None,
    runtime_option(
        metavar="N/TOTAL", help="Index only part N of TOTAL parts. Join the parts later with: untrimmed merge."
    ),
]
_MAX_LISTED_LINKS = 10


def index(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH", help="Video files, or folders with videos.", parser=parse_path),
    ] = None,
    library: LibraryOption = None,
    encoder: EncoderOption = None,
    fps: FpsOption = None,
    keyframes: Annotated[
        bool | None,
        videos_option("--keyframes/--no-keyframes", help="Decode only key frames: much faster, less exact."),
    ] = None,
    pictures_fps: PicturesFpsOption = None,
    thumbnails: Annotated[
        bool | None,
        videos_option(
            "--thumbnails/--no-thumbnails",
            help="Store small pictures of new videos, and add missing ones.  "
            "\\[default: the library's; yes in a new one]",
        ),
    ] = None,
    subtitles: Annotated[
        bool | None,
        videos_option(
            "--subtitles/--no-subtitles",
            help="Read subtitles in and beside video files. Videos that are already indexed are included. Without "
            "PATH: all videos of the library.  "
            "\\[default: the library's; yes in a new one]",
        ),
    ] = None,
    speech: Annotated[
        bool | None,
        videos_option(
            "--speech/--no-speech",
            help="Recognise speech. Videos that are already indexed are included. Without PATH: all videos of the "
            "library.  "
            "\\[default: the library's; no in a new one]",
        ),
    ] = None,
    speech_model: Annotated[
        str | None,
        videos_option(
            "--speech-model",
            metavar="NAME",
            help="Whisper model: tiny, base, small, medium, large-v3, large-v3-turbo, a hub id or a folder.  "
            "\\[default: the library's; base in a new one]",
        ),
    ] = None,
    language: Annotated[
        str | None,
        videos_option(
            "--language",
            metavar="CODE",
            help="Spoken language, e.g. en; auto detects it for each file.  "
            "\\[default: the library's; auto in a new one]",
        ),
    ] = None,
    screen_text: Annotated[
        bool | None,
        videos_option(
            "--screen-text/--no-screen-text",
            help="Read text in the picture, also in indexed videos. Without PATH: all videos of the library.  "
            "\\[default: the library's; no in a new one]",
        ),
    ] = None,
    model: ModelOption = None,
    part: PartOption = None,
    ray: RayOption = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    json_output: Annotated[
        bool, output_option("--json", help="Print JSON lines: one per file, then a report.")
    ] = False,
    imports: ImportOption = None,
) -> None:
    """Add videos to the library, or update it.

    Only new and changed files are encoded; moved files are recognised.
    Each video is saved as soon as it is finished. You can stop at any time
    and run the same command again to continue.
    Exit code 3: some files failed (each is listed with the reason).
    """
    import untrimmed

    sources = _chosen_sources(subtitle=subtitles, speech=speech, screen=screen_text)
    if speech_model is not None or language is not None:
        sources["speech"] = _speech_settings(speech, speech_model, language)
    opened = untrimmed.open(library, precision=read_precision(precision))
    if not paths and any(settings is not None for settings in sources.values()):
        paths = [Path(record.path) for record in opened.videos()]  # add passages to all videos of the library
    _require_work(paths, model, part)
    some_failed = False
    if paths:
        if model is not None:
            opened.check_model(model)  # checked now, because indexing may take hours
        if part is not None:
            _print_part(opened.folder, part)
        options = {
            "encoder": encoder,
            "fps": fps,
            "keyframes_only": keyframes,
            "pictures_fps": pictures_fps,
            "thumbnails": thumbnails,
            "sources": sources,
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
            progress_console.print("note: the folders have no files with a video suffix; name other files explicitly")
    if model is not None:
        _use(opened, model)
    if some_failed:
        raise typer.Exit(SOME_FAILED)


def _chosen_sources(**switches: bool | None) -> dict[str, dict[str, Any] | None]:
    """Return the settings of each source of passages that an option turns on, and None for each that it turns off."""
    return {name: {} if is_on else None for name, is_on in switches.items() if is_on is not None}


def _speech_settings(speech: bool | None, model: str | None, language: str | None) -> dict[str, Any]:
    """Return the settings of speech recognition from the options. Setting `model` or `language` also turns it on."""
    if speech is False:
        raise ConfigError("--no-speech contradicts --speech-model and --language; leave one of them out")
    settings = {}
    if model is not None:
        settings["model"] = str(Path(model).expanduser().resolve()) if Path(model).expanduser().is_dir() else model
    if language is not None:
        settings["language"] = "" if language == "auto" else language
    return settings


def _require_work(paths: list[Path] | None, model: str | None, part: str | None) -> None:
    if not paths and model is None:
        raise ConfigError("nothing to index; name video files or folders")
    if part is not None and (model is not None or not paths):
        raise ConfigError("--part needs files and no --model; set the model once, after untrimmed merge")


def _print_part(library: Path, part: str) -> None:
    from untrimmed.search.store.bucket import address_of
    from untrimmed.search.store.merge import LibraryPart

    if address_of(library) is None:  # for a library in object storage, indexing refuses `--part`
        progress_console.print(f"part {part} is written to {shown(LibraryPart.parse(part).folder(library))}")


def _warn_about_simulation(model: str) -> None:
    """Warn if a run was trained on simulated features.

    No other check finds this mistake, because simulated features have no encoder to compare with the library's.
    """
    from untrimmed.data.simulation.simulate import is_simulated
    from untrimmed.running.run import is_run, read_config

    if not is_run(Path(model)):
        return
    data = read_config(Path(model)).data
    if data.root is not None and is_simulated(data.name, Path(data.root)):
        progress_console.print(
            f"warning: {shown(Path(model))} was trained on simulated features, which are unrelated to those of real "
            "videos, so its hits are random; train on this library's: untrimmed features --library"
        )


def _use(library: Library, model: str) -> None:
    if model not in ("frames", "none"):
        _warn_about_simulation(model)
    with counting("encoding the library's frames with the model", muted=model in ("frames", "none")) as progress:
        library.use(model, progress=progress)
    settings = library.settings()
    progress_console.print(f"searching with {settings.model if settings else 'no model'}")


def index_files(
    library: Library, paths: list[Path], *, on_step: Callable[[Step], None] | None = None, **options: Any
) -> IndexReport:
    """Index files with a progress display, and return the report.

    Afterwards, notices about the encoder and about links to folders are printed.
    """
    with IndexDisplay() as display:

        def show_step(step: Step) -> None:
            display(step)
            if on_step is not None:
                on_step(step)

        report = library.index(paths, progress=show_step, **options)
    print_notice(report.notice)
    _print_linked(report.linked)
    return report


def _print_step(step: Step) -> None:
    if step.state not in ("encoding", "reading") and (step.state != "passages" or step.passages):
        print_json({"event": "file", **asdict(step)}, indent=None)


def _print_linked(folders: Sequence[Path]) -> None:
    for folder in folders[:_MAX_LISTED_LINKS]:
        progress_console.print(f"not followed  {shown(folder)} is a link to a folder; name it to index it")
    if len(folders) > _MAX_LISTED_LINKS:
        progress_console.print(f"not followed  {len(folders) - _MAX_LISTED_LINKS} more links to folders")


class IndexDisplay(ProgressBar):
    """Shows the progress of indexing: as a bar on a terminal, otherwise as a line per file.

    Failures are printed as lines in both cases.
    """

    def __init__(self) -> None:
        super().__init__(
            TextColumn("{task.fields[files]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[speed]}"),
            TimeElapsedColumn(),
            TextColumn("elapsed"),
            TextColumn("{task.fields[remaining]}"),
            TextColumn("{task.description}", markup=False),
            description="starting",
            total=None,
            files="",
            speed="",
            remaining="",
        )

    def __call__(self, step: Step) -> None:
        """Show one step of indexing."""
        is_encoding = step.state in ("encoding", "reading")
        is_unfinished = is_encoding and step.duration_s > 0 and step.position < step.total
        fraction = min(1.0, step.done_s / step.duration_s) if is_unfinished else 0.0
        self.show(
            total=step.total,
            files=f"{step.position}/{step.total} files",
            completed=step.position + fraction,
            description=shown(Path(step.path.name)) + (f" ({step.source})" if step.source else "")
            if is_encoding
            else "",
            speed="" if step.speed is None else f"{step.speed:.1f}x real time",
            remaining="" if step.remaining_s is None else f"about {round_time(step.remaining_s)} left",
        )
        if step.state == "failed":
            print_marked("failed", "red", f"   {step.reason}")
        elif step.state == "done":
            print_marked("done", "green", f"     {shown(step.path)}  ({step.duration_s:.1f} s)")
        elif step.state == "moved":
            print_marked("moved", "cyan", f"    {shown(step.path)}")
        elif step.state == "copied":
            print_marked("copied", "cyan", f"   {shown(step.path)}")
        elif step.state == "thumbnails":
            print_marked("pictures", "green", f" {shown(step.path)}")
        elif step.state == "passages" and step.passages:
            print_marked(
                "text", "green", f"     {shown(step.path)}  ({step.source}: {counted(step.passages, 'passage')})"
            )


def print_report(report: IndexReport) -> None:
    """Print how many files were indexed, skipped or failed, and how long each stage took."""
    for warning in report.warnings:
        print_marked("warning", "yellow", f"  {shown(warning.path)}: {warning.reason}")
    moved = f" ({len(report.moved)} of them moved)" if report.moved else ""
    result_console.print(
        f"{len(report.done)} indexed, {len(report.skipped)} already known{moved}, {len(report.failed)} failed"
    )
    if report.thumbnails:
        result_console.print(f"thumbnails added to {len(report.thumbnails)} of the known files")
    if report.passages:
        counts = ", ".join(f"{count} ({source})" for source, count in sorted(report.passages.items()) if count)
        if counts:
            result_console.print(f"passages read: {counts}")
    if report.removed_passages:
        counts = ", ".join(f"{count} ({source})" for source, count in sorted(report.removed_passages.items()))
        result_console.print(f"passages removed, because their text was deleted or is no longer read: {counts}")
    if report.done:
        result_console.print(_describe_timings(report.timings))


def _describe_timings(timings: Timings) -> str:
    return (
        f"{timings.video_s:.0f} s of video in {timings.wall_s:.1f} s: {timings.speed:.1f}x real time "
        f"(decode {timings.decode_s:.1f} s, encode {timings.encode_s:.1f} s, write {timings.write_s:.1f} s; "
        "decoding and encoding overlap)"
    )
