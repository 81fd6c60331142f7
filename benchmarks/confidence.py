"""How well confidence separates libraries with a match for a sentence from libraries without one.

    python benchmarks/confidence.py FOLDER [--encoder builtin] [--library DIR] [--write FILE.npz]

FOLDER contains the clips and `manifest.jsonl` (a line per clip: id, file, licence, queries). Clips are sorted by id:
even ones are used to choose coefficients and the method, odd ones to report results. Each sentence is searched for in a
library with its clip and in the same library without it. A first hit is right if it is the sentence's clip.
`--write` writes the package's data file: the frame vectors of the even clips, one per second and at most 40 per clip,
and the coefficients. Clips under the GPL are excluded. `--library` keeps the indexed clips for another run.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import untrimmed
from untrimmed.search.corpora.frames import FrameCorpus
from untrimmed.search.query.confidence import mean_of_best_fifth
from untrimmed.search.store.table import StoredVideo
from untrimmed.types import FrameFeatures, TextFeatures

SPACING_S, MOST_FRAMES = 1.0, 40
SPLITS = 10  # of the choosing half into background and library, for each sentence
WAYS = {
    "the score alone": ("score",),
    "standard deviations above the library's other videos": ("own",),
    "the same as a Gumbel tail": ("own tail",),
    "distance to the second hit": ("ahead",),
    "standard deviations above the background": ("background",),
    "a Gumbel tail of the background": ("background tail",),
    "above the best fifth of the background (in use)": ("above",),
    "the score, and above the best fifth": ("score", "above"),
}
IN_USE = "above the best fifth of the background (in use)"


@dataclass(frozen=True)
class Measured:
    """Scores of sentences (rows) in clips and in the background's shortened clips."""

    clip_of: np.ndarray
    scores: np.ndarray
    background: np.ndarray
    background_clips: list[int]


@dataclass(frozen=True)
class Case:
    """One sentence and one library: what a search can know, and the truth."""

    features: dict[str, float]
    holds: bool  # the library contains the clip
    right: bool  # and it is the first hit


def scores_of(videos: Sequence[StoredVideo], queries: np.ndarray) -> np.ndarray:
    corpus, ids = FrameCorpus().update(videos), [video.record.video_id for video in videos]
    rows = []
    for vector in queries:
        text = TextFeatures("", vector, np.empty((0, 1), np.float32), ())
        found = {video.video_id: video.score for video in corpus.prepare(text).rank(limit=len(ids))}
        rows.append([found[video_id] for video_id in ids])
    return np.array(rows)


def shortened(video: StoredVideo) -> StoredVideo:
    times_s = np.arange(0, min(video.features.duration_s, MOST_FRAMES * SPACING_S), SPACING_S)
    nearest = np.abs(video.features.times_s[None] - times_s[:, None]).argmin(axis=1)
    vectors = np.asarray(video.features.vectors)[nearest]
    return StoredVideo(video.record, FrameFeatures(vectors, times_s, SPACING_S * len(times_s)))


def case(measured: Measured, query: int, library: Sequence[int], background: Sequence[int]) -> Case:
    """`background`: columns of `measured.background`."""
    clips = np.array(library)
    scores = measured.scores[query, clips]
    order = np.argsort(-scores)
    best, others, behind = scores[order[0]], scores[order[1:]], measured.background[query, list(background)]

    def deviations(values: np.ndarray) -> float:
        return float((best - values.mean()) / math.sqrt(values.var(ddof=1) + 1e-4))

    def tail(values: np.ndarray) -> float:
        width = max(values.std(ddof=1) * math.sqrt(6) / math.pi, 0.01)
        return float((best - values.mean()) / width + np.euler_gamma)

    features = {
        "score": float(best),
        "own": deviations(others),
        "own tail": tail(others),
        "ahead": float(best - others[0]),
        "background": deviations(behind),
        "background tail": tail(behind),
        "above": float(best) - mean_of_best_fifth(behind),
    }
    clip = measured.clip_of[query]
    return Case(features, bool(clip in clips), bool(clips[order[0]] == clip))


def choosing(measured: Measured) -> list[Case]:
    """Return the cases of the even clips: per sentence, random halves of the other clips are background and library."""
    rng, cases = np.random.default_rng(0), []
    columns = {clip: column for column, clip in enumerate(measured.background_clips)}
    for query in np.flatnonzero(measured.clip_of % 2 == 0):
        clip = measured.clip_of[query]
        others = [c for c in range(0, measured.scores.shape[1], 2) if c != clip]
        for _ in range(SPLITS):
            mixed = rng.permutation(others).tolist()
            background = [columns[c] for c in mixed[: len(mixed) // 2] if c in columns]
            library = mixed[len(mixed) // 2 :]
            cases += [case(measured, query, some, background) for some in ([*library[:-1], clip], library)]
    return cases


def reporting(measured: Measured) -> list[Case]:
    """Return the cases of the odd clips as the library, with the package's background from the even clips."""
    odd, background = list(range(1, measured.scores.shape[1], 2)), range(len(measured.background_clips))
    cases = []
    for query in np.flatnonzero(measured.clip_of % 2 == 1):
        without = [clip for clip in odd if clip != measured.clip_of[query]]
        cases += [case(measured, query, some, background) for some in (odd, without)]
    return cases


def matrix(cases: Sequence[Case], names: Sequence[str]) -> np.ndarray:
    return np.array([[*(one.features[name] for name in names), 1.0] for one in cases])


def fit(rows: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Fit a logistic regression by Newton's method, with weak regularisation of all coefficients but the offset."""
    scale = np.append(rows[:, :-1].std(axis=0), 1.0)
    rows, pull = rows / scale, np.append(np.full(rows.shape[1] - 1, 1e-3), 0.0)
    weights = np.zeros(rows.shape[1])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-rows @ weights))
        slope = rows.T @ (chance - right) / len(right) + pull * weights
        curvature = (rows * (chance * (1 - chance))[:, None]).T @ rows / len(right) + np.diag(pull)
        weights -= np.linalg.solve(curvature, slope)
    return weights / scale


def auroc(chance: np.ndarray, is_true: np.ndarray) -> float:
    above = chance[is_true][:, None] - chance[~is_true][None]
    return float(((above > 0) + 0.5 * (above == 0)).mean())


def calibration_error(chance: np.ndarray, is_true: np.ndarray, bins: int = 10) -> float:
    """Return the expected calibration error: mean difference of confidence and accuracy in ten bins, by bin size."""
    place = np.minimum((chance * bins).astype(int), bins - 1)
    filled = [place == number for number in range(bins) if (place == number).any()]
    return float(sum(some.mean() * abs(chance[some].mean() - is_true[some].mean()) for some in filled))


def row(name: str, cases: Sequence[Case], weights: np.ndarray, names: Sequence[str]) -> str:
    chance = 1 / (1 + np.exp(-matrix(cases, names) @ weights))
    holds, right = (np.array([getattr(one, what) for one in cases]) for what in ("holds", "right"))
    nothing = chance < 0.5
    said = f"{100 * (~right[nothing]).mean():.0f} | {100 * (~holds[nothing]).mean():.0f}" if nothing.any() else "- | -"
    figures = f"{auroc(chance, holds):.3f} | {auroc(chance, right):.3f} | {calibration_error(chance, right):.3f}"
    return f"| {name} | {figures} | {100 * nothing.mean():.0f} | {said} |"


def measure(library: untrimmed.Library, clips: list[dict]) -> tuple[Measured, list[StoredVideo]]:
    view = library.engine.view()
    by_name = {Path(record.path).name: record.video_id for record in view.records}
    videos = [view.index.get(by_name[Path(clip["file"]).name]) for clip in clips]
    queries = [(query["query"], number) for number, clip in enumerate(clips) for query in clip["queries"]]
    encoder = library._ready_encoder(view.encoder)
    vectors = np.stack([text.sentence for text in encoder.encode_texts([text for text, _ in queries])])
    kept = [number for number in range(0, len(clips), 2) if "GPL" not in clips[number].get("licence", "")]
    short = [shortened(videos[number]) for number in kept]
    clip_of = np.array([number for _, number in queries])
    return Measured(clip_of, scores_of(videos, vectors), scores_of(short, vectors), kept), short


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--encoder", default="builtin")
    parser.add_argument("--library", type=Path)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    lines = (options.folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
    clips = sorted((json.loads(line) for line in lines), key=lambda clip: clip["id"])
    with tempfile.TemporaryDirectory() as temporary:
        library = untrimmed.open(options.library or temporary)
        library.index(options.folder, encoder=options.encoder)
        measured, short = measure(library, clips)
        identity = library.settings().encoder_identity
    kept = measured.background_clips
    chosen, reported = choosing(measured), reporting(measured)
    print(
        f"encoder `{identity}`; {len(clips)} clips, {len(measured.clip_of)} sentences, {len(short)} in the background\n"
    )
    print(
        "| chance by | half | AUROC: held | AUROC: right | ECE | says nothing, % | first hit wrong, % | not held, % |"
    )
    print("| --- " * 8 + "|")
    for name, features in WAYS.items():
        rows, right = matrix(chosen, features), np.array([one.right for one in chosen])
        weights = fit(rows, right)
        print(row(f"{name} | choosing", chosen, weights, features))
        print(row(f"{name} | other", reported, weights, features), flush=True)
        if name == IN_USE and options.write:
            np.savez(
                options.write,
                identity=identity,
                vectors=np.concatenate([np.float16(video.features.vectors) for video in short]),
                lengths=[len(video.features.vectors) for video in short],
                spacing_s=SPACING_S,
                calibration=weights,
                sources=[f"{c['id']}: {c['source_repo']}, {c['licence']}" for c in map(clips.__getitem__, kept)],
            )
            print(f"\nwritten: {options.write}, coefficients {np.round(weights, 3)}\n")


if __name__ == "__main__":
    main()
