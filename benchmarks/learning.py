"""Does training learn what moments hold? Each method on simulated features of real captions, against three baselines.

    python benchmarks/learning.py --annotations DIR [--name tvr] [--videos 1000] [--epochs 15] [--seeds 1]

The captions, moments and durations are real (DIR holds the annotation files); words and frames are simulated from them
(`untrimmed.data.simulation.world`): a word's vector shows in the frames of its moment, under background, distraction
and noise.
`chance` is the expectation of a random order; `mean pooling` is the cosine of a caption's mean word with a video's mean
frame, which share a space; `best window` compares with the mean of the run of frames that suits a caption best, which
is what MS-SL's clips begin with. All methods have the same width, epochs, batches and rates, everything else as
published for the data set; results are those of the best validation epoch on held-out test videos, means over seeds.
"""

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from untrimmed.data.dataset import RetrievalDataset, load_dataset
from untrimmed.data.simulation.simulate import simulate
from untrimmed.data.simulation.world import SimulationSettings
from untrimmed.evaluation.recall import RECALL_AT, mean_average_precision, retrieval_metrics
from untrimmed.running.opened import evaluate
from untrimmed.training.train import train

METHODS = ("ms_sl", "gmmformer", "gmmformer_v2")
COLUMNS = ("R@1", "R@5", "R@10", "R@100", "SumR", "mAP")


def chance(num_videos: int) -> dict[str, float]:
    """The expectation over random orders."""
    rank = np.arange(1, num_videos + 1)
    figures = {f"R@{k}": 100 * min(k, num_videos) / num_videos for k in RECALL_AT}
    return figures | {"SumR": sum(figures.values()), "mAP": mean_average_precision(rank)}


def sentences(dataset: RetrievalDataset) -> np.ndarray:
    """The mean word of each caption, of length 1."""
    words = dataset.features.words_packed
    return unit(np.stack([words.table(row).mean(axis=0) for row in range(len(dataset.caption_ids))]))


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows of length 1."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def mean_pooling(dataset: RetrievalDataset) -> dict[str, float]:
    """Mean word against mean frame."""
    frames = np.stack([dataset.features.frames.table(row).mean(axis=0) for row in range(len(dataset.video_ids))])
    return retrieval_metrics(sentences(dataset) @ unit(frames).T, dataset.video_index)


def best_window(dataset: RetrievalDataset) -> dict[str, float]:
    """Mean word against the mean of the run of frames that suits it best."""
    words, scores = sentences(dataset), []
    for row in range(len(dataset.video_ids)):
        frames = dataset.features.frames.table(row)
        sums = np.concatenate([np.zeros_like(frames[:1]), np.cumsum(frames, axis=0)])
        first, last = np.triu_indices(len(sums), k=1)
        scores.append((words @ unit(sums[last] - sums[first]).T).max(axis=1))
    return retrieval_metrics(np.stack(scores, axis=1), dataset.video_index)


def trained(method: str, args: argparse.Namespace, root: Path) -> tuple[dict[str, float], float]:
    """Mean test results over the seeds, and the seconds that one run took."""
    overrides = {
        "model.query_dim": args.width,
        "model.video_dim": args.width,
        "model.dim": args.dim,
        "train.epochs": args.epochs,
        "train.batch_size": args.batch,
        "train.learning_rate": args.rate,
        "train.warmup_share": 0.1,
        "train.hard_negatives_from_epoch": args.epochs // 3,
    }
    results, start = [], time.perf_counter()
    for seed in range(args.seeds):
        run = train(method, data=args.name, root=root, out=root / f"{method}-{seed}", seed=seed, **overrides)
        results.append(evaluate(run, split="test").figures)
        curve = " ".join(f"{entry['val']['SumR']:.0f}" for entry in run.history)
        print(f"{method}, seed {seed}: SumR on val by epoch {curve}", file=sys.stderr)
    seconds = (time.perf_counter() - start) / args.seeds
    return {name: float(np.mean([figures[name] for figures in results])) for name in COLUMNS}, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--annotations", type=Path, required=True)
    parser.add_argument("--name", default="tvr")
    parser.add_argument("--videos", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    args = parser.parse_args()
    logging.getLogger("lightning").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        settings = SimulationSettings(query_dim=args.width, video_dim=args.width, frames_per_second=0.5)
        simulate(args.name, root, num_videos=args.videos, annotations_dir=args.annotations, settings=settings)
        test = load_dataset(args.name, root, "test")
        rows = {"chance": (chance(len(test.video_ids)), 0.0), "mean pooling": (mean_pooling(test), 0.0)}
        rows["best window"] = (best_window(test), 0.0)
        for method in args.methods:
            rows[method] = trained(method, args, root)
    title = f"{args.name}, simulated features, {len(test.caption_ids)} queries, {len(test.video_ids)} test videos"
    table = Table("", title=title, title_justify="left")
    for column in (*COLUMNS, "train (s)"):
        table.add_column(column, justify="right")
    for name, (figures, seconds) in rows.items():
        cells = [f"{figures[column]:.3f}" if column == "mAP" else f"{figures[column]:.1f}" for column in COLUMNS]
        table.add_row(name, *cells, f"{seconds:.0f}" if seconds else "")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
