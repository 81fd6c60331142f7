"""How long `untrimmed ls` and a cold `untrimmed search` take, as shares of `python -c 'import torch'`.

    python benchmarks/cold_start.py [VIDEO...] [--hours 100] [--rounds 10]

The library is indexed with `builtin` from VIDEO, or contains `--hours` of synthetic vectors of its width (as in
search_speed.py). The commands alternate, so that other load slows all of them equally. An extra first round fills the
caches. Compiled modules are written even if the shell's settings forbid it.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from search_speed import FPS, World, build

import untrimmed
from untrimmed.encoders.registry import load_encoder
from untrimmed.search.corpora.engine import cache_library
from untrimmed.search.store.records import Settings


def run(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return wall seconds and processor seconds."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    elapsed, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return elapsed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", nargs="*", type=Path)
    parser.add_argument("--hours", type=float, default=100.0, help="without VIDEO: of made vectors")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        print("making a library", flush=True)
        if options.videos:
            untrimmed.open(folder).index(options.videos, encoder="builtin")
        else:
            encoder = load_encoder("builtin").encoder
            settings = Settings(encoder.name, encoder.identity, encoder.frame_dim, encoder.word_dim, FPS, False)
            build(Path(folder), options.hours, settings, World(encoder.frame_dim))
            cache_library(Path(folder))
        program = [sys.executable, "-m", "untrimmed"]
        commands = {
            "import torch": [sys.executable, "-c", "import torch"],
            "ls": [*program, "ls", "--library", folder],
            "status": [*program, "status", "--library", folder],
            "search": [*program, "search", "a dog runs along the beach", "--library", folder],
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        print(f"{options.rounds + 1} rounds of {len(commands)} commands, a second or two each", flush=True)
        for number in range(options.rounds + 1):
            for name, command in commands.items():
                measured = run(command, environment)
                if number:
                    times[name].append(measured)
    medians = {name: np.median(measured, axis=0) for name, measured in times.items()}
    print(f"medians of {options.rounds}, by turns   clock             processors")
    for name, (clock_s, cpu_s) in medians.items():
        clock, cpu = (medians[name] / medians["import torch"]).tolist()
        print(f"{name:24} {clock_s:7.2f} s  {clock:5.2f}   {cpu_s:7.2f} s  {cpu:5.2f}")


if __name__ == "__main__":
    main()
