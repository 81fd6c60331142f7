"""Result tables: the papers' results, our results on real or simulated data, costs, and hyper-parameters."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from untrimmed.data.simulation.simulate import is_simulated
from untrimmed.evaluation.report import ANY_RIGHT, ONE_RIGHT, heading
from untrimmed.presets import load_preset
from untrimmed.reproduction.commands import RowCommands, commands_of, untrained_commands
from untrimmed.reproduction.efficiency import UNITS, MethodCosts
from untrimmed.reproduction.render import Grid
from untrimmed.reproduction.runner import STORED, RunSettings, TableResults, available_columns
from untrimmed.reproduction.tables import (
    Column,
    EfficiencyTable,
    Entry,
    SettingsTable,
    TableRow,
    TrainedTable,
    UntrainedTable,
)
from untrimmed.running.evaluate import evaluate
from untrimmed.running.untrained import untrained_rows_of

DECIMALS = {"params_m": 2, "flops_g": 2, "attention_g": 2, "runtime_ms": 2, "memory_mb": 2, "matching_g": 3}


def printed_grids(table: TrainedTable) -> Iterator[Grid]:
    """Yield the paper's results, one grid for each set of metrics."""
    for number, metrics in enumerate(dict.fromkeys(column.metrics for column in table.columns)):
        columns = [column for column in table.columns if column.metrics == metrics]
        several = len(columns) > 1
        lines = tuple(
            (row.label, *([column.label] if several else []), *_printed(row, column))
            for column in columns
            for row in table.rows
            if column.name in row.paper
        )
        header = ("", *(["data"] if several else []), *map(heading, metrics))
        yield Grid(table.title, header, lines, () if number else notes_of(table), num_labels=1 + several)


def page_grid(table: TrainedTable) -> Grid:
    """Return the table of the page: one line per row, with the paper's results and the row's arguments.

    The arguments are those of `untrimmed train` and `untrimmed evaluate`. If the table has one data set, each metric
    has a column. If it has several data sets, each data set has a column, and a cell contains all metrics.
    """
    commands: dict[str, list[RowCommands]] = {row.name: [] for row in table.rows}
    for command in commands_of(table):
        commands[command.row.name].append(command)
    train = {name: _train_cell(group) for name, group in commands.items()}
    evaluate = {name: _code([command.evaluate_arguments for command in group]) for name, group in commands.items()}
    lines = []
    for row in table.rows:
        figures = {column.name: _printed(row, column) for column in table.columns}
        joined = [", ".join(figures[name]) if name in row.paper else "-" for name in figures]
        cells = joined if len(joined) > 1 else figures[table.columns[0].name]
        lines.append((row.label, *cells, train[row.name], *([evaluate[row.name]] if any(evaluate.values()) else [])))
    has_template = any(" --data DATA" in cell for cell in train.values())
    ends = ("train", "evaluate") if any(evaluate.values()) else ("train",)
    header = (*_page_header(table.columns, with_folders=has_template), *ends)
    return Grid(table.title, header, tuple(lines), notes_of(table), num_labels=1, num_commands=len(ends))


def _page_header(columns: Sequence[Column], *, with_folders: bool) -> list[str]:
    """Return the column headings: the metrics of one data set, or the names of several data sets.

    With several data sets, the heading of the row labels lists the metrics.
    """
    metrics = [", ".join(map(heading, column.metrics)) for column in columns]
    if len(columns) == 1:
        return ["", *map(heading, columns[0].metrics)]
    labels = [f"{column.label} (`{column.data_name}`)" if with_folders else column.label for column in columns]
    if len(set(metrics)) == 1:
        return [metrics[0], *labels]
    return ["", *(f"{label}: {names}" for label, names in zip(labels, metrics, strict=True))]


def _train_cell(commands: Sequence[RowCommands]) -> str:
    """Return a row's arguments of `train`. If they differ only in the data set, return one text with the word DATA."""
    templates = [command.train_template for command in commands]
    if len(commands) > 1 and len(set(templates)) == 1:
        return _code(templates)
    return _code([command.train_arguments for command in commands])


def _code(texts: Sequence[str]) -> str:
    return "\n".join(f"`{text}`" for text in dict.fromkeys(texts) if text)


def smoke_grid(table: TrainedTable, results: TableResults, settings: RunSettings) -> Grid:
    """Return the rows that ran on simulated features.

    The results of these rows are left out, because results on simulated features have no meaning.
    """
    label = {column.name: column.label for column in results.columns}
    lines = tuple((row, label[column], "trained and evaluated") for row, column in results.figures)
    title = f"{table.title} ({settings.scale.num_videos} simulated videos, seed {settings.data_seed})"
    return Grid(title, ("", "data", "runs"), lines, ("Results at this scale mean nothing.",), num_labels=3)


def trained_grids(table: TrainedTable, results: TableResults, settings: RunSettings) -> Iterator[Grid]:
    """Yield one grid per data set that was run: the paper's results, our results, and the differences.

    The paper's results do not apply to a simulated data set. On such a data set, our results are compared with
    baselines that need no training.
    """
    for column in results.columns:
        if settings.root is not None and is_simulated(column.data_name, settings.root):
            yield _simulated_grid(table, column, results, settings.root, settings)
            continue
        rows = [row for row in table.rows if row.without or (row.name, column.name) in results.figures]
        lines = [line for row in rows for line in _lines(row, column, results)]
        notes = (*notes_of(table), *_missing_note(results.missing))
        seed = "" if settings.seed is None else f", seed {settings.seed}"
        title = f"{table.title} ({column.label}{seed})"
        yield Grid(title, ("", "", *map(heading, column.metrics)), tuple(lines), notes)


def _missing_note(missing: Sequence[str]) -> list[str]:
    return [f"No data for: {', '.join(missing)}."] if missing else []


def _simulated_grid(
    table: TrainedTable, column: Column, results: TableResults, root: Path, settings: RunSettings
) -> Grid:
    """Return our results on one simulated data set, below the results of untrained baselines on the same split."""
    untrained, split = untrained_rows_of(column.data_name, root, column.split)
    trained = {row: figures for (row, on), figures in results.figures.items() if on == column.name}
    lines = [
        (name, kind, *(_figure(metric, figures.get(metric)) for metric in column.metrics))
        for kind, rows in (("untrained", untrained), ("ours", trained))
        for name, figures in rows.items()
    ]
    seed = "" if settings.seed is None else f" {settings.seed}"
    size = f"{len(split.caption_ids):,} queries, {len(split.video_ids):,} {column.split} videos, one seed{seed}"
    note = "Simulated features: the paper's results do not apply. untrimmed study compares methods over seeds."
    title = f"{table.title} ({column.label}, simulated: {size})"
    header = ("", "", *map(heading, column.metrics))
    return Grid(title, header, tuple(lines), (note, *_missing_note(results.missing)))


def untrained_grid(table: UntrainedTable, settings: RunSettings) -> Grid:
    """Return the paper's results with the commands to reproduce them, and our results on the data sets in the root.

    Several videos can match a query, and the paper accepts any of these videos. We report two results. The first
    accepts any matching video. This metric needs dense labels, which list all matching videos. It covers only queries
    with such labels. The second result accepts only the annotated video.

    Raises: ConfigError if the root contains no data set of the table, and any error of evaluation.
    """
    columns, missing = available_columns(table, settings)
    commands = {column.name: command for column, command in untrained_commands(table)}
    lines = []
    for column in columns:
        rows: Mapping[str, Mapping[str, float]] = {}
        if settings.root is not None:
            rows = evaluate(table.model, data=column.data_name, root=settings.root, moments=column.events).rows
        simulated = settings.root is not None and is_simulated(column.data_name, settings.root)
        label = f"{column.label}, ours simulated" if simulated else column.label
        printed = (table.paper[row][column.name] for row in (table.beside, table.row))
        for metric, *figures in zip(column.metrics, *printed, strict=True):
            ours = (rows.get(name, {}).get(metric) for name in (ANY_RIGHT, "fused"))
            cells = (_figure(metric, value) for value in (*figures, *ours))
            lines.append((label, heading(metric), *cells, f"`{commands[column.name]}`"))
    notes = (*notes_of(table), *_missing_note(missing))
    header = ("", "", table.beside, table.row, f"ours, {ANY_RIGHT}", f"ours, {ONE_RIGHT}", "evaluate")
    return Grid(table.title, header, tuple(lines), notes, num_labels=2, num_commands=1)


def notes_of(entry: Entry) -> tuple[str, ...]:
    """Return the notes on a table or figure. Each note has one or more sentences."""
    notes = entry.notes
    if isinstance(entry, TrainedTable | EfficiencyTable) and entry.left_out:
        notes += (left_out_note(entry),)
    if isinstance(entry, TrainedTable):
        notes += tuple(f"{row.name} is not run: {row.without}." for row in entry.rows if row.without)
    if isinstance(entry, EfficiencyTable):
        efficiency = (text for quantity, text in EFFICIENCY_NOTES.items() if quantity in entry.paper)
        notes = (COSTS_NOTE, *notes, *efficiency)
    return (SETTINGS_NOTE, *notes) if isinstance(entry, SettingsTable) else notes


def left_out_note(table: TrainedTable | EfficiencyTable) -> str:
    """Return the note that lists the systems of a table that are not implemented."""
    return f"Not available here: {table.left_out}."


def _printed(row: TableRow, column: Column) -> tuple[str, ...]:
    values = row.paper.get(column.name, [None] * len(column.metrics))
    return tuple(_figure(metric, value) for metric, value in zip(column.metrics, values, strict=True))


def _lines(row: TableRow, column: Column, results: TableResults) -> Iterator[tuple[str, ...]]:
    printed = row.paper.get(column.name)
    ours = results.figures.get((row.name, column.name))
    name = row.label
    if printed:
        yield (name, "paper", *_printed(row, column))
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
    table: EfficiencyTable, costs: MethodCosts, report: Callable[[str], None] = lambda name: None
) -> Grid:
    """Return a table of costs at the published sizes, with one line per method.

    A table with several corpus sizes has one line per method and quantity, and one column per size.
    """
    quantities = list(table.paper)
    if "flops_g" in quantities:
        quantities.append("attention_g")
    by_size = len(table.corpus_sizes) > 1
    lines = []
    for name, method in table.methods.items():
        report(name)
        ours = costs.measure(method, quantities, table.corpus_sizes)
        cells = {}
        for quantity in quantities:
            values = ours[quantity]
            printed = table.paper.get(quantity, {}).get(name, (None,) * len(values))
            cells[quantity] = [
                f"{'-' if paper is None else f'{paper:g}'} / {value:.{DECIMALS[quantity]}f}"
                for paper, value in zip(printed, values, strict=True)
            ]
        if by_size:
            lines += [(name, UNITS[quantity], *cells[quantity]) for quantity in quantities]
        else:
            lines.append((name, *(cell for quantity in quantities for cell in cells[quantity])))
    sizes = [f"{size:,} videos" for size in table.corpus_sizes]
    header = ("", "", *sizes) if by_size else ("", *(UNITS[quantity] for quantity in quantities))
    return Grid(table.title, header, tuple(lines), notes_of(table), num_labels=1 + by_size)


COSTS_NOTE = "Costs: if a cell has two numbers, the first is the paper's and the second is ours."
EFFICIENCY_NOTES = {
    "flops_g": "FLOPs: the cost of encoding one video of 128 frames and one query of 30 words. A multiplication and an "
    "addition count as two FLOPs. Only products with learned weights are counted; the products inside attention have a "
    "separate column. We do not count the layers that predict RAL's distributions, because only training uses them. "
    "The papers count GMMFormer, GMMFormer v2 and RAL in the same way. For MS-SL, they print 1.29 instead: the cost of "
    "encoding one query and matching it with 656 vectors of each of 2,500 videos (1.31 in our count).",
    "memory_mb": "MB: the size of the float32 vectors that a query is compared with, for videos of 128 frames (656 "
    "vectors in MS-SL, 33 in GMMFormer, 160 in GMMFormer v2). Most papers print a tenth of this size (12.67 is "
    "2,500 x 33 x 384 x 4 bytes / 10^7). For MS-SL, the printed size is for videos of 123 frames. Only ProtoPRVR's "
    "table 1 prints the full size.",
    "matching_g": "Matching: two FLOPs per stored number. ProtoPRVR's paper rounds to two decimals.",
    "runtime_ms": "Time: the median time from the word features of a query to its 100 best videos, on the "
    "processor of the machine that made this page. The papers used an RTX 3080 Ti or 3090. The times in "
    "docs/benchmarks.md are from another processor.",
}


def settings_grid(table: SettingsTable) -> Grid:
    """Return the paper's hyper-parameters. If the value of our preset differs, the cell contains both values."""
    presets = {name: load_preset(table.method, name) for name in table.datasets}
    lines = []
    for key, printed in table.paper.items():
        ours = [_at(presets[name], key) for name in table.datasets]
        pairs = zip(printed, ours, strict=True)
        lines.append((key, *(_setting(paper, value) for paper, value in pairs)))
    header = ("", *map(_preset_title, table.datasets))
    return Grid(table.title, header, tuple(lines), notes_of(table), num_labels=1)


def _setting(paper: float | None, preset: float) -> str:
    if paper is None:
        return f"- / {preset:g}"
    return f"{paper:g}" if paper == preset else f"{paper:g} / {preset:g}"


def _preset_title(name: str) -> str:
    """Return the title of a preset's data set. If the preset ranks moments, the title ends with "events"."""
    data = name.removesuffix("_event")
    return Column(name=name, data=data, events=name != data).label


SETTINGS_NOTE = (
    "Hyper-parameters: if two numbers differ, the first is the paper's and the second is the preset's. The preset's "
    "file explains the difference."
)


def _at(preset: Any, key: str) -> float:
    value: Any = preset
    for part in key.split("."):
        value = value[part] if isinstance(value, Mapping) else getattr(value, part)
    return float(value)
