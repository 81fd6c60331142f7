"""A golden case: a folder with settings, recorded inputs and recorded outputs of one method's released program."""

import json
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from untrimmed.batches import QueryBatch, TrainingBatch, VideoBatch
from untrimmed.errors import FeatureError

Arrays = dict[str, np.ndarray]

# Axes of a network's recorded inputs: videos V, queries Q, frames T, words W. An axis `_` has any size.
AXES = {
    "frame_video_features": "V T _",
    "videos_mask": "V T",
    "text_feat": "Q W _",
    "text_mask": "Q W",
    "clip_video_features": "V _ _",
    "teacher_video_features": "V _ _",
    "teacher_text_feat": "Q _",
    "text_labels": "Q",
}


@dataclass(frozen=True)
class Case:
    """A folder of recorded inputs (`batch.npz`, `weights.npz`) and outputs (`expected.npz` and others).

    `precision` is the number format of our network. float64 is used to measure the rounding error of float32.
    """

    folder: Path
    method: str
    config: dict[str, Any]
    precision: torch.dtype = torch.float32

    @property
    def kind(self) -> str:
        """The kind of case, such as `forward-masked` or `loss`. The default is the folder's name."""
        return str(self.config.get("case", self.folder.name))

    @property
    def has_network(self) -> bool:
        """Whether the case contains the weights of a network, which is run for the comparison."""
        return (self.folder / "weights.npz").is_file()

    @cached_property
    def batch(self) -> Arrays:
        """The recorded inputs by name, or an empty dictionary if the case reads a data set from files."""
        path = self.folder / "batch.npz"
        return read_arrays(path) if path.is_file() else {}

    @cached_property
    def weights(self) -> Arrays:
        """The network's weights by their names in the released program."""
        return read_arrays(self.folder / "weights.npz")

    @cached_property
    def expected(self) -> Arrays:
        """The recorded outputs by name."""
        return read_arrays(self.folder / "expected.npz")

    def setting(self, name: str) -> Any:
        """Return a value of `config.json`; raises FeatureError if the value is missing."""
        if name not in self.config:
            raise FeatureError(f"{self.folder / 'config.json'}: no {name!r}; this kind of case needs it")
        return self.config[name]

    def require_constant(self, name: str, value: float) -> None:
        """Check a setting that our code does not have, because its value is constant in the released program.

        Raises: FeatureError if the case contains another value.
        """
        if self.config.get(name, value) != value:
            raise FeatureError(
                f"{self.folder / 'config.json'}: {name} is {self.config[name]}, expected {value}, which is constant "
                "in our code; use a case with that value"
            )

    def training_batch(self) -> TrainingBatch:
        """Return the recorded inputs of a network as a training batch.

        If the case does not record the video of each query, query i belongs to video i. Batches of DL-DKD contain the
        teacher's vectors and no clips. The teacher has the same frame mask as the model.
        """
        has_teacher = "teacher_video_features" in self.batch
        extra_names = ("teacher_text_feat",) if has_teacher else ("clip_video_features",)
        self.require(("text_feat", "text_mask", "frame_video_features", "videos_mask", *extra_names))
        self._require_fitting()
        tensors = {
            name: torch.from_numpy(self.batch[name]).to(self.precision)
            for name in self.batch
            if self.batch[name].dtype.kind == "f"
        }
        mask = tensors["videos_mask"] > 0
        default_index = np.arange(len(tensors["text_feat"]))
        return TrainingBatch(
            queries=QueryBatch(
                words=tensors["text_feat"],
                mask=tensors["text_mask"] > 0,
                teacher=tensors.get("teacher_text_feat"),
            ),
            videos=VideoBatch(
                clips=tensors.get("clip_video_features", tensors["frame_video_features"][:, :0]),
                frames=tensors["frame_video_features"],
                frame_mask=mask,
                teacher=tensors.get("teacher_video_features"),
                teacher_mask=mask if has_teacher else None,
            ),
            video_index=torch.from_numpy(self.batch.get("text_labels", default_index).astype(np.int64)),
        )

    def _require_fitting(self) -> None:
        """Raise a FeatureError for the first input whose shape or type contradicts the other inputs."""
        sizes: dict[str, int] = {}
        for name, axes in AXES.items():
            if name in self.batch:
                array = self.batch[name]
                lengths = zip(axes.split(), array.shape, strict=False)
                fits = all(axis == "_" or sizes.setdefault(axis, size) == size for axis, size in lengths)
                kinds = "iu" if name == "text_labels" else "f"
                if not fits or array.ndim != len(axes.split()) or array.dtype.kind not in kinds:
                    raise self._misfit(f"{name} has shape {array.shape} of {array.dtype}, expected {axes} with {sizes}")
        labels = self.batch.get("text_labels", np.arange(0 if "forward" in self.kind else sizes["Q"]))
        if labels.size and not 0 <= labels.min() <= labels.max() < sizes["V"]:
            labels_range = f"from {labels.min()} to {labels.max()} for {sizes['Q']} queries"
            raise self._misfit(f"text_labels are {labels_range}, expected indices of {sizes['V']} videos")

    def _misfit(self, problem: str) -> FeatureError:
        return FeatureError(f"{self.folder / 'batch.npz'}: {problem}")

    def require(self, names: Iterable[str]) -> None:
        """Check that `batch.npz` contains these arrays; raises FeatureError with the names of missing arrays."""
        missing = [name for name in names if name not in self.batch]
        if missing:
            raise FeatureError(f"{self.folder / 'batch.npz'}: no {', '.join(missing)}; a {self.kind} case needs them")


def load_case(folder: Path, method: str | None = None) -> Case:
    """Return the case in a folder.

    The default of `method` is the method in the case's settings, otherwise the name of the parent folder.

    Raises: FeatureError if the folder is not a case.
    """
    path = folder / "config.json"
    if not path.is_file() or not (folder / "expected.npz").is_file():
        raise FeatureError(
            f"{folder} is not a case: expected a folder with config.json and expected.npz, such as those in "
            "tests/parity/cases, e.g. tests/parity/cases/ms-sl/loss"
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FeatureError(f"{path}: not JSON ({error})") from error
    if not isinstance(config, dict):
        raise FeatureError(f"{path}: contains {type(config).__name__}, expected a JSON object of settings")
    return Case(folder, method or str(config.get("method", folder.resolve().parent.name)), config)


def read_arrays(path: Path) -> Arrays:
    """Return all arrays of an npz file. Pickled objects are not loaded.

    Raises: FeatureError for a missing or damaged file.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise FeatureError(f"{path}: cannot be read as arrays ({error})") from error
