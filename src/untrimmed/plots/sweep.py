"""A picture of SumR by the value of one setting, from runs that differ from a base run only in this setting."""

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

# runs may also differ in these settings; results of different seeds are averaged
IGNORED = ("data", "train.seed", "reported", "dataset")


@dataclass(frozen=True)
class SweepCurve:
    """SumR in percent for each value of a setting, in ascending order of values. Each value has one SumR per seed.

    `published` is the value in the paper, or None if there is no preset for the method and data set.
    """

    setting: str
    values: tuple[float, ...]
    sum_r: tuple[tuple[float, ...], ...]
    published: float | None


def swept_settings(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return {swept setting: names of its runs}.

    `settings` contains the settings of each run by dotted key. There must be a base run from which every other run
    differs in at most one setting. The base run belongs to every swept setting.

    >>> swept_settings({"a": {"x": 1.0, "y": 1.0}, "b": {"x": 2.0, "y": 1.0}, "c": {"x": 1.0, "y": 3.0}})
    {'x': ['a', 'b'], 'y': ['a', 'c']}

    Raises: ConfigError if no run can be the base run, or if no setting differs.
    """
    names = list(settings)
    fewest: tuple[int, str, str, list[str]] | None = None
    for base in names:
        differences = {name: _differences(settings[base], settings[name]) for name in names}
        worst = max(names, key=lambda name: len(differences[name]))
        if len(differences[worst]) <= 1:
            swept = list(dict.fromkeys(keys[0] for keys in differences.values() if keys))
            if not swept:
                raise ConfigError(f"{', '.join(names)}: have equal settings; give runs that differ in one setting")
            return {key: [name for name in names if differences[name] in ([], [key])] for key in swept}
        if fewest is None or len(differences[worst]) < fewest[0]:
            fewest = (len(differences[worst]), base, worst, differences[worst])
    assert fewest is not None
    _, base, worst, keys = fewest
    raise ConfigError(
        f"{base} and {worst} differ in {', '.join(keys[:3])}{' ...' if len(keys) > 3 else ''}, expected a base run "
        "from which every other run differs in one setting; leave out the other runs"
    )


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    return sorted(key for key in first.keys() | second.keys() if first.get(key) != second.get(key))


def comparable_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings by dotted key, without the settings in `IGNORED`."""
    ignored = tuple(f"{key}." for key in IGNORED)
    return {key: value for key, value in flat(settings).items() if not f"{key}.".startswith(ignored)}


def sweep_of(runs: Sequence[TrainedRun]) -> list[SweepCurve]:
    """Return one curve per swept setting.

    Raises: ConfigError if the swept settings are ambiguous, or if the value of a swept setting is not a number.
    """
    require_same_split(runs)
    settings = {run.label: comparable_settings(to_plain(run.config)) for run in runs}
    by_label = {run.label: run for run in runs}
    curves = []
    for setting, members in swept_settings(settings).items():
        values = {label: _number(label, setting, settings[label].get(setting)) for label in members}
        sum_r: dict[float, list[float]] = {}
        for label, value in values.items():
            sum_r.setdefault(value, []).append(recall(by_label[label].rank)["SumR"])
        ordered = dict(sorted(sum_r.items()))
        published = _published(runs[0], setting)
        curves.append(SweepCurve(setting, tuple(ordered), tuple(map(tuple, ordered.values())), published))
    return curves


def _number(label: str, setting: str, value: Any) -> float:
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if value == "inf":  # how infinity is written in YAML
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{label}: {setting} is {value!r}, expected a number; leave this run out")
    return float(value)


def _published(run: TrainedRun, setting: str) -> float | None:
    config = run.config
    if not has_preset(config.method, config.dataset):
        return None
    value = comparable_settings(to_plain(load_preset(config.method, config.dataset))).get(setting)
    return float(value) if isinstance(value, int | float) else None


@styled
def draw_sweep(data: Sequence[SweepCurve]) -> Figure:
    """Draw one panel per setting. Values are equally spaced, and a ring marks the published value."""
    figure, panels = new_panels(len(data), rest_in=0.5, beside_in=1.6, alone_in=1.8)
    for axes, curve in zip(panels, data, strict=True):
        _draw_curve(axes, curve)
    for axes in panels[::2]:
        axes.set_ylabel("SumR")
    return figure


def _draw_curve(axes: Axes, curve: SweepCurve) -> None:
    places = range(len(curve.values))
    means = [sum(seeds) / len(seeds) for seeds in curve.sum_r]
    axes.plot(places, means, color=BLUE, marker="o")
    for place, seeds in enumerate(curve.sum_r):
        if len(seeds) > 1:
            axes.plot([place] * len(seeds), seeds, "_", color=BLUE, markersize=7)
    if curve.published in curve.values:
        place = curve.values.index(curve.published)
        axes.plot(place, means[place], "o", color=VERMILION, fillstyle="none", markersize=10, label="published value")
        legend_above(axes)
    axes.set_xticks(places, [f"{value:g}" for value in curve.values])
    has_one_seed = max(map(len, curve.sum_r)) == 1
    axes.set_xlabel(f"{curve.setting}\n{'one seed' if has_one_seed else 'line: mean over seeds'}")
    axes.margins(x=0.08, y=0.2)
    axes.locator_params(axis="y", nbins=6)
    axes.grid(axis="y")
