"""What needs no training, beside which trained methods are read: R@K on the test split.

    python examples/baselines.py ROOT NAME

`chance` is the expectation of a random order, `zero-shot` the cosine of a caption's mean word with a video's mean frame
in raw coordinates, `ridge` that of a linear map learned by least squares, and of simulated features the `oracle` reads
what they were made from. See `untrimmed.running.untrained`.
"""

import sys
from pathlib import Path

from untrimmed.data.dataset import load_dataset
from untrimmed.data.simulation.simulate import open_world
from untrimmed.running.untrained import untrained_rows


def main(root: Path, name: str) -> None:
    """Print every row on the test split."""
    train, val, test = (load_dataset(name, root, split) for split in ("train", "val", "test"))
    world = open_world(name, root) if (root / name / "simulation.json").is_file() else None
    print(f"{name}, test: {len(test.caption_ids)} queries, {len(test.video_ids)} videos")
    for row, figures in untrained_rows(train, val, test, world).items():
        cells = (f"{column} {figures[column]:5.1f}" for column in ("R@1", "R@5", "R@10", "R@100", "SumR"))
        print(f"{row:<27}" + "   ".join(cells))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
