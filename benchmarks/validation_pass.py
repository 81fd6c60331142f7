"""One validation pass of GMMFormer v2 at TVR sizes: encode, score and rank, ours against a straightforward way.

    python benchmarks/validation_pass.py [--videos 2179] [--queries 10895] [--rounds 3] [--before DIR]

The straightforward version encodes with one module per block and videos padded to 128 frames, scores batches of 50
queries and 100 videos, normalises both each time, and ranks each query by sorting its scores in Python. Frame and word
counts are distributed as in TVR (see training_step.py); features are 3072 and 768 wide. Each version runs in its own
process; ours keeps freed memory, as `untrimmed evaluate` does. The scores are compared. Ours runs a second time in
bfloat16 if the processor has bfloat16 products, or with `--bf16`. `--before DIR` adds an earlier checkout of the
project. The versions alternate; times are medians.
"""

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.sides import BFLOAT16, SPAWN, STRAIGHTFORWARD, add_options, names_of, start
from benchmarks.straightforward import StraightforwardGMMFormerV2

from untrimmed.data.annotations import Annotation
from untrimmed.data.dataset import RetrievalDataset
from untrimmed.data.packed import PackedFeatures, PackSettings, RaggedRows
from untrimmed.evaluation.recall import recall, retrieval_metrics
from untrimmed.models.registry import create_model
from untrimmed.models.released import export_released
from untrimmed.presets import load_preset
from untrimmed.running.batches import in_batches, query_batch, video_batch
from untrimmed.running.encoding import Encoding
from untrimmed.running.memory import keep_freed_memory
from untrimmed.running.opened import OpenedModel

PRESET = load_preset("gmmformer_v2", "tvr")


def make_dataset(num_videos: int, num_queries: int) -> RetrievalDataset:
    """Random unit features in memory."""
    rng = np.random.default_rng(0)

    def unit(*shape: int) -> np.ndarray:
        rows = rng.standard_normal(shape, dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=-1, keepdims=True)

    def ragged(lengths: np.ndarray, dim: int) -> RaggedRows:
        return RaggedRows(unit(int(lengths.sum()), dim), np.concatenate([[0], np.cumsum(lengths)]))

    frames = np.clip(rng.normal(51, 12, num_videos).round(), 4, 128).astype(int)
    words = np.clip(rng.normal(16, 5, num_queries).round(), 4, 30).astype(int)
    features = PackedFeatures(
        unit(num_videos, 32, 3072), ragged(frames, 3072), ragged(words, 768), None, PackSettings(), Path()
    )
    order = np.sort(np.arange(num_queries) % num_videos)
    annotations = tuple(Annotation(f"v{video}", f"v{video}#{q}", "a query") for q, video in enumerate(order))
    return RetrievalDataset("random", "val", annotations, features)


@torch.no_grad()
def straightforward(model: StraightforwardGMMFormerV2, dataset: RetrievalDataset) -> tuple[np.ndarray, dict, dict]:
    times, start = {}, time.perf_counter()
    queries = []
    for rows in in_batches(np.arange(len(dataset.caption_ids)), 50):
        batch = query_batch(dataset, rows)
        queries.append(model.encode_queries(batch.words, batch.mask.float()))
    videos = []
    for rows in in_batches(np.arange(len(dataset.video_ids)), 100):
        batch = video_batch(dataset, rows)
        videos.append(model.encode_videos(batch.clips, batch.frames, batch.frame_mask.float()))
    times["encode"], start = time.perf_counter() - start, time.perf_counter()
    weight = {"clip": model.config.clip_weight, "frame": model.config.frame_weight}
    rows_of_scores = []
    for query in queries:
        fused = [
            weight["clip"] * model.scores(query, clips, True) + weight["frame"] * model.scores(query, frames, True)
            for clips, frames in videos
        ]
        rows_of_scores.append(torch.cat(fused, dim=1))
    scores = torch.cat(rows_of_scores).numpy()
    times["score"], start = time.perf_counter() - start, time.perf_counter()
    ranks = []
    for query, own in zip(scores, dataset.video_index.tolist(), strict=True):
        by_score = sorted(range(len(query)), key=lambda video: -query[video])
        ranks.append(by_score.index(own) + 1)
    figures = recall(np.array(ranks))
    times["rank"] = time.perf_counter() - start
    return scores, figures, times


def ours(model: torch.nn.Module, encoding: Encoding, dataset: RetrievalDataset) -> tuple[np.ndarray, dict, dict]:
    start = time.perf_counter()
    scores = OpenedModel(model=model, dataset=dataset, encode=encoding).score()
    times = {"encode and score": time.perf_counter() - start}
    start = time.perf_counter()
    figures = retrieval_metrics(scores.fused, dataset.video_index)
    times["rank"] = time.perf_counter() - start
    return scores.fused, figures, times


def measure(side: str, args: argparse.Namespace, results: Any) -> None:
    """Return scores, metrics, wall seconds of the parts and CPU seconds of one version."""
    dataset = make_dataset(args.videos, args.queries)
    torch.manual_seed(0)
    model = create_model("gmmformer_v2", **PRESET.settings).eval()
    if side != STRAIGHTFORWARD:
        keep_freed_memory()
        run = partial(ours, model, Encoding(torch.device("cpu"), "bfloat16" if BFLOAT16 in side else "float32"))
    else:
        plain = StraightforwardGMMFormerV2(model.config).eval()
        plain.load_state_dict(export_released(model.released_names(), model.state_dict()))
        run = partial(straightforward, plain)
    cpu = time.process_time()
    scores, figures, times = run(dataset)
    results.put((scores, figures["SumR"], times, time.process_time() - cpu))


def in_own_process(side: str, args: argparse.Namespace) -> tuple[np.ndarray, float, dict[str, float], float]:
    results = SPAWN.Queue()
    process = start(measure, side, args, results)
    measured = results.get()
    process.join()
    return measured


def median(turns: list[tuple[np.ndarray, float, dict[str, float], float]]) -> tuple[np.ndarray, float, dict, float]:
    """Return the run with the median wall time; all runs have equal scores."""
    return sorted(turns, key=lambda turn: sum(turn[2].values()))[(len(turns) - 1) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=2179)
    parser.add_argument("--queries", type=int, default=10895)
    add_options(parser)
    args = parser.parse_args()
    turns = [{side: in_own_process(side, args) for side in names_of(args)} for _ in range(args.rounds)]
    sides = {side: median([turn[side] for turn in turns]) for side in turns[0]}
    print(f"{args.queries} queries, {args.videos} videos, {args.threads} threads")
    their_scores, _, their_times, their_cpu = sides[STRAIGHTFORWARD]
    for side, (scores, sum_r, times, cpu) in sides.items():
        shares = ", ".join(f"{part} {seconds:.1f}" for part, seconds in times.items())
        wall, off = sum(times.values()), np.abs(scores - their_scores).max()
        print(
            f"{side}: {wall:.1f} s wall ({shares}; {sum(their_times.values()) / wall:.2f} times as fast), {cpu:.1f} s "
            f"CPU ({their_cpu / cpu:.2f}), SumR {sum_r:.3f}, scores at most {off:.1e} off"
        )


if __name__ == "__main__":
    main()
