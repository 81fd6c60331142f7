"""`untrimmed cut`: write hits to files of their own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from untrimmed.cli.bars import Bar
from untrimmed.cli.console import SOME_FAILED, clock, parse_time, print_marked, progress_console, result_console
from untrimmed.cli.last_search import Remembered, recall
from untrimmed.cli.options import LibraryOption, parse_path
from untrimmed.errors import ConfigError, FeatureError, shown
from untrimmed.search.store.records import library_folder
from untrimmed.video.process import Limits

_QUIET_S = 10.0  # between two lines of progress where no bar can be shown
_PATIENCE_S = 600.0  # without progress


def cut(
    hits: Annotated[
        str,
        typer.Argument(
            metavar="HITS",
            help="Of the last search: 3, its third hit; 3.2, that hit's second moment; 1-5 or 2,4.2, several. "
            "Or FILE@START-END.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", parser=parse_path, metavar="FILE|DIR", help="The clip's file; for several, their folder."
        ),
    ],
    library: LibraryOption = None,
    margin: Annotated[float, typer.Option(min=0.0, metavar="S", help="Seconds to keep before and after.")] = 0.0,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="S",
            help="Give a cut up after so long.  \\[default: after 600 without progress]",
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
) -> None:
    """Cut moments out of their videos, exactly, picture and sound.

    Each file appears when it is whole. Exit code 3: some of several could not be cut (each is named with its reason).
    """
    chosen = [_span(hits)] if "@" in hits else list(dict.fromkeys(recall(library_folder(library), hits)))
    are_several = "@" not in hits and ("-" in hits or "," in hits)
    files = _files(chosen, output) if are_several or output.is_dir() else [output]
    if there := [file for file in files if file.exists() and not overwrite]:
        raise ConfigError(f"{shown(there[0])}: is there already; choose another name or add --overwrite")
    made = are_several and not output.exists()
    if made:
        output.mkdir(parents=True)
    failed = 0
    for hit, file in zip(chosen, files, strict=True):
        try:
            _cut(hit.video, max(0.0, hit.start_s - margin), hit.end_s + margin, file, timeout, overwrite)
        except FeatureError as error:
            if not are_several:
                raise
            failed += 1
            print_marked("failed", "red", f"   {error}")
    if made and failed == len(chosen):
        output.rmdir()
    if failed:
        raise typer.Exit(SOME_FAILED)


def _span(text: str) -> Remembered:
    """FILE@START-END."""
    path, _, span = text.rpartition("@")
    start, dash, end = span.partition("-")
    if not dash:
        raise ConfigError(f"{text!r} names no span; write FILE@START-END, e.g. clip.mp4@1:02-1:10.5")
    return Remembered("1", Path(path), parse_time(start), parse_time(end))


def _files(chosen: list[Remembered], folder: Path) -> list[Path]:
    """A file for each hit, named by its rank, its video and its span: 02_beach_61.5-66.0s.mp4."""
    from untrimmed.video.reader import is_video_path

    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{shown(folder)}: is a file; name a folder for several clips")
    if not folder.exists() and is_video_path(folder):
        raise ConfigError(f"{shown(folder)}: names one file, wanted a folder for several clips; leave the suffix out")
    files = []
    for hit in chosen:
        rank, dot, moment = hit.number.partition(".")
        name = f"{int(rank):02d}{dot}{moment}_{hit.video.stem[:50]}_{hit.start_s:.1f}-{hit.end_s:.1f}s.mp4"
        files.append(folder / name)
    return files


def _cut(video: Path, start_s: float, end_s: float, file: Path, timeout_s: float | None, overwrite: bool) -> None:
    from untrimmed.video.reader import cut as cut_video

    # A limit that is asked for is the only one: on a busy machine even a sign of life can take longer than a minute.
    limits = Limits(stall_s=_PATIENCE_S) if timeout_s is None else Limits(total_s=timeout_s, stall_s=timeout_s)
    with _CutDisplay(file, start_s, end_s) as display:
        until_s = cut_video(video, start_s, end_s, file, limits=limits, overwrite=overwrite, progress=display)
    result_console.print(f"{shown(file)}: {clock(start_s)} - {clock(until_s)} of {shown(video)}")


class _CutDisplay(Bar):
    """How far a cut has come: a bar on a terminal, elsewhere a line now and then."""

    def __init__(self, file: Path, start_s: float, end_s: float) -> None:
        self._name, self._start_s, self._end_s = shown(Path(file.name)), start_s, end_s
        self._began = self._told = time.monotonic()
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            transient=True,
            description=f"{self._name}: opening",
            total=end_s - start_s,
        )

    def __call__(self, time_s: float) -> None:
        """Show that this time of the video has been reached."""
        done_s = min(time_s, self._end_s) - self._start_s
        if done_s < 0:
            doing = f"looking for {clock(self._start_s)}, at {clock(time_s)}"
        else:
            doing = f"{clock(done_s)} of {clock(self._end_s - self._start_s)}"
        self.show(completed=max(0.0, done_s), description=f"{self._name}: {doing}")
        now = time.monotonic()
        if not progress_console.is_terminal and now - self._told >= _QUIET_S:
            self._told = now
            progress_console.print(f"{self._name}: {doing} after {now - self._began:.0f} s")
