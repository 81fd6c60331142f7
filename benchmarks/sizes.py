"""Bytes per video by method, compared with the numbers in the papers.

    python benchmarks/sizes.py [--videos 100] [--methods gmmformer ...]

Models and encodings are those of benchmarks/ranking_speed.py: the published sizes for TVR, 32 clips, 128 frames. Files
have the format of a library. The papers' numbers: GMMFormer (AAAI 2024), Table 5, and GMMFormer v2 (arXiv 2405.13824),
Table 2, memory of a query over 2,500 videos, here divided by their number; ProtoPRVR (arXiv 2504.13035), Tables 1 and
5, memory of one video.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.ranking_speed import METHODS, corpus_of

from untrimmed.models.registry import create_model
from untrimmed.presets import load_preset
from untrimmed.search.cache.mapped import write_arrays
from untrimmed.search.pruning.coder import arrays_of

TOTALS_MB = {"GMMFormer T5": {"ms_sl": 250.11, "gmmformer": 12.67}}
TOTALS_MB["v2 T2"] = {"ms_sl": 250.11, "gmmformer": 12.67, "gmmformer_v2": 61.57}
EACH_MB = {"Proto T1": {"ms_sl": 1.01, "gmmformer": 0.05, "proto": 0.09, "dl_dkd": 0.39}}
EACH_MB["Proto T5"] = {"proto of 10": 0.03, "proto of 20": 0.06, "proto": 0.09, "proto of 60": 0.18}
VIDEOS = 2500  # of the totals
PROTOTYPES = (10, 20, 60)  # beside the 30 of the preset


def printed(name: str) -> str:
    """Return the papers' numbers, in kB per video."""
    found = [f"{1e3 * some[name] / VIDEOS:.1f} ({table})" for table, some in TOTALS_MB.items() if name in some]
    return ", ".join(found + [f"{1e3 * some[name]:.0f} ({table})" for table, some in EACH_MB.items() if name in some])


def written(arrays: Mapping[str, np.ndarray]) -> int:
    """Return the size in bytes of a file with the arrays."""
    with tempfile.TemporaryDirectory() as folder:
        write_arrays(Path(folder) / "arrays", arrays)
        return (Path(folder) / "arrays").stat().st_size


@torch.inference_mode()
def sizes(method: str, videos: int, **options: int) -> tuple[int, ...]:
    """Bytes: of float32, of the table's rows and of a block, of rounded rows, of codes that a search reads."""
    torch.manual_seed(0)
    model = create_model(method, **load_preset(method, "tvr").settings | options).eval()
    corpus = corpus_of(model, videos)
    found = np.zeros(5, dtype=np.int64)
    for part in corpus.blocks.parts:
        codes, block = corpus.build_codes(part.block), part.block
        halves = block.videos.to("cpu", torch.float16).tensors()
        own = block.arrays | {f"videos.{name}": tensor.numpy() for name, tensor in halves.items()}
        found += [
            sum(tensor.nbytes for tensor in block.videos.tensors().values()),
            sum(tensor.nbytes for tensor in halves.values()),
            written(own),
            written(arrays_of(codes, "")),
            sum(some.codes.nbytes for some in codes.values()),
        ]
    return tuple(found.tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=100)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    options = parser.parse_args()
    asked = [(method, method, {}) for method in options.methods]
    if "proto" in options.methods:
        asked += [(f"proto of {number}", "proto", {"num_prototypes": number}) for number in PROTOTYPES]
    print("kB a video of 32 clips and 128 frames; disk: the table's row, its block, rounded rows")
    print(f"{'':18} {'float32':>8} {'table':>8} {'block':>8} {'codes':>8} {'scanned':>8}   printed")
    for name, method, settings in asked:
        each = " ".join(f"{size / options.videos / 1e3:8.1f}" for size in sizes(method, options.videos, **settings))
        print(f"{name:18} {each}   {printed(name) or '-'}", flush=True)


if __name__ == "__main__":
    main()
