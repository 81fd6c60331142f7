"""The split of a data set that a run learns or is scored on, as its model reads it."""

from collections.abc import Callable

from untrimmed.data.dataset import RetrievalDataset, load_dataset
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
    """A split with features prepared as the model reads them."""
    assert data.root is not None  # one in memory is never loaded
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
        progress=progress,
    )


def require_fit(sizes: ModelConfig, features: FeatureSettings, dataset: RetrievalDataset, wanted_by: str) -> None:
    """Raise FeatureError for another width or ConfigError for arrays of other sizes; `wanted_by` names the model."""
    place = f"{dataset.name}, split {dataset.split}"
    for what, key, found in (("frame", "video_dim", dataset.video_dim), ("word", "query_dim", dataset.query_dim)):
        if found != (wanted := getattr(sizes, key)):
            raise FeatureError(
                f"{place}: {what} features have width {found}, {wanted_by} expects {wanted}; extract others, or set "
                f"model.{key}={found}"
            )
    made = dataset.features.settings
    for key, limit, wanted, fits in (
        ("num_clips", "", sizes.num_clips, made.num_clips == sizes.num_clips),
        ("max_frames", "at most ", sizes.max_frames, made.max_frames <= sizes.max_frames),
        ("max_words", "at most ", sizes.max_words, made.max_words <= sizes.max_words),
        ("fixed_frames", "", features.fixed_frames, made.fixed_frames == features.fixed_frames),
    ):
        if not fits:
            raise ConfigError(
                f"{place}: made with {key}={getattr(made, key)}, {wanted_by} reads {limit}{wanted}; make it with "
                f"{key}={wanted}"
            )
