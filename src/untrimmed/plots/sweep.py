"""How much results depend on one setting: runs that differ from one of them in one number each."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from untrimmed.config import flat, to_plain
from untrimmed.errors import ConfigError
from untrimmed.evaluation.recall import recall
from untrimmed.plots.style import BLUE, VERMILION, Axes, Figure, legend_above, new_panels, styled
from untrimmed.plots.trained_run import TrainedRun, require_same_split
from untrimmed.presets import has_preset, load_preset

NOT_SWEPT = ("data", "train.seed", "reported", "dataset")  # runs may differ in these; seeds are averaged


@dataclass(frozen=True)
class Curve:
    """SumR in percent by value of a setting, values rising; several seeds give several results for one value."""

    setting: str
    values: tuple[float, ...]
    sum_r: tuple[tuple[float, ...], ...]
    published: float | None


def swept_settings(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Which runs, given with their flat settings, belong to the curve of which setting: those that differ in no other.

    One run must be such that every other one differs from it in one setting at most; it stands in all curves.

    >>> swept_settings({"a": {"x": 1.0, "y": 1.0}, "b": {"x": 2.0, "y": 1.0}, "c": {"x": 1.0, "y": 3.0}})
    {'x': ['a', 'b'], 'y': ['a', 'c']}

    Raises: ConfigError when there is no such run, or nothing differs.
    """
    names = list(settings)
    fewest: tuple[int, str, str, list[str]] | None = None
    for base in names:
        differences = {name: _differences(settings[base], settings[name]) for name in names}
        worst = max(names, key=lambda name: len(differences[name]))
        if len(differences[worst]) <= 1:
            swept = list(dict.fromkeys(keys[0] for keys in differences.values() if keys))
            if not swept:
                raise ConfigError(
                    f"{', '.join(names)}: the settings are all alike; give runs that differ in one weight"
                )
            return {key: [name for name in names if differences[name] in ([], [key])] for key in swept}
        if fewest is None or len(differences[worst]) < fewest[0]:
            fewest = (len(differences[worst]), base, worst, differences[worst])
    assert fewest is not None
    _, base, worst, keys = fewest
    raise ConfigError(
        f"{base} and {worst} differ in {', '.join(keys[:3])}{' ...' if len(keys) > 3 else ''}; a sweep wants runs that "
        "differ from one of them in one setting each"
    )


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    return sorted(key for key in first.keys() | second.keys() if first.get(key) != second.get(key))


def swept(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under dotted keys, without those in which runs of a sweep may differ."""
    left_out = tuple(f"{key}." for key in NOT_SWEPT)
    return {key: value for key, value in flat(settings).items() if not f"{key}.".startswith(left_out)}


def sweep_of(runs: Sequence[TrainedRun]) -> list[Curve]:
    """A curve for each setting that was swept.

    Raises: ConfigError when it is not clear which setting was swept, or it is not a number.
    """
    require_same_split(runs)
    settings = {run.label: swept(to_plain(run.config)) for run in runs}
    by_label = {run.label: run for run in runs}
    curves = []
    for setting, members in swept_settings(settings).items():
        values = {label: _number(label, setting, settings[label].get(setting)) for label in members}
        sum_r: dict[float, list[float]] = {}
        for label, value in values.items():
            sum_r.setdefault(value, []).append(recall(by_label[label].rank)["SumR"])
        ordered = dict(sorted(sum_r.items()))
        published = _published(runs[0], setting)
        curves.append(Curve(setting, tuple(ordered), tuple(tuple(own) for own in ordered.values()), published))
    return curves


def _number(label: str, setting: str, value: Any) -> float:
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if value == "inf":  # infinity in settings as they are written
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{label}: {setting} is {value!r}, and a sweep wants a number; leave that run out")
    return float(value)


def _published(run: TrainedRun, setting: str) -> float | None:
    config = run.config
    if not has_preset(config.method, config.dataset):
        return None
    value = swept(to_plain(load_preset(config.method, config.dataset))).get(setting)
    return float(value) if isinstance(value, int | float) else None


@styled
def draw_sweep(data: Sequence[Curve]) -> Figure:
    """A panel for each setting, its values at equal steps; the published value is ringed."""
    figure, panels = new_panels(len(data), rest_in=0.5, beside_in=1.6, alone_in=1.8)
    for axes, curve in zip(panels, data, strict=True):
        _draw_curve(axes, curve)
    for axes in panels[::2]:
        axes.set_ylabel("SumR (sum of percents)")
    return figure


def _draw_curve(axes: Axes, curve: Curve) -> None:
    places = range(len(curve.values))
    means = [sum(own) / len(own) for own in curve.sum_r]
    axes.plot(places, means, color=BLUE, marker="o")
    for place, own in enumerate(curve.sum_r):
        if len(own) > 1:
            axes.plot([place] * len(own), own, "_", color=BLUE, markersize=7)
    if curve.published in curve.values:
        place = curve.values.index(curve.published)
        axes.plot(place, means[place], "o", color=VERMILION, fillstyle="none", markersize=10, label="published value")
        legend_above(axes)
    axes.set_xticks(places, [f"{value:g}" for value in curve.values])
    axes.set_xlabel(curve.setting)
    axes.margins(x=0.08, y=0.2)
    axes.locator_params(axis="y", nbins=6)
    axes.grid(axis="y")
