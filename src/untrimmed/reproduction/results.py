"""What tables come to: what a paper prints with the commands behind it, our figures on real data, costs, settings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from untrimmed.data.simulation.simulate import is_simulated
from untrimmed.evaluation.report import heading
from untrimmed.presets import load_preset
from untrimmed.reproduction.commands import EVALUATE, commands_of, untrained_commands
from untrimmed.reproduction.efficiency import UNITS, MethodCosts
from untrimmed.reproduction.render import Grid
from untrimmed.reproduction.runner import STORED, RunSettings, TableResults, columns_there
from untrimmed.reproduction.tables import (
    Column,
    EfficiencyTable,
    Entry,
    SettingsTable,
    TableRow,
    TrainedTable,
    UntrainedTable,
    titled,
)
from untrimmed.running.evaluate import evaluate
from untrimmed.running.untrained import untrained_rows_of

DECIMALS = {"params_m": 2, "flops_g": 2, "attention_g": 2, "runtime_ms": 2, "memory_mb": 2, "matching_g": 3}


def printed_grids(table: TrainedTable) -> Iterator[Grid]:
    """What the paper prints and what trains each row, one grid for each set of metrics; no figure of ours."""
    typed = {(each.row.name, each.column.name): each for each in commands_of(table)}
    groups = dict.fromkeys(column.metrics for column in table.columns)
    for metrics in groups:
        columns = [column for column in table.columns if column.metrics == metrics]
        shown = [
            (row, column)
            for column in columns
            for row in table.rows
            if column.name in row.paper or (row.name, column.name) in typed
        ]
        several = len(columns) > 1
        figures = table.has_figures
        changed = any(row.evaluated_with for row, _ in shown)
        lines = []
        for row, column in shown:
            commands = typed.get((row.name, column.name))
            line = [row.name, *([column.label] if several else [])]
            if figures:
                printed = row.paper.get(column.name, [None] * len(metrics))
                line += [_figure(metric, value) for metric, value in zip(metrics, printed, strict=True)]
            line.append(f"`{commands.trained}`" if commands else "")
            if changed:
                line.append(f"`{commands.evaluate}`" if commands else "")
            lines.append(tuple(line))
        header = ("", *(["data"] if several else []), *(map(heading, metrics) if figures else ()), "train")
        header = (*header, "evaluate") if changed else header
        notes = notes_of(table) if metrics is next(iter(groups)) else ()
        ways = {typed[row.name, column.name].evaluate for row, column in shown if (row.name, column.name) in typed}
        if not changed and ways != {EVALUATE.format("--no-moments")}:
            notes = (f"Evaluated by: {', '.join(f'`{way}`' for way in sorted(ways))}.", *notes)
        yield Grid(table.title, header, tuple(lines), notes, num_labels=1 + several, num_commands=1 + changed)


def smoke_grid(table: TrainedTable, measured: TableResults, place: RunSettings) -> Grid:
    """That rows were trained and evaluated on simulated features: figures of so little would mean nothing."""
    label = {column.name: column.label for column in measured.columns}
    lines = tuple((row, label[column], "trained and evaluated") for row, column in measured.figures)
    title = f"{table.title} ({place.scale.num_videos} simulated videos, seed {place.data_seed})"
    return Grid(title, ("", "data", "runs"), lines, ("Figures at this scale would mean nothing.",), num_labels=3)


def trained_grids(table: TrainedTable, measured: TableResults, place: RunSettings) -> Iterator[Grid]:
    """One grid for each data set that was run: the paper's figures, ours, and the difference.

    Of simulated features, ours beside what needs no training: the paper's figures are of other data.
    """
    for column in measured.columns:
        if place.root is not None and is_simulated(column.data_name, place.root):
            yield _simulated_grid(table, column, measured, place.root, place)
            continue
        rows = [row for row in table.rows if row.without or (row.name, column.name) in measured.figures]
        lines = [line for row in rows for line in _lines(row, column, measured)]
        notes = (*notes_of(table), *_without_data(measured.missing))
        seed = "" if place.seed is None else f", seed {place.seed}"
        yield Grid(
            f"{table.title} ({column.label}{seed})", ("", "", *map(heading, column.metrics)), tuple(lines), notes
        )


def _without_data(missing: Sequence[str]) -> list[str]:
    """The data sets of a table that the root does not have, as a note; none where it has all."""
    return [f"No data for: {', '.join(missing)}."] if missing else []


def _simulated_grid(
    table: TrainedTable, column: Column, measured: TableResults, root: Path, place: RunSettings
) -> Grid:
    """Our figures on simulated features of one data set, below those of the same split that need no training."""
    untrained, split = untrained_rows_of(column.data_name, root, column.split)
    trained = {row: figures for (row, on), figures in measured.figures.items() if on == column.name}
    lines = [
        (name, kind, *(_figure(metric, figures.get(metric)) for metric in column.metrics))
        for kind, rows in (("untrained", untrained), ("ours", trained))
        for name, figures in rows.items()
    ]
    seed = "" if place.seed is None else f" {place.seed}"
    size = f"{len(split.caption_ids):,} queries, {len(split.video_ids):,} {column.split} videos, one seed{seed}"
    said = "Simulated features: no figure of the paper stands beside ours; untrimmed study compares methods over seeds."
    title = f"{table.title} ({column.label}, simulated: {size})"
    return Grid(title, ("", "", *map(heading, column.metrics)), tuple(lines), (said, *_without_data(measured.missing)))


def untrained_grid(table: UntrainedTable, place: RunSettings) -> Grid:
    """What the paper prints and the command behind it; where the place has data sets, ours beside it.

    Raises: ConfigError when the root has none of the table's data sets; whatever evaluating raises.
    """
    columns, missing = columns_there(table, place)
    commands = {column.name: command for column, command in untrained_commands(table)}
    lines = []
    for column in columns:
        ours: Mapping[str, float] = {}
        if place.root is not None:
            ours = evaluate(table.model, data=column.data_name, root=place.root, moments=column.events).figures
        made_up = place.root is not None and is_simulated(column.data_name, place.root)
        label = f"{column.label}, ours simulated" if made_up else column.label
        printed = (table.paper[row][column.name] for row in (table.beside, table.row))
        for metric, *figures in zip(column.metrics, *printed, strict=True):
            cells = (_figure(metric, value) for value in (*figures, ours.get(metric)))
            lines.append((label, heading(metric), *cells, f"`{commands[column.name]}`"))
    notes = (*notes_of(table), *_without_data(missing))
    header = ("", "", table.beside, table.row, "ours", "evaluate")
    return Grid(table.title, header, tuple(lines), notes, num_labels=2, num_commands=1)


def drawn_by(entry: Entry) -> tuple[str, ...]:
    """How a figure whose rows are trained is drawn, as a note; nothing for others."""
    if not (isinstance(entry, TrainedTable) and entry.picture):
        return ()
    return (f"Its last line draws it: untrimmed plot {entry.picture} RUN ... -o FILE.",)


def notes_of(entry: Entry) -> tuple[str, ...]:
    """What is to be said of a table or figure, each note a sentence or more."""
    notes = entry.notes
    if isinstance(entry, TrainedTable | EfficiencyTable) and entry.left_out:
        notes += (f"Not run: {entry.left_out}.",)
    if isinstance(entry, TrainedTable):
        notes += tuple(f"{row.name} is not run: {row.without}." for row in entry.rows if row.without)
    if isinstance(entry, EfficiencyTable):
        asked = (text for quantity, text in EFFICIENCY_NOTES.items() if quantity in entry.paper)
        notes = (COSTS_NOTE, *notes, *asked)
    return (SETTINGS_NOTE, *notes) if isinstance(entry, SettingsTable) else notes


def _lines(row: TableRow, column: Column, measured: TableResults) -> Iterator[tuple[str, ...]]:
    printed = row.paper.get(column.name)
    ours = measured.figures.get((row.name, column.name))
    name = row.name
    if printed:
        yield (name, "paper", *(_figure(metric, value) for metric, value in zip(column.metrics, printed, strict=True)))
        name = ""
    if ours:
        yield (name, "ours", *(_figure(metric, ours[metric]) for metric in column.metrics))
    if printed and ours:
        pairs = zip(column.metrics, printed, strict=True)
        differences = ("" if value is None else _figure(metric, ours[metric] - value, "+") for metric, value in pairs)
        yield ("", "difference", *differences)


def _figure(metric: str, value: float | None, sign: str = "") -> str:
    if value is None or value != value:
        return "-"
    decimals = 2 if "IoU" in metric or metric == STORED else 1
    return f"{value:{sign}.{decimals}f}"


def efficiency_grid(
    table: EfficiencyTable, costs: MethodCosts, tell: Callable[[str], None] = lambda name: None
) -> Grid:
    """Costs at the published sizes: a line for each method, or for each of its quantities by corpus size."""
    quantities = list(table.paper)
    if "flops_g" in quantities:
        quantities.append("attention_g")
    by_size = len(table.corpus_sizes) > 1
    lines = []
    for name, method in table.methods.items():
        tell(name)
        ours = costs.measure(method, quantities, table.corpus_sizes)
        cells = {}
        for quantity in quantities:
            own = ours[quantity]
            printed = table.paper.get(quantity, {}).get(name, (None,) * len(own))
            cells[quantity] = [
                f"{'-' if paper is None else f'{paper:g}'} / {value:.{DECIMALS[quantity]}f}"
                for paper, value in zip(printed, own, strict=True)
            ]
        if by_size:
            lines += [(name, UNITS[quantity], *cells[quantity]) for quantity in quantities]
        else:
            lines.append((name, *(cell for quantity in quantities for cell in cells[quantity])))
    heads = [f"{size:,} videos" for size in table.corpus_sizes] if by_size else [UNITS[each] for each in quantities]
    header = ("", *([""] if by_size else []), *heads)
    return Grid(table.title, header, tuple(lines), notes_of(table), num_labels=1 + by_size)


COSTS_NOTE = "Costs: two figures are paper / ours."
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
    "measure on an RTX 3080 Ti or 3090. MS-SL passes all frames of the corpus through two maps for each query. "
    "docs/benchmarks.md has times of more methods, measured on another processor: they differ from these, in either "
    "direction.",
}


def settings_grid(table: SettingsTable) -> Grid:
    """The paper's hyper-parameters, and those of the presets where they differ."""
    presets = {name: load_preset(table.method, name) for name in table.datasets}
    lines = []
    for key, printed in table.paper.items():
        ours = [_at(presets[name], key) for name in table.datasets]
        pairs = zip(printed, ours, strict=True)
        lines.append((key, *(f"{paper:g}" if paper == own else f"{paper:g} / {own:g}" for paper, own in pairs)))
    header = ("", *map(titled, table.datasets))
    return Grid(table.title, header, tuple(lines), notes_of(table), num_labels=1)


SETTINGS_NOTE = "Hyper-parameters: two figures are paper / preset where they differ; the file of the preset says why."


def _at(preset: Any, key: str) -> float:
    value: Any = preset
    for part in key.split("."):
        value = value[part] if isinstance(value, Mapping) else getattr(value, part)
    return float(value)
