"""Open a run, or an imported model, with a split of a data set: what is evaluated, drawn and reproduced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from untrimmed.batches import Encode, EncodedQueries, EncodedVideos
from untrimmed.config import override
from untrimmed.data.dataset import RetrievalDataset
from untrimmed.data.truths import read_truths
from untrimmed.devices import choose_device
from untrimmed.errors import CheckpointError, ConfigError
from untrimmed.evaluation.report import Report, make_report
from untrimmed.models.base import RetrievalModel
from untrimmed.models.naming import ModelName
from untrimmed.models.registry import configure, plain_settings
from untrimmed.models.storage import SETTINGS, load_model
from untrimmed.precision import Precision, choose_format
from untrimmed.presets import has_preset, load_preset
from untrimmed.presets.settings import FeatureSettings, TrainSettings
from untrimmed.running.batches import query_batch, video_batch
from untrimmed.running.encoding import Encoding
from untrimmed.running.events import event_recall_of_split, why_no_events
from untrimmed.running.memory import keep_freed_memory
from untrimmed.running.run import METRICS, DataSettings, Run, is_model, is_run, read_config
from untrimmed.running.split import load_split, require_widths
from untrimmed.running.validation import Batching, SplitScores, encode_queries, encode_videos, score_split


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

    def event_recall(self) -> dict[str, float]:
        """Event-level recall, see `event_recall_of_split`."""
        return event_recall_of_split(self.model, self.dataset, self.batching)

    def report(self, *, moments: bool = True, truths: Path | None = None) -> Report:
        """The results; event-level recall only with `moments`, and where the data has moments.

        `truths` is a file of dense labels (`data/truths.py`): recall with several right videos stands beside the rest.
        """
        dataset = self.dataset
        labels = None if truths is None else read_truths(truths, dataset.annotations)
        scores = self.score()
        note = why_no_events(dataset) if moments else "event-level recall was left out"
        return make_report(
            f"{self.model.name} on {dataset.name}, {dataset.split}",
            scores.fused,
            scores.branches,
            dataset.video_index,
            caption_ids=dataset.caption_ids,
            moment_ratios=dataset.moment_ratios,
            events=None if note else self.event_recall(),
            num_events=sum(len(spans) > 0 for spans in dataset.moments),
            note=note,
            right_videos=None if labels is None else labels.video_index,
            truths=None if labels is None else labels.counts,
        )


def evaluate(
    run: Run | Path | str,
    *,
    split: str = "test",
    data: str | None = None,
    root: Path | str | None = None,
    video_features: str | None = None,
    device: str = "auto",
    precision: Precision = "float32",
    moments: bool = True,
    truths: Path | str | None = None,
    changed: Mapping[str, Any] | None = None,
) -> Report:
    """The results of a run's best model, or of any saved model, on a split; the rest is as in `open_model`.

    Where the data has moments, event-level recall is reported for any method, else the report's note says why not;
    `moments=False` leaves it out, which saves most of the time. `truths` is as in `OpenedModel.report`. The title names
    the `changed` settings.
    """
    opened = open_model(
        run.folder if isinstance(run, Run) else Path(run),
        split=split,
        data=data,
        root=root,
        video_features=video_features,
        device=device,
        precision=precision,
        changed=changed,
    )
    report = opened.report(moments=moments, truths=None if truths is None else Path(truths))
    if not changed:
        return report
    return replace(report, title=f"{report.title}, {', '.join(f'{key}={value}' for key, value in changed.items())}")


def open_model(
    folder: Path,
    *,
    split: str = "test",
    data: str | None = None,
    root: Path | str | None = None,
    video_features: str | None = None,
    device: str = "auto",
    precision: Precision = "float32",
    changed: Mapping[str, Any] | None = None,
) -> OpenedModel:
    """The best model of a run, or an imported one, with a split of a data set.

    A run has its own data set, which may have moved to `root`, unless `data` and `root` name another; an imported model
    needs both. Videos are encoded in the released batches, because the window of GMMFormer's second branch depends on
    the batch. `changed` are settings that the trained model gets instead of its own, by dotted keys as in training:
    `{"model.glance_weight": 1.0}`.

    Raises:
        CheckpointError: when the folder holds no model, or a damaged one.
        ConfigError: when the data set is not known, or a setting cannot change after training.
        FeatureError: for missing, damaged or unfitting features.
    """
    chosen = choose_device(device)
    encoding = Encoding(chosen, choose_format(precision, str(chosen)).name)
    if not is_model(folder):
        unfinished = is_run(folder) and not (folder / METRICS).is_file()
        state = "its first epoch is not finished" if unfinished else f"no {SETTINGS} in it"
        raise CheckpointError(f"{folder}: holds no model ({state}); give the folder of a run or of an imported model")
    model = load_model(folder)
    if changed:
        model = _with_settings(model, changed)
    own, features, train = None, FeatureSettings(), TrainSettings()
    if is_run(folder):
        config = read_config(folder)
        own, features, train = config.data, config.features, config.train
    elif data is not None and has_preset(model.name, data):
        preset = load_preset(model.name, data)
        features, train = preset.features, preset.train
    settings = _data(folder, own, data, root, video_features)
    dataset = load_split(settings, model.config, features, split)
    require_widths(model.config, dataset, str(folder))
    keep_freed_memory()
    return OpenedModel(model=model.to(encoding.device).eval(), dataset=dataset, train=train, encode=encoding)


def _with_settings(model: RetrievalModel, changed: Mapping[str, Any]) -> RetrievalModel:
    """The model with other settings and the weights that it has learned."""
    for key in changed:
        if not key.startswith("model."):
            raise ConfigError(f"setting {key!r} cannot change after training; write model.KEY=VALUE, or train anew")
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
    return other


def _shape(shape: torch.Size | None) -> str:
    return "none" if shape is None else str(tuple(shape))


def _data(
    folder: Path, own: DataSettings | None, data: str | None, root: Path | str | None, video_features: str | None
) -> DataSettings:
    name = data or (own.name if own else None)
    place = str(root) if root is not None else (own.root if own else None)
    if name is None or place is None:
        raise ConfigError(f"{folder}: does not say which data set to use; give --data NAME and --root DIR")
    if video_features is None and own is not None and data in (None, own.name):
        video_features = own.video_features
    return DataSettings(name=name, root=place, video_features=video_features)
