"""Accuracy of search for labelled sentences about real clips: index them, evaluate, and print the tables.

    python benchmarks/real_clips.py FOLDER QUERIES.jsonl [--encoder builtin] [--model frames] [--tuned-on-half]

QUERIES has the format of `untrimmed evaluate --queries`. A second table has the first moment and the best of the first
two in the right video, also for sentences about less than half of their clip. `--tuned-on-half` also prints results for
each half of the videos: settings of `builtin` and of moments were chosen on those at even positions by name.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import untrimmed
from untrimmed.moments.overlap import iou, spans_of
from untrimmed.search.labelled import QueryOutcome, evaluate_library, figures, read_queries
from untrimmed.search.store.records import Records

SHOWN = ("R@1", "R@5", "mean IoU", "R1@IoU=0.3", "R1@IoU=0.5", "R1@IoU=0.7", "event R@1,IoU=0.5", "event R@5,IoU=0.5")


def row(name: str, outcomes: Sequence[QueryOutcome]) -> str:
    values = figures(outcomes)
    return f"| {name} | {len(outcomes)} | " + " | ".join(f"{values[key]:.1f}" for key in SHOWN) + " |"


def reach(library: untrimmed.Library, outcomes: Sequence[QueryOutcome]) -> list[tuple[float, float, float]]:
    """The share of its video that each sentence describes, and the IoU of the first and the best of two moments."""
    records = Records(library.videos())
    rows = []
    for outcome in outcomes:
        (record,) = records.named(outcome.query.video)
        hits = library.search(outcome.query.text, limit=1, moments=2, within=record.path)
        truth = spans_of(outcome.query.moments)
        ious = [float(iou(spans_of([moment]), truth).max()) for moment in hits[0].moments]
        rows.append((float((truth[:, 1] - truth[:, 0]).sum()) / record.duration_s, ious[0], max(ious)))
    return rows


def reach_row(name: str, rows: Sequence[tuple[float, float, float]]) -> str:
    shares, first, best = np.array(rows).T
    cells = [name]
    for chosen in (shares < 0.5, shares >= 0.5):
        cells.append(str(chosen.sum()))
        cells += [f"{100 * (ious[chosen] >= 0.5).mean():.1f}" for ious in (first, best)]
    return f"| {' | '.join(cells)} |"


def interval(outcomes: Sequence[QueryOutcome], key: str) -> tuple[float, float]:
    """95 % bootstrap interval over queries."""
    rng = np.random.default_rng(0)
    draws = [figures([outcomes[i] for i in rng.integers(0, len(outcomes), len(outcomes))])[key] for _ in range(1000)]
    return float(np.percentile(draws, 2.5)), float(np.percentile(draws, 97.5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--encoder", default="builtin")
    parser.add_argument("--model", default="frames", help="as in untrimmed index --model")
    parser.add_argument("--tuned-on-half", action="store_true")
    options = parser.parse_args()

    queries = read_queries(options.queries)
    with tempfile.TemporaryDirectory() as folder:
        library = untrimmed.open(folder)
        report = library.index(options.folder, encoder=options.encoder)
        library.use(options.model)
        quality = evaluate_library(library, queries)
        reached = reach(library, quality.outcomes)
        identity = library.settings().encoder_identity
    lines = [
        f"{quality.num_videos} videos ({report.timings.video_s:.0f} s), {len(queries)} sentences, "
        f"encoder `{identity}`, searched by {options.model}; percent. R@K counts the right video among the first K. "
        "IoU is measured for the best moment in the right video.",
        "",
        "| sentences of | number | " + " | ".join(SHOWN) + " |",
        "| --- | --- | " + " | ".join("---" for _ in SHOWN) + " |",
    ]
    if options.tuned_on_half:
        names = sorted({Path(outcome.query.video).stem for outcome in quality.outcomes})
        even = set(names[::2])
        halves = {True: "the half used for choosing", False: "the other half"}
        for chosen, name in halves.items():
            lines.append(row(name, [o for o in quality.outcomes if (Path(o.query.video).stem in even) == chosen]))
    lines.append(row("all", quality.outcomes))
    spread = ", ".join(
        f"{key} {low:.0f} to {high:.0f}" for key in SHOWN[:3] for low, high in [interval(quality.outcomes, key)]
    )
    lines += ["", f"95 % bootstrap intervals over all sentences: {spread}."]
    lines += [
        "",
        "| R1@IoU=0.5, sentences of | about less than half of their clip | first moment | best of the first two "
        "| about more | first moment | best of the first two |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    if options.tuned_on_half:
        for chosen, name in halves.items():
            pairs = zip(quality.outcomes, reached, strict=True)
            lines.append(reach_row(name, [r for o, r in pairs if (Path(o.query.video).stem in even) == chosen]))
    lines.append(reach_row("all", reached))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
