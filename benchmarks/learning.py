"""Which method learns best what moments hold? Every method on one simulated world, beside rows without training.

    python benchmarks/learning.py --annotations DIR --out DIR [--name tvr] [--videos 2000] [--steps 3000] [--seeds 3]

The captions, moments and durations are real (DIR holds the annotation files); words and frames are two different views
of what they mean (`untrimmed.data.simulation`). Each method first gets its learning rate: it trains `--search-steps`
steps at each of `--rates`, and the rate with the best SumR on validation videos is kept; a single rate needs no search.
Then it trains `--steps` steps with each seed; the best epoch on validation videos counts, on test videos. Width,
batches, steps, frames, warm-up are the same for all, everything else is as published for the data set. Rows stand in
the order of their mean SumR, with the standard deviation over seeds; p is that of the paired randomization test against
the row above, over queries, of the seeds' mean SumR.

A method may bring settings of its own behind commas, so that forms of one method are compared as methods are:

    ... --methods proto proto,model.iterations=1 proto,model.prototype_residual=all,model.prototype_norm=after

What is done is kept in --out: a stopped command goes on where it was, and more seeds or methods cost only themselves.
"""

import argparse
import logging
import math
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from untrimmed.config import parse_overrides
from untrimmed.data.dataset import load_dataset
from untrimmed.data.simulation.simulate import open_world, simulate
from untrimmed.data.simulation.world import SimulationSettings
from untrimmed.evaluation.report import Report
from untrimmed.evaluation.significance import compare
from untrimmed.presets import load_preset
from untrimmed.running.opened import evaluate
from untrimmed.running.run import Run
from untrimmed.running.untrained import untrained_rows
from untrimmed.training.train import train

METHODS = ("ms_sl", "gmmformer", "gmmformer_v2", "gmmformer_v2+ral", "proto", "dl_dkd")
COLUMNS = ("R@1", "R@5", "R@10", "R@100", "SumR")
WARMUP_SHARE = 0.1  # the published hundredth would be 30 steps here, too few for the larger rates


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run of a method, written METHOD,KEY=VALUE,... where it has settings of its own."""

    method: str
    rate: float
    steps: int
    seed: int

    def run(self, args: argparse.Namespace) -> Run:
        """The run, which is made, taken up, or already there."""
        began = time.perf_counter()
        run = train(
            self.name,
            data=args.name,
            root=args.out / "data",
            out=args.out / "runs" / self.folder,
            seed=self.seed,
            precision=args.precision,
            **self.overrides(args),
        )
        curve = " ".join(f"{entry['val']['SumR']:.0f}" for entry in run.history[:: max(1, len(run.history) // 12)])
        text = f"{run.folder.name}: {time.perf_counter() - began:.0f} s, SumR on validation videos {curve}"
        print(text, file=sys.stderr, flush=True)
        return run

    @property
    def folder(self) -> str:
        """The name of its folder; runs of the same form differ in what stands behind the last dash."""
        return f"{self.method}-{self.rate:g}-{self.steps}-{self.seed}"

    @property
    def name(self) -> str:
        """The method without its settings."""
        return self.method.partition(",")[0]

    def overrides(self, args: argparse.Namespace) -> dict[str, Any]:
        """What differs from the published settings; hard negatives begin after the same share of the epochs."""
        published = load_preset(self.name, args.name).train
        epochs = math.ceil(self.steps / math.ceil((args.videos - 2 * (args.videos // 5)) / args.batch))
        return {
            "model.query_dim": SimulationSettings().query_dim,
            "model.video_dim": SimulationSettings().video_dim,
            "model.dim": args.dim,
            "model.max_frames": args.frames,
            "train.batch_size": args.batch,
            "train.learning_rate": self.rate,
            "train.epochs": epochs,
            "train.patience": epochs,
            "train.warmup_share": WARMUP_SHARE,
            "train.hard_negatives_from_epoch": round(published.hard_negatives_from_epoch / published.epochs * epochs),
            **parse_overrides(self.method.split(",")[1:]),
        }


def best_rate(method: str, args: argparse.Namespace) -> float:
    """The rate that gives the best SumR on validation videos after the steps of the search, or the only one."""

    def reached(rate: float) -> float:
        run = Plan(method=method, rate=rate, steps=args.search_steps, seed=0).run(args)
        return max(entry["val"]["SumR"] for entry in run.history)

    return max(args.rates, key=reached) if len(args.rates) > 1 else args.rates[0]


def method_of(text: str) -> str:
    """A method, if its settings can be told apart and be part of a folder's name."""
    if not re.fullmatch(r"[\w.+-]+(,[\w.]+=[\w.+-]+)*", text):
        raise argparse.ArgumentTypeError(f"{text!r}, wanted METHOD or METHOD,KEY=VALUE,... of letters, digits, . _ + -")
    return text


def table(untrained: Mapping[str, Mapping[str, float]], reports: Mapping[str, list[Report]], rates: Mapping) -> str:
    """Markdown: the untrained rows, then the methods from the worst to the best."""
    lines = ["| | " + " | ".join(COLUMNS) + " | p against the row above | rate |", "| --- " * (len(COLUMNS) + 3) + "|"]
    for name, figures in untrained.items():
        lines.append(f"| {name} | " + " | ".join(f"{figures[column]:.1f}" for column in COLUMNS) + " | | |")
    above: list[Report] | None = None
    for method, seeds in sorted(reports.items(), key=lambda entry: mean(entry[1], "SumR")):
        cells = []
        for column in COLUMNS:
            values = [report.figures[column] for report in seeds]
            deviation = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
            cells.append(f"{np.mean(values):.1f}{deviation}")
        p = "" if above is None else f"{compare(seeds, above, ('SumR',))[0].fisher_p:.4f}"
        lines.append(f"| {method} | " + " | ".join(cells) + f" | {p} | {rates[method]:g} |")
        above = seeds
    return "\n".join(lines)


def mean(reports: list[Report], column: str) -> float:
    """The mean over seeds."""
    return float(np.mean([report.figures[column] for report in reports]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--annotations", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", default="tvr")
    parser.add_argument("--videos", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--search-steps", type=int, default=750)
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3, 3e-4, 1e-4])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--frames", type=int, default=32)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--methods", nargs="+", type=method_of, metavar="METHOD[,KEY=VALUE,...]", default=list(METHODS))
    args = parser.parse_args()
    logging.getLogger("lightning").setLevel(logging.WARNING)
    root = args.out / "data"
    if not (root / args.name).is_dir():
        root.mkdir(parents=True, exist_ok=True)
        simulate(args.name, root, num_videos=args.videos, annotations_dir=args.annotations, teacher=True)
    train_set, val_set, test_set = (load_dataset(args.name, root, split) for split in ("train", "val", "test"))
    untrained = untrained_rows(train_set, val_set, test_set, open_world(args.name, root))
    rates = {method: best_rate(method, args) for method in args.methods}
    reports: dict[str, list[Report]] = {method: [] for method in args.methods}
    for seed in range(args.seeds):
        for method, rate in rates.items():
            run = Plan(method=method, rate=rate, steps=args.steps, seed=seed).run(args)
            reports[method].append(evaluate(run, moments=False))
        print(table(untrained, reports, rates), file=sys.stderr, flush=True)
    title = f"{args.name}, simulated: {len(test_set.caption_ids):,} queries, {len(test_set.video_ids)} test videos, "
    title += f"{args.steps} steps of {args.batch} videos, {args.seeds} seeds"
    print(title, table(untrained, reports, rates), sep="\n\n")


if __name__ == "__main__":
    main()
