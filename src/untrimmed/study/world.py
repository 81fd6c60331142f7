"""One training of a study: a method, what it carries and its own settings, at sizes that all of the study share."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from untrimmed.config import parse_overrides
from untrimmed.data.annotations import videos_of
from untrimmed.data.dataset import RetrievalDataset, load_dataset
from untrimmed.data.layout import Layout, read_split
from untrimmed.data.sources import open_teacher
from untrimmed.errors import ConfigError
from untrimmed.evaluation.recall import recall
from untrimmed.evaluation.report import Report
from untrimmed.files import write_whole
from untrimmed.models.naming import ModelName
from untrimmed.precision import Precision
from untrimmed.presets import OWN_DATA_PRESET, Preset, has_preset, load_preset
from untrimmed.running.evaluate import evaluate
from untrimmed.running.run import Run, is_run, open_run
from untrimmed.study.identity import identity_of
from untrimmed.training.loop import Callback
from untrimmed.training.train import train

WARMUP_SHARE = 0.1  # the published hundredth would be few steps of a short training, too few for the larger rates
Known = Literal["val", "test"]  # what a trial can tell: of validation videos, of test videos
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
class World:
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
    def num_train(self) -> int:
        """How many videos there are to learn from."""
        return len(videos_of(read_split(self.data, self.root, "train")))

    @cached_property
    def identity(self) -> str:
        """A digest of the data."""
        return identity_of(self.data, self.root)

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
        data, sizes = there.pop("data"), self._sizes
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
        return (Layout.at(self.root, self.data).folder / "simulation.json").is_file()

    @property
    def preset(self) -> str | None:
        """Whose published settings everything on this world begins with."""
        return None if has_preset("ms_sl", self.data) else OWN_DATA_PRESET


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One training of a candidate."""

    world: World
    candidate: Candidate
    rate: float
    steps: int
    seed: int

    @property
    def folder(self) -> Path:
        """Where the run is kept."""
        return self.world.out / self.world.data / f"{self.candidate}-{self.rate:g}-{self.steps}-{self.seed}"

    @property
    def epochs(self) -> int:
        """The fewest that hold the steps."""
        return math.ceil(self.steps / math.ceil(self.world.num_train / self.world.batch))

    @property
    def finished(self) -> bool:
        """Whether the run is there and nothing is left to train."""
        return is_run(self.folder) and len(open_run(self.folder).history) >= self.epochs

    def knows(self, what: Known) -> bool:
        """Whether this can be told without training: of the run, or of what was kept when it was first told."""
        return what in self._kept() or self.finished

    @property
    def note(self) -> Path:
        """What is kept beside the run, and is enough for the page where the run is not: a few kilobytes."""
        return self.folder.with_name(f"{self.folder.name}.json")

    def _kept(self) -> dict[str, Any]:
        return dict(json.loads(self.note.read_text(encoding="utf-8"))) if self.note.is_file() else {}

    def reached(self) -> float:
        """The best SumR on validation videos."""
        kept = self._kept()
        if "val" not in kept:
            kept["val"] = max(entry["val"]["SumR"] for entry in open_run(self.folder).history)
            write_whole(self.note, json.dumps(kept))
        return float(kept["val"])

    def report(self) -> Report:
        """What is found among the test videos.

        Raises: ConfigError where what was kept is of another number of captions.
        """
        kept, test = self._kept(), self.world.sets[2]
        if "test" not in kept:
            made = evaluate(open_run(self.folder), moments=False)
            rank_of = dict(zip(made.caption_ids, made.rank.tolist(), strict=True))
            kept["test"] = [rank_of[caption_id] for caption_id in test.caption_ids]  # of each caption's video
            write_whole(self.note, json.dumps(kept))
        rank = np.array(kept["test"])
        if len(rank) != len(test.caption_ids):
            raise ConfigError(
                f"{self.note}: has the ranks of {len(rank)} captions, {self.world.data} has {len(test.caption_ids)} to "
                "test; it was kept of other data, choose another --out"
            )
        return Report(str(self.candidate), len(test.video_ids), {"fused": recall(rank)}, rank, tuple(test.caption_ids))

    @property
    def shared(self) -> dict[str, Any]:
        """What differs from the published settings; what begins in some epoch does so after the same share of all."""
        method = self.candidate.name
        published = load_preset(method, self.world.preset or self.world.data)
        share = self.epochs / published.train.epochs
        late = {
            f"losses.{name}.{WARMUP_EPOCH}": round(settings[WARMUP_EPOCH] * share)
            for name, settings in published.losses.items()
            if settings is not None and WARMUP_EPOCH in settings
        }
        return {
            "model.dim": self.world.dim,
            "model.max_frames": self.world.frames,
            "train.batch_size": self.world.batch,
            "train.learning_rate": self.rate,
            "train.epochs": self.epochs,
            "train.patience": self.epochs,
            "train.warmup_share": WARMUP_SHARE,
            "train.hard_negatives_from_epoch": round(published.train.hard_negatives_from_epoch * share),
            **late,
            **parse_overrides(self.candidate.settings),
        }

    @property
    def overrides(self) -> dict[str, Any]:
        """All that differs, with the widths of the world's features."""
        train_set = self.world.sets[0]
        widths = {"model.query_dim": train_set.query_dim, "model.video_dim": train_set.video_dim}
        return widths | self.shared

    def settled(self) -> Preset:
        """All settings.

        Raises: ConfigError, or UnknownNameError, for a candidate that does not exist.
        """
        preset = load_preset(self.candidate.name, self.world.preset or self.world.data, self.overrides)
        preset.sizes()
        return preset

    def refusal(self) -> str:
        """Why this candidate cannot be, in one line; empty where it can. No features are read."""
        try:
            self._without_widths().sizes()
        except ConfigError as error:
            return str(error)
        return ""

    def _without_widths(self) -> Preset:
        return load_preset(self.candidate.name, self.world.preset or self.world.data, self.shared)

    def require_teacher(self) -> None:
        """Look whether the files of a teacher are there, for a method that has one.

        Raises: FeatureError naming the file.
        """
        if self._without_widths().features.teacher:
            open_teacher(Layout.at(self.world.root, self.world.data))

    def train(self, callback: Callback = lambda progress: None) -> Run:
        """The run, which is made, taken up, or already there; one that another process is at is waited for."""
        from filelock import FileLock

        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder.parent / f"{self.folder.name}.lock"):
            return open_run(self.folder) if self.finished else self._train(callback)

    def _train(self, callback: Callback) -> Run:
        world = self.world
        return train(
            str(self.candidate.name),
            data=world.data,
            root=world.root,
            out=self.folder,
            seed=self.seed,
            preset=world.preset,
            precision=world.precision,
            device=world.device,
            callback=callback,
            **self.overrides,
        )
