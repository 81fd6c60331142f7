"""How long one search of 100 h of footage takes, warm, and how far that is from reading the frames once.

    python benchmarks/search_speed.py [--hours 100] [--encoder builtin]

The library is real (written to disk, opened anew); its vectors are made: shots of random length around random
directions. Text goes through the real encoder. Every answer is checked against looking at every window.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

import untrimmed
from untrimmed.encoders.registry import load_encoder
from untrimmed.search.index import StoredVideo, VideoIndex, new_video_id
from untrimmed.search.products import products
from untrimmed.search.records import Settings, VideoRecord
from untrimmed.types import FrameFeatures

FPS = 2.0
QUERIES = (
    "a dog runs along the beach",
    "two people shake hands in an office",
    "a red car turns at a crossing",
    "somebody pours coffee into a cup",
    "children play football in the rain",
)


def made_video(rng: np.random.Generator, dim: int, duration_s: float) -> FrameFeatures:
    """Shots of 2 to 20 s around random directions, with noise that is smooth in time."""
    num_frames = int(duration_s * FPS)
    shots = np.repeat(rng.standard_normal((num_frames, dim)), rng.integers(4, 40, num_frames), axis=0)[:num_frames]
    vectors = shots + 0.3 * rng.standard_normal((num_frames, dim))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return FrameFeatures(vectors.astype(np.float16), np.arange(num_frames) / FPS, duration_s)


def build(folder: Path, hours: float, settings: Settings) -> None:
    rng = np.random.default_rng(0)
    with VideoIndex(folder, create=True) as index:
        index.write_settings(settings)
        for number in range(int(hours * 6)):
            features = made_video(rng, settings.frame_dim, 600.0)
            record = VideoRecord(
                video_id=new_video_id(),
                path=f"/footage/{number:05d}.mp4",
                content_hash=str(number),
                size=1,
                mtime_ns=1,
                duration_s=600.0,
                width=1280,
                height=720,
                num_frames=len(features.times_s),
                sampling="2 fps",
                encoder_identity=settings.encoder_identity,
                model=settings.model,
                indexed_at=time.time(),
            )
            index.put(StoredVideo(record, features))


def median_ms(call, repeats: int = 15) -> float:
    call()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return 1000 * float(np.median(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=100.0)
    parser.add_argument("--encoder", default="builtin")
    options = parser.parse_args()

    encoder = load_encoder(options.encoder).encoder
    settings = Settings(encoder.name, encoder.identity, encoder.frame_dim, encoder.word_dim, FPS, keyframes_only=False)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        build(Path(folder), options.hours, settings)
        written_s = time.perf_counter() - started
        print(f"library of {options.hours:g} h, {encoder.frame_dim} wide, written in {written_s:.1f} s")
        library = untrimmed.open(folder)
        started = time.perf_counter()
        library.search(QUERIES[0])
        print(f"first search (load models and vectors)   {time.perf_counter() - started:8.2f} s")
        total = [median_ms(lambda text=text: library.search(text, limit=10)) for text in QUERIES]
        print(f"warm search, worst median of 5 sentences {max(total):8.1f} ms")
        text_ms = median_ms(lambda: encoder.encode_texts([QUERIES[0]]))
        print(f"  of that, the sentence's vector         {text_ms:8.1f} ms")
        view = library.engine.view()
        frames = [part.block.frames for part in view.windows().blocks.parts]
        ones = np.ones((1, frames[0].shape[1]), dtype=np.float16)
        product_ms = median_ms(lambda: [products(block, ones) for block in frames])
        gigabytes = sum(block.nbytes for block in frames) / 1e9
        speed = f"{gigabytes:.2f} GB, {gigabytes / product_ms * 1e3:.1f} GB/s"
        print(f"  one product with all frames            {product_ms:8.1f} ms ({speed})")
        for text in QUERIES:
            prepared = view.windows().prepare(encoder.encode_texts([text])[0])
            ids = [record.video_id for record in view.records]
            best = {video_id: float(prepared.relevance(video_id)[1].max()) for video_id in ids}
            expected = sorted(ids, key=best.__getitem__, reverse=True)[:10]
            assert [hit.video_id for hit in library.search(text, limit=10)] == expected, text
        print("answers equal looking at every window    5 of 5")


if __name__ == "__main__":
    main()
