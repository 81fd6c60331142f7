"""What papers print: `published.yaml`, by paper, table, row and column."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from untrimmed.config import read_yaml
from untrimmed.errors import UnknownNameError

RECALL = ("R@1", "R@5", "R@10", "R@100", "SumR")
EVENTS = tuple(f"R@{k} IoU={iou}" for iou in (0.3, 0.5, 0.7) for k in (10, 100))


@cache
def _read() -> dict[str, Any]:
    return read_yaml(Path(__file__).with_name("published.yaml"))


def read_papers() -> dict[str, Any]:
    """What papers print: paper -> table or figure -> what is said of it."""
    return {name: values for name, values in _read().items() if name != "shared_notes"}


def shared_notes() -> tuple[str, ...]:
    """Notes of several tables or figures, which a document says once."""
    return tuple(_read()["shared_notes"].values())


def figures_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a row by column, without what is said of how it is trained."""
    return {column: figures for column, figures in row.items() if column not in ("method", "set", "evaluate")}


@cache
def published() -> dict[str, Any]:
    """All figures: paper -> table -> row -> column -> figures.

    In tables of costs rows are quantities and columns methods; those of hyper-parameters have no columns.
    """
    papers: dict[str, Any] = {}
    for paper, entries in read_papers().items():
        papers[paper] = {}
        for name, entry in entries.items():
            found = entry.get("figures", {}) if isinstance(entry, dict) else {}
            if isinstance(entry, dict) and "rows" in entry:
                found = {row: own for row, said in entry["rows"].items() if (own := figures_of(said))}
            if found:
                papers[paper][name] = found
    return papers


def reported(place: Sequence[str]) -> dict[str, float]:
    """The results of one row by metric, in percent; `place` is its paper, table, row and column.

    >>> list(reported(["jsg", "table3", "JSG", "charades"]))
    ['R@1', 'R@5', 'R@10', 'R@100', 'SumR']

    Raises: UnknownNameError when the file has no such row, or its figures are others (costs, fewer or other metrics).
    """
    found: Any = published()
    for depth, name in enumerate(place):
        if not isinstance(found, dict) or name not in found:
            what = f"figure published in {', '.join(place[:depth])}" if depth else "paper with published figures"
            raise UnknownNameError.among(what, name, found if isinstance(found, dict) else ())
        found = found[name]
    if not isinstance(found, list):
        raise UnknownNameError(f"{', '.join(place)}: not one row's figures; go on with one of {', '.join(found)}")
    metrics = EVENTS if place[-1].endswith("_event") else RECALL
    if metrics is EVENTS:
        fits = len(found) == len(EVENTS)
    else:  # SumR as printed is up to 1.8 from the sum; what follows it is a size
        fits = len(found) >= len(RECALL) and abs(sum(found[:4]) - found[4]) < 2
    if not fits:
        figures = ", ".join(map(str, found))
        raise UnknownNameError(f"{', '.join(place)}: has {figures}, wanted {', '.join(metrics)}; name another row")
    return dict(zip(metrics, found, strict=False))
