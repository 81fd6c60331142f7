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

if TYPE_CHECKING:
    from untrimmed.running.top import Answer, FoundVideo

COLUMNS = ("id", "query", "right_video", "rank_of_right", "place", "video", "right", "score", "start_s", "end_s")


def evaluate_top(
    folder: Path,
    count: int,
    queries: Path | None,
    opening: Opening | None = None,
    *,
    output: str = "table",
) -> None:
    """Print the first `count` videos of all captions of a split, or of the captions that the file `queries` names."""
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
        answers = top_videos(opened, rows, count)
    title = f"{opened.model.name} on {dataset.name}, {dataset.split}"
    if output == "json":
        print_json({"title": title, "videos": len(dataset.video_ids), "queries": [as_document(a) for a in answers]})
    elif output == "csv":
        typer.echo(_to_csv(answers), nl=False)
    elif output == "latex":
        typer.echo(_to_latex(title, answers), nl=False)
    else:
        result_console.print(f"{title}: {len(answers):,} queries, {len(dataset.video_ids):,} videos")
        for answer in answers:
            _print_answer(answer)


def as_document(answer: Answer) -> dict[str, Any]:
    """One query and its first videos for JSON. Times are in seconds, or null if they are unknown."""
    return {
        "id": answer.caption_id,
        "query": answer.text,
        "right_video": answer.video,
        "right_moments": [{"start_s": start_s, "end_s": end_s} for start_s, end_s in answer.moments_s],
        "rank_of_right": answer.rank,
        "found": [
            {"place": place, "video": video.video, "right": video.is_right, "score": video.score, **_times(video)}
            for place, video in enumerate(answer.found, start=1)
        ],
    }


def _times(video: FoundVideo) -> dict[str, float | None]:
    start_s, end_s = (None, None) if video.moment_s is None else (round(second, 3) for second in video.moment_s)
    return {"start_s": start_s, "end_s": end_s}


def _lines(answers: list[Answer]) -> Iterator[dict[str, Any]]:
    for answer in answers:
        document = as_document(answer)
        for video in document.pop("found"):
            yield document | video


def _to_csv(answers: list[Answer]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(_lines(answers))
    return text.getvalue()


def _to_latex(title: str, answers: list[Answer]) -> str:
    """A table for a paper; it needs the packages booktabs and amssymb."""
    from untrimmed.evaluation.report import escape_latex

    lines = [f"% {title}", r"\begin{tabular}{rlcrl}", r"\toprule", r"& video & right & score & moment (s) \\"]
    for answer in answers:
        lines += [r"\midrule", rf"\multicolumn{{5}}{{l}}{{{escape_latex(answer.text)}}} \\"]
        for place, video in enumerate(answer.found, start=1):
            mark = r"\checkmark" if video.is_right else ""
            moment = "" if video.moment_s is None else "{:.1f}--{:.1f}".format(*video.moment_s)
            lines.append(rf"{place} & {escape_latex(video.video)} & {mark} & {video.score:.3f} & {moment} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _print_answer(answer: Answer) -> None:
    truth = ", ".join(f"{clock(start_s)} - {clock(end_s)}" for start_s, end_s in dict.fromkeys(answer.moments_s))
    result_console.print(f"\n{answer.caption_id}  {answer.text}")
    where = f"is {answer.video}{f', {truth}' if truth else ''}: rank {answer.rank:,}"
    result_console.print(f"      right {where}")
    width = max(len(video.video) for video in answer.found)
    for place, video in enumerate(answer.found, start=1):
        moment = "" if video.moment_s is None else "  {} - {}".format(*map(clock, video.moment_s))
        mark = "right" if video.is_right else ""
        result_console.print(f"{place:>4}  {mark:5} {video.video:{width}}  {video.score:7.3f}{moment}")
