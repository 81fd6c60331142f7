"""The Markdown document of what the papers print, the commands behind it, and what comes out here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from untrimmed.reproduction.commands import EVALUATE, TRAIN
from untrimmed.reproduction.efficiency import Costs, conditions
from untrimmed.reproduction.render import Grid, command_of, markdown
from untrimmed.reproduction.results import efficiency_grid, printed_grids, settings_grid, smoke_grid, trained_grids
from untrimmed.reproduction.runner import Place, Step, run_table
from untrimmed.reproduction.tables import EfficiencyTable, Entry, NotCovered, Paper, SettingsTable, Shown, TrainedTable

Tell = Callable[[Step], None]
TIMES = "times.json"  # among the runs


def grids_of(entry: Entry, place: Place, tell: Tell = lambda step: None, *, simulated: bool = False) -> Iterator[Grid]:
    """What an entry comes to, none for what is not measured here.

    A trained table is run where the place has data, or on simulated features; else it is what the paper prints.
    """
    if isinstance(entry, TrainedTable):
        if place.root is not None:
            yield from trained_grids(entry, run_table(entry, place, tell), place)
        elif simulated:
            yield smoke_grid(entry, run_table(entry, place, tell), place)
        else:
            yield from printed_grids(entry)
    elif isinstance(entry, EfficiencyTable):
        names = list(entry.methods)

        def measuring(name: str) -> None:
            tell(Step(names.index(name) + 1, len(names), name, "measuring"))

        yield efficiency_grid(entry, Costs(place.runs / TIMES), measuring)
    elif isinstance(entry, SettingsTable):
        yield settings_grid(entry)


def document(
    papers: Sequence[Paper], wanted: Sequence[Entry], place: Place, command: str, tell: Tell = lambda step: None
) -> Iterator[str]:
    """The parts of a document: how it was made, an index, then each paper with its wanted entries."""
    yield _preface(command, place)
    yield _index(papers, wanted, place)
    for paper in papers:
        yield f"\n## {paper.title}\n\n"
        others = tuple(_others(paper, wanted, place))
        if others:
            yield markdown(Grid("", ("", "shows", "command"), others, num_labels=3)).lstrip()
        for entry in paper.entries:
            if entry in wanted and _has_section(entry, place):
                yield f"\n### {_heading(paper, entry)}\n"
                yield "\n".join(markdown(grid, heading=entry.title) for grid in grids_of(entry, place, tell))


def _heading(paper: Paper, entry: Entry) -> str:
    return f"{paper.name} {entry.name}: {entry.title}"


def _has_section(entry: Entry, place: Place) -> bool:
    """Whether an entry has figures: in the paper, or here."""
    if isinstance(entry, TrainedTable):
        return entry.has_figures or place.root is not None
    return not isinstance(entry, Shown | NotCovered)


def _others(paper: Paper, wanted: Sequence[Entry], place: Place) -> Iterator[tuple[str, ...]]:
    """Lines of the entries without a section; those with one reason share a line."""
    reasons: dict[str, list[Entry]] = {}
    for entry in paper.entries:
        if isinstance(entry, NotCovered):
            reasons.setdefault(entry.reason, []).append(entry)
        elif not (entry in wanted and _has_section(entry, place)):
            lines = command_of(paper, entry).split("\n")
            yield entry.name, " ".join([f"{entry.title}.", *entry.notes]), "\n".join(f"`{line}`" for line in lines)
    for reason, entries in reasons.items():
        names, titles = ", ".join(entry.name for entry in entries), "; ".join(entry.title for entry in entries)
        yield names, titles, f"not covered: {reason}"


def _preface(command: str, place: Place) -> str:
    train, evaluate = TRAIN.format("TRAIN"), EVALUATE.format("--no-moments")
    made_with = conditions().replace(", 1 threads", ", 1 thread")
    lines = [
        "# What the papers print, and what comes out here",
        f"Made by `{command}` with {made_with}. Every table and figure of the papers is here with the command "
        "behind it, or with the reason why there is none; `untrimmed reproduce PAPER TABLE` shows one.",
    ]
    if place.root is not None:
        lines.append(f"Trained tables: on the data sets in {place.root}.")
    else:
        lines.append(
            "**Trained tables list what the papers print, and how to train it.** `untrimmed reproduce PAPER TABLE "
            "--root DIR` runs all rows of a table on the data sets in DIR and puts the figures beside the paper's. A "
            f"row by itself: `{train}` with what its line has under *train*, then `{evaluate}`, or what the line has "
            "under *evaluate*. There are no figures of ours without the features of the papers; on a few simulated "
            "ones every row is run in `make stress` (`--simulated`), and its figures mean nothing. What compares "
            "methods on a simulated world, over seeds: [benchmarks.md](benchmarks.md)."
        )
    lines[-1] += " Tables of costs are measured, at the published sizes."
    return "\n\n".join(lines) + "\n"


def _index(papers: Sequence[Paper], wanted: Sequence[Entry], place: Place) -> str:
    lines = ["| paper | tables and figures |", "| --- | --- |"]
    for paper in papers:
        links = []
        for entry in paper.entries:
            section = entry in wanted and _has_section(entry, place)
            links.append(f"[{entry.name}](#{_anchor(_heading(paper, entry) if section else paper.title)})")
        lines.append(f"| [{paper.title}](#{_anchor(paper.title)}) | {' '.join(links)} |")
    return "\n" + "\n".join(lines) + "\n"


def _anchor(heading: str) -> str:
    """The address of a heading on its page, as sites of Markdown make it."""
    return re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-")
