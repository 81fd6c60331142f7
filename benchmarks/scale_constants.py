"""Bookkeeping costs of a library per video: the constants of `scale_costs.py` that no other benchmark measures.

    python benchmarks/scale_constants.py [--videos 2000]

Times are processor times, which other programs affect little. A slow disk adds to commits and merges.
"""

import argparse
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

from untrimmed.search.store.merge import merge
from untrimmed.search.store.records import Records, Settings, VideoRecord
from untrimmed.search.store.table import StoredVideo, VideoIndex
from untrimmed.types import FrameFeatures

FRAMES, WIDTH = 480, 397  # four minutes at 2 frames a second, `builtin`
COMMITS = 100


def video(number: int, frames: np.ndarray) -> StoredVideo:
    path = f"/videos/films/{number % 997:03d}/{number}.mp4"
    record = VideoRecord(
        f"{number:016x}", path, f"{number:040x}", 10**8, 10**18, 240.0, 1280, 720, FRAMES,
        "2 fps", "builtin:0123456789ab", "frames", 1.7e9,
    )  # fmt: skip
    return StoredVideo(record, FrameFeatures(frames, np.arange(FRAMES) / 2, 240.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=2000)
    options = parser.parse_args()
    frames = np.random.default_rng(0).standard_normal((FRAMES, WIDTH)).astype(np.float16)
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder, "part")
        with VideoIndex(part, create=True) as index:
            index.write_settings(Settings("builtin", "builtin:0123456789ab", WIDTH, 384, 2.0, False))
            started = time.process_time()
            for number in range(COMMITS):
                index.put(video(number, frames))
            print(f"commit_ms     {(time.process_time() - started) / COMMITS * 1e3:8.2f}   one video")
            for start in range(COMMITS, options.videos, 100):
                index.put_all([video(n, frames) for n in range(start, min(start + 100, options.videos))])
        started = time.process_time()
        merge(Path(folder, "out"), [part])
        print(f"merge_ms      {(time.process_time() - started) / options.videos * 1e3:8.2f}   one video")
        (Path(folder, "out", "records.json")).unlink()
        tracemalloc.start()
        started = time.process_time()
        records = Records(VideoIndex(Path(folder, "out")).scan())
        spent = time.process_time() - started
        held = tracemalloc.get_traced_memory()[0]
        print(f"record_us     {spent / len(records) * 1e6:8.1f}   of the table into memory, the copy written")
        print(f"record_bytes  {held / len(records):8.0f}")


if __name__ == "__main__":
    main()
