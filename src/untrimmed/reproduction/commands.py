"""The commands that train and evaluate one row of a table by itself, as they are typed."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from untrimmed.reproduction.runner import RunSettings, columns_there, pairs_of, trial_of
from untrimmed.reproduction.tables import Column, TableRow, TrainedTable, UntrainedTable

TRAIN = "untrimmed train {} --root DIR --out RUN"
EVALUATE = "untrimmed evaluate RUN {}"


@dataclass(frozen=True)
class RowCommands:
    """What is typed for a row on a data set: after `untrimmed train`, and the whole command that evaluates the run."""

    row: TableRow
    column: Column
    trained: str
    evaluate: str

    @property
    def train(self) -> str:
        """The whole command that trains."""
        return TRAIN.format(self.trained)


def commands_of(table: TrainedTable) -> Iterator[RowCommands]:
    """The commands of every row on every data set of a table, with all settings that the table uses."""
    for row, column in pairs_of(table):
        trial = trial_of(row, column, RunSettings(Path(), root=Path()))
        trained = [row.method, "--data", column.data_name]
        if trial.preset not in (None, column.data_name):
            trained += ["--preset", str(trial.preset)]
        evaluated = [] if column.split == "test" else ["--split", column.split]
        evaluated += [] if column.events else ["--no-moments"]
        yield RowCommands(
            row,
            column,
            shlex.join([*trained, *_assignments(trial.overrides)]),
            EVALUATE.format(shlex.join([*evaluated, *_assignments(row.evaluated_with)])).rstrip(),
        )


def untrained_commands(table: UntrainedTable) -> Iterator[tuple[Column, str]]:
    """What evaluates a model that needs no training, on each data set of a table."""
    for column in table.columns:
        only_videos = "" if column.events else " --no-moments"
        yield column, f"untrimmed evaluate {table.model} --data {column.data_name} --root DIR{only_videos}"


def drawing(table: TrainedTable, place: RunSettings) -> Iterator[str]:
    """The commands that draw a figure from the runs that the place keeps of it; none for a table."""
    if not table.picture:
        return
    there = columns_there(table, place)[0][0]
    for panel in table.panels:
        rows = [row for row, column in pairs_of(table) if column == there and row.name.startswith(panel)]
        runs = dict.fromkeys(str(trial_of(row, there, place).folder) for row in rows)
        picture = f"{table.name}{panel.strip('()')}.png"
        yield shlex.join(["untrimmed", "plot", table.picture, *runs, "-o", picture])


def _assignments(settings: Mapping[str, Any]) -> Iterator[str]:
    """Settings as `KEY=VALUE`."""
    for key, value in settings.items():
        text = yaml.safe_dump(_plain(value), default_flow_style=True, width=10**6, sort_keys=False)
        yield f"{key}={text.splitlines()[0]}"  # of a scalar, YAML adds a line with the end of the document


def _plain(value: Any) -> Any:
    """A value that YAML writes as people do: infinity as a number, not as the text that presets may have."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return float("inf") if value == "inf" else value
