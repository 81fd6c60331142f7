"""Load a run's model, or an imported one, and open it with a split of a data set: what is evaluated and drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch
from jaxtyping import Int

from untrimmed.batches import Encode, EncodedQueries, EncodedVideos
from untrimmed.config import build, checked, override, to_plain
from untrimmed.data.dataset import RetrievalDataset
from untrimmed.data.truths import read_truths
from untrimmed.devices import choose_device
from untrimmed.errors import CheckpointError, ConfigError, NoTimelineError
from untrimmed.evaluation.report import Report
from untrimmed.models.base import RetrievalModel
from untrimmed.models.naming import ModelName
from untrimmed.models.registry import configure, plain_settings
from untrimmed.models.storage import SETTINGS, load_model
from untrimmed.precision import Precision, choose_format
from untrimmed.presets import OWN_DATA_PRESET, has_preset, load_preset
from untrimmed.presets.settings import FeatureSettings, TrainSettings
from untrimmed.running.batches import query_batch, query_batch_of, video_batch, video_batch_of
from untrimmed.running.encoding import Encoding, require_float32
from untrimmed.running.events import event_recall_of_split, why_no_events
from untrimmed.running.memory import keep_freed_memory
from untrimmed.running.run import METRICS, DataSettings, Run, is_model, is_run, read_config
from untrimmed.running.split import load_split, require_sizes, require_widths
from untrimmed.running.split_report import split_report
from untrimmed.running.training_free import evaluate_training_free, is_training_free
from untrimmed.running.validation import Batching, SplitScores, encode_queries, encode_videos, evaluating, score_split
from untrimmed.scores.score import Scores

_DATASET = "a data set (load_dataset, dataset_of_arrays)"
JUDGING = "train.annotators"  # the one setting of training that says how results are counted


@dataclass(frozen=True, kw_only=True)
class OpenedModel:
    """A model in evaluation mode and a split of a data set; `train` says how many videos and queries are a batch."""

    model: RetrievalModel
    dataset: RetrievalDataset
    train: TrainSettings
    encode: Encode

    @property
    def batching(self) -> Batching:
        """How all of the split is encoded."""
        return Batching(videos=self.train.eval_video_batch, queries=self.train.eval_query_batch, encode=self.encode)

    def queries(self, captions: Int[np.ndarray, " Q"]) -> EncodedQueries:
        """The encodings of some captions."""
        with torch.no_grad():
            return self.encode(self.model.encode_queries, query_batch(self.dataset, captions))

    @cached_property
    def all_queries(self) -> EncodedQueries:
        """The encodings of all captions in file order."""
        return encode_queries(self.model, self.dataset, self.batching)

    def videos(self, videos: Int[np.ndarray, " V"]) -> EncodedVideos:
        """The encodings of some videos."""
        with torch.no_grad():
            return self.encode(self.model.encode_videos, video_batch(self.dataset, videos))

    def all_videos(self) -> Iterator[tuple[Int[np.ndarray, " V"], EncodedVideos]]:
        """Rows and encodings of all videos, batch by batch, so that those of a corpus are never held."""
        return encode_videos(self.model, self.dataset, self.batching)

    def score(self, dataset: RetrievalDataset | None = None) -> SplitScores:
        """All scores of the split, or of another form of it."""
        return score_split(self.model, self.dataset if dataset is None else dataset, self.batching)

    def watched(self) -> dict[str, float]:
        """Means over the split of the numbers that the model wants followed over its epochs, by name; none for most.

        `NAME_p90` is what nine in ten queries do not exceed: by it a search tells what is unusual.
        """
        first = np.arange(1)
        with evaluating(self.model):
            of_queries = self.model.watched_queries(self.queries(first))
            of_videos = self.model.watched_videos(self.videos(first))
            found = self.model.watched_queries(self.all_queries) if of_queries else {}
            batches = [self.model.watched_videos(videos) for _, videos in self.all_videos()] if of_videos else []
        found |= {name: torch.cat([own[name] for own in batches]) for name in of_videos}
        means = {name: float(values.double().mean()) for name, values in found.items()}
        return means | {f"{name}_p90": float(found[name].double().quantile(0.9)) for name in of_queries}

    def event_recall(self) -> dict[str, float]:
        """Event-level recall, see `event_recall_of_split`."""
        return event_recall_of_split(self.model, self.dataset, self.batching, annotators=self.train.annotators)

    def report(self, *, moments: bool = True, truths: Path | None = None) -> Report:
        """The results; event-level recall only with `moments`, and where the data has moments and the model finds some.

        `truths` is a file of dense labels (`data/truths.py`): recall with several right videos stands beside the rest.
        """
        dataset = self.dataset
        labels = None if truths is None else read_truths(truths, dataset.annotations)
        scores = self.score()
        if count := np.count_nonzero(np.isnan(scores.fused)):
            raise CheckpointError(
                f"{self.model.name} on {dataset.name}, {dataset.split}: {count:,} scores are nan; the model is damaged "
                "or its training diverged, train it again with a lower train.learning_rate, or mend nan among features"
            )
        note, events = why_no_events(dataset) if moments else "event-level recall was left out", None
        if not note:
            try:
                events = self.event_recall()
            except NoTimelineError as error:
                note = f"{error}; event-level recall was left out"
        name, fused, branches = self.model.name, scores.fused, scores.branches
        return split_report(name, dataset, fused, branches, events=events, note=note, labels=labels)


class DataNames(TypedDict):
    """Which data set, where it lies, and which of its frame features, as far as they are named."""

    data: str | None
    root: Path | str | None
    video_features: str | None


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model on its device, ready to encode and to score; `data` is what its run learned on, where that is known."""

    model: RetrievalModel
    encode: Encode
    train: TrainSettings = field(default_factory=TrainSettings)
    features: FeatureSettings = field(default_factory=FeatureSettings)
    data: DataSettings | None = None
    place: str = "the model"  # where it lies, for messages

    @checked(words="a table of word vectors for each sentence")
    def encode_queries(self, words: Sequence[Any]) -> EncodedQueries:
        """The encodings of sentences, each given by its word vectors [words, query_dim] as their encoder gave them: an
        array, a tensor, or lists of rows.

        Raises: FeatureError for a table of another width, or with numbers that are not finite.
        """
        batch = query_batch_of(words, self.model.config)
        with evaluating(self.model):
            return self.encode(self.model.encode_queries, batch)

    @checked(frames="a table of frame vectors for each video")
    def encode_videos(self, frames: Sequence[Any]) -> EncodedVideos:
        """The encodings of videos, each given by its frame vectors [frames, video_dim] in order of time: an array, a
        tensor, or lists of rows.

        Raises: FeatureError for a table of another width, or with numbers that are not finite.
        """
        batch = video_batch_of(frames, self.model.config, fixed_frames=self.features.fixed_frames)
        with evaluating(self.model):
            return self.encode(self.model.encode_videos, batch)

    @checked(queries="what encode_queries gave", videos="what encode_videos gave")
    def score(self, queries: EncodedQueries, videos: EncodedVideos) -> Scores:
        """Every query against every video: `fused` ranks the videos, higher is better; branches by name."""
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
        """A split of the run's data set, which may have moved to `root`, or of another, as the model reads features.

        Raises:
            ConfigError: when the data set is not known.
            FeatureError: for missing, damaged or unfitting features.
        """
        settings = _data(self.place, self.data, data, root, video_features)
        return load_split(settings, self.model.config, self.features, split)

    @checked(dataset=_DATASET)
    def on(self, dataset: RetrievalDataset) -> OpenedModel:
        """The model with a split, which may be in memory.

        Raises: FeatureError for features that it was not made for.
        """
        require_widths(self.model.config, dataset, self.place)
        require_sizes(self.model.config, self.features, dataset, self.place)
        return OpenedModel(model=self.model, dataset=dataset, train=self.train, encode=self.encode)

    @checked()
    def changed(self, settings: Mapping[str, Any]) -> LoadedModel:
        """The same with other settings by dotted keys: those of the model, and `train.annotators`, which judges it.

        Raises: ConfigError when a setting cannot change after training.
        """
        judging = {key.removeprefix("train."): value for key, value in settings.items() if key == JUDGING}
        own = {key: value for key, value in settings.items() if key != JUDGING}
        train = build(TrainSettings, override(to_plain(self.train), judging), where="train") if judging else self.train
        return replace(self, model=with_settings(self.model, own) if own else self.model, train=train)

    @checked(dataset=_DATASET)
    def evaluate(
        self, dataset: RetrievalDataset | None = None, *, moments: bool = True, truths: Path | str | None = None
    ) -> Report:
        """The results on a split, as `OpenedModel.report`; without one, on the test split of the run's data set."""
        labels = None if truths is None else Path(truths)
        return self.on(self.load_dataset() if dataset is None else dataset).report(moments=moments, truths=labels)


@checked(folder="a run, or the folder of one or of an imported model")
def load(
    folder: Run | Path | str,
    *,
    device: str | torch.device = "auto",
    precision: Precision = "float32",
    changed: Mapping[str, Any] | None = None,
) -> LoadedModel:
    """The best model of a run, or an imported one, in evaluation mode.

    `changed` are settings that it gets instead of its own, by dotted keys as in training:
    `{"model.glance_weight": 1.0}`; see `LoadedModel.changed`.

    Raises:
        CheckpointError: when the folder holds no model, or a damaged one.
        ConfigError: when a setting cannot change after training.
    """
    folder = folder.folder if isinstance(folder, Run) else Path(folder)
    encoding = _encoding(device, precision)
    if not is_model(folder):
        unfinished = is_run(folder) and not (folder / METRICS).is_file()
        state = "its first epoch is not finished" if unfinished else f"no {SETTINGS} in it"
        raise CheckpointError(f"{folder}: holds no model ({state}); give the folder of a run or of an imported model")
    model = load_model(folder)
    keep_freed_memory()
    loaded = _without_run(model.to(encoding.device).eval(), encoding, str(folder))
    if is_run(folder):
        config = read_config(folder)
        loaded = replace(loaded, train=config.train, features=config.features, data=config.data)
    return loaded.changed(changed or {})


def _without_run(model: RetrievalModel, encode: Encode, place: str) -> LoadedModel:
    """A model of no run: it reads features, and is evaluated in batches, as its method's preset says.

    Raises: ConfigError if its weights are not float32.
    """
    require_float32(model)
    method = ModelName.of(model.name).method
    if not has_preset(method, OWN_DATA_PRESET):
        return LoadedModel(model=model, encode=encode, place=place)
    preset = load_preset(method, OWN_DATA_PRESET)
    features = FeatureSettings(fixed_frames=preset.features.fixed_frames)  # no teacher: training alone has one
    return LoadedModel(model=model, encode=encode, train=preset.train, features=features, place=place)


def _encoding(device: str | torch.device, precision: Precision) -> Encoding:
    chosen = choose_device(device)
    return Encoding(chosen, choose_format(precision, str(chosen)).name)


@checked(model="a run, the folder of one, or a model", dataset=_DATASET)
def evaluate(
    model: Run | Path | str | LoadedModel | RetrievalModel,
    dataset: RetrievalDataset | None = None,
    *,
    split: str = "test",
    data: str | None = None,
    root: Path | str | None = None,
    video_features: str | None = None,
    device: str | torch.device = "auto",
    precision: Precision = "float32",
    moments: bool = True,
    truths: Path | str | None = None,
    changed: Mapping[str, Any] | None = None,
) -> Report:
    """The results of a run's best model, of any saved model or of one in memory, on a split; "tf_prvr", which needs no
    training, takes data sets of one space (`load_shared_space`).

    The split is `dataset`, or named as in `open_model`; `device` and `precision` are for what is not loaded yet. Where
    the data has moments, event-level recall is reported for any method, else the report's note says why not;
    `moments=False` leaves it out, which saves most of the time. `truths` is as in `OpenedModel.report`, `changed` as in
    `load`; the title names the changed settings.

    Raises: ConfigError where a model in memory comes without `dataset`, or a data set is given and named; else what
        `open_model` raises.
    """
    if isinstance(model, RetrievalModel):
        if dataset is None:
            raise ConfigError(f"{model.name}: a model in memory knows no data set; give one: evaluate(model, dataset)")
        encoding = _encoding(device, precision)
        model = _without_run(model.to(encoding.device), encoding, model.name)
    labels = None if truths is None else Path(truths)
    named: DataNames = {"data": data, "root": root, "video_features": video_features}
    if dataset is not None and any(value is not None for value in named.values()):
        raise ConfigError("evaluate: a data set is given, and data, root or video_features name one; leave one out")
    if isinstance(model, Path | str) and is_training_free(model):
        report = evaluate_training_free(
            str(model), dataset, split=split, moments=moments, truths=labels, changed=changed, **named
        )
    else:
        if dataset is None and not isinstance(model, LoadedModel):
            opened = open_model(model, split=split, device=device, precision=precision, changed=changed, **named)
        else:
            loaded = model if isinstance(model, LoadedModel) else load(model, device=device, precision=precision)
            loaded = loaded.changed(changed or {})
            opened = loaded.on(loaded.load_dataset(split, **named) if dataset is None else dataset)
        report = opened.report(moments=moments, truths=labels)
    if not changed:
        return report
    return replace(report, title=f"{report.title}, {', '.join(f'{key}={value}' for key, value in changed.items())}")


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
    """The best model of a run, or an imported one, with a split of a data set.

    A run has its own data set, which may have moved to `root`, unless `data` and `root` name another; an imported model
    needs both. Videos are encoded in the released batches, because the window of GMMFormer's second branch depends on
    the batch. `changed` is as in `load`.

    Raises:
        CheckpointError: when the folder holds no model, or a damaged one.
        ConfigError: when the data set is not known, or a setting cannot change after training.
        FeatureError: for missing, damaged or unfitting features.
    """
    loaded = load(folder, device=device, precision=precision)
    if loaded.data is None and data is not None and has_preset(loaded.model.name, data):
        preset = load_preset(loaded.model.name, data)
        loaded = replace(loaded, train=preset.train, features=preset.features)
    loaded = loaded.changed(changed or {})
    return loaded.on(loaded.load_dataset(split, data=data, root=root, video_features=video_features))


def with_settings(model: RetrievalModel, changed: Mapping[str, Any]) -> RetrievalModel:
    """The model with other settings, by dotted keys that begin with `model.`, and the weights that it has learned.

    Raises: ConfigError when a setting cannot change after training.
    """
    for key in changed:
        if not key.startswith("model."):
            raise ConfigError(
                f"setting {key!r} cannot change after training; write model.KEY=VALUE or {JUDGING}=COUNT, or train anew"
            )
    settings = override(plain_settings(model.config), {key.removeprefix("model."): changed[key] for key in changed})
    other = type(model)(configure(ModelName.of(model.name), settings))
    own, wanted = ({name: tensor.shape for name, tensor in each.state_dict().items()} for each in (model, other))
    if own != wanted:
        unfit = min(name for name in own | wanted if own.get(name) != wanted.get(name))
        raise ConfigError(
            f"{', '.join(changed)}: the learned weights do not fit ({unfit} has shape {_shape(own.get(unfit))}, wanted "
            f"{_shape(wanted.get(unfit))}); train a model with this setting"
        )
    other.load_state_dict(model.state_dict())
    return other.to(next(model.parameters()).device).train(model.training)


def _shape(shape: torch.Size | None) -> str:
    return "none" if shape is None else str(tuple(shape))


def _data(
    place: str, own: DataSettings | None, data: str | None, root: Path | str | None, video_features: str | None
) -> DataSettings:
    name = data or (own.name if own else None)
    folder = str(root) if root is not None else (own.root if own else None)
    if name is None or folder is None:
        raise ConfigError(
            f"{place}: does not say which data set to use; give --data NAME and --root DIR, or evaluate(model, dataset)"
        )
    if video_features is None and own is not None and data in (None, own.name):
        video_features = own.video_features
    return DataSettings(name=name, root=folder, video_features=video_features)
