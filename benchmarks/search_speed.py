"""How long one warm search of 100 h of footage takes, compared with reading the frames once.

    python benchmarks/search_speed.py [--hours 100] [--encoder builtin]
    python benchmarks/search_speed.py --hours 1000 --width 768 [--folder FOLDER]
    python benchmarks/search_speed.py --neighbour
    python benchmarks/search_speed.py --page [--folder FOLDER]

The library is written to disk and opened again. Its vectors are synthetic: shots of random length around 4,096
directions, whose variance falls like that of learned vectors. Text goes through the real encoder. Every result is
compared with that of an exhaustive scan. Then ranking alone is measured, with noisy moments as queries, alternating
between all frames, codes (which must give equal results), and, if the frames fit in memory as float32, one product with
all of them, as evaluation programs do. `--width` replaces the encoder and measures only ranking: blocks of frames and
their codes are written to disk one at a time and mapped; `--folder` keeps them for the next run. With `--neighbour`, a
loop keeps the first core busy. `--page` measures the time from Enter to the first picture on the page instead, for
10,000 videos of one minute; all of them have the same stored pictures.
"""

import argparse
import contextlib
import io
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

import untrimmed
from untrimmed.encoders.registry import load_encoder
from untrimmed.search.cache.block_cache import BlockCache
from untrimmed.search.corpora.best_vector import VECTORS, BestVectorCorpus
from untrimmed.search.corpora.engine import cache_library
from untrimmed.search.corpora.frames import FrameCorpus
from untrimmed.search.pruning import coder
from untrimmed.search.pruning.products import products
from untrimmed.search.pruning.threads import share_work
from untrimmed.search.store.records import Records, Settings, VideoRecord
from untrimmed.search.store.table import StoredVideo, VideoIndex
from untrimmed.search.store.thumbnails import write_thumbnails
from untrimmed.types import FrameFeatures, TextFeatures
from untrimmed.video.thumbnails import Thumbnails

FPS, DURATION_S = 2.0, 600.0
REST_S = 0.25  # until BLAS threads, which spin while they wait, release their cores for the next measurement
MOST_WIDENED = 4e9  # bytes of frames in float32
FIELD = "float32, one product"
QUERIES = (
    "a dog runs along the beach",
    "two people shake hands in an office",
    "a red car turns at a crossing",
    "somebody pours coffee into a cup",
    "children play football in the rain",
)
PAGE_VIDEOS = 10_000
PAGE_QUERIES = (
    "a cat sleeps on a sofa",
    "an aeroplane lands at night",
    "a woman plays the violin",
    "waves break on rocks",
    "a man repairs a bicycle",
)
HASH = "0" * 32  # of the content of the videos on the page


class World:
    """Made frames of one width."""

    def __init__(self, dim: int):
        self.rng = np.random.default_rng(0)
        self.spread = (1.0 + np.arange(dim)) ** -0.5
        self.directions = unit(self.noise(4096))

    def noise(self, number: int) -> np.ndarray:
        """Of length 1 in the mean."""
        spread = self.spread / np.linalg.norm(self.spread)
        return self.rng.standard_normal((number, len(spread)), dtype=np.float32) * spread.astype(np.float32)

    def video(self, duration_s: float) -> FrameFeatures:
        """Shots of 2 to 20 s around one direction each."""
        num_frames = int(duration_s * FPS)
        lengths = self.rng.integers(4, 40, num_frames // 4)
        shots = self.directions[self.rng.integers(0, 4096, len(lengths))] + 0.5 * self.noise(len(lengths))
        vectors = unit(np.repeat(shots, lengths, axis=0)[:num_frames] + 0.3 * self.noise(num_frames))
        return FrameFeatures(vectors.astype(np.float16), np.arange(num_frames) / FPS, duration_s)

    def sentence(self) -> TextFeatures:
        """Of a moment."""
        vector = unit(self.directions[self.rng.integers(0, 4096)] + self.noise(1)[0]).astype(np.float32)
        return TextFeatures("made", vector, vector[None], ("made",))


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def record_of(number: int, settings: Settings) -> VideoRecord:
    return VideoRecord(
        video_id=f"{number:016x}",
        path=f"/footage/{number:05d}.mp4",
        content_hash=str(number),
        size=1,
        mtime_ns=1,
        duration_s=DURATION_S,
        width=1280,
        height=720,
        num_frames=int(DURATION_S * FPS),
        sampling="2 fps",
        encoder_identity=settings.encoder_identity,
        model=settings.model,
        indexed_at=1.0,
    )


def build(folder: Path, hours: float, settings: Settings, world: World) -> None:
    with VideoIndex(folder, create=True) as index:
        index.write_settings(settings)
        for number in range(int(hours * 3600 / DURATION_S)):
            index.put(StoredVideo(record_of(number, settings), world.video(DURATION_S)))


def build_for_page(folder: Path, settings: Settings, world: World) -> None:
    """A library of 10,000 videos of one minute that share their thumbnails."""
    frame = Image.fromarray(world.rng.integers(0, 256, (10, 16, 3), dtype=np.uint8)).resize((284, 160))
    frame.save(buffer := io.BytesIO(), "WEBP")
    write_thumbnails(folder, HASH, Thumbnails(np.arange(60.0), (0,) * 60, (buffer.getvalue(),)))
    with VideoIndex(folder, create=True) as index:
        index.write_settings(settings)
        for start in range(0, PAGE_VIDEOS, 1000):
            index.put_all([
                StoredVideo(
                    replace(record_of(number, settings), content_hash=HASH, duration_s=60.0, num_frames=int(60 * FPS)),
                    world.video(60.0),
                )
                for number in range(start, start + 1000)
            ])  # fmt: skip
    cache_library(folder)


def page(folder: Path) -> None:
    """The time from Enter to the first picture, in Chromium."""
    from playwright.sync_api import sync_playwright

    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.web.browsing import TILE, ask, painted_ms

    encoder = load_encoder("builtin").encoder
    settings = Settings(encoder.name, encoder.identity, encoder.frame_dim, encoder.word_dim, FPS, keyframes_only=False)
    if not (folder / "library.json").exists():
        build_for_page(folder, settings, World(encoder.frame_dim))
    command = [sys.executable, "-m", "untrimmed", "serve", "--library", str(folder), "--no-browser", "--port", "8799"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as service, sync_playwright() as driver:
        try:
            browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            tab = browser.new_page(viewport={"width": 1280, "height": 800})
            while True:
                with contextlib.suppress(Exception):
                    tab.goto("http://127.0.0.1:8799/")
                    break
                time.sleep(0.2)
            tab.wait_for_selector(TILE)
            for text in ("the first search loads the encoder", "later ones", "make", "codes"):
                ask(tab, text)
            spent_ms = []
            for text in (*QUERIES, *PAGE_QUERIES):
                tab.wait_for_timeout(1000)  # for the other pictures of the last search
                spent_ms.append(painted_ms(tab, text))
            print(f"Enter to the first picture, {PAGE_VIDEOS:,} videos, {len(spent_ms)} sentences")
            print(f"  median {np.median(spent_ms):.0f} ms, slowest {max(spent_ms):.0f} ms")
            browser.close()
        finally:
            service.terminate()


def cached_corpus(folder: Path, hours: float, world: World) -> FrameCorpus:
    """A corpus as searches map it, without a table."""
    settings = Settings("made", "made", len(world.spread), 1, FPS, keyframes_only=False)
    records = Records(record_of(number, settings) for number in range(int(hours * 3600 / DURATION_S)))
    cache = BlockCache(folder, FrameCorpus().block_format)
    if not cache.paths(".codes"):
        videos = (StoredVideo(record, world.video(DURATION_S)) for record in records)
        assert cache.write((block.arrays for block in FrameCorpus().new_blocks(videos)), records)
        cache.write_codes(FrameCorpus().from_cache(cache.read(records)).missing_codes())
    return FrameCorpus().from_cache(cache.read(records))


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
    parser.add_argument("--width", type=int)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--sentences", type=int, default=20)
    parser.add_argument("--neighbour", action="store_true")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    if options.page:
        with tempfile.TemporaryDirectory() as folder:
            page(options.folder or Path(folder))
        return
    with neighbour() if options.neighbour else contextlib.nullcontext(), tempfile.TemporaryDirectory() as folder:
        if not options.width:
            search(Path(folder), options)
            return
        started = time.perf_counter()
        corpus = cached_corpus(options.folder or Path(folder), options.hours, world := World(options.width))
        spent = f"{time.perf_counter() - started:.0f} s"
        print(f"{options.hours:g} h, {options.width} wide, cached in {spent}", flush=True)
        compare(corpus, world, options.sentences)


@contextlib.contextmanager
def neighbour() -> Iterator[None]:
    """The first core is taken by a loop."""
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    os.sched_setaffinity(loop.pid, {min(os.sched_getaffinity(0))})
    try:
        yield
    finally:
        loop.kill()
        loop.wait()


def search(folder: Path, options: argparse.Namespace) -> None:
    """Whole searches of a library."""
    print(f"writing a library of {options.hours:g} h (half a minute for 100 h on a quiet machine)", flush=True)
    encoder = load_encoder(options.encoder).encoder
    settings = Settings(encoder.name, encoder.identity, encoder.frame_dim, encoder.word_dim, FPS, keyframes_only=False)
    started = time.perf_counter()
    build(folder, options.hours, settings, world := World(encoder.frame_dim))
    written_s = time.perf_counter() - started
    print(f"library of {options.hours:g} h, {encoder.frame_dim} wide, written in {written_s:.1f} s")
    library = untrimmed.open(folder)
    started = time.perf_counter()
    library.search(QUERIES[0])
    print(f"first search (load models and vectors)   {time.perf_counter() - started:8.2f} s")
    for _ in range(coder.LEAST_SEARCHES + 1):
        library.search(QUERIES[0])
    library.engine.view().frames().coder.wait()  # beside a thread that makes codes searches take longer
    total = [median_ms(lambda text=text: library.search(text, limit=10)) for text in QUERIES]
    print(f"warm search, worst median of 5 sentences {max(total):8.1f} ms")
    text_ms = median_ms(lambda: encoder.encode_texts([QUERIES[0]]))
    print(f"  of that, the sentence's vector         {text_ms:8.1f} ms")
    view = library.engine.view()
    frames = [part.block.arrays[VECTORS] for part in view.frames().blocks.parts]
    ones = np.ones((1, frames[0].shape[1]), dtype=np.float16)
    product_ms = median_ms(lambda: [products(block, ones) for block in frames])
    gigabytes = sum(block.nbytes for block in frames) / 1e9
    speed = f"{gigabytes:.2f} GB, {gigabytes / product_ms * 1e3:.1f} GB/s"
    print(f"  one product with all frames            {product_ms:8.1f} ms ({speed})")
    for text in QUERIES:
        sentence = encoder.encode_texts([text])[0].sentence
        ids = [record.video_id for record in view.records]
        frames_of = {video_id: view.index.get(video_id).features.vectors for video_id in ids}
        best = {video_id: float((frames @ sentence).max()) for video_id, frames in frames_of.items()}
        expected = sorted(ids, key=best.__getitem__, reverse=True)[:10]
        assert [hit.video_id for hit in library.search(text, limit=10)] == expected, text
    print("answers equal looking at every frame     5 of 5")
    compare(view.frames(), world, options.sentences)


def compare(corpus: FrameCorpus, world: World, repeats: int) -> None:
    """Ranking by turns."""
    ways = {"every frame": math.inf, "codes": 1}
    times = {way: [] for way in ways}
    found = {way: [] for way in ways}
    coder.LEAST_SEARCHES, coder._MAX_CANDIDATES = 0, 2.0  # whatever codes are worth here
    BestVectorCorpus.min_size_for_codes_at_once = 1
    world.rng = np.random.default_rng(1)
    if 2 * sum(part.block.arrays[VECTORS].nbytes for part in corpus.blocks.parts) <= MOST_WIDENED:
        times[FIELD] = []
        found[FIELD] = []
        by_product = in_float32(corpus)
    corpus.prepare(world.sentence()).rank(limit=10)  # makes codes, or reads them
    corpus.coder.wait()
    for _ in range(repeats):
        sentence, ranked = world.sentence(), {}
        for way in times:
            BestVectorCorpus.min_size_for_codes = ways.get(way, math.inf)  # type: ignore[assignment]
            prepared = corpus.prepare(sentence)
            time.sleep(REST_S)
            started = time.perf_counter()
            ranked[way] = by_product(sentence.sentence) if way == FIELD else prepared.rank(limit=10)
            times[way].append(1000 * (time.perf_counter() - started))
            best = ranked["every frame"] if way != FIELD else [video.video_id for video in ranked["every frame"]]
            found[way].append(len(set(ranked[way]) & set(best)) / 10)
    print(f"ranking 10 videos, {repeats} made sentences: median, slowest")
    for way in times:
        spent = f"{np.median(times[way]):9.1f} ms {max(times[way]):9.1f} ms"
        print(f"  {way:22} {spent}, {100 * np.mean(found[way]):.1f} % of the best")
    assert min(found["codes"]) == 1
    blocks = [part.block for part in corpus.blocks.parts]
    coded = [codes for together in corpus.coder.coded_blocks(corpus.blocks).values() for codes in together.blocks]
    speed = bandwidth([codes.rows for codes in coded])
    sizes = {
        "frames": sum(block.arrays[VECTORS].nbytes for block in blocks),
        "codes of frames": sum(codes.codes.nbytes for codes in coded),
        "rows of 8 bits": sum(codes.rows.nbytes for codes in coded),
    }
    for name, size in sizes.items():
        print(f"  {name:22} {size / 1e9:9.2f} GB, at {speed / 1e9:.1f} GB/s {1e3 * size / speed:.1f} ms")


def in_float32(corpus: FrameCorpus) -> Callable[[np.ndarray], set[str]]:
    """Ranking by the best of all frames that are in memory in float32, as evaluation programs have them."""
    blocks = [part.block for part in corpus.blocks.parts]
    frames = [block.arrays[VECTORS].astype(np.float32) for block in blocks]
    ids = np.concatenate([block.ids for block in blocks])

    def rank(sentence: np.ndarray) -> set[str]:
        query = np.pad(sentence, (0, frames[0].shape[1] - len(sentence)))
        scores = [
            np.maximum.reduceat(rows @ query, np.cumsum([0, *block.sizes[:-1]]))
            for block, rows in zip(blocks, frames, strict=True)
        ]
        return set(ids[np.argpartition(-np.concatenate(scores), 10)[:10]])

    return rank


def bandwidth(arrays: list[np.ndarray]) -> float:
    """Bytes a second that all cores add up."""

    def add_up() -> None:
        share_work(len(arrays), 1, lambda start, stop: [array.sum() for array in arrays[start:stop]])

    return 1e3 * sum(array.nbytes for array in arrays) / median_ms(add_up, repeats=5)


if __name__ == "__main__":
    main()
