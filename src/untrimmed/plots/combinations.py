"""A picture of SumR for the combinations that a study tried: one panel per data set, one line per combination."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from untrimmed.plots.style import BLUE, GREY, VERMILION, Axes, Figure, new_figure, styled

LINE_IN = 0.16  # height of one line of text, in inches
NAME = 30  # characters per line of a name, which fill about half of the picture's width
LOOK = {True: ("o", VERMILION), False: ("D", BLUE)}  # marker and colour, by `is_kept`
LEGEND = {True: "extended with more attachments", False: "not extended"}


@dataclass(frozen=True)
class CombinationResult:
    """SumR of one combination. If `is_kept`, the search added further attachments to the combination."""

    label: str
    sum_r: float
    is_kept: bool


@dataclass(frozen=True)
class Combinations:
    """The combinations that were tried on a data set, in the order of the search."""

    world: str
    results: tuple[CombinationResult, ...]


@styled
def draw_combinations(worlds: Sequence[Combinations]) -> Figure:
    """Draw one panel per data set, with SumR on the horizontal axis.

    If at least one combination is kept (`is_kept`), a legend explains the markers.
    """
    heights = [LINE_IN * (sum(len(_lines(result.label)) for result in world.results) + 2.5) for world in worlds]
    kinds = {result.is_kept for world in worlds for result in world.results}
    explained = [kind for kind in LOOK if kind in kinds] if True in kinds else []
    figure = new_figure(0.3 + LINE_IN * len(explained) + sum(heights))
    panels = figure.subplots(len(worlds), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, world in zip(panels, worlds, strict=True):
        _draw(axes, world)
    # right-aligned, because this text can be wider than the axes if names are long
    panels[-1].set_xlabel("validation SumR, one seed", loc="right")
    handles = [panels[-1].plot([], [], LOOK[kind][0], color=LOOK[kind][1], label=LEGEND[kind])[0] for kind in explained]
    if handles:
        figure.legend(handles=handles, loc="outside lower right", borderpad=0.2, borderaxespad=0.2)
    return figure


def _draw(axes: Axes, world: Combinations) -> None:
    names = [_lines(result.label) for result in world.results]
    ends = [sum(map(len, names[: place + 1])) for place in range(len(names))]
    places = [end - len(name) / 2 for end, name in zip(ends, names, strict=True)]
    for place, result in zip(places, world.results, strict=True):
        marker, colour = LOOK[result.is_kept]
        axes.plot(result.sum_r, place, marker, color=colour)
        axes.annotate(
            f"{result.sum_r:.1f}",
            (result.sum_r, place),
            (4, -2.5),
            textcoords="offset points",
            color=GREY,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},  # hide grid lines behind the number
        )
    axes.set_yticks(places, ["\n".join(name) for name in names])
    axes.set_ylim(max(1, sum(map(len, names))), 0)
    if world.results:  # there are no results before the first training
        _scale(axes, [result.sum_r for result in world.results])
    axes.grid(axis="y")
    axes.set_title(world.world, loc="left")


def _scale(axes: Axes, values: Sequence[float]) -> None:
    """Set the limits and ticks of the horizontal axis, with room for the numbers beside the points."""
    from matplotlib.ticker import MaxNLocator

    middle = (min(values) + max(values)) / 2
    half = max(0.5, (max(values) - min(values)) / 2)
    low = middle - half
    high = middle + half
    axes.set_xlim(low - 0.3 * half, high + 0.8 * half)
    ticks = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(low, high)
    axes.set_xticks([tick for tick in ticks if low <= tick <= high])


def _lines(name: str) -> list[str]:
    """Split a name into lines of about 30 characters, without splitting its parts.

    >>> _lines("gmmformer_v2+ral+query_similarity+transport")
    ['gmmformer_v2+ral', '+query_similarity+transport']
    """
    lines = [""]
    for part in re.findall(r"\+?[^+,]+,?", name):
        lines[-1:] = [lines[-1] + part] if len(lines[-1] + part) <= NAME or not lines[-1] else [lines[-1], part]
    return lines
