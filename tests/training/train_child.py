"""Run by tests in a new process: a training run, which can be killed at an exact point or be one of two processes."""

import os
import signal
from typing import Any

import torch


def train_here(method: str, options: dict[str, Any], kill_at: str | None = None) -> None:
    """Train; `kill_at` is `step N`, `validating N` (the epoch), or the name of a file just before it is replaced."""
    from untrimmed.training import loop
    from untrimmed.training.callbacks import TrainingProgress
    from untrimmed.training.train import train

    torch.set_num_threads(1)
    loop.SAVE_EVERY_S = 0.0  # also keep the state inside epochs
    steps = 0

    def progress(step: TrainingProgress) -> None:
        nonlocal steps
        steps += step.stage == "training"
        if kill_at in (f"step {steps}", f"{step.stage} {step.epoch}"):
            die()

    replace = os.replace

    def replace_or_die(source: Any, target: Any) -> None:
        if kill_at == os.path.basename(target) and steps >= 4:
            die()
        replace(source, target)

    os.replace = replace_or_die
    train(method, callback=progress, **options)


def train_as_one_of(rank: int, world: int, port: int, method: str, options: dict[str, Any]) -> None:
    """Train as a process that torchrun has started."""
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "test",
    }
    train_here(method, options)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
