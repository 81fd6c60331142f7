"""The candidates of a study, and the data set and sizes that they share."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from untrimmed.batches import TrainingBatch
from untrimmed.config import build, parse_overrides, read_json, require_sections
from untrimmed.data.annotations import videos_of
from untrimmed.data.benchmarks.benchmark import SPLITS
from untrimmed.data.dataset import RetrievalDataset, load_dataset
from untrimmed.data.layout import Layout
from untrimmed.data.layouts import open_frames, open_subtitles, open_teacher, open_words, read_split
from untrimmed.data.simulation.simulate import is_simulated, open_world
from untrimmed.errors import ConfigError
from untrimmed.evaluation.recall import recall
from untrimmed.evaluation.report import Report
from untrimmed.files import write_whole
from untrimmed.models.naming import ModelName
from untrimmed.models.registry import create_model
from untrimmed.precision import Precision, choose_format
from untrimmed.presets import OWN_DATA_PRESET, choose_preset, has_preset, preset_method
from untrimmed.running.batches import epoch_batches, training_batch
from untrimmed.running.encoding import Encoding
from untrimmed.running.evaluate import evaluate
from untrimmed.running.run import DataSettings, Run
from untrimmed.running.split import load_split
from untrimmed.running.untrained import untrained_rows
from untrimmed.training.rehearsal import rehearse_step
from untrimmed.training.trials import Trial

CAPTIONS = 3  # the digest of a data set reads the words of this many captions
NUMBERS = 8  # the digest of a data set reads this many values of each feature table
WARMUP_SHARE = 0.1  # the published share is 0.01, which gives too few warm-up steps in a short training
SIZES = "sizes.json"  # file beside the runs: sizes of models and batches, and the digest of the data
FACTS = "data.json"  # file beside the runs: what the page prints about the data
UNTRAINED = "untrained.json"  # file beside the runs: results of baselines that need no training
COSTS = "costs.json"  # file beside the runs: costs of the finalists
BESIDE_RUNS = frozenset((SIZES, FACTS, UNTRAINED, COSTS))
RATE = "train.learning_rate"
OPTIONS = {RATE: "--rates", "train.epochs": "--steps", "train.seed": "--seeds", "train.batch_size": "--batch"}
_VALUE = r"[\w.:+-]+"  # characters that the name of a run's folder may contain
# name of a setting of losses: the epoch in which a loss starts. It is scaled with the number of epochs of a trial.
WARMUP_EPOCH = "warmup_epoch"


def follows_from_epochs(key: str) -> bool:
    """Whether `StudySetup.trial` computes a setting from the number of epochs."""
    return key in ("train.patience", "train.hard_negatives_from_epoch") or key.endswith(f".{WARMUP_EPOCH}")


@dataclass(frozen=True)
class Candidate:
    """A method with any number of attachments and settings, written `METHOD+ATTACHMENT,KEY=VALUE`."""

    name: ModelName
    settings: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> Candidate:
        """Return the candidate that a text describes.

        >>> str(Candidate.of("proto,model.iterations=1").carrying("evidence"))
        'proto+evidence,model.iterations=1'

        Raises: ConfigError for characters that are not allowed in the name of a run's folder.
        """
        if not re.fullmatch(rf"[\w.+-]+(,[\w.]+={_VALUE})*", text):
            raise ConfigError(
                f"{text!r}: expected METHOD or METHOD,KEY=VALUE,... of letters, digits, . _ + - :; rewrite it"
            )
        name, *settings = text.split(",")
        require_sections(setting.partition("=")[0] for setting in settings)
        return cls(ModelName.of(name), tuple(settings))

    def __str__(self) -> str:
        return ",".join((str(self.name), *self.settings))

    def carrying(self, attachment: str) -> Candidate:
        """Return a copy of the candidate with one more attachment."""
        return Candidate(ModelName(self.name.method, (*self.name.attachments, attachment)), self.settings)


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    """What a study prints about a data set. These facts are stored beside the runs.

    - `videos` and `captions` count the videos and captions of each split.
    - `benchmark` is the benchmark whose presets all candidates use.
    - `simulation` contains the settings of simulated features that differ from the default, or None for real features.
    """

    videos: Mapping[str, int]
    captions: Mapping[str, int]
    benchmark: str
    simulation: Mapping[str, Any] | None


@dataclass(frozen=True)
class Point:
    """A choice of settings that the search tries: a learning rate, and `KEY=VALUE` for each key of the grid."""

    rate: float
    settings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join((f"rate {self.rate:g}", *self.settings))


def points_of(rates: Sequence[float], grid: Sequence[str]) -> tuple[Point, ...]:
    """Return all combinations of learning rates and values of a grid. A grid entry is `KEY=VALUE,VALUE,...`.

    Keys that are joined by `+` always have equal values.

    >>> [str(point) for point in points_of([0.001], ["model.dropout+model.input_dropout=0.1,0.2"])]
    ['rate 0.001, model.dropout=0.1, model.input_dropout=0.1', 'rate 0.001, model.dropout=0.2, model.input_dropout=0.2']

    Raises: ConfigError for an entry with another format, and for a key that occurs twice.
    """
    axes: list[list[tuple[str, ...]]] = []
    earlier: list[str] = []
    for entry in grid:
        if not re.fullmatch(rf"[\w.]+(\+[\w.]+)*={_VALUE}(,{_VALUE})*", entry):
            raise ConfigError(
                f"--grid {entry}: expected KEY=VALUE,VALUE,... or KEY+KEY=VALUE,..., e.g. model.dropout=0.1,0.2; "
                "rewrite it"
            )
        joined, _, values = entry.partition("=")
        keys = joined.split("+")
        require_sections(keys)
        for key in keys:
            if key in earlier:
                raise ConfigError(f"--grid {entry}: {key} has values already; name it once")
            earlier.append(key)
        axes.append([tuple(f"{key}={value}" for key in keys) for value in dict.fromkeys(values.split(","))])
    return tuple(Point(rate, tuple(chain(*settings))) for rate in rates for settings in product(*axes))


@dataclass(frozen=True, kw_only=True)
class StudySetup:
    """A data set, and the model and batch sizes of all candidates. Runs are stored in `out`/`data`.

    `presets` are YAML files. A preset fits a candidate if it is for the same method and has no attachments that the
    candidate lacks. Of several presets that fit, the candidate uses the preset with the most attachments.
    """

    data: str
    root: Path
    out: Path
    dim: int = 128
    frames: int = 32
    batch: int = 16
    precision: Precision = "float32"
    device: str = "auto"
    presets: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        for name in ("dim", "frames", "batch"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected at least 1")

    @cached_property
    def sets(self) -> tuple[RetrievalDataset, RetrievalDataset, RetrievalDataset]:
        """The splits train, val and test, with features that are prepared with the default settings."""
        train_set, val_set, test_set = (load_dataset(self.data, self.root, split) for split in ("train", "val", "test"))
        return train_set, val_set, test_set

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields to pickle. Features are left out, because each training process opens them itself."""
        return {name: value for name, value in vars(self).items() if name != "sets"}

    @cached_property
    def identity(self) -> str:
        """A digest of the data: the ids of test captions, and some word and frame features.

        Features are rounded to hundredths of the largest number in their table, because the last digits of simulated
        features may differ between machines.

        Raises: FeatureError for missing or damaged captions and features, ConfigError for several frame features.
        """
        layout = Layout.at(self.root, self.data)
        captions = read_split(self.data, self.root, "test")
        ids = [caption.caption_id for caption in captions]
        words = open_words(layout)
        frames = open_frames(layout)
        tables = [words.read(caption_id) for caption_id in ids[:CAPTIONS]] + [frames.read(videos_of(captions)[0])]
        content = "\n".join([*ids, *map(_beginning, tables)])
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()

    @property
    def folder(self) -> Path:
        """The folder of the runs and their results."""
        return self.out / self.data

    @cached_property
    def facts(self) -> DataFacts:
        """The facts that are stored beside the runs, or otherwise the facts computed from the data."""
        stored = self.folder / FACTS
        if stored.is_file():
            return build(DataFacts, read_json(stored), where=str(stored))
        captions = {split: read_split(self.data, self.root, split) for split in SPLITS}
        benchmark = Layout.at(self.root, self.data).benchmark
        has_presets = benchmark is not None and has_preset("ms_sl", benchmark.name)
        return DataFacts(
            videos={split: len(videos_of(of)) for split, of in captions.items()},
            captions={split: len(of) for split, of in captions.items()},
            benchmark=benchmark.name if benchmark is not None and has_presets else OWN_DATA_PRESET,
            simulation=open_world(self.data, self.root).settings.changes if self.simulated else None,
        )

    @property
    def _noted(self) -> Path:
        return self.folder / SIZES

    @property
    def _sizes(self) -> dict[str, Any]:
        return {"dim": self.dim, "frames": self.frames, "batch": self.batch, "precision": self.precision}

    def require_same(self) -> None:
        """Check that existing runs in the folder have the same sizes and data. Nothing is written.

        Features are read only if the folder has runs.

        Raises: ConfigError if there is a difference; the message describes the first difference.
        """
        folder = self.folder
        if not self._noted.is_file():
            return
        stored, data = read_sizes(self._noted)
        sizes = self._sizes
        names = [path.name for path in folder.iterdir() if path.is_dir() or path.suffix == ".json"]
        runs = set(names) - BESIDE_RUNS  # folders of runs and files with their results
        for name in stored if runs else ():
            if stored[name] != sizes[name]:
                raise ConfigError(
                    f"{folder}: its runs have {name} {stored[name]}, this study has {sizes[name]}; choose another --out"
                )
        if (runs or UNTRAINED in names) and data != self.identity:
            raise ConfigError(
                f"{folder}: its results are from data {data}, but {Layout.at(self.root, self.data).folder} has data "
                f"{self.identity}; choose another --out, or the --root with the data of these results"
            )

    def require_own(self) -> None:
        """Check the folder like `require_same`, then write the sizes and the facts about the data beside the runs."""
        self.require_same()
        text = json.dumps(self._sizes | {"data": self.identity})
        if not self._noted.is_file() or self._noted.read_text(encoding="utf-8") != text:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._noted, text)
            (self.folder / FACTS).unlink(missing_ok=True)  # if there are no runs, the file may describe other data
            self.__dict__.pop("facts", None)
        if not (self.folder / FACTS).is_file():
            write_whole(self.folder / FACTS, json.dumps(asdict(self.facts)))

    @property
    def simulated(self) -> bool:
        """Whether the features are simulated.

        For simulated features, the results of a perfect method can be computed.
        """
        return is_simulated(self.data, self.root)

    @cached_property
    def _files(self) -> dict[ModelName, Path]:
        """The files of `presets`, by model name."""
        return {preset_method(path): path for path in self.presets}

    def preset_for(self, name: ModelName) -> str:
        """Return the preset of a model: the path of one of the `presets`, or the benchmark's name."""
        fitting = [
            stated
            for stated in self._files
            if stated.method == name.method and {*stated.attachments} <= {*name.attachments}
        ]
        if not fitting:
            return self.facts.benchmark
        return str(self._files[max(fitting, key=lambda stated: len(stated.attachments))])

    def trial(self, candidate: Candidate, *, point: Point, steps: int, seed: int) -> Trial:
        """Return a trial that trains a candidate, with enough epochs for the steps.

        The study's sizes, the candidate's settings and the settings of `point` override the settings of the candidate's
        preset. If a loss of the preset starts late, it starts after the same share of the trial's epochs.

        Raises: ConfigError if both the candidate and `point` set a key, or if either sets a key of `OPTIONS`.
        """
        changes = parse_overrides((*candidate.settings, *point.settings))
        keys = [setting.partition("=")[0] for setting in (*candidate.settings, *point.settings)]
        if fixed := [key for key in keys if key in OPTIONS]:
            raise ConfigError(f"{candidate}: the study sets {fixed[0]} for all methods; use {OPTIONS[fixed[0]]}")
        if repeated := [key for key in keys if keys.count(key) > 1]:
            raise ConfigError(f"{candidate}: {repeated[0]} is set twice, by the method and by --grid; remove one")
        chosen = f"@{','.join(point.settings)}" if point.settings else ""
        preset = self.preset_for(candidate.name)
        published = choose_preset(candidate.name, self.data, preset, changes)
        epochs = math.ceil(steps / math.ceil(self.facts.videos["train"] / self.batch))
        share = epochs / published.train.epochs
        late = {
            f"losses.{name}.{WARMUP_EPOCH}": round(settings[WARMUP_EPOCH] * share)
            for name, settings in published.losses.items()
            if settings is not None and WARMUP_EPOCH in settings
        }
        overrides = {
            "model.dim": self.dim,
            "model.max_frames": self.frames,
            "train.batch_size": self.batch,
            RATE: point.rate,
            "train.epochs": epochs,
            "train.patience": epochs,
            "train.warmup_share": WARMUP_SHARE,
            "train.hard_negatives_from_epoch": round(published.train.hard_negatives_from_epoch * share),
            "train.seed": seed,
            **late,
            **changes,
        }
        return Trial(
            method=str(candidate.name),
            data=self.data,
            root=self.root,
            folder=self.folder / f"{candidate}{chosen}-{point.rate:g}-{steps}-{seed}",
            overrides=overrides,
            preset=preset,
            data_widths=True,
            precision=self.precision,
            device=self.device,
        )

    def report(self, trial: Trial) -> Report:
        """Return the results of a trial on test videos.

        Raises: ConfigError if the number of captions differs from that of stored results.
        """

        def ranks(run: Run) -> list[int]:
            report = evaluate(run, moments=False)
            rank_of = dict(zip(report.caption_ids, report.rank.tolist(), strict=True))
            return [rank_of[caption_id] for caption_id in self.sets[2].caption_ids]

        return self.report_of(trial.method, trial.measured("test", ranks), trial.note)

    def report_of(self, title: str, ranks: Sequence[int], stored: Path) -> Report:
        """Return the report of stored ranks. The caption ids in the report are consecutive numbers.

        Raises: ConfigError if the number of ranks differs from the number of test captions.
        """
        num_captions = self.facts.captions["test"]
        if len(ranks) != num_captions:
            raise ConfigError(
                f"{stored}: has the ranks of {len(ranks)} captions, but {self.data} has {num_captions} test "
                "captions; the results are from other data, choose another --out"
            )
        rank = np.array(ranks)
        ids = tuple(map(str, range(num_captions)))
        return Report(title, self.facts.videos["test"], {"fused": recall(rank)}, rank, ids)

    def untrained(self) -> dict[str, dict[str, float]]:
        """Return the results of the baselines that need no training. The results are stored beside the runs."""
        path = self.folder / UNTRAINED
        if not path.is_file():
            rows = untrained_rows(*self.sets, open_world(self.data, self.root) if self.simulated else None)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(rows, indent=1))
        return read_json(path)


def read_sizes(path: Path) -> tuple[dict[str, Any], str]:
    """Return the sizes and the data digest that `StudySetup.require_own` wrote.

    Raises: ConfigError for a damaged file.
    """
    sizes = read_json(path)
    if "data" not in sizes:
        raise ConfigError(f"{path}: has no digest of the data (key 'data'); restore or remove the file")
    data = sizes.pop("data")
    return sizes, data


def reached(trial: Trial) -> float:
    """Return the best SumR of a trial on validation videos."""
    return float(trial.measured("val", lambda run: max(entry["val"]["SumR"] for entry in run.history)))


def require_files(trial: Trial) -> None:
    """Check that the teacher's files and the subtitle files exist, if the method of a trial needs these files.

    Raises: FeatureError for a missing file; the message names the file.
    """
    if trial.settings.features.teacher:
        open_teacher(Layout.at(trial.root, trial.data))
    if trial.settings.sizes().max_passages:
        open_subtitles(Layout.at(trial.root, trial.data))


def require_terms(trial: Trial) -> None:
    """Check that the loss terms of a trial and its weights have the same names.

    If all weights belong to the preset or to attached losses, no features are read. Otherwise, the losses of two videos
    are computed.

    Raises: the errors of `rehearse_step`.
    """
    with suppress(ConfigError):  # a loss without a weight in the preset
        published = choose_preset(trial.method, trial.data, trial.preset)
        if trial.settings.weights.keys() <= published.weights.keys() | trial.settings.losses.keys():
            return
    preset = trial.fitted_settings
    model = create_model(preset.name, **preset.settings)
    encode = Encoding(torch.device("cpu"), choose_format(trial.precision, "cpu").name)
    advice = DataSettings(name=trial.data, root=str(trial.root)).how_to_check
    rehearse_step(model, first_batch(trial, 2), preset.weights_in(model.config), encode, how_to_check=advice)


def first_batch(trial: Trial, num_videos: int) -> TrainingBatch:
    """Return a batch of random training videos of a trial's data set."""
    preset = trial.fitted_settings
    data = DataSettings(name=trial.data, root=str(trial.root.resolve()))
    split = load_split(data, preset.sizes(), preset.features, "train")
    rows = epoch_batches(len(split.video_ids), num_videos, seed=0, epoch=0)[0]
    return training_batch(split, rows, sort_by=preset.features.sort_by)


def _beginning(table: Float[np.ndarray, "N D"]) -> str:
    hundredths = 100 * table.flat[:NUMBERS] / max(float(np.abs(table).max()), 1e-12)
    return " ".join(str(round(number)) for number in hundredths.tolist())
