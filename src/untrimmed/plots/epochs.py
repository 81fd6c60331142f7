"""How results on the validation split change while a method learns, and with them what RAL is uncertain of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from untrimmed.plots.style import COLOURS, MARKERS, Figure, legend_over, new_figure, styled
from untrimmed.plots.trained_run import TrainedRun

UNCERTAIN = {"query_uncertainty": ("of queries", "-"), "video_uncertainty": ("of videos", "--")}  # name, look


@dataclass(frozen=True)
class Epochs:
    """SumR in percent of each run after each `epoch`, and the uncertainties that the run has followed, by name.

    Epoch 0 is a model that has not been trained.
    """

    epoch: Mapping[str, tuple[int, ...]]
    sum_r: Mapping[str, tuple[float, ...]]
    uncertainty: Mapping[str, Mapping[str, tuple[float, ...]]]


def epochs_of(runs: Sequence[TrainedRun]) -> Epochs:
    """What metrics.jsonl of the runs says of each epoch (RAL Fig. 10)."""
    figures = {run.label: [entry["val"] for entry in run.history] for run in runs}
    return Epochs(
        {run.label: tuple(entry["epoch"] for entry in run.history) for run in runs},
        {label: tuple(own["SumR"] for own in of_run) for label, of_run in figures.items()},
        {
            label: {
                name: tuple(own[name] for own in of_run) for name in UNCERTAIN if all(name in own for own in of_run)
            }
            for label, of_run in figures.items()
        },
    )


@styled
def draw_epochs(data: Epochs) -> Figure:
    """SumR of every run; below it, where a run has followed them, uncertainties of queries and of videos."""
    has_more = any(data.uncertainty.values())
    figure = new_figure(3.6 if has_more else 2.2)
    panels = figure.subplots(1 + has_more, 1, sharex=True, squeeze=False)[:, 0]
    for place, (label, values) in enumerate(data.sum_r.items()):
        look = {"color": COLOURS[place], "marker": MARKERS[place], "markevery": max(1, len(values) // 10)}
        panels[0].plot(data.epoch[label], values, label=label, **look)
        for name, own in data.uncertainty[label].items():
            panels[1].plot(data.epoch[label], own, linestyle=UNCERTAIN[name][1], **look)
    panels[0].set_ylabel("SumR (sum of percents)")
    panels[-1].set_xlabel("epoch")
    panels[-1].xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    shown = set().union(*data.epoch.values())
    if len(shown) == 1:  # matplotlib would zoom in on a point until epochs have decimals
        panels[-1].set_xlim(min(shown) - 0.5, min(shown) + 0.5)
    for axes in panels:
        axes.grid(axis="y")
    if has_more:
        panels[1].set_ylabel("uncertainty\n(standard deviation)")
        for name, style in UNCERTAIN.values():
            panels[1].plot([], [], color="#404040", linestyle=style, label=name)
        panels[1].legend(loc="best", handlelength=2.2)
    legend_over(figure, panels[0])
    return figure
