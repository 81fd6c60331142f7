"""A picture of the variance of positions within each video. A position is the best match of a caption."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from untrimmed.errors import FeatureError
from untrimmed.plots.seeds import group_by_seed, seeds_note, spread_of
from untrimmed.plots.style import COLOURS, Figure, legend_above, new_figure, styled
from untrimmed.plots.timeline import part_similarities
from untrimmed.plots.trained_run import TrainedRun, require_same_split

NUM_BINS = 20


@dataclass(frozen=True)
class PositioningVariances:
    """Variances of positions within each video, for best matches and for annotated moments.

    Positions are fractions of the duration. Videos with one caption are excluded.

    - `by_label` has the variances of the positions of best matches, by label of runs. Each row is one seed.
    - `annotated` has the variances of the middles of annotated moments. `annotated` is empty if no caption has a
      moment.
    """

    by_label: dict[str, Float[np.ndarray, "N V"]]
    annotated: Float[np.ndarray, " _"]


def variance_by_video(position: Float[np.ndarray, " Q"], video_index: Int[np.ndarray, " Q"]) -> Float[np.ndarray, " V"]:
    """Return the variance of the positions in each video with at least two positions (GMMFormer v2, appendix D.2).

    >>> variance_by_video(np.array([0.2, 0.4, 0.9]), np.array([0, 0, 1])).round(3).tolist()
    [0.01]
    """
    of_videos = (position[video_index == video] for video in np.unique(video_index))
    return np.array([values.var() for values in of_videos if len(values) > 1])


def positioning_variances_of(runs: Sequence[TrainedRun]) -> PositioningVariances:
    """Return the variances of all videos of the split.

    Raises: FeatureError if no video has two captions, ConfigError for a method without frames and clips.
    """
    require_same_split(runs)
    dataset = runs[0].dataset
    by_label = {
        group.label: np.array([variance_by_video(positions(run), dataset.video_index) for run in group.runs])
        for group in group_by_seed(runs)
    }
    if not all(rows.shape[1] for rows in by_label.values()):
        raise FeatureError(f"{dataset.name}, split {dataset.split}: no video has two captions; choose another split")
    moments = [(annotation.main_moment, annotation.duration_s) for annotation in dataset.annotations]
    middles = np.array([sum(span) / 2 / length if span and length else np.nan for span, length in moments])
    has_moment = np.isfinite(middles)
    return PositioningVariances(by_label, variance_by_video(middles[has_moment], dataset.video_index[has_moment]))


def positions(run: TrainedRun) -> Float[np.ndarray, " Q"]:
    """Return the position in its video at which each caption matches best, as a fraction of the duration."""
    best = np.zeros(len(run.dataset.video_index))
    for rows, encoded in run.all_videos():
        captions, local = run.captions_of(rows)
        queries = run.all_queries.select(torch.from_numpy(captions))
        for video, similarity in enumerate(part_similarities(run.model, queries, encoded, local)):
            best[captions[local == video]] = similarity.position
    return best


@styled
def draw_positioning_variances(data: PositioningVariances) -> Figure:
    """Draw one histogram per label as a line, with a band over seeds. A grey histogram shows annotated moments."""
    figure = new_figure(2.6)
    axes = figure.subplots()
    widest = max(values.max(initial=0) for values in (*data.by_label.values(), data.annotated))
    edges = np.linspace(0, max(widest, 0.01), NUM_BINS + 1)
    if len(data.annotated):
        axes.stairs(_percent(data.annotated, edges), edges, fill=True, color="#d0d0d0", label="ground truth")
    for place, (label, seeds) in enumerate(data.by_label.items()):
        colour = COLOURS[place]
        spread = spread_of([_percent(values, edges) for values in seeds])
        if spread.deviation is not None:
            low, high = spread.mean - spread.deviation, spread.mean + spread.deviation
            axes.stairs(high, edges, baseline=low, fill=True, color=colour, alpha=0.15, linewidth=0)
        style = ("-", "--", "-.", ":")[place % 4]
        axes.stairs(spread.mean, edges, color=colour, linestyle=style, linewidth=1.3, label=label)
        axes.plot(seeds.mean(), 1.03, "v", color=colour, transform=axes.get_xaxis_transform(), clip_on=False)
    note = seeds_note([len(seeds) for seeds in data.by_label.values()])
    axes.set(xlim=(0, edges[-1]), ylabel="videos (%)")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"variance of the best-matching positions (normalised time)\ntriangles: means\n{note}")
    axes.locator_params(axis="x", nbins=6)
    legend_above(axes, gap=1.06)
    return figure


def _percent(values: Float[np.ndarray, " V"], edges: Float[np.ndarray, " N"]) -> Float[np.ndarray, " _"]:
    return 100 * np.histogram(values, edges)[0] / len(values)
