"""What combinations reached on validation videos: a panel for each world, a line for what grew out of each method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from untrimmed.plots.style import BLUE, GREY, VERMILION, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE_IN = 0.16  # the height of one combination


@dataclass(frozen=True)
class Bar:
    """One combination; `kept`: the search went on from it."""

    label: str
    sum_r: float
    kept: bool


@dataclass(frozen=True)
class Combinations:
    """What was tried on a world, in the order of the search."""

    world: str
    bars: tuple[Bar, ...]


@styled
def draw_combinations(worlds: Sequence[Combinations]) -> Figure:
    """Panels below each other, SumR from left to right; what was gone on from stands out."""
    heights = [LINE_IN * (len(world.bars) + 2.5) for world in worlds]
    figure = new_figure(0.4 + sum(heights))
    panels = figure.subplots(len(worlds), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, world in zip(panels, worlds, strict=True):
        _draw(axes, world)
    label = "SumR on validation videos, one seed;\nround: gone on from"
    panels[-1].set_xlabel(label, loc="right")  # wider than what labels leave of a panel
    return figure


def _draw(axes: Axes, world: Combinations) -> None:
    places = range(len(world.bars))
    for place, bar in zip(places, world.bars, strict=True):
        axes.plot(bar.sum_r, place, "o" if bar.kept else "D", color=VERMILION if bar.kept else BLUE)
        axes.annotate(
            f"{bar.sum_r:.1f}",
            (bar.sum_r, place),
            (4, -2.5),
            textcoords="offset points",
            color=GREY,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},  # the grid does not strike figures through
        )
    axes.set_yticks(places, [bar.label for bar in world.bars])
    axes.set_ylim(len(world.bars) - 0.5, -0.5)
    axes.margins(x=0.15)
    axes.grid(axis="y")
    axes.set_title(world.world, loc="left")
