"""Cost of methods at the sizes of their presets on TVR, side by side.

    OMP_NUM_THREADS=1 python benchmarks/costs.py [METHOD ...] [--videos 32] [--rounds 3] [--corpus 2500]

Parameters, FLOPs and stored numbers per video are counted as in `untrimmed/reproduction/efficiency.py`. A training step
is given relative to GMMFormer v2's in the same round; batches are those of `benchmarks/training_step.py`, lengths are
distributed as in TVR, and losses and weights are those of the preset after its warm-up. A query is timed from its word
features to the first 100 of a corpus of full-length videos. Times are processor times, which other load affects less.
TF-PRVR is not trained, and its number of moments depends on the video: here 128 frames of 16 shots, 768 wide as
CLIP-L/14's.
"""

import argparse
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import normalize

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.training_step import make_batch

from untrimmed.batches import TrainingBatch
from untrimmed.moments.tf_prvr import NAME, moment_scores, video_moments
from untrimmed.presets import load_preset
from untrimmed.reproduction.efficiency import flops, megabytes_per_video, parameters, published_model, query_ms
from untrimmed.running.memory import keep_freed_memory
from untrimmed.study.costs import Stepper

METHODS = [
    "clip4clip",
    "dl_dkd",
    "dl_dkd+evidence",
    "proto",
    "ms_sl",
    "gmmformer",
    "gmmformer_v2",
    "gmmformer_v2+ral",
    "gmmformer_v2+evidence+ral",
    "hlformer",
    "dreamprvr",
    "holmes",
    "holmes+ral",
    NAME,
]
MEASURE = "gmmformer_v2"  # of a training step


def taught(batch: TrainingBatch) -> TrainingBatch:
    """Return the batch with a teacher's vectors for DL-DKD, 512 wide as CLIP ViT-B/32's; other methods ignore them."""
    num_queries, shape = len(batch.queries.words), batch.videos.frames.shape[:2]
    queries = replace(batch.queries, teacher=normalize(torch.randn(num_queries, 512), dim=-1))
    return replace(
        batch, queries=queries, videos=replace(batch.videos, teacher=normalize(torch.randn(*shape, 512), dim=-1))
    )


def steps(methods: list[str], num_videos: int, rounds: int) -> tuple[dict[str, float], float]:
    """Return the median training step of each method relative to `MEASURE` in the same round, and in seconds."""
    keep_freed_memory()
    batch, ratios = taught(make_batch(num_videos, "tvr", seed=0)), dict[str, list[float]]()
    methods = [method for method in methods if method != NAME]
    trained = {method: Stepper(load_preset(method, "tvr")) for method in dict.fromkeys([MEASURE, *methods])}
    for each in trained.values():
        each.step(batch)  # warms up
    seconds = []
    for _ in range(rounds):
        taken = {method: each.step(batch) for method, each in trained.items()}
        for method in methods:
            ratios.setdefault(method, []).append(taken[method] / taken[MEASURE])
        seconds.append(taken[MEASURE])
    return {method: statistics.median(of) for method, of in ratios.items()}, statistics.median(seconds)


def training_free(num_videos: int, timed: bool) -> list[str]:
    """Return the cells of TF-PRVR's row."""
    rng = np.random.default_rng(0)
    shots = rng.standard_normal((16, 768)).repeat(8, axis=0)
    moments = video_moments(shots + 0.5 * rng.standard_normal(shots.shape)).vectors
    corpus, query, times = np.tile(moments, (num_videos, 1)), rng.standard_normal((1, 768)), list[float]()
    for _ in range(8 if timed else 0):
        start = time.process_time()
        np.argpartition(-moment_scores(query, corpus).reshape(num_videos, -1).max(axis=1), min(100, num_videos - 1))
        times.append(time.process_time() - start)
    query_cell = f"{1e3 * statistics.median(times[1:]):.1f}" if timed else "-"  # the first warms up
    return ["-", "-", "-", "-", query_cell, f"{4 * moments.size / 1e3:.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=METHODS, metavar="METHOD")
    parser.add_argument("--videos", type=int, default=32, help="in a training step")
    parser.add_argument("--rounds", type=int, default=3, help="0: count, and measure no times")
    parser.add_argument("--corpus", type=int, default=2500, help="videos that a query meets")
    options = parser.parse_args()
    by_step, step_s = steps(options.methods, options.videos, options.rounds) if options.rounds else ({}, 0.0)
    print("| method | parameters (M) | FLOPs (G) | other products (G) | step | ms a query | kB a video |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for method in options.methods:
        if method == NAME:
            print(f"| `{method}` | {' | '.join(training_free(options.corpus, timed=options.rounds > 0))} |", flush=True)
            continue
        torch.manual_seed(0)
        model = published_model(method)
        counted = flops(model)
        cells = [f"{parameters(model) / 1e6:.2f}", f"{counted.weights / 1e9:.2f}", f"{counted.activations / 1e9:.2f}"]
        if options.rounds:
            cells += [f"{by_step[method]:.2f}", f"{query_ms(model, options.corpus, time.process_time):.1f}"]
        else:
            cells += ["-", "-"]
        print(f"| `{method}` | {' | '.join(cells)} | {1e3 * megabytes_per_video(model):.0f} |", flush=True)
    if step_s:
        print(f"\nA step of {MEASURE} with {options.videos} videos took {step_s:.2f} s of the processor.")


if __name__ == "__main__":
    main()
