"""One query before a million videos of 32 clips, 384 wide: how long it takes at a recall of 99 %, and in what memory.

    python benchmarks/million.py PEERS --folder FOLDER [--videos 1000000]

PEERS is the program that `search_peer` names; its videos are made here without frames, into FOLDER (25 GB in float16,
kept for another time). Codes and rows of 8 bits are made in memory, and searched by `search_peer`'s library. What is
found is compared with a product of every clip in float32, which is also timed: what it takes to read and multiply all.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.search_peer import VIDEOS_AT_A_TIME, Search, made_queries, pruned

NUM_BEST, NUM_QUERIES = 100, 40
CLIPS, DIM, MADE_AT_A_TIME = 32, 384, 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", type=Path, help="the program whose videos these are")
    parser.add_argument("--folder", type=Path, required=True, help="where clips.npy is, or is made")
    parser.add_argument("--videos", type=int, default=1_000_000)
    args = parser.parse_args()
    file = args.folder / "clips.npy"
    if not file.exists():
        make(args.peers, file, args.videos)
    began = time.perf_counter()
    search = pruned(str(args.folder), {})
    print(f"{len(search.corpus):,} videos coded in {time.perf_counter() - began:.0f} s; {held(search)}", flush=True)
    clips = np.load(file, mmap_mode="r")
    queries = made_queries(clips, NUM_QUERIES, seed=2)
    found, took = [], []
    for query in queries:
        start = time.perf_counter()
        found.append(search.search(query[None], NUM_BEST)[0][0])
        took.append(time.perf_counter() - start)
    print(f"a query: {1e3 * np.median(took):.0f} ms in the median, {1e3 * max(took):.0f} at most", flush=True)
    start = time.perf_counter()
    best = exactly(clips, queries)
    whole = time.perf_counter() - start
    recalls = [len(set(some) & set(true)) / NUM_BEST for some, true in zip(found, best, strict=True)]
    print(f"of the best {NUM_BEST}: {100 * np.mean(recalls):.2f} %; every clip for all queries: {whole:.0f} s")


def make(peers: Path, file: Path, videos: int) -> None:
    """Clips of so many videos, a part of them at a time."""
    spec = importlib.util.spec_from_file_location("peers", peers)
    assert spec is not None
    assert spec.loader is not None
    program: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    concepts, part = program.concepts(0), file.with_suffix(".part")
    file.parent.mkdir(parents=True, exist_ok=True)
    clips = np.lib.format.open_memmap(part, "w+", np.float16, (videos, CLIPS, DIM))
    for start in range(0, videos, MADE_AT_A_TIME):
        some, _ = program.make_block(0, start // MADE_AT_A_TIME, MADE_AT_A_TIME, 1, concepts)
        clips[start : start + MADE_AT_A_TIME] = some[: videos - start]
        if start % (50 * MADE_AT_A_TIME) == 0:
            print(f"{start:,} of {videos:,} videos made", flush=True)
    clips.flush()
    part.rename(file)


def held(search: Search) -> str:
    """How much memory what is searched takes."""
    each = [coded for block in search.blocks for coded in search.corpus.coder.of(block).values()]
    sizes = {
        "codes": sum(coded.codes.nbytes for coded in each),
        "codes of means": sum(coded.means.nbytes for coded in each),
        "rows of 8 bits": sum(coded.rows.nbytes + coded.row_unit.nbytes for coded in each),
    }
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    own = 1e-6 * int(status["RssAnon"].split()[0]) * 1.024
    return ", ".join(f"{name} {size / 1e9:.2f} GB" for name, size in sizes.items()) + f", the process {own:.2f} GB"


def exactly(clips: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """The best videos of each query by their best clips, in float32."""
    scores = torch.empty(len(queries), len(clips))
    for start in range(0, len(clips), VIDEOS_AT_A_TIME):
        rows = torch.from_numpy(clips[start : start + VIDEOS_AT_A_TIME].astype(np.float32))
        scores[:, start : start + len(rows)] = (
            (torch.from_numpy(queries) @ rows.flatten(0, 1).T).unflatten(1, rows.shape[:2]).amax(2)
        )
    return scores.topk(NUM_BEST).indices.numpy()


if __name__ == "__main__":
    main()
