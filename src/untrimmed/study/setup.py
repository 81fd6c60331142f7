"""What a study compares, and the data set and sizes at which everything in it learns."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from untrimmed.config import parse_overrides
from untrimmed.data.annotations import videos_of
from untrimmed.data.dataset import RetrievalDataset, load_dataset
from untrimmed.data.layout import Layout
from untrimmed.data.layouts import open_frames, open_teacher, open_words, read_split
from untrimmed.data.simulation.simulate import is_simulated, open_world
from untrimmed.errors import ConfigError
from untrimmed.evaluation.recall import recall
from untrimmed.evaluation.report import Report
from untrimmed.files import write_whole
from untrimmed.models.naming import ModelName
from untrimmed.precision import Precision
from untrimmed.presets import OWN_DATA_PRESET, has_preset, load_preset
from untrimmed.running.evaluate import evaluate
from untrimmed.running.run import Run
from untrimmed.running.untrained import untrained_rows
from untrimmed.training.trials import Trial

CAPTIONS = 3  # whose words count for the identity of a data set
NUMBERS = 8  # of a table of features that do
WARMUP_SHARE = 0.1  # the published hundredth would be few steps of a short training, too few for the larger rates
UNTRAINED = "untrained.json"  # the rows that need no training, of a world
WARMUP_EPOCH = "warmup_epoch"  # from which some losses act; it moves with the length of the training


@dataclass(frozen=True)
class Candidate:
    """A method with what is attached to it, and settings of its own: `METHOD+ATTACHMENT,KEY=VALUE`, both repeatable."""

    name: ModelName
    settings: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> Candidate:
        """The candidate in a text.

        >>> str(Candidate.of("proto,model.iterations=1").carrying("evidence"))
        'proto+evidence,model.iterations=1'

        Raises: ConfigError unless it can be part of a folder's name.
        """
        if not re.fullmatch(r"[\w.+-]+(,[\w.]+=[\w.+-]+)*", text):
            raise ConfigError(
                f"{text!r}: wanted METHOD or METHOD,KEY=VALUE,... of letters, digits, . _ + -; rewrite it"
            )
        name, *settings = text.split(",")
        return cls(ModelName.of(name), tuple(settings))

    def __str__(self) -> str:
        return ",".join((str(self.name), *self.settings))

    def carrying(self, attachment: str) -> Candidate:
        """The same with one attachment more."""
        return Candidate(ModelName(self.name.method, (*self.name.attachments, attachment)), self.settings)


@dataclass(frozen=True, kw_only=True)
class StudySetup:
    """A data set and the sizes at which everything learns on it; runs are kept at `out`/`data`."""

    data: str
    root: Path
    out: Path
    dim: int = 128
    frames: int = 32
    batch: int = 16
    precision: Precision = "float32"
    device: str = "auto"

    def __post_init__(self) -> None:
        for name in ("dim", "frames", "batch"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, wanted at least 1")

    @cached_property
    def sets(self) -> tuple[RetrievalDataset, RetrievalDataset, RetrievalDataset]:
        """The splits train, val and test with features as stored."""
        train_set, val_set, test_set = (load_dataset(self.data, self.root, split) for split in ("train", "val", "test"))
        return train_set, val_set, test_set

    def __getstate__(self) -> dict[str, Any]:
        """Without features: a process that trains maps them itself."""
        return {name: value for name, value in vars(self).items() if name != "sets"}

    @cached_property
    def identity(self) -> str:
        """A digest of the data, the same on every machine: test captions, some words and frames.

        Of each table the first numbers count, as hundredths of its largest: simulated on two machines, features may
        differ in their last digits.

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
    def _noted(self) -> Path:
        return self.out / self.data / "sizes.json"

    @property
    def _sizes(self) -> dict[str, Any]:
        return {"dim": self.dim, "frames": self.frames, "batch": self.batch, "precision": self.precision}

    def require_same(self) -> None:
        """Refuse a folder with runs of other sizes or other data. Nothing is written; features are read for runs alone.

        Raises: ConfigError naming the first difference.
        """
        folder = self._noted.parent
        if not self._noted.is_file():
            return
        there = dict(json.loads(self._noted.read_text(encoding="utf-8")))
        data = there.pop("data")
        sizes = self._sizes
        names = [path.name for path in folder.iterdir() if path.is_dir() or path.suffix == ".json"]
        runs = set(names) - {self._noted.name, UNTRAINED}  # and what is kept of them
        for name in there if runs else ():
            if there[name] != sizes[name]:
                raise ConfigError(
                    f"{folder}: its runs have {name} {there[name]}, this study has {sizes[name]}; choose another --out"
                )
        if (runs or UNTRAINED in names) and data != self.identity:
            raise ConfigError(
                f"{folder}: what it keeps is of data {data}, {Layout.at(self.root, self.data).folder} has data "
                f"{self.identity}; choose another --out, or the --root that it was made from"
            )

    def require_own(self) -> None:
        """Note sizes and data beside the runs, or refuse as `require_same`."""
        self.require_same()
        own = json.dumps(self._sizes | {"data": self.identity})
        if not self._noted.is_file() or self._noted.read_text(encoding="utf-8") != own:
            self._noted.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._noted, own)

    @property
    def simulated(self) -> bool:
        """Whether the features are simulated, so that a hidden side says what could be found at most."""
        return is_simulated(self.data, self.root)

    @cached_property
    def num_train(self) -> int:
        """How many videos there are to learn from."""
        return len(videos_of(read_split(self.data, self.root, "train")))

    def trial(self, candidate: Candidate, *, rate: float, steps: int, seed: int) -> Trial:
        """One training of a candidate, of as many epochs as hold the steps.

        All but sizes and rate is published; what begins in some epoch does so after the same share of all.
        """
        preset = None if has_preset("ms_sl", self.data) else OWN_DATA_PRESET  # all candidates begin with one world's
        published = load_preset(candidate.name, preset or self.data)
        epochs = math.ceil(steps / math.ceil(self.num_train / self.batch))
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
            "train.learning_rate": rate,
            "train.epochs": epochs,
            "train.patience": epochs,
            "train.warmup_share": WARMUP_SHARE,
            "train.hard_negatives_from_epoch": round(published.train.hard_negatives_from_epoch * share),
            "train.seed": seed,
            **late,
            **parse_overrides(candidate.settings),
        }
        return Trial(
            method=str(candidate.name),
            data=self.data,
            root=self.root,
            folder=self.out / self.data / f"{candidate}-{rate:g}-{steps}-{seed}",
            overrides=overrides,
            preset=preset,
            data_widths=True,
            precision=self.precision,
            device=self.device,
        )

    def report(self, trial: Trial) -> Report:
        """What is found among the test videos.

        Raises: ConfigError where what was kept is of another number of captions.
        """
        test = self.sets[2]

        def ranks(run: Run) -> list[int]:
            report = evaluate(run, moments=False)
            rank_of = dict(zip(report.caption_ids, report.rank.tolist(), strict=True))
            return [rank_of[caption_id] for caption_id in test.caption_ids]

        rank = np.array(trial.measured("test", ranks))
        if len(rank) != len(test.caption_ids):
            raise ConfigError(
                f"{trial.note}: has the ranks of {len(rank)} captions, {self.data} has {len(test.caption_ids)} to "
                "test; it was kept of other data, choose another --out"
            )
        return Report(trial.method, len(test.video_ids), {"fused": recall(rank)}, rank, tuple(test.caption_ids))

    def untrained(self) -> dict[str, dict[str, float]]:
        """The rows that need no training, kept beside the runs."""
        kept = self.out / self.data / UNTRAINED
        if not kept.is_file():
            rows = untrained_rows(*self.sets, open_world(self.data, self.root) if self.simulated else None)
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_whole(kept, json.dumps(rows, indent=1))
        return dict(json.loads(kept.read_text(encoding="utf-8")))


def reached(trial: Trial) -> float:
    """The best SumR on validation videos."""
    return float(trial.measured("val", lambda run: max(entry["val"]["SumR"] for entry in run.history)))


def require_teacher(trial: Trial) -> None:
    """Check that the files of a teacher are there, for a method that has one. Raises FeatureError naming the file."""
    if trial.settings.features.teacher:
        open_teacher(Layout.at(trial.root, trial.data))


def _beginning(table: Float[np.ndarray, "N D"]) -> str:
    hundredths = 100 * table.flat[:NUMBERS] / max(float(np.abs(table).max()), 1e-12)
    return " ".join(str(round(number)) for number in hundredths.tolist())
