"""`untrimmed evaluate`: how well a library answers labelled sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from untrimmed.cli.shared import progress_console, result_console


def evaluate(
    library: Annotated[Path, typer.Argument(metavar="LIBRARY", help="The library's folder.")],
    queries: Annotated[
        Path,
        typer.Option(metavar="FILE", help='JSON lines: {"video": ..., "query": ..., "start_s": 1.5, "end_s": 4}.'),
    ],
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON (docs/json.md).")] = False,
    details: Annotated[bool, typer.Option("--details", help="Print every query's outcome too.")] = False,
) -> None:
    """Score a library on sentences whose video, and maybe moment, is known: R@K, mean IoU, moment recall."""
    import untrimmed
    from untrimmed.search.labelled import evaluate_library, read_queries

    labelled = read_queries(queries)
    with progress_console.status("searching"):
        quality = evaluate_library(untrimmed.open(library), labelled)
    if json_output:
        outcomes = [
            {
                "query": outcome.query.text,
                "video": outcome.query.video,
                "rank": outcome.rank,
                "start_s": round(outcome.found.start_s, 3),
                "end_s": round(outcome.found.end_s, 3),
                "iou": round(outcome.iou, 4),
            }
            for outcome in quality.outcomes
        ]
        document = {"figures": quality.figures, "videos": quality.num_videos, "queries": outcomes}
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    if details:
        for outcome in sorted(quality.outcomes, key=lambda o: (o.rank or 10**9, -o.iou)):
            rank = outcome.rank or "-"
            result_console.print(f"{rank!s:>4}  IoU {outcome.iou:.2f}  {outcome.query.text}", markup=False)
    table = Table(title=f"{len(quality.outcomes)} queries, {quality.num_videos} videos (percent)", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in quality.figures.items():
        table.add_row(name, f"{value:.1f}")
    result_console.print(table)
