"""What tables come to: the paper's figures beside ours, on real data, on simulated features, or computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from untrimmed.presets import load_preset
from untrimmed.reproduction.efficiency import UNITS, measure
from untrimmed.reproduction.render import Grid
from untrimmed.reproduction.runner import STORED, Measured, Place
from untrimmed.reproduction.tables import Column, EfficiencyTable, Row, SettingsTable, TrainedTable

DECIMALS = {"params_m": 2, "flops_g": 2, "attention_g": 2, "runtime_ms": 2, "memory_mb": 2, "matching_g": 3}


def trained_grids(table: TrainedTable, measured: Measured, place: Place) -> Iterator[Grid]:
    """One grid for each data set that was run: the paper's figures, ours, and on real data the difference."""
    for column in measured.columns:
        rows = [row for row in table.rows if row.without or (row.name, column.name) in measured.figures]
        lines = [line for row in rows for line in _lines(row, column, measured, place)]
        notes = list(table.notes)
        if table.left_out:
            notes.append(f"Not run: {table.left_out}.")
        notes += [f"{row.name} is not run: {row.without}." for row in rows if row.without]
        if measured.missing:
            notes.append(f"No data for: {', '.join(measured.missing)}.")
        title = f"{table.title} ({column.name}; {_conditions(place)})"
        yield Grid(title, ("", "", *column.metrics), tuple(lines), tuple(notes))


def _conditions(place: Place) -> str:
    if place.simulated:
        return f"simulated, small scale, seed {place.data_seed}"
    return "real data" if place.seed is None else f"real data, seed {place.seed}"


def _lines(row: Row, column: Column, measured: Measured, place: Place) -> Iterator[tuple[str, ...]]:
    printed = row.paper.get(column.name)
    ours = measured.figures.get((row.name, column.name))
    name = row.name
    if printed:
        yield (name, "paper", *(_figure(metric, value) for metric, value in zip(column.metrics, printed, strict=True)))
        name = ""
    if ours:
        source = "simulated" if place.simulated else "ours"
        yield (name, source, *(_figure(metric, ours[metric]) for metric in column.metrics))
    if printed and ours and not place.simulated:
        pairs = zip(column.metrics, printed, strict=True)
        differences = ("" if value is None else _figure(metric, ours[metric] - value, "+") for metric, value in pairs)
        yield ("", "difference", *differences)


def _figure(metric: str, value: float | None, sign: str = "") -> str:
    if value is None or value != value:
        return "-"
    decimals = 2 if "IoU" in metric or metric == STORED else 1
    return f"{value:{sign}.{decimals}f}"


def efficiency_grid(table: EfficiencyTable, tell: Callable[[str], None] = lambda name: None) -> Grid:
    """Costs at the published sizes: the paper's, ours, and how much ours differ where both count the same."""
    quantities = list(table.paper)
    if "flops_g" in quantities:
        quantities.append("attention_g")
    lines = []
    for name, method in table.methods.items():
        tell(name)
        ours = measure(method, quantities, table.corpus_sizes)
        for quantity in quantities:
            printed = table.paper.get(quantity, {}).get(name, ())
            sizes = table.corpus_sizes if len(ours[quantity]) > 1 or quantity not in _SIZELESS else (None,)
            for place, (size, value) in enumerate(zip(sizes, ours[quantity], strict=True)):
                label = UNITS[quantity] + ("" if size is None else f", {size:,} videos")
                paper = printed[place] if printed else None
                lines.append((name, label, *_compared(quantity, paper, value)))
    return Grid(table.title, ("", "", "paper", "ours", "difference"), tuple(lines), _efficiency_notes(table))


_SIZELESS = ("params_m", "flops_g", "attention_g")


def _compared(quantity: str, paper: float | None, ours: float) -> tuple[str, str, str]:
    decimals = DECIMALS[quantity]
    if paper is None:
        return "-", f"{ours:.{decimals}f}", ""
    same = quantity != "runtime_ms"  # times are of other machines
    return f"{paper:g}", f"{ours:.{decimals}f}", f"{100 * (ours / paper - 1):+.1f} %" if same else ""


def _efficiency_notes(table: EfficiencyTable) -> tuple[str, ...]:
    notes = [*table.notes]
    if table.left_out:
        notes.append(f"Not run: {table.left_out}.")
    notes += [text for quantity, text in EFFICIENCY_NOTES.items() if quantity in table.paper]
    return tuple(notes)


EFFICIENCY_NOTES = {
    "flops_g": "FLOPs: one video of 128 frames and one query of 30 words, two for a multiplication with its addition, "
    "in maps with learned weights only, counted as the layers are published. The figures of GMMFormer, GMMFormer v2 "
    "and RAL fit this convention; the heads of RAL's distributions, which only training needs, are not in ours. The "
    "products of attention come on top and are given apart. MS-SL's 1.29 does not fit: encoding one query and matching "
    "it with the 656 vectors of each of 2,500 videos, which is how the text of GMMFormer v2 describes the measurement, "
    "is 1.31.",
    "memory_mb": "MB: the float32 vectors that a query meets in videos of 128 frames, 656 in MS-SL, 33 in GMMFormer, "
    "160 in GMMFormer v2. The papers print a tenth of it (12.67 is 2,500 x 33 x 384 x 4 bytes / 10^7); MS-SL's figures "
    "are those of videos of 123 frames. ProtoPRVR's table 1 prints the full size.",
    "matching_g": "Matching: two FLOPs for each stored number; the paper rounds to two decimals.",
    "runtime_ms": "Time: median from word features to the first 100 videos on this machine's processor; the papers "
    "measure on an RTX 3080 Ti or 3090. MS-SL passes all frames of the corpus through two maps for each query.",
}


def settings_grid(table: SettingsTable) -> Grid:
    """The paper's hyper-parameters beside those of the presets."""
    header = ("", "", *table.datasets)
    presets = {name: load_preset(table.method, name) for name in table.datasets}
    lines: list[tuple[str, ...]] = []
    for key, printed in table.paper.items():
        ours = [_at(presets[name], key) for name in table.datasets]
        lines.append((key, "paper", *(f"{value:g}" for value in printed)))
        marks = (f"{value:g}" + ("" if value == paper else " (!)") for value, paper in zip(ours, printed, strict=True))
        lines.append(("", "preset", *marks))
    notes = (*table.notes, "(!) marks a preset that differs; the file of the preset says why.")
    return Grid(table.title, header, tuple(lines), notes)


def _at(preset: Any, key: str) -> float:
    value: Any = preset
    for part in key.split("."):
        value = value[part] if isinstance(value, Mapping) else getattr(value, part)
    return float(value)
