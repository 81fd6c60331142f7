"""SumR by moment ratio: the share of the video that the caption describes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from untrimmed.errors import FeatureError
from untrimmed.evaluation.moment_ratio import GMMFORMER_EDGES, MS_SL_EDGES, recall_by_moment_ratio
from untrimmed.plots.style import COLOURS, HATCHES, Figure, legend_over, new_figure, styled
from untrimmed.plots.trained_run import TrainedRun, require_same_split

GROUPINGS = {"MS-SL, RAL": MS_SL_EDGES, "GMMFormer": GMMFORMER_EDGES}


@dataclass(frozen=True)
class RecallByRatio:
    """SumR in percent by grouping, group and run (NaN for an empty group), and the number of captions in each group."""

    sum_r: dict[str, dict[str, dict[str, float]]]
    num_captions: dict[str, dict[str, int]]


def recall_by_ratio_of(runs: Sequence[TrainedRun]) -> RecallByRatio:
    """Return SumR by moment length / video length, in the groups of MS-SL and of GMMFormer.

    Raises: FeatureError if no caption has a moment.
    """
    require_same_split(runs)
    dataset = runs[0].dataset
    has_moment = np.isfinite(dataset.moment_ratios)
    if not has_moment.any():
        raise FeatureError(f"{dataset.name}, split {dataset.split}: no caption has a moment, so there are no groups")
    sum_r: dict[str, dict[str, dict[str, float]]] = {}
    num_captions: dict[str, dict[str, int]] = {}
    for grouping, edges in GROUPINGS.items():
        by_run = {
            run.label: recall_by_moment_ratio(run.rank[has_moment], dataset.moment_ratios[has_moment], edges=edges)
            for run in runs
        }
        groups = by_run[runs[0].label]
        sum_r[grouping] = {group: {label: row[group]["SumR"] for label, row in by_run.items()} for group in groups}
        num_captions[grouping] = {group: int(figures["queries"]) for group, figures in groups.items()}
    return RecallByRatio(sum_r, num_captions)


@styled
def draw_recall_by_ratio(data: RecallByRatio) -> Figure:
    """Draw one panel per grouping, with a bar for each run in each group and the number of captions below."""
    figure = new_figure(2.3)
    panels = figure.subplots(1, len(data.sum_r), sharey=True)
    for axes, (grouping, groups) in zip(panels, data.sum_r.items(), strict=True):
        run_labels = list(next(iter(groups.values())))
        width = 0.8 / len(run_labels)
        for place, label in enumerate(run_labels):
            x = np.arange(len(groups)) + (place - (len(run_labels) - 1) / 2) * width
            heights = [sum_r[label] for sum_r in groups.values()]
            look = {"color": COLOURS[place], "hatch": HATCHES[place], "edgecolor": "white", "linewidth": 0}
            axes.bar(x, heights, 0.92 * width, label=label, **look)
        counts = data.num_captions[grouping]
        names = [f"{group}\n{counts[group]:,}" for group in groups]
        axes.set_xticks(range(len(groups)), names)
        axes.set_xlim(-0.5, len(groups) - 0.5)  # show empty groups at the ends too
        axes.tick_params(bottom=False)
        axes.grid(axis="y")
        axes.set_title(f"groups as in {grouping}")
    panels[0].set_ylabel("SumR")
    figure.supxlabel("moment-to-video ratio (M/V); below: number of captions", fontsize=7.5)
    legend_over(figure, panels[0])
    return figure
