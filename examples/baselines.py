"""What needs no training where words and frames share a space, as simulated features do: R@K on the test split.

    python examples/baselines.py ROOT NAME

`chance` is the expectation of a random order, `mean frame` the cosine of a caption's mean word with a video's mean
frame, `best clip` that with the best of its 32 segments.
"""

import sys

import numpy as np
from jaxtyping import Float

from untrimmed.data.dataset import RetrievalDataset, load_dataset
from untrimmed.evaluation.recall import RECALL_AT, retrieval_metrics


def chance(num_videos: int) -> dict[str, float]:
    """The expectation over random orders."""
    figures = {f"R@{k}": 100 * min(k, num_videos) / num_videos for k in RECALL_AT}
    return figures | {"SumR": sum(figures.values())}


def mean_words(dataset: RetrievalDataset) -> Float[np.ndarray, "Q D"]:
    """The mean word of each caption at unit length."""
    words = dataset.features.words(np.arange(len(dataset.caption_ids)))
    return unit((words.rows * words.mask[..., None]).sum(axis=1))


def unit(rows: Float[np.ndarray, "*N D"]) -> Float[np.ndarray, "*N D"]:
    """The rows at length one."""
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def main(root: str, name: str) -> None:
    """Print the three baselines on the test split."""
    dataset = load_dataset(name, root, "test")
    queries = mean_words(dataset)
    videos = dataset.features.videos(np.arange(len(dataset.video_ids)))
    frames = unit((videos.frames * videos.frame_mask[..., None]).sum(axis=1))
    clips = np.einsum("qd,vld->qvl", queries, unit(videos.clips)).max(axis=-1)
    rows = {
        "chance": chance(len(dataset.video_ids)),
        "mean frame": retrieval_metrics(queries @ frames.T, dataset.video_index),
        "best clip": retrieval_metrics(clips, dataset.video_index),
    }
    print(f"{name}, test: {len(queries)} queries, {len(frames)} videos")
    for row, figures in rows.items():
        cells = (f"{column} {figures[column]:5.1f}" for column in ("R@1", "R@5", "R@10", "R@100", "SumR"))
        print(f"{row:<12}" + "   ".join(cells))


if __name__ == "__main__":
    main(*sys.argv[1:])
