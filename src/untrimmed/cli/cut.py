"""`untrimmed cut`: save hits as video files, or list them in a timeline or a table."""

import math
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from untrimmed.cli.bars import ProgressBar
from untrimmed.cli.console import SOME_FAILED, clock, parse_time, print_marked, progress_console, result_console
from untrimmed.cli.last_search import NumberedMoment, recall
from untrimmed.cli.options import LibraryOption, parse_path
from untrimmed.errors import ConfigError, FeatureError, shown
from untrimmed.files import write_whole
from untrimmed.search.store.bins import BinMoment, Bins
from untrimmed.search.store.listing import path_of
from untrimmed.search.store.records import Records, absolute, folders_of_equal_names, library_folder, settings_file
from untrimmed.span import Moment
from untrimmed.video.process import Limits

_LINE_INTERVAL_S = 10.0  # time between the progress lines that replace the bar if there is no terminal
_STALL_S = 600.0  # without --timeout, a cut fails after this time without progress
_MIN_MOMENT_S = 1.0  # the edges of a hit are not moved if the hit would become shorter than this


def cut(
    hits: Annotated[
        str | None,
        typer.Argument(
            metavar="HITS",
            show_default=False,
            help="Hits of the last search: 3, 1-5 or 2,4.2 (4.2 is the second moment of hit 4). Or FILE@START-END.",
        ),
    ] = None,
    *,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            parser=parse_path,
            metavar="FILE|DIR",
            help="File to write, or folder for several clips.",
        ),
    ],
    bin: Annotated[
        str | None,
        typer.Option(
            "--bin", metavar="NAME", help="Save a bin instead of HITS. A bin is a list of moments from the web page."
        ),
    ] = None,
    library: LibraryOption = None,
    margin: Annotated[
        float, typer.Option(min=0.0, metavar="S", help="Seconds to add before and after each clip.")
    ] = 0.0,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001, metavar="S", help="Stop after S seconds.  \\[default: stop after 600 s without progress]"
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="FPS",
            help="Frame rate of a timeline, e.g. 25, 29.97 or 29.97df (drop frame).  "
            "\\[default: the most common rate of the videos]",
        ),
    ] = None,
) -> None:
    """Save hits of the last search as video files or as a timeline.

    Clips start and end at exact frames and keep the sound. If there is a shot
    change within half a second of the start or end of a hit, the clip starts or
    ends there, unless this would cut off matching words. This does not apply to
    --bin or FILE@START-END.
    The suffix of the output can also select a timeline for a video editor (.otio,
    .xml for Premiere, .fcpxml, .edl, .kdenlive), a table (.csv, .json),
    subtitles (.srt, .vtt) or chapters (.ffmetadata). See docs/service.md.
    Exit code 3: some hits could not be cut (each is listed with the reason).
    """
    folder = library_folder(library)
    missing: list[BinMoment] = []
    if bin is not None and hits is None:
        moments, missing = _moments_of_bin(folder, bin)
        are_several = True
    elif hits is None or bin is not None:
        raise ConfigError("name either hits of the last search, such as 1-5, or a bin with --bin NAME")
    else:
        moments = [_parse_span(hits, folder)] if "@" in hits else _exact(dict.fromkeys(recall(folder, hits)))
        are_several = "@" not in hits and ("-" in hits or "," in hits)
    for moment in missing:
        print_marked("failed", "red", f"   {shown(Path(moment.path))}: is not in the library any more; index it again")
    if _export(folder, moments, output, margin, overwrite, rate):
        if missing:
            raise typer.Exit(SOME_FAILED)
        return
    if rate is not None:
        raise ConfigError(f"--rate {rate}: is for timelines; name a file such as {shown(output.with_suffix('.otio'))}")
    are_in_folder = are_several or output.is_dir()
    if not are_in_folder:
        _require_suffix(output)
    files = _files(moments, output) if are_in_folder else [output]
    if existing := [file for file in files if file.exists() and not overwrite]:
        raise ConfigError(f"{shown(existing[0])}: already exists; choose another name or add --overwrite")
    is_new_folder = are_several and not output.exists()
    if is_new_folder:
        output.mkdir(parents=True)
    failed = len(missing)
    for hit, file in zip(moments, files, strict=True):
        try:
            _cut(hit.video, max(0.0, hit.start_s - margin), hit.end_s + margin, file, timeout, overwrite)
        except FeatureError as error:
            if not are_several:
                raise
            failed += 1
            print_marked("failed", "red", f"   {error}")
    if is_new_folder and failed == len(moments) + len(missing):
        output.rmdir()
    if failed:
        raise typer.Exit(SOME_FAILED)


def _require_suffix(output: Path) -> None:
    """Raise a ConfigError if no format of clips has this suffix."""
    from untrimmed.exports.formats import FORMATS
    from untrimmed.video.reader import CUT_FORMATS

    if output.suffix.lower() not in CUT_FORMATS:
        exports = " ".join(form.suffix for form in FORMATS.values())
        expected = f"expected {' '.join(CUT_FORMATS)} for a clip, or {exports} for a timeline, a table or text"
        raise ConfigError(f"{shown(output)}: cannot write '{output.suffix}' files; {expected}")


def _export(
    folder: Path, moments: list[NumberedMoment], output: Path, margin_s: float, overwrite: bool, rate: str | None
) -> bool:
    """Write the moments as a timeline, a table or text, and return True. The suffix of `output` selects the format.

    Returns False without writing if no export format has this suffix.
    """
    from untrimmed.exports.counting import ExportedMoment, read_rate
    from untrimmed.exports.formats import export, format_of
    from untrimmed.search.store.listing import read_records
    from untrimmed.video.reader import TimingReader

    format_name = format_of(output)
    if format_name is None:
        return False
    records = {record.path: record for record in read_records(folder)} if settings_file(folder).exists() else {}
    spans = []
    for moment in moments:
        video = absolute(moment.video)
        record = records.get(str(video))
        span = max(0.0, moment.start_s - margin_s), moment.end_s + margin_s, moment.sentence
        spans.append(ExportedMoment(video, *span) if record is None else ExportedMoment.of(record, *span))
    with TimingReader() as reader:
        timeline = None if rate is None else read_rate(rate)
        exported = export(spans, format_name, timeline, lambda span: reader.read(span.video), output.stem)
    # several subtitle files are exported as one ZIP file
    file = output.with_suffix(exported.suffix)
    if file.exists() and not overwrite:
        raise ConfigError(f"{shown(file)}: already exists; choose another name or add --overwrite")
    write_whole(file, exported.content)
    for warning in exported.warnings:
        print_marked("warning", "yellow", f"  {warning}")
    result_console.print(f"{shown(file)}: {len(spans)} moment{'s' if len(spans) != 1 else ''}")
    return True


def _moments_of_bin(library: Path, name: str) -> tuple[list[NumberedMoment], list[BinMoment]]:
    """Return the moments of a bin whose videos are in the library, and those whose videos are not.

    Raises:
        UnknownNameError: No bin has this name.
        ConfigError: No moment of the bin is in a video of the library.
    """
    from untrimmed.search.store.listing import read_records

    bin = Bins(library).named(name)
    records = Records(read_records(library)) if settings_file(library).exists() else Records()
    moments = []
    missing = []
    for number, moment in enumerate(bin.moments, start=1):
        record = moment.record(records)
        if record is None:
            missing.append(moment)
        else:
            text = moment.note or moment.sentence
            moments.append(NumberedMoment(str(number), Path(record.path), moment.start_s, moment.end_s, text))
    if not moments:
        raise ConfigError(f"--bin {name}: the bin has no moments of videos in the library; add some on the page")
    return moments, missing


def _exact(hits: Iterable[NumberedMoment]) -> list[NumberedMoment]:
    """Return the hits. Starts and ends within half a second of a shot change are moved to it, see `ExactEdges`."""
    from untrimmed.search.edges import ExactEdges

    moments = []
    with closing(ExactEdges()) as edges:
        for hit in hits:
            span = edges.moment(
                hit.video,
                Moment(hit.start_s, hit.end_s),
                duration_s=math.inf,
                min_s=_MIN_MOMENT_S,
                extend_only=hit.has_passage,
            )
            moments.append(replace(hit, start_s=span.start_s, end_s=span.end_s))
    return moments


def _parse_span(text: str, library: Path) -> NumberedMoment:
    """Return the moment that a text FILE@START-END names. FILE may also be the name of a video in the library."""
    path, _, span = text.rpartition("@")
    start, dash, end = span.partition("-")
    if not dash:
        raise ConfigError(f"{text!r} has no end time; write FILE@START-END, e.g. clip.mp4@1:02-1:10.5")
    return NumberedMoment("1", path_of(library, path), parse_time(start), parse_time(end))


def _files(hits: list[NumberedMoment], folder: Path) -> list[Path]:
    """Return the file to write for each hit, named by rank, video and times: 02_beach_61.5-66.0s.mp4.

    If several videos have the same name, a folder that distinguishes them is added: 02_holiday_beach_61.5-66.0s.mp4.
    """
    import difflib  # here, because only few commands need it

    from untrimmed.exports.formats import FORMATS
    from untrimmed.video.reader import CUT_FORMATS, is_video_path

    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{shown(folder)}: is a file, expected a folder for several clips; choose another -o")
    exports = [form.suffix for form in FORMATS.values()]
    is_mistyped = bool(difflib.get_close_matches(folder.suffix.lower(), [*exports, *CUT_FORMATS], cutoff=0.75))
    if not folder.exists() and (is_mistyped or is_video_path(folder)):
        expected = f"expected a folder for several clips, or a file that ends in {' '.join(exports)}"
        raise ConfigError(f"{shown(folder)}: ends in '{folder.suffix}', {expected}; remove or correct the suffix")
    folders = folders_of_equal_names(hit.video for hit in hits)
    files = []
    for hit in hits:
        rank, dot, moment = hit.number.partition(".")
        label = f"{folders[hit.video][:20]}_" if hit.video in folders else ""
        name = f"{int(rank):02d}{dot}{moment}_{label}{hit.video.stem[:50]}_{hit.start_s:.1f}-{hit.end_s:.1f}s.mp4"
        files.append(folder / name)
    return files


def _cut(video: Path, start_s: float, end_s: float, file: Path, timeout_s: float | None, overwrite: bool) -> None:
    from untrimmed.video.reader import cut as cut_video

    # --timeout also replaces the limit on time without progress, because on a busy machine it can take over a minute
    # until the first progress
    limits = Limits(stall_s=_STALL_S) if timeout_s is None else Limits(total_s=timeout_s, stall_s=timeout_s)
    with _CutDisplay(file, start_s, end_s) as display:
        cut_end_s = cut_video(video, start_s, end_s, file, limits=limits, overwrite=overwrite, progress=display)
    result_console.print(f"{shown(file)}: {clock(start_s)} - {clock(cut_end_s)} of {shown(video)}")


class _CutDisplay(ProgressBar):
    """Shows the progress of a cut: as a bar on a terminal, otherwise as a line every few seconds."""

    def __init__(self, file: Path, start_s: float, end_s: float) -> None:
        self._name = shown(Path(file.name))
        self._start_s = start_s
        self._end_s = end_s
        self._start_time = self._line_time = time.monotonic()
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("elapsed,"),
            TimeRemainingColumn(),
            TextColumn("left"),
            transient=True,
            description=f"{self._name}: opening",
            total=end_s - start_s,
        )

    def __call__(self, time_s: float) -> None:
        """Show the progress of a cut that has reached this time of the video."""
        done_s = min(time_s, self._end_s) - self._start_s
        if done_s < 0:
            state = f"seeking {clock(self._start_s)}, at {clock(time_s)}"
        else:
            state = f"{clock(done_s)} of {clock(self._end_s - self._start_s)}"
        self.show(completed=max(0.0, done_s), description=f"{self._name}: {state}")
        now = time.monotonic()
        if not progress_console.is_terminal and now - self._line_time >= _LINE_INTERVAL_S:
            self._line_time = now
            progress_console.print(f"{self._name}: {state} after {now - self._start_time:.0f} s")
