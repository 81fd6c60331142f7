"""Train and evaluate the rows of a table, on real data or on simulated features.

The name of a run's folder contains a hash of all settings. Equal rows of several tables therefore share a run.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from untrimmed.config import to_plain
from untrimmed.data.simulation.simulate import simulate
from untrimmed.data.simulation.world import SimulationSettings
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.presets import OWN_DATA_PRESET, has_preset, load_preset
from untrimmed.reproduction.efficiency import megabytes_per_video, published_model
from untrimmed.reproduction.tables import Column, TableRow, TrainedTable, UntrainedTable
from untrimmed.running.evaluate import evaluate
from untrimmed.running.run import Run
from untrimmed.training.callbacks import TrainingProgress
from untrimmed.training.trials import Trial
from untrimmed.version import __version__

STORED = "MB a video"
SMALL = SimulationSettings(query_dim=12, video_dim=10, teacher_dim=6)
Figures = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Small sizes for training on simulated features. A row trains in about a second, which only tests that it runs."""

    num_videos: int = 15
    features: SimulationSettings = SMALL
    overrides: Mapping[str, Any] = dataclasses.field(
        default_factory=lambda: {
            "model.dim": 8,
            "model.max_frames": 8,
            "model.num_clips": 4,
            "train.batch_size": 8,
            "train.epochs": 2,
            "train.hard_negatives_from_epoch": 1,
        }
    )

    def overrides_of(self, column: Column) -> dict[str, Any]:
        """Return the overrides for all rows of a column: small sizes, the column's settings, and feature widths."""
        widths = {"model.query_dim": self.features.query_dim, "model.video_dim": self.features.video_dim}
        return {**self.overrides, **column.overrides, **widths}


@dataclass(frozen=True)
class TableProgress:
    """Progress of a table. Of `total` rows, `number` have been started. `activity` describes the current step."""

    number: int
    total: int
    name: str
    activity: str
    is_finished: bool = False


OnProgress = Callable[[TableProgress], None]


@dataclass(frozen=True)
class TableResults:
    """The results of a table. `figures` is {(row name, column name): results}."""

    columns: tuple[Column, ...]  # columns whose data sets exist
    figures: Mapping[tuple[str, str], Figures]
    missing: tuple[str, ...] = ()  # data sets that the root does not have


@dataclass(frozen=True)
class RunSettings:
    """Where and how rows are trained. Without a `root` of data sets, features are simulated at `scale`."""

    runs: Path
    root: Path | None = None
    seed: int | None = None
    device: str = "auto"
    scale: Scale = Scale()

    @property
    def is_simulated(self) -> bool:
        """Whether features are simulated."""
        return self.root is None

    @property
    def data_seed(self) -> int:
        """The seed of simulated features, which is also the seed of training with these features."""
        return 0 if self.seed is None else self.seed


def run_table(table: TrainedTable, settings: RunSettings, on_progress: OnProgress = lambda step: None) -> TableResults:
    """Return the results of every row that can be run.

    Rows are trained and evaluated, unless results are cached.

    Raises: ConfigError if the root contains no data set of the table, and any error of training.
    """
    columns, missing = available_columns(table, settings)
    pairs = [(row, column) for row, column in pairs_of(table) if column in columns]
    figures = {}
    for number, (row, column) in enumerate(pairs, start=1):
        name = f"{row.name}, {column.label}" if len(columns) > 1 else row.name

        def report(activity: str, *, is_finished: bool = False, number: int = number, name: str = name) -> None:
            on_progress(TableProgress(number, len(pairs), name, activity, is_finished))

        figures[row.name, column.name] = figures_of(row, column, settings, report)
    return TableResults(columns, figures, missing)


def pairs_of(table: TrainedTable) -> Iterator[tuple[TableRow, Column]]:
    """Yield (row, column) for each result that the paper prints. Rows without printed results have all columns."""
    for column in table.columns:
        for row in table.rows:
            if not row.without and (not row.paper or column.name in row.paper):
                yield row, column


def available_columns(
    table: TrainedTable | UntrainedTable, settings: RunSettings
) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """Return the columns whose data sets are in the root, and the names of the missing data sets.

    Without a root, return all columns.

    Raises: ConfigError if the root contains no data set of the table.
    """
    if settings.root is None:
        return table.columns, ()
    root = settings.root
    if not root.is_dir():
        raise ConfigError(f"{root}: no such folder; --root is the folder that contains the data sets")
    available = tuple(column for column in table.columns if (root / column.data_name).is_dir())
    if not available:
        folders = ", ".join(sorted(path.name for path in root.iterdir() if path.is_dir())) or "nothing"
        names = ", ".join(dict.fromkeys(column.data_name for column in table.columns))
        raise ConfigError(
            f"{root}: {table.name} needs one of {names}, found {folders}; correct --root, or omit it to see the "
            "paper's results"
        )
    return available, tuple(dict.fromkeys(column.data_name for column in table.columns if column not in available))


def trial_of(row: TableRow, column: Column, settings: RunSettings) -> Trial:
    """Return the trial that trains a row on a data set. The settings of the trial are checked."""
    candidates = (column.preset_name, column.data_name)
    preset = next((name for name in candidates if has_preset(row.method, name)), None)
    root = settings.root
    data = column.data_name
    if root is None:
        preset = preset or OWN_DATA_PRESET
        overrides = {**settings.scale.overrides_of(column), **row.overrides, "train.seed": settings.data_seed}
        root = settings.runs / "data"
        data = _simulated_name(settings)
    else:
        seed = {} if settings.seed is None else {"train.seed": settings.seed}
        overrides = {**column.overrides, **row.overrides, **seed}
    merged = load_preset(row.method, preset or OWN_DATA_PRESET, overrides)
    merged.sizes()  # raises for a setting that the model does not have
    identity = [__version__, to_plain(merged), str(root.resolve() / data), preset]
    name = "simulated" if settings.is_simulated else data
    return Trial(
        method=row.method,
        data=data,
        root=root,
        folder=settings.runs / f"{row.method}-{name}-{_digest(identity)}",
        overrides=overrides,
        preset=preset,
        device=settings.device,
    )


def figures_of(row: TableRow, column: Column, settings: RunSettings, report: Callable[..., None]) -> Figures:
    """Return the results of a row in percent. The row is trained first, unless its results are cached."""

    def report_epoch(progress: TrainingProgress) -> None:
        position = f"epoch {progress.epoch}/{progress.num_epochs}"
        report(f"{position} {progress.stage}, step {progress.step}/{progress.num_steps}")

    def measure(run: Run) -> dict[str, float]:
        return _evaluate(run, row, column, settings.device)

    trial = trial_of(row, column, settings)
    name = _digest([dict(row.evaluated_with), column.events, column.split])
    was_cached = name in trial.figures
    if not was_cached:
        if settings.is_simulated:
            simulated_data(settings, report)
        trial.train(report_epoch)
        report("evaluating")
    figures = trial.measured(name, measure)
    report("cached" if was_cached else "done", is_finished=True)
    if STORED in column.metrics:
        sizes = {key: value for key, value in row.overrides.items() if key.startswith("model.")}
        figures |= {STORED: megabytes_per_video(published_model(row.method, sizes))}
    return {metric: figures[metric] for metric in column.metrics}


def _evaluate(run: Run, row: TableRow, column: Column, device: str) -> dict[str, float]:
    report = evaluate(run, split=column.split, device=device, moments=column.events, changed=row.evaluated_with)
    if column.events:
        if report.note:
            raise FeatureError(report.note)
        return report.events
    groups = {f"SumR {name}": figures["SumR"] for name, figures in report.rows.items() if name.startswith("M/V")}
    return {**report.figures, **groups}


def simulated_data(settings: RunSettings, report: Callable[[str], None] = lambda activity: None) -> tuple[Path, str]:
    """Return the root and name of the simulated data set. If the data set does not exist, it is written first."""
    root = settings.runs / "data"
    name = _simulated_name(settings)
    if not (root / name).is_dir():
        report("simulating features")
        # create the root first, so that an error message names the folder that the user chose
        root.mkdir(parents=True, exist_ok=True)
        features = dataclasses.replace(settings.scale.features, seed=settings.data_seed)
        simulate(name, root, num_videos=settings.scale.num_videos, teacher=True, settings=features)
    return root, name


def _simulated_name(settings: RunSettings) -> str:
    features = dataclasses.replace(settings.scale.features, seed=settings.data_seed)
    return f"simulated-{settings.scale.num_videos}-{_digest(to_plain(features))[:6]}"


def _digest(values: Any) -> str:
    """Return a short hash of values that can be written as JSON."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]
