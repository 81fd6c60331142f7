"""Load a split of a data set for a model, and check that the features fit the model."""

from collections.abc import Callable

from untrimmed.data.dataset import RetrievalDataset, load_dataset
from untrimmed.data.subtitles import width_error
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.models.base import ModelConfig
from untrimmed.presets.settings import FeatureSettings
from untrimmed.running.run import DataSettings


def load_split(
    data: DataSettings,
    sizes: ModelConfig,
    features: FeatureSettings,
    split: str,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> RetrievalDataset:
    """Return a split with features prepared for a model."""
    assert data.root is not None  # only data sets in folders are loaded
    return load_dataset(
        data.name,
        data.root,
        split,
        num_clips=sizes.num_clips,
        max_frames=sizes.max_frames,
        max_words=sizes.max_words,
        video_features=data.video_features,
        fixed_frames=features.fixed_frames,
        dtype=features.dtype,
        teacher=features.teacher,
        max_passages=sizes.max_passages,
        progress=progress,
    )


def require_fit(sizes: ModelConfig, features: FeatureSettings, dataset: RetrievalDataset, place: str) -> None:
    """Check that the features of a split fit a model. `place` names the model in messages.

    Raises: FeatureError for features of other widths or unsuitable subtitles, ConfigError for arrays that were
        resampled to other sizes.
    """
    source = f"{dataset.name}, split {dataset.split}"
    for what, key, width in (("frame", "video_dim", dataset.video_dim), ("word", "query_dim", dataset.query_dim)):
        if width != (expected := getattr(sizes, key)):
            raise FeatureError(
                f"{source}: {what} features have width {width}, {place} expects {expected}; extract other features, or "
                f"set model.{key}={width}"
            )
    actual = dataset.features.settings
    for key, limit, expected, fits in (
        ("num_clips", "", sizes.num_clips, actual.num_clips == sizes.num_clips),
        ("max_frames", "at most ", sizes.max_frames, actual.max_frames <= sizes.max_frames),
        ("max_words", "at most ", sizes.max_words, actual.max_words <= sizes.max_words),
        ("fixed_frames", "", features.fixed_frames, actual.fixed_frames == features.fixed_frames),
    ):
        if not fits:
            raise ConfigError(
                f"{source}: was prepared with {key}={getattr(actual, key)}, {place} expects {limit}{expected}; prepare "
                f"it with {key}={expected}"
            )
    if sizes.max_passages:
        _require_passages(sizes, dataset, source, place)


def _require_passages(sizes: ModelConfig, dataset: RetrievalDataset, source: str, place: str) -> None:
    passages = dataset.features.passages
    loaded = dataset.features.settings.max_passages
    if passages is None or loaded > sizes.max_passages:
        raise FeatureError(
            f"{source}: was loaded with max_passages={loaded}, but {place} reads subtitles; load it from files with "
            f"load_dataset(..., max_passages={sizes.max_passages})"
        )
    if passages.dim != sizes.query_dim:
        raise width_error(source, passages.dim, sizes.query_dim)
