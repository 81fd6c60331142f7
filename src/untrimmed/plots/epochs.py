"""SumR on the validation split after each epoch, and RAL's uncertainties (RAL Fig. 10)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from untrimmed.plots.style import COLOURS, MARKERS, Figure, legend_over, new_figure, styled
from untrimmed.plots.trained_run import TrainedRun

UNCERTAIN = {"query_uncertainty": ("queries", "-"), "video_uncertainty": ("videos", "--")}  # label, line style


@dataclass(frozen=True)
class Epochs:
    """SumR in percent of each run after each `epoch`, and the uncertainties that the run recorded, by name.

    Epoch 0 is an untrained model.
    """

    epoch: Mapping[str, tuple[int, ...]]
    sum_r: Mapping[str, tuple[float, ...]]
    uncertainty: Mapping[str, Mapping[str, tuple[float, ...]]]


def epochs_of(runs: Sequence[TrainedRun]) -> Epochs:
    """Return the validation results of each epoch from metrics.jsonl of the runs."""
    figures = {run.label: [entry["val"] for entry in run.history] for run in runs}
    return Epochs(
        {run.label: tuple(entry["epoch"] for entry in run.history) for run in runs},
        {label: tuple(epoch["SumR"] for epoch in epochs) for label, epochs in figures.items()},
        {
            label: {
                name: tuple(epoch[name] for epoch in epochs)
                for name in UNCERTAIN
                if all(name in epoch for epoch in epochs)
            }
            for label, epochs in figures.items()
        },
    )


@styled
def draw_epochs(data: Epochs) -> Figure:
    """Draw SumR of every run, and in a panel below it the uncertainties of queries and videos if a run has them."""
    has_more = any(data.uncertainty.values())
    figure = new_figure(3.6 if has_more else 2.2)
    panels = figure.subplots(1 + has_more, 1, sharex=True, squeeze=False)[:, 0]
    for place, (label, values) in enumerate(data.sum_r.items()):
        look = {"color": COLOURS[place], "marker": MARKERS[place], "markevery": max(1, len(values) // 10)}
        panels[0].plot(data.epoch[label], values, label=label, **look)
        for name, uncertainty in data.uncertainty[label].items():
            panels[1].plot(data.epoch[label], uncertainty, linestyle=UNCERTAIN[name][1], **look)
    panels[0].set_ylabel("SumR")
    panels[-1].set_xlabel("epoch")
    panels[-1].xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    epochs = set().union(*data.epoch.values())
    if len(epochs) == 1:  # otherwise matplotlib zooms in until epochs have decimals
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
