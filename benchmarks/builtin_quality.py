"""Accuracy of `builtin` on labelled clips, compared with plain ConSE: the evidence for its recipe.

    python benchmarks/builtin_quality.py FOLDER

FOLDER contains the clips and `manifest.jsonl` (a line per clip: id, file, queries with start and end in seconds). Each
clip is one video. The recipe was chosen with the sentences of clips at even positions (sorted by id); those at odd
positions were scored once, at the end. `best` ranks a video by its best frame, `smooth` by the best of its scores after
a Gaussian of 1 s. AUC is the probability that a frame inside the moment scores above a frame of that video outside it.

Plain ConSE is EfficientNet-Lite2 in float32 (package `efficientnet-lite-pytorch`, not among our requirements), one
centre crop of 260 pixels, 'a photo of a {first name}' and the 100 likeliest classes.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from untrimmed.encoders.builtin.classes import read_class_texts
from untrimmed.encoders.builtin.encoder import BuiltinEncoder, Recipe
from untrimmed.encoders.builtin.text import MiniLM
from untrimmed.encoders.builtin.weights import IMAGE_WEIGHTS
from untrimmed.video.reader import Sampling, VideoReader

COLUMNS = ("best R@1", "best R@5", "smooth R@1", "smooth R@5", "AUC")


@dataclass(frozen=True)
class Query:
    text: str
    video: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Described:
    """One way to describe clips and sentences: a matrix and times per clip, and a row per sentence."""

    frames: list[np.ndarray]
    times_s: list[np.ndarray]
    queries: np.ndarray


def read_clips(folder: Path) -> tuple[list[Path], list[Query]]:
    """The clips sorted by id, and all sentences."""
    lines = (folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
    clips = sorted((json.loads(line) for line in lines), key=lambda clip: clip["id"])
    queries = [Query(q["query"], i, q["start"], q["end"]) for i, clip in enumerate(clips) for q in clip["queries"]]
    return [folder / clip["file"] for clip in clips], queries


def describe(
    paths: list[Path], texts: np.ndarray, encode: Callable[[np.ndarray], np.ndarray], *, short_side: int, fps: float
) -> Described:
    frames, times_s = [], []
    with VideoReader(sampling=Sampling(fps=fps), short_side=short_side) as reader:
        for path in paths:
            batches = [(encode(batch.frames), batch.times_s) for batch in reader.read(path)]
            frames.append(np.concatenate([vectors for vectors, _ in batches]))
            times_s.append(np.concatenate([times for _, times in batches]))
    return Described(frames, times_s, texts)


def with_builtin(paths: list[Path], queries: list[Query], recipe: Recipe, fps: float) -> Described:
    encoder = BuiltinEncoder(recipe)
    texts = np.stack([text.sentence for text in encoder.encode_texts([query.text for query in queries])])
    return describe(paths, texts, encoder.encode_frames, short_side=encoder.short_side, fps=fps)


def with_plain_conse(paths: list[Path], queries: list[Query], fps: float) -> Described:
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite2").eval()
    network.load_state_dict(torch.load(IMAGE_WEIGHTS["lite2"].locate(), weights_only=True))
    text_encoder = MiniLM()
    prompts = [f"a photo of a {text.names[1]}" for text in read_class_texts()]
    classes = torch.from_numpy(np.stack([sentence.vector for sentence in text_encoder.encode(prompts)]))

    def encode(frames: np.ndarray) -> np.ndarray:
        pixels = torch.from_numpy(frames).permute(0, 3, 1, 2).float()
        height, width = pixels.shape[2:]
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        pixels = pixels[:, :, top : top + side, left : left + side]
        pixels = torch.nn.functional.interpolate(pixels, (260, 260), mode="bilinear", antialias=True)
        with torch.inference_mode():
            likeliest = network((pixels - 127) / 128).softmax(dim=1).topk(100, dim=1)
            meaning = (likeliest.values[:, :, None] * classes[likeliest.indices]).sum(dim=1)
        return torch.nn.functional.normalize(meaning, dim=1).numpy()

    texts = np.stack([sentence.vector for sentence in text_encoder.encode([query.text for query in queries])])
    return describe(paths, texts, encode, short_side=260, fps=fps)


def smooth(scores: np.ndarray, times_s: np.ndarray, width_s: float) -> np.ndarray:
    weights = np.exp(-0.5 * ((times_s[:, None] - times_s[None]) / width_s) ** 2)
    return scores @ (weights / weights.sum(axis=0))


def evaluate(described: Described, queries: list[Query], chosen: np.ndarray) -> list[float]:
    """Return the columns over the selected sentences, in percent; every ranking includes all clips."""
    scores = [described.queries @ frames.T for frames in described.frames]
    video = np.array([query.video for query in queries])
    result = []
    for width_s in (None, 1.0):
        curves = [
            s if width_s is None else smooth(s, t, width_s) for s, t in zip(scores, described.times_s, strict=True)
        ]
        best = np.stack([curve.max(axis=1) for curve in curves], axis=1)
        rank = 1 + (best > best[np.arange(len(queries)), video][:, None]).sum(axis=1)
        result += [100 * float((rank[chosen] <= k).mean()) for k in (1, 5)]
    areas = []
    for row in np.flatnonzero(chosen):
        query = queries[row]
        times = described.times_s[query.video]
        inside = (times >= query.start_s) & (times <= query.end_s)
        curve = smooth(scores[query.video], times, 0.5)[row]
        if inside.any() and not inside.all():
            areas.append((curve[inside][:, None] > curve[~inside][None]).mean())
    return [*result, 100 * float(np.mean(areas))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    paths, queries = read_clips(options.folder)
    even = np.array([query.video % 2 == 0 for query in queries])
    ways = {
        "plain ConSE, 1 frame/s": lambda: with_plain_conse(paths, queries, 1.0),
        "plain ConSE, 2 frames/s": lambda: with_plain_conse(paths, queries, 2.0),
        "builtin without colours": lambda: with_builtin(paths, queries, Recipe(colour_weight=0.0), 2.0),
        "builtin": lambda: with_builtin(paths, queries, Recipe(), 2.0),
    }
    halves = {"choosing half": even, "other half": ~even, "all": even | ~even}
    print(f"| encoder | sentences of | number | {' | '.join(COLUMNS)} |")
    print("| --- " * (3 + len(COLUMNS)) + "|")
    for way, make in ways.items():
        described = make()
        for half, chosen in halves.items():
            values = " | ".join(f"{value:.1f}" for value in evaluate(described, queries, chosen))
            print(f"| {way} | {half} | {chosen.sum()} | {values} |", flush=True)


if __name__ == "__main__":
    main()
