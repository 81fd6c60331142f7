"""A picture of SumR if a segment of noise is added before every video (RAL Fig. 5)."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from untrimmed.data.annotations import stable_hash
from untrimmed.data.dataset import RetrievalDataset
from untrimmed.data.layout import Layout
from untrimmed.data.layouts import open_frames, open_words
from untrimmed.data.packed import PackSources, open_packed
from untrimmed.data.sources import VectorSource
from untrimmed.evaluation.recall import ranks, recall
from untrimmed.plots.seeds import Spread, group_by_seed, seeds_note, spread_of
from untrimmed.plots.style import COLOURS, MARKERS, Figure, legend_above, new_figure, plot_band, styled
from untrimmed.plots.trained_run import TrainedRun, require_same_split

LEVELS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True)
class Robustness:
    """For each label of runs, the SumR in percent at each noise level. A level is noise length / video length."""

    levels: tuple[float, ...]
    sum_r: dict[str, Spread]


def with_noise(frames: Float[np.ndarray, "T D"], level: float, video_id: str) -> Float[np.ndarray, "N D"]:
    """Return round(level * T) rows of noise, followed by the frames. The noise of a video is the same in every run.

    Noise vectors have random directions. The length of a noise vector is the mean length of the video's frame vectors.
    The paper only describes the noise as "randomly generated". We cannot use random pixels, because a data set contains
    only features.
    """
    count = round(level * len(frames))
    noise = np.random.default_rng(stable_hash(video_id)).standard_normal((count, frames.shape[1]))
    length = np.linalg.norm(frames, axis=1).mean()
    noise *= length / np.maximum(np.linalg.norm(noise, axis=1, keepdims=True), 1e-12)
    return np.concatenate([noise.astype(frames.dtype), frames])


class NoisyFrames(VectorSource):
    """The frames of another source, with a segment of noise before each video."""

    def __init__(self, source: VectorSource, level: float):
        self.source = source
        self.level = level
        self.place = source.place

    @property
    def dim(self) -> int:
        """Width of a frame."""
        return self.source.dim

    def __contains__(self, name: str) -> bool:
        return name in self.source

    def count(self, name: str) -> int:
        """Return the number of frames, including the noise."""
        count = self.source.count(name)
        return count + round(self.level * count)

    def read(self, name: str) -> Float[np.ndarray, "N D"]:
        """Return the noise, followed by the frames."""
        return with_noise(self.source.read(name), self.level, name)

    def files(self, names: list[str]) -> list[Path]:
        """Return the files of the other source."""
        return self.source.files(names)


def noisy_dataset(run: TrainedRun, level: float, cache_dir: Path) -> RetrievalDataset:
    """Return the run's split with noise before every video. Features are resampled with the run's settings."""
    data = run.config.data
    dataset = run.dataset
    assert dataset.features.folder is not None, "the features of a run are in files"
    layout = Layout.at(dataset.features.folder.parents[1].parent, data.name)
    sources = PackSources(
        frames=NoisyFrames(open_frames(layout, data.video_features), level),
        words=open_words(layout),
        video_ids=dataset.video_ids,
        caption_ids=dataset.caption_ids,
    )
    return replace(dataset, features=open_packed(sources, cache_dir, dataset.features.settings))


def robustness_of(runs: Sequence[TrainedRun], levels: Sequence[float] = LEVELS) -> Robustness:
    """Return SumR at every noise level. Runs that differ only in their seed are averaged."""
    require_same_split(runs)
    groups = group_by_seed(runs)
    return Robustness(
        tuple(levels),
        {group.label: spread_of([_sums(run, levels) for run in group.runs]) for group in groups},
    )


def _sums(run: TrainedRun, levels: Sequence[float]) -> list[float]:
    results = []
    for level in levels:
        # The cache identifies features by their files, and these files are the same at every level. Each level
        # therefore has its own cache.
        with tempfile.TemporaryDirectory() as folder:
            noisy = noisy_dataset(run, level, Path(folder))
            rank = ranks(replace(run, dataset=noisy).score().fused, noisy.video_index)
            results.append(recall(rank)["SumR"])
    return results


@styled
def draw_robustness(data: Robustness) -> Figure:
    """Draw one line per label, with a band over seeds."""
    figure = new_figure(2.5)
    axes = figure.subplots()
    percent = [100 * level for level in data.levels]
    for place, (label, spread) in enumerate(data.sum_r.items()):
        change = f"{spread.mean[-1] - spread.mean[0]:+.1f}".replace("-", "\N{MINUS SIGN}")
        look = {"color": COLOURS[place], "marker": MARKERS[place], "label": f"{label} ({change})"}
        plot_band(axes, percent, spread.mean, spread.deviation, **look)
    note = seeds_note([spread.num_seeds for spread in data.sum_r.values()])
    axes.set(ylabel="SumR", xticks=percent)
    axes.set_xlabel(
        f"length of the noise (% of video length)\nin brackets: change in SumR from least to most noise\n{note}"
    )
    axes.grid(axis="y")
    legend_above(axes)
    return figure
