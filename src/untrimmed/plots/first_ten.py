"""How alike captions and the videos that they find first are, by place (RAL Fig. 6)."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from untrimmed.plots.style import COLOURS, MARKERS, Figure, legend_above, new_figure, styled
from untrimmed.plots.trained_run import TrainedRun, require_same_split

PLACES = 10
QUARTILES = (25, 50, 75)


def similarity_by_place_of(runs: Sequence[TrainedRun]) -> dict[str, Float[np.ndarray, "3 P"]]:
    """Quartiles over all captions of the cosine with the video at each place, by run.

    They are of the fused scores of each caption's first ten videos, divided by what the branches weigh together: each
    is then a mean of the branches' cosines, and methods whose weights add up to different sums compare.
    """
    require_same_split(runs)
    found = {}
    for run in runs:
        weights = run.model.score(run.queries(np.arange(1)), run.videos(np.arange(1))).weights
        highest = -np.sort(-run.score().fused, axis=1)[:, :PLACES]
        found[run.label] = np.percentile(highest / sum(weights.values()), QUARTILES, axis=0)
    return found


@styled
def draw_similarity_by_place(data: Mapping[str, Float[np.ndarray, "3 P"]]) -> Figure:
    """The median of each run as a line, half of the captions around it as an area."""
    figure = new_figure(2.4)
    axes = figure.subplots()
    for number, (label, (low, median, high)) in enumerate(data.items()):
        places = np.arange(1, len(median) + 1)
        axes.fill_between(places, low, high, color=COLOURS[number], alpha=0.15, linewidth=0)
        axes.plot(places, median, color=COLOURS[number], marker=MARKERS[number], label=label)
    axes.set(ylabel="cosine of caption and video")
    axes.set_xlabel("place of the video\nline: median of the captions; area: their middle half")
    axes.set_xticks(range(1, PLACES + 1))
    axes.grid(axis="y")
    legend_above(axes)
    return figure
