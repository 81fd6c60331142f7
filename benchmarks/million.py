"""One query over a million videos of 32 clips, 384 wide: time and memory.

    python benchmarks/million.py PEERS --folder FOLDER [--videos 1000000]

PEERS is the program described in `search_peer`. Its videos are generated here without frames, into files of FOLDER that
have the layout of a library's cache (25 GB in float16, kept for later runs). Codes and 8-bit rows are made in memory
and searched by `search_peer`'s search. The queries run a second time at the end, when the vectors that they read are in
the system's cache. The hits are compared with float32 products of every clip, which are also timed.
"""

import argparse
import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.search_peer import Search, made_queries

from untrimmed.batches import EncodedVideos
from untrimmed.search.cache.mapped import MappedArrays, write_arrays
from untrimmed.search.corpora.encoded_block import EncodedBlock

NUM_BEST, NUM_QUERIES = 100, 40
CLIPS, DIM, MADE_AT_A_TIME = 32, 384, 1000
SAMPLED_EACH = 64  # videos, of which queries are made
TEMPLATE = EncodedVideos(clips=torch.empty(1, CLIPS, DIM, dtype=torch.float16))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", type=Path, help="the program whose videos these are")
    parser.add_argument("--folder", type=Path, required=True, help="folder of the generated files")
    parser.add_argument("--videos", type=int, default=1_000_000)
    args = parser.parse_args()
    files = make(args.peers, args.folder, args.videos)
    began = time.perf_counter()
    blocks = [EncodedBlock(MappedArrays(file), TEMPLATE) for file in files]
    clips = np.concatenate([clips_of(block, np.arange(0, len(block.ids), SAMPLED_EACH)) for block in blocks])
    search = Search(blocks)
    print(f"{len(search.corpus):,} videos coded in {time.perf_counter() - began:.0f} s; {held(search)}", flush=True)
    queries = made_queries(clips, NUM_QUERIES, seed=2)
    found = timed(search, queries, "a query")
    timed(search, queries, "the same, again")
    start = time.perf_counter()
    best = exactly(blocks, queries)
    whole = time.perf_counter() - start
    recalls = [len(set(some) & set(true)) / NUM_BEST for some, true in zip(found, best, strict=True)]
    print(f"of the best {NUM_BEST}: {100 * np.mean(recalls):.2f} %; every clip for all queries: {whole:.0f} s")


def timed(search: Search, queries: np.ndarray, what: str) -> list[np.ndarray]:
    """Return the hits of the queries, searched one after the other, and the times."""
    found, took = [], []
    for query in queries:
        start = time.perf_counter()
        found.append(search.search(query[None], NUM_BEST)[0][0])
        took.append(time.perf_counter() - start)
    print(f"{what}: {1e3 * np.median(took):.0f} ms in the median, {1e3 * max(took):.0f} at most", flush=True)
    return found


def make(peers: Path, folder: Path, videos: int) -> list[Path]:
    """Files of so many videos in their order; those that are not there are made."""
    spec = importlib.util.spec_from_file_location("peers", peers)
    assert spec is not None
    assert spec.loader is not None
    program: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    concepts, files = program.concepts(0), []
    folder.mkdir(parents=True, exist_ok=True)
    for start in range(0, videos, 4 * MADE_AT_A_TIME):
        stop = min(start + 4 * MADE_AT_A_TIME, videos)
        files.append(folder / f"{start:08d}-{stop:08d}.block")
        if files[-1].exists():
            continue
        parts = range(start, stop, MADE_AT_A_TIME)
        some = [program.make_block(0, part // MADE_AT_A_TIME, MADE_AT_A_TIME, 1, concepts)[0] for part in parts]
        write_block(files[-1], start, np.concatenate(some)[: videos - start])
        print(f"{start:,} of {videos:,} videos made", end="\r", flush=True)
    return files


def write_block(file: Path, start: int, clips: np.ndarray) -> None:
    """Videos from one on, as a library lays them out."""
    ids = np.array([str(start + row) for row in range(len(clips))])
    lengths = np.full((len(clips), 1), CLIPS)
    arrays = {"ids": ids, "durations_s": np.ones(len(clips)), "lengths": lengths, "videos.clips": clips}
    write_arrays(file, arrays)


def clips_of(block: EncodedBlock, rows: np.ndarray) -> np.ndarray:
    """Those of some videos, in float16."""
    clips = block.unpadded(rows).clips
    assert clips is not None
    return clips.numpy()


def held(search: Search) -> str:
    """Return the memory of everything that is searched."""
    each = [
        coded
        for together in search.corpus.coder.coded_blocks(search.corpus.blocks).values()
        for coded in together.blocks
    ]
    sizes = {
        "codes": sum(coded.codes.nbytes for coded in each),
        "rows of 8 bits": sum(coded.rows.nbytes for coded in each),
    }
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    own = 1e-6 * int(status["RssAnon"].split()[0]) * 1.024
    return ", ".join(f"{name} {size / 1e9:.2f} GB" for name, size in sizes.items()) + f", the process {own:.2f} GB"


def exactly(blocks: Sequence[EncodedBlock], queries: np.ndarray) -> np.ndarray:
    """The best videos of each query by their best clips, in float32."""
    scores = []
    for block in blocks:
        rows = torch.from_numpy(clips_of(block, np.arange(len(block.ids)))).float()
        scores.append((torch.from_numpy(queries) @ rows.flatten(0, 1).T).unflatten(1, rows.shape[:2]).amax(2))
    return torch.cat(scores, dim=1).topk(NUM_BEST).indices.numpy()


if __name__ == "__main__":
    main()
