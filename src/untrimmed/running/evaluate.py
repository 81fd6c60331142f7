"""Score a trained or imported model on a split of a data set."""

from __future__ import annotations

from pathlib import Path

from untrimmed.devices import choose_device
from untrimmed.errors import CheckpointError, ConfigError
from untrimmed.evaluation.report import Report, make_report
from untrimmed.models.storage import SETTINGS, load_model
from untrimmed.precision import Precision, choose_format
from untrimmed.presets import has_preset, load_preset
from untrimmed.presets.settings import FeatureSettings, TrainSettings
from untrimmed.running.devices import Encoding
from untrimmed.running.events import event_recall_of_split, why_no_events
from untrimmed.running.memory import keep_freed_memory
from untrimmed.running.run import METRICS, DataSettings, Run, is_model, is_run, read_config
from untrimmed.running.split import load_split, require_widths
from untrimmed.running.validation import score_split


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
) -> Report:
    """The results of a run's best model, or of any saved model, on a split.

    A run is scored on its own data set unless `data` and `root` name another; an imported model needs both. Videos are
    encoded in the released batches, because the window of GMMFormer's second branch depends on the batch. Where the
    data has moments, event-level recall is reported for any method, else the report's note says why not;
    `moments=False` leaves it out, which saves most of the time.

    Raises:
        CheckpointError: when the folder holds no model, or a damaged one.
        ConfigError: when the data set is not known.
        FeatureError: for missing, damaged or unfitting features.
    """
    folder = run.folder if isinstance(run, Run) else Path(run)
    chosen = choose_device(device)
    encoding = Encoding(chosen, choose_format(precision, str(chosen)).name)
    if not is_model(folder):
        unfinished = is_run(folder) and not (folder / METRICS).is_file()
        state = "its first epoch is not finished" if unfinished else f"no {SETTINGS} in it"
        raise CheckpointError(f"{folder}: holds no model ({state}); give the folder of a run or of an imported model")
    model = load_model(folder)
    own, features, batches = None, FeatureSettings(), TrainSettings()
    if is_run(folder):
        config = read_config(folder)
        own, features, batches = config.data, config.features, config.train
    elif data is not None and has_preset(model.name, data):
        preset = load_preset(model.name, data)
        features, batches = preset.features, preset.train
    settings = _data(folder, own, data, root, video_features)
    dataset = load_split(settings, model.config, features, split)
    require_widths(model.config, dataset, str(folder))
    model.to(encoding.device)
    keep_freed_memory()
    num_videos, num_queries = batches.eval_video_batch, batches.eval_query_batch
    scores = score_split(model, dataset, video_batch_size=num_videos, query_batch_size=num_queries, encode=encoding)
    events = None
    note = why_no_events(dataset) if moments else "event-level recall was left out"
    if not note:
        events = event_recall_of_split(
            model, dataset, video_batch_size=num_videos, query_batch_size=num_queries, encode=encoding
        )
    return make_report(
        f"{model.name} on {dataset.name}, {split}",
        scores.fused,
        scores.branches,
        dataset.video_index,
        caption_ids=dataset.caption_ids,
        moment_ratios=dataset.moment_ratios,
        events=events,
        num_events=sum(len(spans) > 0 for spans in dataset.moments),
        note=note,
    )


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
