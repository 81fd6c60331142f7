"""A picture of SumR by moment ratio: the length of the caption's moment divided by the video's length."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from untrimmed.errors import FeatureError
from untrimmed.evaluation.moment_ratio import GMMFORMER_EDGES, MS_SL_EDGES, recall_by_moment_ratio
from untrimmed.plots.seeds import Spread, group_by_seed, seeds_note, spread_of
from untrimmed.plots.style import BLACK, COLOURS, HATCHES, Figure, legend_over, new_figure, styled
from untrimmed.plots.trained_run import TrainedRun, require_same_split

GROUPINGS = {"MS-SL, RAL": MS_SL_EDGES, "GMMFormer": GMMFORMER_EDGES}


@dataclass(frozen=True)
class RecallByRatio:
    """SumR in percent for groups of captions with similar moment ratios.

    `sum_r` is {grouping: {label of runs: one value per group}}; the value of an empty group is NaN. `num_captions` is
    {grouping: {group: number of captions}}.
    """

    sum_r: dict[str, dict[str, Spread]]
    num_captions: dict[str, dict[str, int]]


def recall_by_ratio_of(runs: Sequence[TrainedRun]) -> RecallByRatio:
    """Return SumR by moment ratio, in the groups of MS-SL's paper and in the groups of GMMFormer's paper.

    Raises: FeatureError if no caption has a moment.
    """
    require_same_split(runs)
    dataset = runs[0].dataset
    has_moment = np.isfinite(dataset.moment_ratios)
    if not has_moment.any():
        raise FeatureError(f"{dataset.name}, split {dataset.split}: no caption has a moment, so there are no groups")
    groups = group_by_seed(runs)
    sum_r: dict[str, dict[str, Spread]] = {}
    num_captions: dict[str, dict[str, int]] = {}
    for grouping, edges in GROUPINGS.items():
        by_ratio = partial(recall_by_moment_ratio, ratio=dataset.moment_ratios[has_moment], edges=edges)
        rows = {run.label: by_ratio(run.rank[has_moment]) for run in runs}
        sum_r[grouping] = {
            group.label: spread_of([[figures["SumR"] for figures in rows[run.label].values()] for run in group.runs])
            for group in groups
        }
        num_captions[grouping] = {name: int(figures["queries"]) for name, figures in rows[runs[0].label].items()}
    return RecallByRatio(sum_r, num_captions)


@styled
def draw_recall_by_ratio(data: RecallByRatio) -> Figure:
    """Draw one panel per grouping. Each group has one bar per label, and the number of captions below the bars."""
    figure = new_figure(2.4)
    panels = figure.subplots(1, len(data.sum_r), sharey=True)
    for axes, (grouping, by_label) in zip(panels, data.sum_r.items(), strict=True):
        counts = data.num_captions[grouping]
        width = 0.8 / len(by_label)
        for place, (label, spread) in enumerate(by_label.items()):
            x = np.arange(len(counts)) + (place - (len(by_label) - 1) / 2) * width
            look = {"color": COLOURS[place], "hatch": HATCHES[place], "edgecolor": "white", "linewidth": 0}
            axes.bar(x, spread.mean, 0.92 * width, label=label, **look)
            if spread.deviation is not None:
                axes.errorbar(x, spread.mean, spread.deviation, fmt="none", ecolor=BLACK, elinewidth=0.7, capsize=1.5)
        names = [f"{group}\n{count:,}" for group, count in counts.items()]
        axes.set_xticks(range(len(counts)), names)
        axes.set_xlim(-0.5, len(counts) - 0.5)  # also show empty groups at the ends
        axes.tick_params(bottom=False)
        axes.grid(axis="y")
        axes.set_title(f"groups as in {grouping}")
    panels[0].set_ylabel("SumR")
    note = seeds_note([spread.num_seeds for spread in next(iter(data.sum_r.values())).values()], drawn="bars")
    figure.supxlabel(f"moment-to-video ratio (M/V); below: number of captions\n{note}", fontsize=7.5)
    legend_over(figure, panels[0])
    return figure
