"""Whether "first this, then that" finds more than either sentence, on the reels of `untrimmed demo`.

    untrimmed demo demo; python benchmarks/pairs.py demo

For reels with two known moments, both sentences are searched for together, each alone, and in the wrong order.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import untrimmed
from untrimmed.moments.overlap import iou, spans_of


def rank_of(hits: Sequence[untrimmed.Hit], video: str) -> int:
    return next(rank for rank, hit in enumerate(hits, start=1) if hit.video.name == video)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demo", type=Path, help="what `untrimmed demo` made")
    folder = parser.parse_args().demo
    library = untrimmed.open(folder / "library")
    known = defaultdict(list)
    for line in (folder / "reels" / "truth.jsonl").read_text(encoding="utf-8").splitlines():
        truth = json.loads(line)
        known[truth["video"]].append((truth["start_s"], truth["end_s"], truth["query"]))
    pairs = {video: sorted(truths) for video, truths in known.items() if len(truths) == 2}
    ranks, overlaps, later = [], [], 0
    for video, ((*one, first), (*other, then)) in pairs.items():
        asked = (untrimmed.Query(first, then=then), first, then, untrimmed.Query(then, then=first))
        both, *alone, wrong = (library.search(query, limit=len(library.videos())) for query in asked)
        ranks.append([rank_of(hits, video) for hits in (both, *alone)])
        hit = both[ranks[-1][0] - 1]
        for found, truth in ((hit.moments[0], one), (hit.then[0], other)):
            overlaps.append(float(iou(spans_of([found]), spans_of([untrimmed.Moment(*truth)]))[0]))
        later += hit.score > next(h.score for h in wrong if h.video.name == video)
    first_places = (np.array(ranks) == 1).sum(axis=0)
    print(f"{len(pairs)} reels; the right one is first for both sentences {first_places[0]} times, for the first alone")
    print(
        f"{first_places[1]}, for the second alone {first_places[2]}; mean IoU of both moments {np.mean(overlaps):.2f};"
    )
    print(f"in the right order it scores higher than in the wrong one {later} times")


if __name__ == "__main__":
    main()
