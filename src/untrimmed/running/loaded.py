"""Load the model of a run, or an imported model, for encoding, scoring and evaluation."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from untrimmed.batches import Encode, EncodedQueries, EncodedVideos
from untrimmed.config import build, checked, override, to_plain
from untrimmed.data.dataset import RetrievalDataset
from untrimmed.errors import CheckpointError, ConfigError
from untrimmed.evaluation.report import Report
from untrimmed.models.base import RetrievalModel
from untrimmed.models.naming import ModelName
from untrimmed.models.registry import build_model, configure, plain_settings
from untrimmed.models.storage import SETTINGS, load_model
from untrimmed.precision import Precision
from untrimmed.presets import OWN_DATA_PRESET, has_preset, load_preset
from untrimmed.presets.settings import FeatureSettings, TrainSettings
from untrimmed.running.batches import query_batch_of, video_batch_of
from untrimmed.running.encoding import Encoding, evaluating, require_float32
from untrimmed.running.memory import keep_freed_memory
from untrimmed.running.opened import OpenedModel
from untrimmed.running.run import METRICS, DataSettings, Run, is_model, is_run, open_run, read_config
from untrimmed.running.split import load_split, require_fit
from untrimmed.scores.score import Scores

logger = logging.getLogger(__name__)

DATASET = "a data set (load_dataset, dataset_of_arrays)"
EVALUATION_SETTING = "train.annotators"  # the only training setting that affects an evaluation


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model on a device, which can encode and score.

    `data` is the data set of the run that trained the model, or None if the model has no run.
    """

    model: RetrievalModel
    encode: Encode
    train: TrainSettings = field(default_factory=TrainSettings)
    features: FeatureSettings = field(default_factory=FeatureSettings)
    data: DataSettings | None = None
    place: str = "the model"  # folder of the model, for messages

    @checked(words="a table of word vectors for each sentence")
    def encode_queries(self, words: Sequence[Any]) -> EncodedQueries:
        """Return the encodings of sentences.

        `words` contains the word vectors [words, query_dim] of each sentence: an array, a tensor or a list of rows.

        Raises: FeatureError for word vectors of another width, or with numbers that are not finite.
        """
        batch = query_batch_of(words, self.model.config)
        with evaluating(self.model):
            return self.encode(self.model.encode_queries, batch)

    @checked(frames="a table of frame vectors for each video")
    def encode_videos(self, frames: Sequence[Any]) -> EncodedVideos:
        """Return the encodings of videos.

        `frames` contains the frame vectors [frames, video_dim] of each video in temporal order: an array, a tensor or a
        list of rows.

        Raises: FeatureError for frame vectors of another width, or with numbers that are not finite.
        """
        batch = video_batch_of(frames, self.model.config, fixed_frames=self.features.fixed_frames)
        with evaluating(self.model):
            return self.encode(self.model.encode_videos, batch)

    @checked(queries="the result of encode_queries", videos="the result of encode_videos")
    def score(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """Return the scores of every query with every video: the `branches` by name, and `fused` to rank videos."""
        with evaluating(self.model):
            return self.model.score(queries, videos)

    @checked()
    def load_dataset(
        self,
        split: str = "test",
        *,
        data: str | None = None,
        root: Path | str | None = None,
        video_features: str | None = None,
    ) -> RetrievalDataset:
        """Return a split of a data set, prepared for the model.

        The default of `data` is the run's data set. If this data set was moved after training, pass its new folder as
        `root`.

        Raises: ConfigError for an unknown data set, FeatureError for missing, damaged or incompatible features.
        """
        trained_on = self.data
        name = data or (trained_on.name if trained_on else None)
        folder = str(root) if root is not None else (trained_on.root if trained_on else None)
        if name is None or folder is None:
            raise ConfigError(
                f"{self.place}: has no data set of its own; name a data set (data) and the folder that "
                "contains it (root), or call evaluate(model, dataset)"
            )
        if video_features is None and trained_on is not None and data in (None, trained_on.name):
            video_features = trained_on.video_features
        settings = DataSettings(name=name, root=folder, video_features=video_features)
        return load_split(settings, self.model.config, self.features, split)

    @checked(dataset=DATASET)
    def on(self, dataset: RetrievalDataset) -> OpenedModel:
        """Return the model together with a split.

        Raises: FeatureError or ConfigError if the split's features do not fit the model.
        """
        require_fit(self.model.config, self.features, dataset, self.place)
        return OpenedModel(model=self.model, dataset=dataset, train=self.train, encode=self.encode)

    @checked()
    def changed(self, settings: Mapping[str, Any]) -> LoadedModel:
        """Return a copy with new values of some settings. The keys are `model.KEY` or `train.annotators`.

        Raises: ConfigError if a setting cannot change after training.
        """
        counting = {key.removeprefix("train."): settings[key] for key in settings if key == EVALUATION_SETTING}
        of_model = {key: value for key, value in settings.items() if key != EVALUATION_SETTING}
        train = self.train
        if counting:
            train = build(TrainSettings, override(to_plain(self.train), counting), where="train")
        return replace(self, model=with_settings(self.model, of_model) if of_model else self.model, train=train)

    @checked(dataset=DATASET)
    def evaluate(
        self,
        dataset: RetrievalDataset | None = None,
        *,
        moments: bool = True,
        truths: Path | str | None = None,
        keep_scores: bool = False,
    ) -> Report:
        """Return the metrics on a split, by default the test split of the run's data set (see `OpenedModel.report`)."""
        labels = None if truths is None else Path(truths)
        opened = self.on(self.load_dataset() if dataset is None else dataset)
        return opened.report(moments=moments, truths=labels, keep_scores=keep_scores)


@checked(folder="a run, or the folder of one or of an imported model")
def load(
    folder: Run | Path | str,
    *,
    device: str | torch.device = "auto",
    precision: Precision = "float32",
    changed: Mapping[str, Any] | None = None,
) -> LoadedModel:
    """Return the best model of a run, or an imported model, in evaluation mode.

    `changed` contains new values of settings by dotted keys, such as `{"model.glance_weight": 1.0}` (see
    `LoadedModel.changed`).

    Raises: CheckpointError for a missing or damaged model, ConfigError if a setting cannot change after training.
    """
    folder = folder.folder if isinstance(folder, Run) else Path(folder)
    encoding = Encoding.on(device, precision)
    if not is_model(folder):
        unfinished = is_run(folder) and not (folder / METRICS).is_file()
        state = "its first epoch is not finished" if unfinished else f"no {SETTINGS} in it"
        raise CheckpointError(f"{folder}: has no model ({state}); give the folder of a run or of an imported model")
    model = load_model(folder)
    keep_freed_memory()
    loaded = without_run(model.to(encoding.device).eval(), encoding, str(folder))
    if is_run(folder):
        if not open_run(folder).is_finished:
            logger.warning("%s: training is not finished; this is the model of its best epoch so far", folder)
        config = read_config(folder)
        loaded = replace(loaded, train=config.train, features=config.features, data=config.data)
    return loaded.changed(changed or {})


def without_run(model: RetrievalModel, encode: Encode, place: str) -> LoadedModel:
    """Return a model that has no run as a `LoadedModel` with the settings in the preset of its method.

    Raises: ConfigError for a model whose weights are not float32.
    """
    require_float32(model)
    method = ModelName.of(model.name).method
    preset = load_preset(method, OWN_DATA_PRESET)
    # the setting `teacher` is omitted, because a teacher is needed only for training
    features = FeatureSettings(fixed_frames=preset.features.fixed_frames)
    return LoadedModel(model=model, encode=encode, train=preset.train, features=features, place=place)


def open_model(
    folder: Run | Path | str,
    *,
    split: str = "test",
    data: str | None = None,
    root: Path | str | None = None,
    video_features: str | None = None,
    device: str | torch.device = "auto",
    precision: Precision = "float32",
    changed: Mapping[str, Any] | None = None,
) -> OpenedModel:
    """Return the best model of a run, or an imported model, together with a split of a data set.

    The default data set is the data set of the run. If this data set was moved after training, pass its new folder as
    `root`. An imported model needs both `data` and `root`.

    Videos are encoded in batches of the same size as in the released programs, because one of GMMFormer's windows
    depends on the longest video of the batch.

    Raises: CheckpointError for a missing or damaged model. ConfigError for an unknown data set or a setting that cannot
        change after training. FeatureError for missing, damaged or incompatible features.
    """
    loaded = load(folder, device=device, precision=precision)
    if loaded.data is None and data is not None and has_preset(loaded.model.name, data):
        preset = load_preset(loaded.model.name, data)
        loaded = replace(loaded, train=preset.train, features=preset.features)
    loaded = loaded.changed(changed or {})
    return loaded.on(loaded.load_dataset(split, data=data, root=root, video_features=video_features))


def with_settings(model: RetrievalModel, changed: Mapping[str, Any]) -> RetrievalModel:
    """Return a copy of the model with other settings and the same learned weights.

    Raises: ConfigError if a setting cannot change after training.
    """
    for key in changed:
        if not key.startswith("model."):
            raise ConfigError(
                f"setting {key!r} cannot change after training; write model.KEY=VALUE or "
                f"{EVALUATION_SETTING}=COUNT, or train again"
            )
    settings = override(plain_settings(model.config), {key.removeprefix("model."): changed[key] for key in changed})
    variant = build_model(type(model), configure(ModelName.of(model.name), settings))
    shapes, expected = ({name: t.shape for name, t in module.state_dict().items()} for module in (model, variant))
    if shapes != expected:
        unfit = min(name for name in shapes | expected if shapes.get(name) != expected.get(name))
        raise ConfigError(
            f"{', '.join(changed)}: the learned weights do not fit ({unfit} has shape {_shape(shapes.get(unfit))}, "
            f"expected {_shape(expected.get(unfit))}); train a model with this setting"
        )
    variant.load_state_dict(model.state_dict())
    return variant.to(next(model.parameters()).device).train(model.training)


def _shape(shape: torch.Size | None) -> str:
    return "none" if shape is None else str(tuple(shape))
