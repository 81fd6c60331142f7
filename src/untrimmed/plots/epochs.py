"""A picture of validation SumR after each epoch, and of the uncertainties that RAL predicts (RAL Fig. 10)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from untrimmed.plots.seeds import Spread, group_by_seed, seeds_note, spread_of
from untrimmed.plots.style import COLOURS, MARKERS, Figure, legend_over, new_figure, plot_band, styled
from untrimmed.plots.trained_run import TrainedRun

# metric -> label, line style
UNCERTAIN = {"query_uncertainty": ("queries", "-"), "video_uncertainty": ("videos", "--")}


@dataclass(frozen=True)
class Epochs:
    """SumR in percent after each `epoch`, and the recorded uncertainties. The keys of mappings are labels of runs.

    Runs that differ only in their seed share a label. Only epochs that all runs of a label reached are included. Epoch
    0 is the result before training.
    """

    epoch: Mapping[str, tuple[int, ...]]
    sum_r: Mapping[str, Spread]
    uncertainty: Mapping[str, Mapping[str, Spread]]


def epochs_of(runs: Sequence[TrainedRun]) -> Epochs:
    """Return the validation results of each epoch, from the runs' files `metrics.jsonl`."""
    epoch: dict[str, tuple[int, ...]] = {}
    sum_r: dict[str, Spread] = {}
    uncertainty: dict[str, dict[str, Spread]] = {}
    for group in group_by_seed(runs):
        histories = [[entry["val"] for entry in run.history] for run in group.runs]
        shortest = min(map(len, histories))
        epoch[group.label] = tuple(entry["epoch"] for entry in group.runs[0].history[:shortest])
        sum_r[group.label] = _spread(histories, "SumR")
        recorded = [name for name in UNCERTAIN if all(name in entry for history in histories for entry in history)]
        uncertainty[group.label] = {name: _spread(histories, name) for name in recorded}
    return Epochs(epoch, sum_r, uncertainty)


def _spread(histories: Sequence[Sequence[Mapping[str, float]]], metric: str) -> Spread:
    return spread_of([[entry[metric] for entry in history] for history in histories])


@styled
def draw_epochs(data: Epochs) -> Figure:
    """Draw a line of SumR per label, with a band over seeds. A lower panel shows uncertainties if any were recorded."""
    has_more = any(data.uncertainty.values())
    figure = new_figure(3.6 if has_more else 2.2)
    panels = figure.subplots(1 + has_more, 1, sharex=True, squeeze=False)[:, 0]
    for place, (label, sum_r) in enumerate(data.sum_r.items()):
        look = {"color": COLOURS[place], "marker": MARKERS[place], "markevery": max(1, len(sum_r.mean) // 10)}
        plot_band(panels[0], data.epoch[label], sum_r.mean, sum_r.deviation, label=label, **look)
        for name, spread in data.uncertainty[label].items():
            style = UNCERTAIN[name][1]
            plot_band(panels[1], data.epoch[label], spread.mean, spread.deviation, linestyle=style, **look)
    panels[0].set_ylabel("SumR")
    panels[-1].set_xlabel(f"epoch\n{seeds_note([spread.num_seeds for spread in data.sum_r.values()])}")
    panels[-1].xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    epochs = set().union(*data.epoch.values())
    if len(epochs) == 1:  # without this, matplotlib would show epochs with decimals
        panels[-1].set_xlim(min(epochs) - 0.5, min(epochs) + 0.5)
    for axes in panels:
        axes.grid(axis="y")
    if has_more:
        panels[1].set_ylabel("uncertainty\n(standard deviation)")
        for name, style in UNCERTAIN.values():
            panels[1].plot([], [], color="#404040", linestyle=style, label=name)
        panels[1].legend(loc="best", handlelength=2.2)
    legend_over(figure, panels[0])
    return figure
