"""Time searches in made passages: words and vectors together, in a running process, and the size of the tables.

    python benchmarks/passage_speed.py [--hours 10000] [--folder DIR]

Each hour has 500 words in 50 passages (100,000 hours: 50 million words). Words are drawn from Zipf's distribution; the
vector of a passage is the sum of random vectors of its words and of noise, 397 wide. With --folder, the library is
kept and used again; a run that was interrupted continues. Frames are not searched (`ranking_speed.py` times them).
"""

import argparse
import statistics
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np

import untrimmed
from untrimmed import Query
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.passages.passage import Passage
from untrimmed.passages.sentences import Part, Sentence
from untrimmed.passages.words import TextQuery
from untrimmed.search import library as library_module
from untrimmed.search.corpora.engine import cache_library
from untrimmed.search.query.evidence import TextPart, find_passages
from untrimmed.search.query.fusion import FusionSettings
from untrimmed.search.store.passages import PassageTable, StoredPassage, _mark, _row, _table
from untrimmed.search.store.readings import StoredReading
from untrimmed.search.store.records import Settings, VideoRecord
from untrimmed.search.store.table import StoredVideo, VideoIndex
from untrimmed.types import FrameFeatures, TextFeatures
from untrimmed.types import Reading as KnownWords

WIDTH, VOCABULARY, PASSAGES, WORDS, AT_A_TIME = 397, 60_000, 50, 10, 1000
IDENTITY = "made:1"
QUERIES = ["w4000 w9000", "w120 w3000 w44 w700", "w9 w55 w1200 w20000 w3", "w30000", '"w40 w90"', "w800 w20 w77"]


class MadeEncoder:
    """The vector of a text is the sum of the vectors of its words, such as `w12`."""

    name, identity, frame_dim, word_dim, short_side = "made", IDENTITY, WIDTH, WIDTH, 32

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.words = rng.standard_normal((VOCABULARY, WIDTH)).astype(np.float32)

    def encode_texts(self, texts):
        return [self._text(text) for text in texts]

    def _text(self, text):
        numbers = [int(word.strip('"w')) for word in text.split()]
        vector = self.words[numbers].sum(axis=0)
        vector /= np.linalg.norm(vector)
        return TextFeatures(text, vector, vector[None], ("w",), KnownWords())


def video(number: int) -> StoredVideo:
    record = VideoRecord(
        f"{number:016x}", f"/videos/{number % 997:03d}/{number}.mp4", f"{number:040x}", 10**8, 10**18, 3600.0, 1280,
        720, 1, "2 fps", IDENTITY, "frames", 1.7e9,
    )  # fmt: skip
    frame = np.zeros((1, WIDTH), np.float16)
    frame[0, number % WIDTH] = 1.0
    return StoredVideo(record, FrameFeatures(frame, np.zeros(1), 3600.0))


def rows_of(numbers: range, encoder: MadeEncoder):
    """Return the rows of the readings of these videos."""
    rng = np.random.default_rng(numbers.start)
    weights = 1 / np.arange(1, VOCABULARY + 1)
    drawn = rng.choice(VOCABULARY, size=(len(numbers) * PASSAGES, WORDS), p=weights / weights.sum())
    vectors = encoder.words[drawn].sum(axis=1) + 2 * rng.standard_normal((len(drawn), WIDTH)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = []
    for place, number in enumerate(numbers):
        names = f"{number:016x}", "subtitle", "said", "made", IDENTITY, f"{number:040x}"
        reading = StoredReading(*names, num_passages=PASSAGES, reading_id=f"{number:016x}")
        for index in range(PASSAGES):
            row = place * PASSAGES + index
            text = " ".join(f"w{word}" for word in drawn[row])
            passage = Passage(text, index * 72.0, index * 72.0 + 4, "subtitle", "en")
            sentence = Sentence(passage, (Part(passage.start_s, passage.end_s, len(text)),))
            rows.append(_row(reading, index, StoredPassage(sentence, vectors[row].astype(np.float16))))
        rows.append(_mark(reading))
    return _table(rows)


def build(folder: Path, hours: int, encoder: MadeEncoder) -> None:
    with VideoIndex(folder, create=True) as index:
        index.write_settings(Settings("made", IDENTITY, WIDTH, WIDTH, 2.0, False))
        for start in range(len(index), hours, 10_000):
            index.put_all([video(number) for number in range(start, min(start + 10_000, hours))])
        table = PassageTable(folder)
        started = time.perf_counter()
        first = len(table) // (PASSAGES + 1)
        for start in range(first, hours, AT_A_TIME):
            table.put_rows([rows_of(range(start, min(start + AT_A_TIME, hours)), encoder)])
        written_s = time.perf_counter() - started
        started = time.perf_counter()
        table.finish()
        print(f"write {written_s:8.1f} s   (rows made and written)")
        print(f"index {time.perf_counter() - started:8.1f} s   (compaction and full-text index)", flush=True)
    started = time.perf_counter()
    cache_library(folder)
    print(f"cache {time.perf_counter() - started:8.1f} s   (vectors and codes)", flush=True)


def size(folder: Path) -> str:
    return f"{sum(file.stat().st_size for file in folder.rglob('*') if file.is_file()) / 1e9:.2f} GB"


def timed(name: str, call) -> None:
    times = []
    for query in QUERIES * 3:
        started = time.perf_counter()
        call(query)
        times.append((time.perf_counter() - started) * 1e3)
    warm = times[len(QUERIES) :]
    print(f"{name:34s} median {statistics.median(warm):7.1f} ms, largest {max(warm):7.1f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=10_000)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    encoder = MadeEncoder()
    library_module.load_encoder = lambda *_, **__: LoadedEncoder(encoder, None)
    with tempfile.TemporaryDirectory() if options.folder is None else nullcontext(options.folder) as folder:
        folder = Path(folder) / "library"
        build(folder, options.hours, encoder)
        count = options.hours * PASSAGES / 1e6
        print(f"{count * WORDS:g} million words, {count:g} million passages")
        print(f"passages.lance {size(folder / 'passages.lance')}, vectors {size(folder / 'cache' / 'passages-said')}")
        library = untrimmed.open(folder)
        started = time.perf_counter()
        library.search(Query(QUERIES[0], modes=("said",)))
        print(f"first search                       {(time.perf_counter() - started) * 1e3:14.1f} ms")
        view = library.engine.view()
        passages = view.passages
        corpus = passages.corpus("said")
        texts = {query: encoder.encode_texts([query])[0] for query in QUERIES}
        timed("words", lambda query: passages.table.search(TextQuery.of(query), "said", limit=200))
        timed("vectors", lambda query: corpus.prepare(texts[query]).rank(limit=20))

        def both(query: str) -> None:
            part = TextPart(TextQuery.of(query), texts[query], ("said",), True)
            find_passages(passages, part, 20, None, FusionSettings())

        timed("words and vectors, with passages", both)
        timed("complete search", lambda query: library.search(Query(query, modes=("said",))))


if __name__ == "__main__":
    main()
