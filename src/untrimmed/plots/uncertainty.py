"""R@1 by the uncertainty that RAL predicts for captions (RAL Fig. 3)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from untrimmed.errors import FeatureError
from untrimmed.evaluation.report import per_query
from untrimmed.models.ral import RALQueries
from untrimmed.plots.style import COLOURS, MARKERS, Figure, legend_above, new_figure, styled
from untrimmed.plots.trained_run import TrainedRun, require_same_split

MOST_GROUPS = 10
FEWEST_CAPTIONS = 5


@dataclass(frozen=True)
class RecallByUncertainty:
    """R@1 in percent of each run in groups of captions, with standard errors; `level` is a group's mean uncertainty."""

    level: Float[np.ndarray, " G"]
    recall: dict[str, Float[np.ndarray, " G"]]
    error: dict[str, Float[np.ndarray, " G"]]
    group_size: int


def equal_groups(uncertainty: Float[np.ndarray, " Q"]) -> list[Int[np.ndarray, " _"]]:
    """Return captions by ascending uncertainty in ten groups of equal size, or fewer groups of at least five.

    >>> [group.tolist() for group in equal_groups(np.array([5.0, 1, 2, 3, 4, 10, 9, 8, 7, 6]))]
    [[1, 2, 3, 4, 0], [9, 8, 7, 6, 5]]
    """
    order = np.argsort(uncertainty, kind="stable")
    return np.array_split(order, max(1, min(MOST_GROUPS, len(order) // FEWEST_CAPTIONS)))


def recall_by_uncertainty_of(
    runs: Sequence[TrainedRun], moment_ratio: tuple[float, float] | None = None
) -> RecallByUncertainty:
    """Return R@1 of all runs in groups by the first run's uncertainty.

    `moment_ratio` is an interval (low, high] of moment length / video length that selects captions.

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
    hits = {run.label: per_query(run.rank, "R@1") for run in runs}
    recall = {label: np.array([values[group].mean() for group in groups]) for label, values in hits.items()}
    size = np.array([len(group) for group in groups])
    error = {label: np.sqrt(mean * (100 - mean) / size) for label, mean in recall.items()}
    level = np.array([uncertainty[group].mean() for group in groups])
    return RecallByUncertainty(level, recall, error, int(size[0]))


@styled
def draw_recall_by_uncertainty(data: RecallByUncertainty) -> Figure:
    """Draw a line for each run, with standard errors."""
    figure = new_figure(2.3)
    axes = figure.subplots()
    for place, (label, values) in enumerate(data.recall.items()):
        inside = np.minimum(data.error[label], [values, 100 - values])  # bars stay within 0 to 100 %
        axes.errorbar(
            data.level, values, inside, color=COLOURS[place], marker=MARKERS[place], label=label, clip_on=False,
            elinewidth=0.7, capsize=1.5,
        )  # fmt: skip
    axes.set(
        xlabel="predicted query uncertainty (standard deviation)",
        ylabel=f"R@1 (%), groups of {data.group_size} captions",
    )
    axes.set_ylim(bottom=0)
    axes.grid(axis="y")
    axes.locator_params(axis="x", nbins=6)
    legend_above(axes)
    return figure
