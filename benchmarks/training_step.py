"""One training step of GMMFormer v2 at TVR sizes: ours against a straightforward float32 version of the same model.

    python benchmarks/training_step.py [--videos 128] [--rounds 3] [--lengths tvr|full] [--before DIR] [--check-steps 0]

128 videos of up to 128 frames, 5 captions each, features 3072 and 768 wide, dropout as published. `--lengths tvr` draws
frame counts from TVR's distribution (51 +- 12: the durations of its videos at one feature per 1.5 s) and word counts
around 16; `full` gives every video 128 frames and every caption 30 words. The versions alternate. Times are medians of
wall time and of CPU time, which other programs affect less. Each version runs in its own process; only ours keeps freed
memory, as `untrimmed train` does. Memory is the peak minus the peak before the first step (Linux). Autocast is
included if the processor has bfloat16 products (AMX or AVX512-BF16), or with `--bf16`; other processors emulate them at
less than half the speed of float32. `--before DIR` adds an earlier checkout of the project, `--compile` ours with
`torch.compile`, and `--device cuda` runs the steps on a GPU. `--check-steps N` trains N steps without dropout on the
same batches, with the published schedule, and prints the differences of the losses. A second straightforward version
with weights changed by 1e-7 of their size shows the effect of rounding.
"""

import argparse
import statistics
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.sides import BEFORE, BFLOAT16, COMPILED, OURS, SPAWN, STRAIGHTFORWARD, add_options, names_of, start
from benchmarks.straightforward import StraightforwardGMMFormerV2

from untrimmed.batches import QueryBatch, TrainingBatch, VideoBatch
from untrimmed.losses.draws import Draws
from untrimmed.losses.total import total_loss
from untrimmed.models.registry import create_model
from untrimmed.models.released import export_released
from untrimmed.presets import load_preset
from untrimmed.running.encoding import Encoding
from untrimmed.running.memory import keep_freed_memory
from untrimmed.training.optim import BertAdam, parameter_groups, warmup_linear

PRESET = load_preset("gmmformer_v2", "tvr")
NUDGED = "straightforward-nudged"
TOTAL_STEPS = 137 * PRESET.train.epochs  # 17,435 videos in batches of 128


def make_batch(num_videos: int, lengths: str, seed: int) -> TrainingBatch:
    rng = np.random.default_rng(seed)
    num_queries = 5 * num_videos
    if lengths == "full":
        frame_counts, word_counts = np.full(num_videos, 128), np.full(num_queries, 30)
    else:
        frame_counts = np.clip(rng.normal(51, 12, num_videos).round(), 4, 128).astype(int)
        word_counts = np.clip(rng.normal(16, 5, num_queries).round(), 4, 30).astype(int)
    frame_mask = torch.arange(frame_counts.max()) < torch.from_numpy(frame_counts)[:, None]
    word_mask = torch.arange(word_counts.max()) < torch.from_numpy(word_counts)[:, None]
    unit = torch.nn.functional.normalize
    generator = torch.Generator().manual_seed(seed)
    normal = lambda *shape: unit(torch.randn(shape, generator=generator), dim=-1)  # noqa: E731
    return TrainingBatch(
        queries=QueryBatch(words=normal(*word_mask.shape, 768) * word_mask[..., None], mask=word_mask),
        videos=VideoBatch(
            clips=normal(num_videos, 32, 3072),
            frames=normal(*frame_mask.shape, 3072) * frame_mask[..., None],
            frame_mask=frame_mask,
        ),
        video_index=torch.arange(num_videos).repeat_interleave(5),
    )


class Side:
    """One of the implementations with its optimizer."""

    def __init__(self, name: str, dropout: bool, device: str = "cpu"):
        torch.manual_seed(0)
        off = {} if dropout else {"dropout": 0.0, "input_dropout": 0.0}
        settings = PRESET.settings | off
        self.model = create_model("gmmformer_v2", **settings)
        self.name = name
        if name.startswith(STRAIGHTFORWARD):
            model = StraightforwardGMMFormerV2(self.model.config)
            model.load_state_dict(export_released(self.model.released_names(), self.model.state_dict()))
            self.model = model
        if name == NUDGED:
            with torch.no_grad():
                for parameter in self.model.parameters():
                    parameter.mul_(1 + 1e-7 * torch.randn_like(parameter).sign())
        self.model.to(device)
        how = {"compiled": True} if COMPILED in name else {}  # which an earlier checkout does not have
        self.encoding = Encoding(torch.device(device), "bfloat16" if BFLOAT16 in name else "float32", **how)
        self.optimizer = BertAdam(parameter_groups(self.model), lr=PRESET.train.learning_rate)
        self.num_steps = 0

    def loss(self, batch: TrainingBatch) -> torch.Tensor:
        if self.name.startswith(STRAIGHTFORWARD):
            return self.model(batch, PRESET.weights)
        # All use the hardest negative, so that random choices cannot make them differ.
        return total_loss(self.model(batch, draws=Draws(hard_pool=1), encode=self.encoding), PRESET.weights)

    def step(self, batch: TrainingBatch) -> float:
        loss = self.loss(batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        factor = warmup_linear(self.num_steps, total_steps=TOTAL_STEPS, warmup_share=PRESET.train.warmup_share)
        for group in self.optimizer.param_groups:
            group["lr"] = PRESET.train.learning_rate * factor
        self.optimizer.step()
        self.num_steps += 1
        return loss.item()


def high_water_mb() -> float:
    """Return the peak memory of this process, without the program that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def serve(name: str, args: argparse.Namespace, orders: Connection) -> None:
    """Run a step per request and send its wall and CPU seconds; at the end, send the memory of the steps."""
    if name != STRAIGHTFORWARD:
        keep_freed_memory()
    batch = make_batch(args.videos, args.lengths, seed=0).to(args.device)
    side = Side(name, dropout=True, device=args.device)
    before = high_water_mb()
    while orders.recv():
        wall, cpu = time.perf_counter(), time.process_time()
        side.step(batch)
        orders.send((time.perf_counter() - wall, time.process_time() - cpu))
    orders.send(high_water_mb() - before)


def measure(names: list[str], args: argparse.Namespace) -> dict[str, tuple[float, float, float]]:
    """Return median wall and CPU seconds of a step and megabytes; versions alternate in separate processes."""
    orders = {}
    for name in names:
        orders[name], theirs = SPAWN.Pipe()
        start(serve, name, args, theirs)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for _ in range(args.rounds + 1):
        for name, order in orders.items():
            order.send(True)
            times[name].append(order.recv())
    figures = {}
    for name, order in orders.items():
        order.send(False)
        walls, cpus = zip(*times[name][1:], strict=True)  # the first step allocates
        figures[name] = (statistics.median(walls), statistics.median(cpus), order.recv())
    return figures


def check(names: list[str], steps: int, num_videos: int, lengths: str) -> None:
    sides = {name: Side(name, dropout=False) for name in names}
    worst = dict.fromkeys(names, 0.0)
    for step in range(steps):
        batch = make_batch(num_videos, lengths, seed=step % 8)
        losses = {name: side.step(batch) for name, side in sides.items()}
        worst = {name: max(worst[name], abs(losses[name] / losses[STRAIGHTFORWARD] - 1)) for name in names}
    for name in names:
        print(f"{name}: loss {losses[name]:.5f} after {steps} steps, at most {100 * worst[name]:.4f} % off")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=128)
    add_options(parser)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--lengths", choices=["tvr", "full"], default="tvr")
    parser.add_argument("--check-steps", type=int, default=0)
    parser.add_argument("--check-videos", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    how = f"-{BFLOAT16}" if args.bf16 else ""
    names = names_of(args, *[f"{OURS}{how}-{COMPILED}"] * args.compile)
    figures = measure(names, args)
    print(f"{args.threads} threads, {args.videos} videos, lengths {args.lengths}")
    their_wall, their_cpu, their_memory = figures[STRAIGHTFORWARD]
    for name, (wall, cpu, memory) in figures.items():
        print(
            f"{name:22} step {wall:6.2f} s wall ({their_wall / wall:.2f} times as fast), {cpu:6.2f} s CPU "
            f"({their_cpu / cpu:.2f}), memory {memory:6.0f} MB ({memory / their_memory:.2f})"
        )
    if args.check_steps:
        check(
            [*(name for name in names if not name.startswith(BEFORE)), NUDGED],
            args.check_steps,
            args.check_videos,
            args.lengths,
        )


if __name__ == "__main__":
    main()
