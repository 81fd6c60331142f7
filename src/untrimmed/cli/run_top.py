"""`untrimmed evaluate RUN --top K`: print the first videos of queries, their best moments, and the right video."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from untrimmed.cli.console import clock, print_json, progress_console, result_console
from untrimmed.cli.run_evaluation import Opening, require_format
from untrimmed.errors import counted

if TYPE_CHECKING:
    from untrimmed.running.top import CaptionRanking, RetrievedVideo

COLUMNS = ("id", "query", "right_video", "rank_of_right", "place", "video", "right", "score", "start_s", "end_s")


def evaluate_top(
    folder: Path,
    count: int,
    queries: Path | None,
    opening: Opening | None = None,
    *,
    output: str = "table",
) -> None:
    """Print the first `count` videos for each caption of a split, or for each caption that `queries` names."""
    import numpy as np

    from untrimmed.running.loaded import open_model
    from untrimmed.running.top import named_captions, read_names, top_videos

    require_format(output)
    with progress_console.status("scoring"):
        opened = open_model(folder, **vars(opening or Opening()))
        dataset = opened.dataset
        rows = np.arange(len(dataset.annotations))
        if queries is not None:
            rows = named_captions(dataset, read_names(queries))
        rankings = top_videos(opened, rows, count)
    title = f"{opened.model.name} on {dataset.name}, {dataset.split}"
    if output == "json":
        print_json({"title": title, "videos": len(dataset.video_ids), "queries": list(map(as_document, rankings))})
    elif output == "csv":
        typer.echo(_to_csv(rankings), nl=False)
    elif output == "latex":
        typer.echo(_to_latex(title, rankings), nl=False)
    else:
        result_console.print(f"{title}: {counted(len(rankings), 'query')}, {counted(len(dataset.video_ids), 'video')}")
        for ranking in rankings:
            _print_ranking(ranking)


def as_document(ranking: CaptionRanking) -> dict[str, Any]:
    """Return one caption and its first videos for JSON. Times are in seconds, or null if they are unknown."""
    return {
        "id": ranking.caption_id,
        "query": ranking.text,
        "right_video": ranking.video,
        "right_moments": [{"start_s": start_s, "end_s": end_s} for start_s, end_s in ranking.moments_s],
        "rank_of_right": ranking.rank,
        "found": [
            {"place": place, "video": video.video, "right": video.is_right, "score": video.score, **_times(video)}
            for place, video in enumerate(ranking.videos, start=1)
        ],
    }


def _times(video: RetrievedVideo) -> dict[str, float | None]:
    start_s, end_s = (None, None) if video.moment_s is None else (round(second, 3) for second in video.moment_s)
    return {"start_s": start_s, "end_s": end_s}


def _lines(rankings: list[CaptionRanking]) -> Iterator[dict[str, Any]]:
    for ranking in rankings:
        document = as_document(ranking)
        for video in document.pop("found"):
            yield document | video


def _to_csv(rankings: list[CaptionRanking]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(_lines(rankings))
    return text.getvalue()


def _to_latex(title: str, rankings: list[CaptionRanking]) -> str:
    """Return a LaTeX table for a paper, which must load the packages booktabs and amssymb."""
    from untrimmed.evaluation.report import escape_latex

    lines = [f"% {title}", r"\begin{tabular}{rlcrl}", r"\toprule", r"& video & right & score & moment (s) \\"]
    for ranking in rankings:
        lines += [r"\midrule", rf"\multicolumn{{5}}{{l}}{{{escape_latex(ranking.text)}}} \\"]
        for place, video in enumerate(ranking.videos, start=1):
            mark = r"\checkmark" if video.is_right else ""
            moment = "" if video.moment_s is None else "{:.1f}--{:.1f}".format(*video.moment_s)
            lines.append(rf"{place} & {escape_latex(video.video)} & {mark} & {video.score:.3f} & {moment} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _print_ranking(ranking: CaptionRanking) -> None:
    truth = ", ".join(f"{clock(start_s)} - {clock(end_s)}" for start_s, end_s in dict.fromkeys(ranking.moments_s))
    result_console.print(f"\n{ranking.caption_id}  {ranking.text}")
    where = f"is {ranking.video}{f', {truth}' if truth else ''}: rank {ranking.rank:,}"
    result_console.print(f"      right {where}")
    width = max(len(video.video) for video in ranking.videos)
    for place, video in enumerate(ranking.videos, start=1):
        moment = "" if video.moment_s is None else "  {} - {}".format(*map(clock, video.moment_s))
        mark = "right" if video.is_right else ""
        result_console.print(f"{place:>4}  {mark:5} {video.video:{width}}  {video.score:7.3f}{moment}")
