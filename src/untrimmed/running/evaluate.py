"""Evaluate any model on a split of a data set."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from untrimmed.config import checked
from untrimmed.data.dataset import RetrievalDataset
from untrimmed.errors import ConfigError
from untrimmed.evaluation.report import Report
from untrimmed.models.base import RetrievalModel
from untrimmed.precision import Precision
from untrimmed.running.encoding import Encoding
from untrimmed.running.loaded import DATASET, LoadedModel, load, open_model, without_run
from untrimmed.running.run import Run
from untrimmed.running.training_free import evaluate_training_free, is_training_free


@checked(model="a run, the folder of one, or a model", dataset=DATASET)
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
    keep_scores: bool = False,
    changed: Mapping[str, Any] | None = None,
) -> Report:
    """Return the metrics of a model on a split.

    - `model`: a run (its best model is evaluated), a saved model, a model in memory, or "tf_prvr". "tf_prvr" needs no
      training, but frames and sentences must be in one vector space (`load_shared_space`).
    - `dataset`: the split. If it is not given, it is loaded by `split`, `data`, `root` and `video_features`, as in
      `open_model`.
    - `device` and `precision`: where and how the model runs. A `LoadedModel` keeps its own device and number format.
    - `moments=False` skips the metrics of moments, which take most of the time. If the data set has no moments, the
      report's note says so.
    - `truths`: a file of dense labels, which contain all correct videos of each query.
    - `keep_scores`: add the score matrices to the report.
    - `changed`: settings of the model to replace, by dotted keys. The report's title includes them.

    Raises: ConfigError if there is no data set, or if `dataset` is given together with `data`, `root` or
        `video_features`. Also the errors of `open_model`.
    """
    if isinstance(model, RetrievalModel):
        if dataset is None:
            raise ConfigError(f"{model.name}: a model in memory has no data set; give one: evaluate(model, dataset)")
        encoding = Encoding.on(device, precision)
        model = without_run(model.to(encoding.device), encoding, model.name)
    labels = None if truths is None else Path(truths)
    source: dict[str, Any] = {"data": data, "root": root, "video_features": video_features}
    if dataset is not None and any(value is not None for value in source.values()):
        raise ConfigError("evaluate: got a dataset and also data, root or video_features; give one or the other")
    if isinstance(model, Path | str) and is_training_free(model):
        report = evaluate_training_free(
            str(model),
            dataset,
            split=split,
            moments=moments,
            truths=labels,
            keep_scores=keep_scores,
            changed=changed,
            **source,
        )
    else:
        if dataset is None and not isinstance(model, LoadedModel):
            opened = open_model(model, split=split, device=device, precision=precision, changed=changed, **source)
        else:
            loaded = model if isinstance(model, LoadedModel) else load(model, device=device, precision=precision)
            loaded = loaded.changed(changed or {})
            opened = loaded.on(loaded.load_dataset(split, **source) if dataset is None else dataset)
        report = opened.report(moments=moments, truths=labels, keep_scores=keep_scores)
    if not changed:
        return report
    return replace(report, title=f"{report.title}, {', '.join(f'{key}={value}' for key, value in changed.items())}")
