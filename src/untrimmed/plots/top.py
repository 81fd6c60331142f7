"""A picture of captions' top-ranked videos: relevance over time, best moment, and frames if there are video files."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from untrimmed.data.annotations import Span
from untrimmed.errors import FeatureError
from untrimmed.moments.gaussian_proposals import time_grid
from untrimmed.plots.style import (
    BLACK,
    BLUE,
    CHARACTERS,
    GREEN,
    SKY,
    VERMILION,
    Axes,
    Figure,
    mark_moments,
    new_figure,
    short,
    styled,
)
from untrimmed.plots.trained_run import TrainedRun, require_same_split
from untrimmed.running.top import CaptionRanking, RetrievedVideo, top_videos
from untrimmed.video.reader import frame_at, is_video_path

NUM_VIDEOS = 3  # number of videos shown for a single run; with several runs, one video of each run is shown
MOST_CAPTIONS = 4
NUM_FRAMES = 6
FRAME_PIXELS = (96, 72)  # width and height of a frame in the picture
LEGEND_IN = 0.28
TITLE_IN = 0.29
NAME_IN = 0.14
GAP_IN = 0.17
CURVE_IN = 0.28
FRAMES_IN = 0.42
LEFT = 0.02  # left edge of the strips, as a share of the picture's width
WIDTH = 0.96


@dataclass(frozen=True)
class TopVideo:
    """One of a caption's top-ranked videos, with its relevance over time. `frames` is None without a video file."""

    label: str
    ranked: RetrievedVideo
    duration_s: float
    truth_s: tuple[Span, ...]
    relevance: Float[np.ndarray, " N"]
    times_s: Float[np.ndarray, " N"]  # times of the curve's points; moments use the same grid
    frames: UInt8[np.ndarray, "F Y X 3"] | None = None


@dataclass(frozen=True)
class TopCaption:
    """A caption, the rank of the correct video for each run, and the top-ranked videos."""

    text: str
    rank: dict[str, int]
    videos: tuple[TopVideo, ...]


def top_of(runs: Sequence[TrainedRun], captions: Sequence[str], videos: Path | None = None) -> list[TopCaption]:
    """Return the top-ranked videos of each caption: three videos of a single run, or one video of each of several runs.

    `videos` is a folder with video files. The name of a file is the id of the video, with any suffix.

    Raises: UnknownNameError for an unknown caption, FeatureError for a video without a duration, or if the folder
        contains none of the top-ranked videos.
    """
    require_same_split(runs)
    rows = np.array([runs[0].caption(caption) for caption in captions or (None,)])
    count = NUM_VIDEOS if len(runs) == 1 else 1
    by_run = [top_videos(run, rows, count) for run in runs]
    files = {} if videos is None else video_files(videos)
    names = {ranked.video for rankings in by_run for ranking in rankings for ranked in ranking.videos}
    if videos is not None and not names & files.keys():
        raise FeatureError(
            f"{videos}: no video file is named {min(names)!r}; give the folder with videos of {runs[0].dataset.name}"
        )
    entries = []
    for rankings in zip(*by_run, strict=True):
        strips = [
            _top_video(run, ranking, ranked, files)
            for run, ranking in zip(runs, rankings, strict=True)
            for ranked in ranking.videos
        ]
        rank = {run.label: ranking.rank for run, ranking in zip(runs, rankings, strict=True)}
        entries.append(TopCaption(rankings[0].text, rank, tuple(strips)))
    return entries


def video_files(folder: Path) -> dict[str, Path]:
    """Return {name without suffix: path} of all video files in a folder and its subfolders.

    Raises: FeatureError if the folder does not exist.
    """
    if not folder.is_dir():
        raise FeatureError(f"{folder}: no such folder; give the folder with the video files, or omit --videos")
    paths = (Path(parent, name) for parent, _, names in os.walk(folder) for name in sorted(names))
    return {path.stem: path for path in paths if is_video_path(path)}


def _top_video(run: TrainedRun, ranking: CaptionRanking, ranked: RetrievedVideo, files: dict[str, Path]) -> TopVideo:
    duration_s = run.duration_s(ranked.row)
    queries = run.queries(np.array([ranking.row]))
    encoded = run.videos(np.array([ranked.row]))
    units, mask = run.model.timeline(encoded)
    rows = units if mask is None else units[:, mask[0]]
    relevance = run.model.similarity(queries, rows)[0, 0].float().cpu().numpy()
    truth_s = ranking.moments_s if ranked.is_right else ()
    times_s = duration_s * time_grid(len(relevance), row_times=run.model.row_times).numpy()
    frames = _frames(files[ranked.video], duration_s) if ranked.video in files else None
    return TopVideo(run.label, ranked, duration_s, truth_s, relevance, times_s, frames)


def _frames(path: Path, duration_s: float) -> UInt8[np.ndarray, "F Y X 3"]:
    """Divide a video into equal parts, and return the middle frame of each part. All frames are cropped to one size."""
    from PIL import Image, ImageOps

    times_s = (np.arange(NUM_FRAMES) + 0.5) / NUM_FRAMES * duration_s
    pictures = (Image.fromarray(frame_at(path, float(time_s), last_for_s=duration_s)) for time_s in times_s)
    return np.stack([np.asarray(ImageOps.fit(picture, FRAME_PIXELS)) for picture in pictures])


@styled
def draw_top(data: Sequence[TopCaption]) -> Figure:
    """Draw one strip per video, with its best moment and its annotated moments.

    Strips of the same caption and run have the same vertical scale.
    """
    from matplotlib.lines import Line2D

    heights = [TITLE_IN + sum(NAME_IN + _strip_in(video) + GAP_IN for video in caption.videos) for caption in data]
    height_in = LEGEND_IN + sum(heights)
    figure = new_figure(height_in)
    figure.set_layout_engine("none")  # rows have a fixed height and strips a fixed width

    def write(text: str, down_in: float, size: float = 7.5) -> None:
        figure.text(LEFT, 1 - down_in / height_in, text, va="top", fontsize=size)

    top_in = LEGEND_IN
    for caption in data:
        ranks = ", ".join(f"{label} {rank:,}" for label, rank in caption.rank.items())
        ranks = ranks if len(caption.rank) > 1 else ranks.rpartition(" ")[2]
        write(short(caption.text, CHARACTERS), top_in + 0.01)
        write(f"rank of the correct video: {ranks}", top_in + 0.135, size=7)
        top_in += TITLE_IN
        for place, video in enumerate(caption.videos, start=1):
            ranked = video.ranked
            name = ranked.video, f"{ranked.score:.3f}", "correct" if ranked.is_right else "incorrect"
            write("   ".join((str(place) if len(caption.rank) == 1 else video.label, *name)), top_in, size=7)
            top_in += NAME_IN + _strip_in(video)
            axes = figure.add_axes((LEFT, 1 - top_in / height_in, WIDTH, _strip_in(video) / height_in))
            _draw_strip(axes, video, [v.relevance for v in caption.videos if v.label == video.label])
            top_in += GAP_IN
    marks = [
        Line2D([], [], color=GREEN, linewidth=2.5, label="correct"),
        Line2D([], [], color=VERMILION, linewidth=1, label="incorrect"),
        Line2D([], [], color=BLUE, linewidth=1.2, label="predicted"),
        Line2D([], [], color=BLACK, linestyle=":", linewidth=1.2, label="ground truth"),
    ]
    figure.legend(handles=marks, loc="upper left", ncols=4, columnspacing=1.1, handlelength=1.3, borderaxespad=0.2)
    return figure


def _strip_in(video: TopVideo) -> float:
    return CURVE_IN + (0 if video.frames is None else FRAMES_IN)


def _draw_strip(axes: Axes, video: TopVideo, curves: Sequence[np.ndarray]) -> None:
    from matplotlib.patches import Rectangle

    top = 1 if video.frames is None else 1 + FRAMES_IN / CURVE_IN
    low = min(curve.min() for curve in curves)
    high = max(curve.max() for curve in curves)
    heights = 0.9 * (video.relevance - low) / max(high - low, 1e-9)
    axes.fill_between(video.times_s, 0, heights, color=SKY, alpha=0.45, linewidth=0)
    axes.plot(video.times_s, heights, color=BLUE, linewidth=0.8)
    if video.frames is not None:
        edges = np.linspace(0, video.duration_s, len(video.frames) + 1)
        for frame, start_s, end_s in zip(video.frames, edges, edges[1:], strict=False):
            axes.imshow(frame, aspect="auto", extent=(start_s, end_s, 1.02, top), interpolation="lanczos")
    if video.ranked.moment_s is not None:
        start_s, end_s = video.ranked.moment_s
        axes.add_patch(
            Rectangle((start_s, 0), end_s - start_s, top, fill=False, edgecolor=BLUE, linewidth=1.2, clip_on=False)
        )
    mark_moments(axes, video.truth_s, 0.04 * top, 0.92 * top)
    axes.set(xlim=(0, video.duration_s), ylim=(0, top), yticks=[])
    axes.set_xticks([0, video.duration_s], ["0", f"{video.duration_s:.0f} s"])
    first, last = axes.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    axes.tick_params(axis="x", length=2, pad=1)
    is_right = video.ranked.is_right
    axes.spines["left"].set(color=GREEN if is_right else VERMILION, linewidth=3 if is_right else 1)
