"""`untrimmed cut`: write a hit to a file of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from untrimmed.cli.console import LibraryOption, clock, parse_time, result_console
from untrimmed.cli.last_search import recall
from untrimmed.errors import ConfigError


def cut(
    hit: Annotated[
        str,
        typer.Argument(
            metavar="HIT", help="3: third hit of the last search; 3.2: its second moment; or FILE@START-END."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write the clip.")],
    library: LibraryOption = None,
    margin: Annotated[float, typer.Option(min=0.0, metavar="S", help="Seconds to keep before and after.")] = 0.0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE if it is there.")] = False,
) -> None:
    """Cut a moment out of its video, exactly, picture and sound."""
    import untrimmed
    from untrimmed.video.reader import cut as cut_video

    path, at, span = hit.rpartition("@")
    if at:
        start, dash, end = span.partition("-")
        if not dash:
            raise ConfigError(f"{hit!r} names no span; write FILE@START-END, e.g. clip.mp4@1:02-1:10.5")
        video, start_s, end_s = Path(path), parse_time(start), parse_time(end)
    else:
        video, start_s, end_s = recall(untrimmed.open(library).folder, hit)
    start_s, end_s = max(0.0, start_s - margin), end_s + margin
    cut_video(video, start_s, end_s, output, overwrite=overwrite)
    result_console.print(f"{output}: {clock(start_s)} - {clock(end_s)} of {video}", markup=False)
