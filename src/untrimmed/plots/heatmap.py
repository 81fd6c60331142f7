"""Heat maps of captions and their video over time: the cosine with each clip, and true and predicted moments."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from untrimmed.data.annotations import Span
from untrimmed.plots.style import (
    BLACK,
    CHARACTERS,
    COLUMN_IN,
    DPI,
    HEAT,
    VERMILION,
    Axes,
    Figure,
    mark_moments,
    new_figure,
    short,
    styled,
)
from untrimmed.plots.timeline import best_windows, cell_edges
from untrimmed.plots.trained_run import TrainedRun, require_same_split

MOST_CAPTIONS = 5
TICK_IN = 0.1  # distance of a tick label from the axes, and total width of the margins, in inches
STRIP_IN = 0.17
TEXT_IN = 0.19
REST_IN = 1.1


@dataclass(frozen=True)
class Strip:
    """The cosines of a caption with the parts of the video, and the best moment, according to one model.

    Part i is drawn from `edges[i]` to `edges[i + 1]`, which are fractions of the video's duration.
    """

    label: str
    similarity: Float[np.ndarray, " N"]
    edges: Float[np.ndarray, " E"]
    best_s: Span


@dataclass(frozen=True)
class HeatMapCaption:
    """A caption, its annotated moments, and one strip per model."""

    text: str
    truth_s: tuple[Span, ...]
    strips: tuple[Strip, ...]


@dataclass(frozen=True)
class HeatMap:
    """Captions of one video of `duration_s` seconds."""

    video_id: str
    duration_s: float
    captions: tuple[HeatMapCaption, ...]


def heat_map_of(runs: Sequence[TrainedRun], caption_id: str | None) -> HeatMap:
    """Return the similarities of a caption with the parts of its video.

    Without `caption_id`, the result contains up to five captions of one video.

    Raises: FeatureError for a video without a duration, ConfigError for a method without frames and clips.
    """
    require_same_split(runs)
    dataset = runs[0].dataset
    first = runs[0].caption(caption_id)
    video = int(dataset.video_index[first])
    rows = np.array([first]) if caption_id is not None else dataset.captions_of(video)[:MOST_CAPTIONS]
    duration_s = runs[0].duration_s(video)
    by_run = [_strips(run, rows, video, duration_s) for run in runs]
    captions = (
        HeatMapCaption(dataset.texts[row], dataset.moments[row], tuple(strips[i] for strips in by_run))
        for i, row in enumerate(rows)
    )
    return HeatMap(dataset.video_ids[video], duration_s, tuple(captions))


def _strips(run: TrainedRun, captions: np.ndarray, video: int, duration_s: float) -> list[Strip]:
    similarity, windows = best_windows(run, captions, video)
    best_s = duration_s * windows
    return [
        Strip(run.label, row, cell_edges(len(row), run.model.row_times), (float(start), float(end)))
        for row, (start, end) in zip(similarity.values, best_s, strict=True)
    ]


@styled
def draw_heat_map(data: HeatMap) -> Figure:
    """Draw one strip per caption and model. High cosines are dark, and frames mark true and predicted moments."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.lines import Line2D

    num_strips = len(data.captions[0].strips)
    block_in = TEXT_IN + STRIP_IN * num_strips
    figure = new_figure(REST_IN + block_in * len(data.captions))
    all_axes = figure.subplots(len(data.captions), 1, sharex=True, squeeze=False)[:, 0]
    for axes, caption in zip(all_axes, data.captions, strict=True):
        _draw_caption(axes, caption, data.duration_s, has_names=num_strips > 1)
    all_axes[-1].tick_params(bottom=True, labelbottom=True)
    all_axes[-1].set_xlabel(f"time in {short(data.video_id, 30)} (s)")
    bar = figure.colorbar(ScalarMappable(cmap=HEAT), ax=all_axes, location="bottom", aspect=45, pad=0.03, ticks=[0, 1])
    low, high = bar.ax.set_xticklabels(["lowest", "highest"])
    # place the text between the ends of the bar, because wider text would make the strips narrower
    low.set_horizontalalignment("left")
    high.set_horizontalalignment("right")
    bar.set_label("similarity (scaled per strip)", labelpad=-8)
    bar.outline.set_visible(False)
    marks = [
        Line2D([], [], color=BLACK, linestyle=":", linewidth=1.2, label="ground truth"),
        Line2D([], [], color=VERMILION, linewidth=1.2, label="predicted moment"),
    ]
    figure.legend(handles=marks, loc="outside upper left", ncols=2)
    return figure


def _draw_caption(axes: Axes, caption: HeatMapCaption, duration_s: float, *, has_names: bool) -> None:
    from matplotlib.patches import Rectangle

    num_strips = len(caption.strips)
    for row, strip in enumerate(caption.strips):
        low = strip.similarity.min()
        high = strip.similarity.max()
        scaled = (strip.similarity - low) / max(high - low, 1e-9)
        axes.pcolormesh(
            duration_s * strip.edges, (num_strips - row - 1, num_strips - row), scaled[None], cmap=HEAT, vmin=0, vmax=1
        )
        start_s, end_s = strip.best_s
        frame = (start_s, num_strips - row - 0.92), end_s - start_s, 0.84
        axes.add_patch(Rectangle(*frame, fill=False, edgecolor=VERMILION, linewidth=1.1))
    mark_moments(axes, caption.truth_s, -0.06, num_strips + 0.12)
    axes.set(xlim=(0, duration_s), ylim=(0, num_strips))
    axes.set_yticks([num_strips - row - 0.5 for row in range(num_strips)] if has_names else [])
    if has_names:
        axes.set_yticklabels([strip.label for strip in caption.strips])
    axes.tick_params(left=False, bottom=False, labelbottom=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    names_in = 0.0
    # begin the caption's text at the left end of the names, so that the text can use the whole width
    if has_names:
        widest = max(label.get_window_extent().width for label in axes.get_yticklabels())
        names_in = widest / DPI + TICK_IN
    start = -names_in / (COLUMN_IN - TICK_IN - names_in)
    axes.set_title(short(caption.text, CHARACTERS), loc="left", x=start, pad=3)
