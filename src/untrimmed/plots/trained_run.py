"""The input of every picture: a trained model and a split of a data set."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from untrimmed.errors import CheckpointError, ConfigError, FeatureError, UnknownNameError, nearest
from untrimmed.evaluation.recall import ranks
from untrimmed.running.loaded import open_model
from untrimmed.running.opened import OpenedModel
from untrimmed.running.run import RunConfig, is_run, open_run


@dataclass(frozen=True, kw_only=True)
class TrainedRun(OpenedModel):
    """The best model of a run, and a split of a data set. `label` is the run's name in pictures.

    `history` contains the lines of metrics.jsonl, one per epoch.
    """

    label: str
    config: RunConfig
    history: list[dict[str, Any]]

    @cached_property
    def rank(self) -> Int[np.ndarray, " Q"]:
        """The rank of the correct video for each caption. Rank 1 is best."""
        return ranks(self.score().fused, self.dataset.video_index)

    def duration_s(self, video: int) -> float:
        """Return the duration of a video in seconds; raises FeatureError if the duration is unknown."""
        dataset = self.dataset
        duration_s = float(dataset.durations_s[video])
        if not duration_s > 0:
            name = dataset.video_ids[video]
            raise FeatureError(
                f"{dataset.name}: video {name!r} has no duration; add it, or choose another video with --query"
            )
        return duration_s

    def captions_of(self, videos: Int[np.ndarray, " V"]) -> tuple[Int[np.ndarray, " Q"], Int[np.ndarray, " Q"]]:
        """Return the row numbers of all captions of some videos, and the position in `videos` of each caption's video.

        `videos` must be sorted.
        """
        index = self.dataset.video_index
        captions = np.flatnonzero(np.isin(index, videos))
        return captions, np.searchsorted(videos, index[captions])

    def caption(self, caption_id: str | None) -> int:
        """Return the row number of a caption.

        By default, choose the video with the largest number of captions that have a moment, and return the first of
        these captions.

        Raises: UnknownNameError if the split has no such caption.
        """
        ids = self.dataset.caption_ids
        if caption_id is None:
            located = np.array([len(moments) > 0 for moments in self.dataset.moments])
            of_video = np.bincount(self.dataset.video_index, weights=located)
            richest = self.dataset.captions_of(int(of_video.argmax()))
            return int(richest[np.argmax(located[richest])])
        if caption_id not in ids:
            place = f"{self.dataset.name}, split {self.dataset.split}"
            hint = nearest(caption_id, ids) or f"; its ids look like {ids[0]!r}"
            raise UnknownNameError(f"{place}: no caption has the id {caption_id!r}{hint}")
        return ids.index(caption_id)


def open_trained(
    folder: Path, *, label: str, split: str = "test", root: Path | None = None, device: str = "auto"
) -> TrainedRun:
    """Return the best model of a run and a split of its data set. `root` is the folder of data sets if they have moved.

    Raises: CheckpointError for a folder without a finished run, FeatureError for features that do not fit the model.
    """
    if not is_run(folder):
        state = "contains no run (no config.yaml in it)" if folder.is_dir() else "no such folder"
        raise CheckpointError(f"{folder}: {state}; give the folder of a run (untrimmed train --out)")
    opened = open_model(folder, split=split, root=root, device=device)
    run = open_run(folder)
    return TrainedRun(label=label, config=run.config, history=run.history, **vars(opened))


def labels(folders: Sequence[Path]) -> list[str]:
    """Return a unique short name for each run: the name of its folder, or the shortest end of its path that is unique.

    >>> labels([Path("a/proto"), Path("a/ral")]), labels([Path("a/run"), Path("b/run")])
    (['proto', 'ral'], ['a/run', 'b/run'])

    Raises: ConfigError if a run is given twice.
    """
    paths = [folder.resolve() for folder in folders]
    repeated = next((folder for folder, path in zip(folders, paths, strict=True) if paths.count(path) > 1), None)
    if repeated is not None:
        raise ConfigError(f"{repeated}: this run is given twice; give each run once")
    names = [path.name for path in paths]
    for length in range(2, max(len(path.parts) for path in paths) + 1):
        if len(set(names)) == len(names):
            break
        names = ["/".join(path.parts[-length:]) for path in paths]
    return names


def require_same_split(runs: Sequence[TrainedRun]) -> None:
    """Raise a ConfigError unless all runs have the same captions."""
    first = runs[0]
    for run in runs[1:]:
        if run.dataset.caption_ids != first.dataset.caption_ids:
            raise ConfigError(
                f"{first.label} was trained on {first.config.data.name} in {first.config.data.root}, {run.label} on "
                f"{run.config.data.name} in {run.config.data.root}; compare runs with the same data set"
            )
