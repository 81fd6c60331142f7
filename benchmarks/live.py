"""How long after its commit a new video is found, by a process that searches a library without a pause.

    python benchmarks/live.py [--hours 100] [--videos 20]

Another process commits videos of ten minutes, one at a time, all of whose frames match the query. Of the earlier
videos, every second one is replaced and every third one removed. The time is from the end of the commit to the end of
the first search with the video among its hits, which may have started before the commit.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from search_speed import FPS, World, build

from untrimmed.encoders.registry import load_encoder
from untrimmed.search.corpora.engine import Engine, cache_library
from untrimmed.search.query.find import find
from untrimmed.search.query.query import Cutoff
from untrimmed.search.store.records import Settings, VideoRecord
from untrimmed.search.store.table import StoredVideo, VideoIndex
from untrimmed.types import FrameFeatures, TextFeatures


def sentence(dim: int) -> np.ndarray:
    """The vector that is searched for."""
    vector = np.random.default_rng(5).standard_normal(dim)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def write(folder: Path, videos: int) -> None:
    """The other process: prints the id and the time of each commit."""
    index = VideoIndex(folder)
    settings = index.settings
    assert settings is not None
    vectors = np.tile(sentence(settings.frame_dim).astype(np.float16), (int(600 * FPS), 1))
    features = FrameFeatures(vectors, np.arange(len(vectors)) / FPS, 600.0)

    def put(number: int, indexed_at: float) -> None:
        record = VideoRecord(
            f"new{number}", f"/new/{number}.mp4", f"new{number}", 1, 1, 600.0, 1, 1, len(vectors), "2 fps",
            settings.encoder_identity, settings.model, indexed_at,
        )  # fmt: skip
        index.put(StoredVideo(record, features))

    with index:
        for number in range(videos):
            put(number, time.time())
            print(f"new{number} {time.time()}", flush=True)
            time.sleep(0.7)
            if number % 2:
                put(number - 1, time.time())
            if number % 3 == 2:
                index.remove([f"new{number - 2}"])
            time.sleep(0.7)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=100.0)
    parser.add_argument("--videos", type=int, default=20)
    parser.add_argument("--library", type=Path, help="one that such a run has made; new videos stay in it")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write(options.write, options.videos)
        return
    with tempfile.TemporaryDirectory() as made:
        folder, encoder = made, load_encoder("builtin").encoder
        settings = Settings(encoder.name, encoder.identity, encoder.frame_dim, encoder.word_dim, FPS, False)
        if options.library:
            folder = str(options.library)
        else:
            print("making a library", flush=True)
            build(Path(folder), options.hours, settings, World(encoder.frame_dim))
            cache_library(Path(folder))
        engine, vector = Engine(Path(folder)), sentence(encoder.frame_dim)
        query, cutoff = TextFeatures("made", vector, vector[None], ("made",)), Cutoff(limit=options.videos, moments=1)

        def search() -> list[str]:
            hits = engine.answer(lambda view: find(view, view.corpus().prepare(query), cutoff, among=None))
            return [hit.video_id for hit in hits]

        search()
        seen: dict[str, float] = {}
        times: list[float] = []
        command = [sys.executable, __file__, "--write", folder, "--videos", str(options.videos)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            while writer.poll() is None:
                began = time.perf_counter()
                hits = search()
                times.append(time.perf_counter() - began)
                for video_id in hits:
                    seen.setdefault(video_id, time.time())
            assert writer.stdout is not None
            committed = dict(line.split() for line in writer.stdout)
    waited = sorted(max(0.0, seen[video] - float(at)) for video, at in committed.items())
    after = f"{np.median(waited):.2f} s after their commit in the median, {waited[-1]:.2f} s at most"
    print(f"{len(waited)} videos, {options.hours:g} h: found {after}")
    print(
        f"{len(times)} searches meanwhile, {1000 * np.median(times):.0f} ms in the median, {max(times):.2f} s at most"
    )


if __name__ == "__main__":
    main()
