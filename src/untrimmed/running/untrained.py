"""Baselines for comparison with trained methods. Results are the metrics of `retrieval_metrics`, in percent.

- `chance`: the expected result of a random order.
- `zero_shot`: the cosine of the mean word and the mean frame. It tests whether words and frames share a vector space.
- `Ridge`: a linear map from the mean word to the mean frame.
- `best_passage`: the cosine of the mean word and the best passage, for data sets with vectors of subtitles.
- `oracle`: the hidden vectors from which features were simulated, an upper limit for any method.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from untrimmed.data.dataset import RetrievalDataset, load_dataset
from untrimmed.data.layout import Layout
from untrimmed.data.packed import RaggedRows
from untrimmed.data.resampling import unit_rows
from untrimmed.data.simulation.simulate import is_simulated, open_world
from untrimmed.data.simulation.world import World
from untrimmed.data.subtitles import width_error
from untrimmed.evaluation.recall import RECALL_AT, mean_average_precision, retrieval_metrics

PENALTIES = tuple(float(10.0**power) for power in np.arange(-3, 4.5, 0.5))
"""Candidates for the penalty on the weights of `Ridge`, as multiples of the mean variance of the word vectors."""
MAX_PASSAGES = 128
"""Largest number of subtitle vectors of a video, as in the attachment `subtitles`."""


def untrained_rows_of(
    name: str, root: Path | str, on: str = "test"
) -> tuple[dict[str, dict[str, float]], RetrievalDataset]:
    """Return {baseline: metrics} on a split of ROOT/NAME, and the split.

    The row `oracle` is included for simulated data sets. The row `subtitles` (see `best_passage`) is included for data
    sets with vectors of subtitles.
    """
    root = Path(root)
    max_passages = MAX_PASSAGES if Layout.at(root, name).subtitle_vectors.is_file() else 0
    train, val = (load_dataset(name, root, split) for split in ("train", "val"))
    test = load_dataset(name, root, on, max_passages=max_passages)
    return untrained_rows(train, val, test, open_world(name, root) if is_simulated(name, root) else None), test


def untrained_rows(
    train: RetrievalDataset, val: RetrievalDataset, test: RetrievalDataset, world: World | None = None
) -> dict[str, dict[str, float]]:
    """Return {baseline: metrics} on the split `test`.

    The row `oracle` is included if `world` is given. `world` is the simulation that generated the features.
    """
    ridge = Ridge.fit(train, val)
    rows = {
        "chance": chance(len(test.video_ids)),
        "zero-shot": zero_shot(test),
        "ridge": ridge.figures(test),
        "ridge, best run of frames": ridge.figures(test, best_run=True),
    }
    if test.features.passages is not None:
        rows["subtitles"] = best_passage(test, test.features.passages)
    return rows if world is None else {**rows, "oracle": oracle(world, test)}


def chance(num_videos: int) -> dict[str, float]:
    """Return the expected metrics of a random order of videos.

    >>> chance(400)["SumR"]
    29.0
    """
    figures = {f"R@{k}": 100 * min(k, num_videos) / num_videos for k in RECALL_AT}
    rank = np.arange(1, num_videos + 1)
    return figures | {"SumR": sum(figures.values()), "mAP": mean_average_precision(rank)}


def zero_shot(dataset: RetrievalDataset) -> dict[str, float]:
    """Return the metrics of ranking videos by the cosine of the mean word and the mean frame.

    If the widths of words and frames differ, the wider vectors are cut.
    """
    width = min(dataset.query_dim, dataset.video_dim)
    words, frames = (_means(rows)[:, :width] for rows in (dataset.features.words_packed, dataset.features.frames))
    return retrieval_metrics(unit_rows(words) @ unit_rows(frames).T, dataset.video_index)


def best_passage(dataset: RetrievalDataset, passages: RaggedRows) -> dict[str, float]:
    """Return the metrics of ranking videos by the cosine of the mean word and the video's best passage.

    This is the ranking by the attachment `subtitles` alone, without a method.

    Raises: FeatureError for vectors of subtitles and words of different widths.
    """
    if passages.dim != dataset.query_dim:
        raise width_error(dataset.name, passages.dim, dataset.query_dim)
    words = unit_rows(_means(dataset.features.words_packed))
    best = [(words @ unit_rows(passages.table(row)).T).max(axis=1) for row in range(len(dataset.video_ids))]
    return retrieval_metrics(np.stack(best, axis=1), dataset.video_index)


@dataclass(frozen=True)
class Ridge:
    """A linear map from mean word vectors to mean frame vectors.

    `mean_word` and `mean_frame`, the means over the training split, are subtracted from the vectors first.
    """

    weights: Float[np.ndarray, "E D"]
    mean_word: Float[np.ndarray, " E"]
    mean_frame: Float[np.ndarray, " D"]
    penalty: float

    @classmethod
    def fit(cls, train: RetrievalDataset, val: RetrievalDataset) -> Ridge:
        """Return the map that fits `train` by least squares, with the penalty that has the best SumR on `val`."""
        words = _means(train.features.words_packed)
        videos = _means(train.features.frames)
        frames = videos[train.video_index]
        mean_word = words.mean(axis=0)
        mean_frame = frames.mean(axis=0)
        words = words - mean_word
        frames = frames - mean_frame
        scatter, axes = np.linalg.eigh((words.T @ words).astype(np.float64))
        along = axes.astype(np.float32)
        unpenalised = (axes.T @ (words.T @ frames)).astype(np.float32)
        scale = float(scatter.mean())

        def of(penalty: float) -> Ridge:
            shrunk = unpenalised / (np.maximum(scatter, 0) + penalty * scale)[:, None].astype(np.float32)
            return cls(along @ shrunk, mean_word, mean_frame, penalty)

        return max(map(of, PENALTIES), key=lambda ridge: ridge.figures(val)["SumR"])

    def figures(self, dataset: RetrievalDataset, *, best_run: bool = False) -> dict[str, float]:
        """Rank videos by the cosine between mapped mean word vector and mean frame vector, and return the metrics.

        With `best_run`, the mean of the best run of consecutive frames replaces the mean of all frames.
        """
        queries = unit_rows((_means(dataset.features.words_packed) - self.mean_word) @ self.weights)
        if best_run:
            frames = dataset.features.frames
            videos = (frames.table(row) - self.mean_frame for row in range(len(dataset.video_ids)))
            scores = np.stack([best_run_score(queries, rows) for rows in videos], axis=1)
        else:
            scores = queries @ unit_rows(_means(dataset.features.frames) - self.mean_frame).T
        return retrieval_metrics(scores, dataset.video_index)


def oracle(world: World, dataset: RetrievalDataset) -> dict[str, float]:
    """Return the metrics of ranking videos by the hidden vectors of the simulation.

    A video's score is the cosine of the caption's hidden meaning and the best run of consecutive events. An event is
    the hidden meaning of a frame, before noise and scene are added. If only single frames of a moment show the caption
    (`runs=scattered`), the events need not be consecutive.
    """
    score = best_frames_score if world.settings.runs == "scattered" else best_run_score
    queries = np.stack([world.intent(text) for text in dataset.texts])
    scores = []
    for row in range(len(dataset.video_ids)):
        captions = [dataset.annotations[caption] for caption in dataset.captions_of(row)]
        scores.append(score(queries, world.events(captions)))
    return retrieval_metrics(np.stack(scores, axis=1), dataset.video_index)


def best_run_score(queries: Float[np.ndarray, "Q D"], frames: Float[np.ndarray, "T D"]) -> Float[np.ndarray, " Q"]:
    """Return the largest cosine of each query with the mean of 1, 2, 4, ... consecutive frames.

    The queries must have unit length.

    The cosine with a mean of zeros is 0.

    >>> best_run_score(np.eye(2), np.array([[1.0, 0.0], [0.6, 0.8], [0.6, 0.8]]))
    array([1. , 0.8])
    """
    up_to = np.concatenate([np.zeros_like(frames[:1]), frames.cumsum(axis=0)])
    along = up_to @ queries.T
    best = np.full(len(queries), -1.0)
    for length in 2 ** np.arange(len(frames).bit_length()):
        norm = np.maximum(np.linalg.norm(up_to[length:] - up_to[:-length], axis=1, keepdims=True), 1e-6)
        best = np.maximum(best, ((along[length:] - along[:-length]) / norm).max(axis=0))
    return best


def best_frames_score(queries: Float[np.ndarray, "Q D"], frames: Float[np.ndarray, "T D"]) -> Float[np.ndarray, " Q"]:
    """Return the largest cosine of each query with the mean of its best 1, 2, 4, ... frames.

    The queries must have unit length.

    The cosine with a mean of zeros is 0.

    >>> best_frames_score(np.eye(2), np.array([[0.6, 0.8], [0.0, 0.0], [0.6, -0.8]])).round(2)
    array([1. , 0.8])
    """
    order = np.argsort(-(frames @ queries.T), axis=0)  # for each query, the best frames first
    sums = np.zeros_like(queries)
    best = np.full(len(queries), -1.0)
    for rank, rows in enumerate(order):
        sums = sums + frames[rows]
        if rank & (rank + 1) == 0:  # 1, 2, 4, ... frames
            norm = np.maximum(np.linalg.norm(sums, axis=1), 1e-6)
            best = np.maximum(best, (sums * queries).sum(axis=1) / norm)
    return best


def _means(tables: RaggedRows) -> Float[np.ndarray, "N D"]:
    return np.stack([tables.table(row).mean(axis=0, dtype=np.float32) for row in range(len(tables.lengths))])
