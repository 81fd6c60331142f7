"""The shell commands that train and evaluate the rows of a table, and draw a figure."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from untrimmed.reproduction.runner import RunSettings, available_columns, pairs_of, trial_of
from untrimmed.reproduction.tables import Column, TableRow, TrainedTable, UntrainedTable

TRAIN = "untrimmed train {} --root DIR --out RUN"
EVALUATE_MOMENTS = "untrimmed evaluate RUN"
EVALUATE = f"{EVALUATE_MOMENTS} --no-moments"


@dataclass(frozen=True)
class RowCommands:
    """The arguments of `untrimmed train` and `untrimmed evaluate` for one row of a table on one data set."""

    row: TableRow
    column: Column
    train_arguments: str
    evaluate_arguments: str

    @property
    def train(self) -> str:
        """The complete command that trains the row."""
        return TRAIN.format(self.train_arguments)

    @property
    def train_template(self) -> str:
        """The arguments of `train`, with the word DATA instead of a data set's name."""
        return self.train_arguments.replace(f" --data {self.column.data_name}", " --data DATA", 1)

    @property
    def evaluate(self) -> str:
        """The complete command that evaluates the row."""
        return f"{EVALUATE_MOMENTS if self.column.events else EVALUATE} {self.evaluate_arguments}".rstrip()


def commands_of(table: TrainedTable) -> Iterator[RowCommands]:
    """Yield the commands for each row of a table on each data set, with all settings of the row."""
    for row, column in pairs_of(table):
        trial = trial_of(row, column, RunSettings(Path(), root=Path()))
        train = [row.method, "--data", column.data_name]
        if trial.preset not in (None, column.data_name):
            train += ["--preset", str(trial.preset)]
        split = [] if column.split == "test" else ["--split", column.split]
        yield RowCommands(
            row,
            column,
            shlex.join([*train, *_assignments(trial.overrides)]),
            shlex.join([*split, *_assignments(row.evaluated_with)]),
        )


def untrained_commands(table: UntrainedTable) -> Iterator[tuple[Column, str]]:
    """Yield (data set, command) for each data set of a table; the command evaluates the table's model."""
    for column in table.columns:
        only_videos = "" if column.events else " --no-moments"
        yield column, f"untrimmed evaluate {table.model} --data {column.data_name} --root DIR{only_videos}"


def drawing(table: TrainedTable, settings: RunSettings) -> Iterator[str]:
    """Yield the commands that draw a figure from its runs. For a table, yield nothing."""
    if not table.picture:
        return
    column = available_columns(table, settings)[0][0]
    for panel in table.panels:
        rows = [row for row, on in pairs_of(table) if on == column and row.name.startswith(panel)]
        runs = dict.fromkeys(str(trial_of(row, column, settings).folder) for row in rows)
        picture = f"{table.name}{panel.strip('()')}.png"
        yield shlex.join(["untrimmed", "plot", table.picture, *runs, "-o", picture])


def _assignments(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield settings as `KEY=VALUE`."""
    for key, value in settings.items():
        text = yaml.safe_dump(_plain(value), default_flow_style=True, width=10**6, sort_keys=False)
        yield f"{key}={text.splitlines()[0]}"  # after a single value, YAML writes a second line that ends the document


def _plain(value: Any) -> Any:
    """Replace the text "inf" by the number, so that YAML writes `.inf`."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return float("inf") if value == "inf" else value
