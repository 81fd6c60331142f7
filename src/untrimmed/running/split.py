"""The split of a data set that a run learns or is scored on, as its model reads it."""

from __future__ import annotations

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


def require_widths(sizes: ModelConfig, dataset: RetrievalDataset, wanted_by: str) -> None:
    """Raise a FeatureError if features are not as wide as the model reads them."""
    for what, key, found in (
        ("frame", "video_dim", dataset.video_dim),
        ("word", "query_dim", dataset.query_dim),
    ):
        wanted = getattr(sizes, key)
        if found != wanted:
            raise FeatureError(
                f"{dataset.name}, split {dataset.split}: {what} features have width {found}, {wanted_by} "
                f"expects {wanted}; extract others, or set model.{key}={found}"
            )


def require_sizes(sizes: ModelConfig, features: FeatureSettings, dataset: RetrievalDataset, wanted_by: str) -> None:
    """Raise a ConfigError if features of a data set in memory were resampled to what the model does not read."""
    made = dataset.features.settings
    for key, limit, wanted, fits in (
        ("num_clips", "", sizes.num_clips, made.num_clips == sizes.num_clips),
        ("max_frames", "at most ", sizes.max_frames, made.max_frames <= sizes.max_frames),
        ("max_words", "at most ", sizes.max_words, made.max_words <= sizes.max_words),
        ("fixed_frames", "", features.fixed_frames, made.fixed_frames == features.fixed_frames),
    ):
        if not fits:
            raise ConfigError(
                f"{dataset.name}, split {dataset.split}: made with {key}={getattr(made, key)}, {wanted_by} reads "
                f"{limit}{wanted}; make it with {key}={wanted}"
            )
