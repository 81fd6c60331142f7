"""Cost of encoding a long film with TF-PRVR: seconds of one core and memory, by the film's length.

    OMP_NUM_THREADS=1 python benchmarks/long_film.py [--hours 1 2 4] [--dim 512] [--cone 1]

Frames are synthetic: two per second, in shots of 2 to 20 s around random directions. `--cone` is the length of a common
direction that is added to all. With 0, half of all cosines are negative, which takes longest but does not occur with
image encoders.
"""

import argparse
import resource
import time

import numpy as np

from untrimmed.moments.tf_prvr import video_moments

FPS = 2.0


def film(hours: float, dim: int, cone: float) -> np.ndarray:
    """Shot after shot, so that making a film takes less memory than encoding it."""
    rng, start = np.random.default_rng(0), 0
    frames = np.empty((int(hours * 3600 * FPS), dim), np.float16)
    while start < len(frames):
        stop = min(start + int(rng.integers(4, 40)), len(frames))
        content = rng.standard_normal(dim) / np.sqrt(dim)
        content[0] += cone
        frames[start:stop] = content + 0.3 / np.sqrt(dim) * rng.standard_normal((stop - start, dim))
        start = stop
    return frames


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, nargs="+", default=[1.0, 2.0, 4.0])
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--cone", type=float, default=1.0)
    options = parser.parse_args()
    print(f"{'hours':>6} {'frames':>8} {'segments':>9} {'moments':>8} {'s of a core':>12} {'MB in all':>10}")
    for hours in options.hours:
        frames = film(hours, options.dim, options.cone)
        started = time.process_time()
        moments = video_moments(frames)
        taken_s = time.process_time() - started
        num_segments = sum(len(edges) - 1 for edges in moments.levels)
        most_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # the most until now
        counts = f"{len(frames):8d} {num_segments:9d} {len(moments.vectors):8d}"
        print(f"{hours:6g} {counts} {taken_s:12.1f} {most_mb:10.0f}")


if __name__ == "__main__":
    main()
