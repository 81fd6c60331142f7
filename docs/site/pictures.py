"""The two pictures of docs/architecture.md as SVG: boxes are steps, arrows are data.

`python docs/site/pictures.py` and `make docs` write them to docs/figures/. A test checks that every module in a box
exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

FIGURES = Path(__file__).resolve().parents[1] / "figures"

WIDTH, BOX_X, BOX_WIDTH, BOX_HEIGHT, ARROW = 560, 24, 346, 62, 48
SIDE_X, SIDE_WIDTH = 404, 132
INK, PALE, MONO = "#1f2933", "#52606d", "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
BANDS = {"index": "#e3f0fb", "search": "#fdf0dc", "once": "#e3f0fb", "step": "#fdf0dc", "epoch": "#e9f5e6"}


@dataclass(frozen=True)
class Step:
    """A box with a step and its modules. `gives` labels the arrow below, `beside` is a second input at the side."""

    band: str
    title: str
    modules: tuple[str, ...]
    gives: tuple[str, str] | None = None  # the data of the arrow, and their shape
    beside: tuple[str, str] | None = None
    note: tuple[str, ...] = ()  # lines beside the box: the process or thread
    ends: bool = False  # a rounded box: the start or end


SEARCH = (
    Step("index", "video files", (), ("paths", ""), ends=True),
    Step(
        "index",
        "find, hash, skip known files",
        ("search/indexing/pipeline.py",),
        ("one file at a time", ""),
        note=("in a thread",),
    ),
    Step(
        "index",
        "decode",
        ("video/reader.py", "video/decode_worker.py"),
        ("FrameBatch.frames", "T Y X 3, uint8"),
        note=("in a child process",),
    ),
    Step("index", "encode frames", ("encoders/encoder.py",), ("FrameFeatures.vectors", "T D, unit rows")),
    Step(
        "index",
        "commit one row per video",
        ("search/store/table.py",),
        ("StoredVideo", "T D, float16, on disk"),
        note=("under the lock of", "the single writer"),
    ),
    Step("search", "map all videos into memory", ("search/corpora/engine.py",), ("Corpus", "")),
    Step(
        "search",
        "rank videos by the sentence",
        ("search/corpora/best_vector.py", "search/corpora/trained.py"),
        ("RankedVideo", "video_id, score"),
        beside=("sentence", "TextFeatures"),
    ),
    Step(
        "search",
        "find moments in the best videos",
        ("moments/clearest.py", "moments/localise.py"),
        ("Moment", "start_s, end_s, score"),
    ),
    Step("search", "hits", ("search/library.py",), ends=True),
)

TRAINING = (
    Step("once", "features and captions", ("data/layout.py",), ("rows of a file", "T C and W E"), ends=True),
    Step("once", "resample and pack", ("data/dataset.py", "data/packed.py"), ("PackedFeatures", "mapped file")),
    Step(
        "step",
        "make a batch",
        ("running/batches.py",),
        ("TrainingBatch", "Q W E, V T C, V L C"),
        note=("in a thread,", "one batch ahead"),
    ),
    Step(
        "step",
        "encode queries and videos",
        ("models/base.py",),
        ("EncodedQueries, EncodedVideos", "Q D and V T D, V L D"),
        note=("split among", "torchrun's processes"),
    ),
    Step("step", "score and compare", ("models/", "scores/", "losses/"), ("terms by name", "numbers")),
    Step("step", "add weighted terms", ("losses/total.py",), ("the loss", "one number"), beside=("preset", "weights")),
    Step("step", "update the weights", ("training/loop.py", "training/optim.py"), ("new weights", "")),
    Step(
        "epoch",
        "score the validation split",
        ("running/opened.py", "evaluation/recall.py"),
        ("SumR", "from Q V scores"),
    ),
    Step(
        "epoch",
        "keep best model and state",
        ("models/storage.py", "training/state.py"),
        note=("by process 0 only",),
        ends=True,
    ),
)

NAMES = {"index": "index", "search": "search", "once": "once", "step": "each step", "epoch": "each epoch"}
FLOWS = {"flow_search.svg": (SEARCH, "From files to hits"), "flow_training.svg": (TRAINING, "From data set to loss")}


def draw(steps: tuple[Step, ...], title: str) -> str:
    """One picture as the text of an SVG file."""
    height = len(steps) * BOX_HEIGHT + (len(steps) - 1) * ARROW + 48
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="system-ui, Helvetica, Arial, \'DejaVu Sans\', sans-serif" role="img" aria-label="{title}">',
        f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#ffffff"/>',
        f'<defs><marker id="head" markerUnits="userSpaceOnUse" markerWidth="10" markerHeight="10" refX="9" refY="5" '
        f'orient="auto">'
        f'<path d="M0,0 L10,5 L0,10 z" fill="{PALE}"/></marker></defs>',
        *_bands(steps),
    ]
    for number, step in enumerate(steps):
        parts += _box(step, _top(number))
        if step.gives is not None:
            parts += _arrow(step.gives, _top(number) + BOX_HEIGHT, leaves=steps[number + 1].band != step.band)
        if step.beside is not None:
            parts += _beside(step.beside, _top(number))
        first = _top(number) + BOX_HEIGHT / 2 + 7 - 7 * (len(step.note) - 1)
        parts += [_text(SIDE_X - 16, first + 18 * row, line, size=14, fill=PALE) for row, line in enumerate(step.note)]
    return "\n".join([*parts, "</svg>", ""])


def _top(number: int) -> int:
    return 24 + number * (BOX_HEIGHT + ARROW)


def _bands(steps: tuple[Step, ...]) -> list[str]:
    """Coloured backgrounds for groups of steps that run equally often."""
    parts = []
    for band in dict.fromkeys(step.band for step in steps):
        rows = [number for number, step in enumerate(steps) if step.band == band]
        top, bottom = _top(rows[0]) - 14, _top(rows[-1]) + BOX_HEIGHT + 14
        parts.append(
            f'<rect x="8" y="{top}" width="{WIDTH - 16}" height="{bottom - top}" rx="8" fill="{BANDS[band]}"/>'
        )
        parts.append(_text(WIDTH - 20, top + 19, NAMES[band], size=16, anchor="end", fill=PALE, weight=600))
    return parts


def _box(step: Step, top: int) -> list[str]:
    middle, radius = BOX_X + BOX_WIDTH / 2, 30 if step.ends else 6
    modules = ", ".join(step.modules)
    small = min(12.5, 1.6 * BOX_WIDTH / max(1, len(modules)))  # so that long paths fit into the box
    return [
        f'<rect x="{BOX_X}" y="{top}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="{radius}" fill="#ffffff" '
        f'stroke="{INK}" stroke-width="1.5"/>',
        _text(middle, top + (27 if modules else 37), step.title, size=17, anchor="middle", weight=600),
        _text(middle, top + 47, modules, size=small, anchor="middle", fill=PALE, family=MONO),
    ]


def _arrow(gives: tuple[str, str], top: int, *, leaves: bool) -> list[str]:
    """An arrow with a label of two lines, or of one line between two groups (`leaves`)."""
    x = BOX_X + 40
    name, shape = gives
    name_at, shape_at = (x + 16, 21 if shape else 28), (x + 16, 39)
    if leaves:
        name_at, shape_at = (x + 16, 29), (x + 24 + 8.6 * len(name), 29)  # letters are about 8 wide
    return [
        f'<line x1="{x}" y1="{top}" x2="{x}" y2="{top + ARROW - 2}" stroke="{PALE}" stroke-width="2" '
        'marker-end="url(#head)"/>',
        _text(name_at[0], top + name_at[1], name, size=15),
        _text(shape_at[0], top + shape_at[1], shape, size=13.5, fill=PALE, family=MONO),
    ]


def _beside(beside: tuple[str, str], top: int) -> list[str]:
    name, source = beside
    middle, level = SIDE_X + SIDE_WIDTH / 2, top + BOX_HEIGHT / 2
    return [
        f'<line x1="{SIDE_X}" y1="{level:g}" x2="{BOX_X + BOX_WIDTH + 2}" y2="{level:g}" stroke="{PALE}" '
        'stroke-width="2" marker-end="url(#head)"/>',
        f'<rect x="{SIDE_X}" y="{top}" width="{SIDE_WIDTH}" height="{BOX_HEIGHT}" rx="30" fill="#ffffff" '
        f'stroke="{INK}" stroke-width="1.5"/>',
        _text(middle, top + 28, name, size=17, anchor="middle", weight=600),
        _text(middle, top + 48, source, size=13, anchor="middle", fill=PALE, family=MONO),
    ]


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: float,
    anchor: str = "start",
    fill: str = INK,
    weight: int = 400,
    family: str | None = None,
) -> str:
    font = f' font-family="{family}"' if family else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{fill}"{font}>{escape(text)}</text>'
        if text
        else ""
    )


def write(folder: Path = FIGURES) -> None:
    """Write both pictures into a folder."""
    for name, (steps, title) in FLOWS.items():
        (folder / name).write_text(draw(steps, title), encoding="utf-8")


if __name__ == "__main__":
    write()
