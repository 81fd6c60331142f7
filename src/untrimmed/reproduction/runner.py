"""Train and evaluate the rows of a table, on real data or on simulated features.

A row's folder is named by a hash of everything that decides its run, so that tables share rows.
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
from untrimmed.training.loop import TrainingProgress
from untrimmed.training.trials import Trial
from untrimmed.version import __version__

STORED = "MB a video"
SMALL = SimulationSettings(query_dim=12, video_dim=10, teacher_dim=6)
Figures = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How small a trial on simulated features is, which shows that rows run: about a second for each."""

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
        """Of all rows on a column: what it sets itself, smallness where it does not, and the widths of the features."""
        widths = {"model.query_dim": self.features.query_dim, "model.video_dim": self.features.video_dim}
        return {**self.overrides, **column.overrides, **widths}


@dataclass(frozen=True)
class TableProgress:
    """Where a table stands: row `number` of `total`; `doing` is for people."""

    number: int
    total: int
    name: str
    doing: str
    finished: bool = False


@dataclass(frozen=True)
class TableResults:
    """The figures of a table by row and column, and the columns that were run."""

    columns: tuple[Column, ...]
    figures: Mapping[tuple[str, str], Figures]
    missing: tuple[str, ...] = ()  # columns whose data set is not there


@dataclass(frozen=True)
class RunSettings:
    """Where rows learn (`scale` is None on real data) and where what they leave is kept."""

    runs: Path
    root: Path | None = None
    seed: int | None = None
    device: str = "auto"
    scale: Scale = Scale()

    @property
    def simulated(self) -> bool:
        """Whether features are simulated."""
        return self.root is None

    @property
    def data_seed(self) -> int:
        """The seed of simulated features, and of training on them."""
        return 0 if self.seed is None else self.seed


def run_table(
    table: TrainedTable, place: RunSettings, progress: Callable[[TableProgress], None] = lambda step: None
) -> TableResults:
    """The figures of every row that can be run, from the kept ones where there are any.

    Raises: ConfigError when the root has none of the table's data sets; whatever training raises.
    """
    columns, missing = columns_there(table, place)
    pairs = [(row, column) for row, column in pairs_of(table) if column in columns]
    figures = {}
    for number, (row, column) in enumerate(pairs, start=1):
        name = f"{row.name}, {column.label}" if len(columns) > 1 else row.name

        def tell(doing: str, *, finished: bool = False, number: int = number, name: str = name) -> None:
            progress(TableProgress(number, len(pairs), name, doing, finished))

        figures[row.name, column.name] = figures_of(row, column, place, tell)
    return TableResults(columns, figures, missing)


def pairs_of(table: TrainedTable) -> Iterator[tuple[TableRow, Column]]:
    """What can be run, data set after data set: rows with figures on it, and rows that the paper prints without any."""
    for column in table.columns:
        for row in table.rows:
            if not row.without and (not row.paper or column.name in row.paper):
                yield row, column


def columns_there(
    table: TrainedTable | UntrainedTable, place: RunSettings
) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """The columns whose data sets the root has, and the other data sets; without a root, all columns.

    Raises: ConfigError when the root has none of them.
    """
    if place.root is None:
        return table.columns, ()
    root = place.root
    if not root.is_dir():
        raise ConfigError(f"{root}: no such folder; --root is the folder that holds data sets")
    there = tuple(column for column in table.columns if (root / column.data_name).is_dir())
    if not there:
        found = ", ".join(sorted(path.name for path in root.iterdir() if path.is_dir())) or "nothing"
        wanted = ", ".join(dict.fromkeys(column.data_name for column in table.columns))
        raise ConfigError(
            f"{root}: {table.name} needs one of {wanted}, found {found}; correct --root, or leave it out for what the "
            "paper prints"
        )
    return there, tuple(dict.fromkeys(c.data_name for c in table.columns if c not in there))


def trial_of(row: TableRow, column: Column, place: RunSettings) -> Trial:
    """The training of a row on a data set; its settings are checked here."""
    candidates = (column.preset_name, column.data_name)
    preset = next((name for name in candidates if has_preset(row.method, name)), None)
    root = place.root
    data = column.data_name
    if root is None:
        preset = preset or OWN_DATA_PRESET
        overrides = {**place.scale.overrides_of(column), **row.overrides, "train.seed": place.data_seed}
        root = place.runs / "data"
        data = _simulated_name(place)
    else:
        seeded = {} if place.seed is None else {"train.seed": place.seed}
        overrides = {**column.overrides, **row.overrides, **seeded}
    settings = load_preset(row.method, preset or OWN_DATA_PRESET, overrides)
    settings.sizes()  # raises for a setting that the model does not take
    identity = [__version__, to_plain(settings), str(root.resolve() / data), preset]
    name = "simulated" if place.simulated else data
    return Trial(
        method=row.method,
        data=data,
        root=root,
        folder=place.runs / f"{row.method}-{name}-{_digest(identity)}",
        overrides=overrides,
        preset=preset,
        device=place.device,
    )


def figures_of(row: TableRow, column: Column, place: RunSettings, tell: Callable[..., None]) -> Figures:
    """The figures of a row in percent, the kept ones if there are any."""

    def report_epoch(at: TrainingProgress) -> None:
        tell(f"epoch {at.epoch}/{at.num_epochs} {at.stage}, step {at.step}/{at.num_steps}")

    def measure(run: Run) -> dict[str, float]:
        return _evaluate(run, row, column, place.device)

    trial = trial_of(row, column, place)
    name = _digest([dict(row.evaluated_with), column.events, column.split])
    was_kept = name in trial.figures
    if not was_kept:
        if place.simulated:
            simulated_data(place, tell)
        trial.train(report_epoch)
        tell("evaluating")
    figures = trial.measured(name, measure)
    tell("kept from before" if was_kept else "done", finished=True)
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


def simulated_data(place: RunSettings, tell: Callable[[str], None] = lambda doing: None) -> tuple[Path, str]:
    """The root and name of the simulated data set, which is written if it is not there."""
    root = place.runs / "data"
    name = _simulated_name(place)
    if not (root / name).is_dir():
        tell("simulating features")
        root.mkdir(parents=True, exist_ok=True)  # an unwritable place is named as it was given
        settings = dataclasses.replace(place.scale.features, seed=place.data_seed)
        simulate(name, root, num_videos=place.scale.num_videos, teacher=True, settings=settings)
    return root, name


def _simulated_name(place: RunSettings) -> str:
    settings = dataclasses.replace(place.scale.features, seed=place.data_seed)
    return f"simulated-{place.scale.num_videos}-{_digest(to_plain(settings))[:6]}"


def _digest(values: Any) -> str:
    """A short name for plain values, the same for the same values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]
