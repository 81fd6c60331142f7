"""A picture of R@1 by the uncertainty that RAL predicts for captions (RAL Fig. 3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from untrimmed.errors import FeatureError
from untrimmed.evaluation.report import per_query
from untrimmed.models.ral import RALQueries
from untrimmed.plots.seeds import Spread, group_by_seed, seeds_note, spread_of
from untrimmed.plots.style import COLOURS, MARKERS, Figure, legend_above, new_figure, plot_band, styled
from untrimmed.plots.trained_run import TrainedRun, require_same_split

MOST_GROUPS = 10
FEWEST_CAPTIONS = 5


@dataclass(frozen=True)
class RecallByUncertainty:
    """R@1 in percent in groups of captions with similar uncertainty, by label of runs.

    `level` is the mean uncertainty of each group. `error` is the standard error over the captions of a group.
    """

    level: Float[np.ndarray, " G"]
    recall: dict[str, Spread]
    error: dict[str, Float[np.ndarray, " G"]]
    group_size: int


def equal_groups(uncertainty: Float[np.ndarray, " Q"]) -> list[Int[np.ndarray, " _"]]:
    """Return ten groups of about equal size, by ascending uncertainty. Few captions give fewer groups of at least five.

    >>> [group.tolist() for group in equal_groups(np.array([5.0, 1, 2, 3, 4, 10, 9, 8, 7, 6]))]
    [[1, 2, 3, 4, 0], [9, 8, 7, 6, 5]]
    """
    order = np.argsort(uncertainty, kind="stable")
    return np.array_split(order, max(1, min(MOST_GROUPS, len(order) // FEWEST_CAPTIONS)))


def recall_by_uncertainty_of(
    runs: Sequence[TrainedRun], moment_ratio: tuple[float, float] | None = None
) -> RecallByUncertainty:
    """Return R@1 of all runs in groups of captions. The groups depend on the uncertainties of the first run.

    If `moment_ratio` is (low, high), only captions with low < moment length / video length <= high are used.

    Raises: FeatureError if there are too few captions for two groups.
    """
    require_same_split(runs)
    dataset = runs[0].dataset
    predicted = RALQueries.of(runs[0].all_queries.attached["ral"]).uncertainty
    assert predicted is not None, "the run has MSRA: the picture requires its DistributionHead"
    uncertainty = predicted.cpu().double().numpy()
    captions = np.arange(len(uncertainty))
    if moment_ratio is not None:
        low, high = moment_ratio
        captions = np.flatnonzero((dataset.moment_ratios > low) & (dataset.moment_ratios <= high))
    groups = [captions[group] for group in equal_groups(uncertainty[captions])]
    if len(groups) < 2:
        within = "" if moment_ratio is None else " with a moment ratio above {:g} and up to {:g}".format(*moment_ratio)
        raise FeatureError(
            f"{dataset.name}, split {dataset.split}: {len(captions)} captions{within}, expected at least "
            f"{2 * FEWEST_CAPTIONS}; choose a larger split or a wider --moment-ratio"
        )
    recall: dict[str, Spread] = {}
    error: dict[str, Float[np.ndarray, " G"]] = {}
    for seeds in group_by_seed(runs):
        hits = np.array([per_query(run.rank, "R@1") for run in seeds.runs])
        recall[seeds.label] = spread_of([[row[group].mean() for group in groups] for row in hits])
        of_captions = hits.mean(axis=0)
        error[seeds.label] = np.array([of_captions[group].std() / np.sqrt(len(group)) for group in groups])
    level = np.array([uncertainty[group].mean() for group in groups])
    return RecallByUncertainty(level, recall, error, len(groups[0]))


@styled
def draw_recall_by_uncertainty(data: RecallByUncertainty) -> Figure:
    """Draw one line per label, with standard errors over captions as bars and a band over seeds."""
    figure = new_figure(2.5)
    axes = figure.subplots()
    for place, (label, spread) in enumerate(data.recall.items()):
        inside = np.minimum(data.error[label], [spread.mean, 100 - spread.mean])  # error bars stay within 0 to 100 %
        bars: Any = {"ecolor": COLOURS[place], "elinewidth": 0.7, "capsize": 1.5, "clip_on": False}
        axes.errorbar(data.level, spread.mean, inside, fmt="none", **bars)
        look = {"color": COLOURS[place], "marker": MARKERS[place], "label": label, "clip_on": False}
        plot_band(axes, data.level.tolist(), spread.mean, spread.deviation, **look)
    note = seeds_note([spread.num_seeds for spread in data.recall.values()])
    axes.set_xlabel(
        f"predicted query uncertainty (standard deviation)\nbars: standard error over captions\n{note}",
    )
    axes.set_ylabel(f"R@1 (%), groups of {data.group_size} captions")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y")
    axes.locator_params(axis="x", nbins=6)
    legend_above(axes)
    return figure
