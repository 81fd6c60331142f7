"""How many of each method's ten best videos are among the candidates that an index of its vectors finds.

    python benchmarks/candidates.py [--videos 600] [--queries 40]

Weights and features are random, so that branches of a score have nothing in common: the worst case for methods whose
branches are looked for together. `untrimmed.search.candidates.recall_in` measures a trained model on a library.
"""

from __future__ import annotations

import argparse

import torch

from untrimmed.batches import QueryBatch, VideoBatch
from untrimmed.models.registry import create_model, list_models
from untrimmed.search.candidates import recall

SIZES = {"query_dim": 6, "video_dim": 5, "dim": 32, "num_heads": 4, "max_frames": 9, "max_words": 4}
COMPOSED = ["gmmformer+ral", "gmmformer_v2+ral", "ms_sl+ral", "clip4clip+ral", "ms_sl+prototypes"]
CANDIDATES = (10, 20, 50, 100)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=600)
    parser.add_argument("--queries", type=int, default=40)
    options = parser.parse_args()
    print(f"{'recall@10 of candidates':24s}" + "".join(f"{count:>8d}" for count in CANDIDATES))
    for name in [*list_models(), *COMPOSED]:
        torch.manual_seed(0)
        model = create_model(name, **SIZES, init_std=0.3).eval()
        mask = torch.arange(9) < torch.randint(1, 10, (options.videos,))[:, None]
        clips, frames = torch.randn(options.videos, 32, 5), torch.randn(options.videos, 9, 5) * mask[..., None]
        words = torch.randn(options.queries, 3, 6)
        queries = model.encode_queries(QueryBatch(words=words, mask=torch.ones(words.shape[:2], dtype=torch.bool)))
        videos = model.encode_videos(VideoBatch(clips=clips, frames=frames, frame_mask=mask))
        exact, rough = model.score(queries, videos).fused.numpy(), model.candidate_score(queries, videos).numpy()
        shares = (recall(exact, rough, top=10, candidates=count).mean() for count in CANDIDATES)
        print(f"{name:24s}" + "".join(f"{share:8.3f}" for share in shares), flush=True)


if __name__ == "__main__":
    main()
