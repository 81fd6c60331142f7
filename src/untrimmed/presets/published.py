"""Read `published.yaml`, which contains results from papers by paper, table, row and column."""

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
    """Return the contents of `published.yaml`: paper -> table or figure -> its values."""
    return {name: values for name, values in _read().items() if name != "shared_notes"}


def shared_notes() -> tuple[str, ...]:
    """Return the notes that apply to several tables or figures."""
    return tuple(_read()["shared_notes"].values())


def figures_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a table row by column, without the row's training settings."""
    return {column: figures for column, figures in row.items() if column not in ("method", "set", "evaluate")}


@cache
def published() -> dict[str, Any]:
    """Return all published numbers: paper -> table -> row -> column -> numbers.

    In cost tables, rows are quantities and columns are methods. Hyper-parameter tables have no columns.
    """
    papers: dict[str, Any] = {}
    for paper, entries in read_papers().items():
        papers[paper] = {}
        for name, entry in entries.items():
            rows = entry.get("figures", {}) if isinstance(entry, dict) else {}
            if isinstance(entry, dict) and "rows" in entry:
                rows = {row: figures for row, values in entry["rows"].items() if (figures := figures_of(values))}
            if rows:
                papers[paper][name] = rows
    return papers


def reported(address: Sequence[str]) -> dict[str, float]:
    """Return {metric: percent} for one published result. `address` is the paper, table, row and column.

    >>> list(reported(["jsg", "table3", "JSG", "charades"]))
    ['R@1', 'R@5', 'R@10', 'R@100', 'SumR']

    Raises: UnknownNameError if the file has no such result, or the result has other metrics (costs, fewer recalls).
    """
    values: Any = published()
    for depth, name in enumerate(address):
        if not isinstance(values, dict) or name not in values:
            what = f"figure published in {', '.join(address[:depth])}" if depth else "paper with published figures"
            raise UnknownNameError.among(what, name, values if isinstance(values, dict) else ())
        values = values[name]
    if not isinstance(values, list):
        raise UnknownNameError(f"{', '.join(address)}: names several rows; append one of {', '.join(values)}")
    metrics = EVENTS if address[-1].endswith("_event") else RECALL
    if metrics is EVENTS:
        fits = len(values) == len(EVENTS)
    else:
        # four recalls, the printed SumR (which differs from their sum by up to 1.8), and in some rows a size in MB
        fits = len(values) >= len(RECALL) and abs(sum(values[:4]) - values[4]) < 2
    if not fits:
        figures = ", ".join(map(str, values))
        raise UnknownNameError(f"{', '.join(address)}: has {figures}, expected {', '.join(metrics)}; name another row")
    return dict(zip(metrics, values, strict=False))
