"""How far hits move when a library is indexed in one number format and searched in the other.

    python benchmarks/number_formats.py FOLDER QUERIES.jsonl [--encoder NAME ...]

QUERIES has the format of `untrimmed evaluate --queries`; only sentences are read. Every video of FOLDER is indexed in
float32 and in bfloat16, and each library is searched in both formats. The table compares each result with float32: how
many of the first ten videos stay among the first ten, how many ranks a video moves, and how many best moments begin or
end more than half a second elsewhere. Without --encoder, the encoders are dual encoders with a few thousand random
weights (`tests/tiny_models.py`). Their scores of different videos are close, so rounding changes the order more often
than with a trained encoder. Cosines show the effect of rounding on vectors; ranks are a worst case here.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import untrimmed
from tests.tiny_models import save_clip, save_siglip2
from untrimmed.encoders.registry import load_encoder
from untrimmed.precision import Precision, choose_format
from untrimmed.search.labelled import read_queries
from untrimmed.search.store.table import VideoIndex

FORMATS: tuple[Precision, ...] = ("float32", "bfloat16")
TOP, ELSEWHERE_S = 10, 0.5


def encoders(names: list[str], place: Path) -> Iterator[tuple[str, str]]:
    """What to call an encoder, and what loads it."""
    if names:
        yield from ((name, name) for name in names)
        return
    for kind, save in (("random CLIP", save_clip), ("random SigLIP 2", save_siglip2)):
        for seed in range(3):
            yield f"{kind}, seed {seed}", str(save(place / f"{kind}-{seed}", seed=seed))


def search(folder: Path, precision: Precision, sentences: list[str]) -> list[list[untrimmed.Hit]]:
    """All videos for each sentence, best first."""
    library = untrimmed.open(folder, precision=precision)
    return [library.search(sentence, limit=10**6, moments=1) for sentence in sentences]


def compare(exact: list[list[untrimmed.Hit]], other: list[list[untrimmed.Hit]]) -> str:
    """Return one row: the differences between two sets of hits."""
    stay, moves, elsewhere = [], [], []
    for before, after in zip(exact, other, strict=True):
        rank = {hit.video: place for place, hit in enumerate(after)}
        stay.append(np.mean([rank[hit.video] < TOP for hit in before[:TOP]]))
        moves.append(max(abs(rank[hit.video] - place) for place, hit in enumerate(before)))
        again = after[rank[before[0].video]]
        apart_s = max(abs(again.start_s - before[0].start_s), abs(again.end_s - before[0].end_s))
        elsewhere.append(apart_s > ELSEWHERE_S)
    return f"{100 * np.mean(stay):.1f} | {np.mean(moves):.1f} | {max(moves)} | {100 * np.mean(elsewhere):.1f}"


def deviation(ours: np.ndarray, exact: np.ndarray) -> str:
    """One minus the cosine of rows, in the mean and at most."""
    lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(exact, axis=1)
    apart = 1 - (ours * exact).sum(axis=1) / lengths
    return f"{apart.mean():.1e} (at most {apart.max():.1e})"


def frames(folder: Path) -> np.ndarray:
    """The frame vectors of a library, videos by path."""
    index = VideoIndex(folder)
    stored = index.read([record.video_id for record in index.scan()])
    return np.concatenate([video.features.vectors for video in stored]).astype(np.float64)


def sentence_vectors(source: str, precision: Precision, sentences: list[str]) -> np.ndarray:
    """One row a sentence."""
    encoder = load_encoder(source, device="cpu", precision=precision, images=False).encoder
    return np.stack([features.sentence for features in encoder.encode_texts(sentences)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--encoder", action="append", default=[])
    options = parser.parse_args()
    sentences = [query.text for query in read_queries(options.queries)]
    here = choose_format("auto", "cpu")
    print(f"{len(sentences)} sentences; --precision auto is {here.name} here: {here.reason}\n")
    columns = ["encoder", "indexed in", "searched in", f"first {TOP} that stay (%)", "largest move, mean", "at most"]
    print("| " + " | ".join([*columns, "best moment elsewhere (%)"]) + " |\n" + "| --- " * (len(columns) + 1) + "|")
    notes = []
    with tempfile.TemporaryDirectory() as place:
        for number, (name, source) in enumerate(encoders(options.encoder, Path(place))):
            folders = {precision: Path(place) / f"library-{number}-{precision}" for precision in FORMATS}
            for precision, folder in folders.items():
                untrimmed.open(folder).index(options.folder, encoder=source, device="cpu", precision=precision)
            exact = search(folders["float32"], "float32", sentences)
            for indexed, searched in (("float32", "bfloat16"), ("bfloat16", "float32"), ("bfloat16", "bfloat16")):
                moved = compare(exact, search(folders[indexed], searched, sentences))
                print(f"| {name} | {indexed} | {searched} | {moved} |", flush=True)
            texts = [sentence_vectors(source, precision, sentences) for precision in FORMATS]
            both = deviation(frames(folders["bfloat16"]), frames(folders["float32"]))
            notes.append(f"{name}: 1 - cosine of frames {both}, of sentences {deviation(texts[1], texts[0])}")
    print("\n" + "\n".join(notes))


if __name__ == "__main__":
    main()
