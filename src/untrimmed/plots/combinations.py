"""What combinations reached on validation videos: a panel for each world, a line for what grew out of each method."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from untrimmed.plots.style import BLUE, GREY, VERMILION, Axes, Figure, new_figure, styled

LINE_IN = 0.16  # the height of one line of a name
NAME = 30  # characters of a line: about half of the picture
LOOK = {True: ("o", VERMILION), False: ("D", BLUE)}  # by whether a combination was kept
LEGEND = {True: "kept: the next attachments were tried on it", False: "not kept"}


@dataclass(frozen=True)
class Bar:
    """One combination; `kept`: the search went on from it, with one attachment more."""

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
    """Panels below each other, SumR from left to right; what was kept stands out, where anything grew."""
    heights = [LINE_IN * (sum(len(_lines(bar.label)) for bar in world.bars) + 2.5) for world in worlds]
    kinds = [kind for kind in LOOK if any(bar.kept == kind for world in worlds for bar in world.bars)]
    explained = kinds if True in kinds else []
    figure = new_figure(0.3 + LINE_IN * len(explained) + sum(heights))
    panels = figure.subplots(len(worlds), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, world in zip(panels, worlds, strict=True):
        _draw(axes, world)
    panels[-1].set_xlabel("SumR on validation videos, one seed", loc="right")  # wider than what names leave of a panel
    handles = [panels[-1].plot([], [], LOOK[kind][0], color=LOOK[kind][1], label=LEGEND[kind])[0] for kind in explained]
    if handles:
        figure.legend(handles=handles, loc="outside lower right", borderpad=0.2, borderaxespad=0.2)
    return figure


def _draw(axes: Axes, world: Combinations) -> None:
    names = [_lines(bar.label) for bar in world.bars]
    ends = [sum(map(len, names[: place + 1])) for place in range(len(names))]
    places = [end - len(name) / 2 for end, name in zip(ends, names, strict=True)]
    for place, bar in zip(places, world.bars, strict=True):
        marker, colour = LOOK[bar.kept]
        axes.plot(bar.sum_r, place, marker, color=colour)
        axes.annotate(
            f"{bar.sum_r:.1f}",
            (bar.sum_r, place),
            (4, -2.5),
            textcoords="offset points",
            color=GREY,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},  # the grid does not strike figures through
        )
    axes.set_yticks(places, ["\n".join(name) for name in names])
    axes.set_ylim(max(1, sum(map(len, names))), 0)
    if world.bars:  # nothing may be trained yet
        _scale(axes, [bar.sum_r for bar in world.bars])
    axes.grid(axis="y")
    axes.set_title(world.world, loc="left")


def _scale(axes: Axes, values: Sequence[float]) -> None:
    """Few ticks, among the values, with room for their labels and for the figures beside the points."""
    from matplotlib.ticker import MaxNLocator

    middle = (min(values) + max(values)) / 2
    half = max(0.5, (max(values) - min(values)) / 2)
    low = middle - half
    high = middle + half
    axes.set_xlim(low - 0.3 * half, high + 0.8 * half)
    ticks = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(low, high)
    axes.set_xticks([tick for tick in ticks if low <= tick <= high])


def _lines(name: str) -> list[str]:
    """A name in lines of about 30 characters, each part whole.

    >>> _lines("gmmformer_v2+ral+query_similarity+transport")
    ['gmmformer_v2+ral', '+query_similarity+transport']
    """
    lines = [""]
    for part in re.findall(r"\+?[^+,]+,?", name):
        lines[-1:] = [lines[-1] + part] if len(lines[-1] + part) <= NAME or not lines[-1] else [lines[-1], part]
    return lines
