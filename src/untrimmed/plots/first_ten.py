"""A picture of the cosine of captions with their ten top-ranked videos, by rank (RAL Fig. 6)."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from untrimmed.plots.seeds import group_by_seed
from untrimmed.plots.style import COLOURS, MARKERS, Figure, legend_above, new_figure, styled
from untrimmed.plots.trained_run import TrainedRun, require_same_split

RANKS = 10
QUARTILES = (25, 50, 75)


def similarity_by_rank_of(runs: Sequence[TrainedRun]) -> dict[str, Float[np.ndarray, "3 P"]]:
    """Return {label: quartiles [3, P]} of the cosines between captions and the videos at each of the first ten ranks.

    Quartiles are computed over captions. A cosine is the fused score divided by the sum of the branches' weights, so
    that methods with different weights can be compared. Runs that differ only in their seed are averaged.
    """
    require_same_split(runs)
    return {group.label: np.mean([_quartiles(run) for run in group.runs], axis=0) for group in group_by_seed(runs)}


def _quartiles(run: TrainedRun) -> Float[np.ndarray, "3 P"]:
    weights = run.model.score(run.queries(np.arange(1)), run.videos(np.arange(1))).weights
    highest = -np.sort(-run.score().fused, axis=1)[:, :RANKS]
    return np.percentile(highest / sum(weights.values()), QUARTILES, axis=0)


@styled
def draw_similarity_by_rank(data: Mapping[str, Float[np.ndarray, "3 P"]]) -> Figure:
    """Draw the median of each run as a line, and the interquartile range over captions as an area."""
    figure = new_figure(2.4)
    axes = figure.subplots()
    for number, (label, (low, median, high)) in enumerate(data.items()):
        ranks = np.arange(1, len(median) + 1)
        axes.fill_between(ranks, low, high, color=COLOURS[number], alpha=0.15, linewidth=0)
        axes.plot(ranks, median, color=COLOURS[number], marker=MARKERS[number], label=label)
    axes.set(ylabel="caption-video cosine similarity")
    axes.set_xlabel("rank of the video\nline: median over captions; area: interquartile range")
    axes.set_xticks(range(1, RANKS + 1))
    axes.grid(axis="y")
    legend_above(axes)
    return figure
