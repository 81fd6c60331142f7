"""The versions that a benchmark compares: a straightforward one, ours, and ours from an earlier checkout."""

import argparse
import multiprocessing
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from untrimmed.precision import has_fast_bfloat16

STRAIGHTFORWARD, OURS, BEFORE = "straightforward", "ours", "before"
BFLOAT16, COMPILED = "bfloat16", "compiled"  # suffix of a name: how our current or earlier version computes
SPAWN = multiprocessing.get_context("spawn")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add options for the versions to compare and their number of threads."""
    parser.add_argument("--before", type=Path, metavar="DIR", help="a checkout of an earlier commit, compared too")
    parser.add_argument("--bf16", action=argparse.BooleanOptionalAction, default=has_fast_bfloat16("cpu"))
    parser.add_argument(
        "--only", nargs="+", metavar="SIDE", help="some of the sides, e.g. straightforward ours-bfloat16"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each has its turn; figures are medians")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())


def names_of(args: argparse.Namespace, *more: str) -> list[str]:
    """The sides to compare, the straightforward one first."""
    names = [STRAIGHTFORWARD]
    for name in [BEFORE] * bool(args.before) + [OURS]:
        names += [name] + [f"{name}-{BFLOAT16}"] * args.bf16
    names += more
    unknown = set(args.only or ()) - set(names)
    if unknown:
        sys.exit(f"no side {', '.join(unknown)}; there are {', '.join(names)}")
    return [name for name in names if name in (args.only or names) or name == STRAIGHTFORWARD]


def start(function: Callable[..., None], name: str, args: argparse.Namespace, channel: Any) -> Any:
    """Start a process for function(name, args, channel); the earlier version imports from its checkout."""
    folder = [str(args.before.resolve() / "src")] if name.startswith(BEFORE) else []
    process = SPAWN.Process(target=_run, args=(function, name, args, channel, *folder), daemon=True)
    sys.path[:0] = folder  # the process receives the path before it imports anything
    try:
        process.start()
    finally:
        del sys.path[: len(folder)]
    return process


def _run(function: Callable[..., None], name: str, args: argparse.Namespace, channel: Any, folder: str = "") -> None:
    import untrimmed

    assert str(untrimmed.__file__).startswith(folder), f"{name}: imported {untrimmed.__file__}, wanted {folder}"
    torch.set_num_threads(args.threads)
    function(name, args, channel)
