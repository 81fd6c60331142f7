"""The Markdown document of what the papers print, the commands behind it, and what comes out here."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from untrimmed.presets.published import shared_notes
from untrimmed.reproduction.commands import EVALUATE, TRAIN
from untrimmed.reproduction.efficiency import MethodCosts, conditions
from untrimmed.reproduction.render import Grid, command_of, markdown
from untrimmed.reproduction.results import (
    COSTS_NOTE,
    EFFICIENCY_NOTES,
    SETTINGS_NOTE,
    drawn_by,
    efficiency_grid,
    notes_of,
    printed_grids,
    settings_grid,
    smoke_grid,
    trained_grids,
    untrained_grid,
)
from untrimmed.reproduction.runner import RunSettings, TableProgress, run_table
from untrimmed.reproduction.tables import (
    CommandEntry,
    EfficiencyTable,
    Entry,
    NotCovered,
    Paper,
    SettingsTable,
    TrainedTable,
    UntrainedTable,
)

Tell = Callable[[TableProgress], None]
TIMES = "times.json"  # among the runs
SAID_ONCE = (*shared_notes(), COSTS_NOTE, *EFFICIENCY_NOTES.values(), SETTINGS_NOTE)  # on top


def grids_of(
    entry: Entry, place: RunSettings, tell: Tell = lambda step: None, *, simulated: bool = False
) -> Iterator[Grid]:
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
            tell(TableProgress(names.index(name) + 1, len(names), name, "measuring"))

        yield efficiency_grid(entry, MethodCosts(place.runs / TIMES), measuring)
    elif isinstance(entry, UntrainedTable):
        yield untrained_grid(entry, place)
    elif isinstance(entry, SettingsTable):
        yield settings_grid(entry)


def document(
    papers: Sequence[Paper], wanted: Sequence[Entry], place: RunSettings, command: str, tell: Tell = lambda step: None
) -> Iterator[str]:
    """The parts of a document: how it was made, an index, then each paper with its wanted entries."""
    yield _preface(command, place)
    yield _index(papers, wanted, place)
    yield _said_once(papers, wanted)
    for paper in papers:
        yield f"\n## {paper.title}\n"
        others = tuple(_others(paper, wanted, place))
        if others:
            yield markdown(Grid("", ("", "shows", "command"), others, num_labels=3))
        for section in _sections(paper, wanted, place):
            yield f"\n### {_heading(paper, section)}\n"
            grids = (_shortened(grid, paper, section) for grid in grids_of(section, place, tell))
            yield "\n".join(markdown(grid, heading=section.title) for grid in grids)


def _shortened(grid: Grid, paper: Paper, entry: Entry) -> Grid:
    """Without what is said above all papers; of hyper-parameters only those that differ from the preset's."""
    grid = replace(grid, notes=tuple(note for note in grid.notes if note not in SAID_ONCE))
    if not isinstance(entry, SettingsTable):
        return grid
    lines = tuple(line for line in grid.lines if any(" / " in cell for cell in line))
    same = f"{len(grid.lines) - len(lines)} others are the same in the presets: `{command_of(paper, entry)}`."
    return replace(grid, lines=lines, notes=(same, *grid.notes))


def _heading(paper: Paper, entry: Entry) -> str:
    return f"{paper.name} {entry.name}: {entry.title}"


def _has_section(entry: Entry, place: RunSettings) -> bool:
    """Whether an entry has figures: in the paper, or here."""
    if isinstance(entry, TrainedTable):
        return entry.has_figures or place.root is not None
    return not isinstance(entry, CommandEntry | NotCovered)


def _sections(paper: Paper, wanted: Sequence[Entry], place: RunSettings) -> list[Entry]:
    """The wanted entries with figures; tables that differ by their data sets alone are one, with all their names."""
    found: list[Entry] = []
    for entry in paper.entries:
        if entry not in wanted or not _has_section(entry, place):
            continue
        joined = _joined(found[-1], entry) if found else None
        if joined is None:
            found.append(entry)
        else:
            found[-1] = joined
    return found


def _joined(first: Entry, second: Entry) -> TrainedTable | None:
    """Two tables as one, or None where they differ by more than data sets, figures and what is said of them."""
    if not (isinstance(first, TrainedTable) and isinstance(second, TrainedTable)):
        return None
    columns = first.columns + second.columns
    bare = [[replace(row, paper={}) for row in table.rows] for table in (first, second)]
    same = bare[0] == bare[1] and first.left_out == second.left_out and first.title.startswith(_subject(second.title))
    if not same or len({c.metrics for c in columns}) > 1 or len({c.name for c in columns}) < len(columns):
        return None
    rows = zip(first.rows, second.rows, strict=True)
    return replace(
        first,
        name=f"{first.name}, {second.name}",
        title=f"{first.title}, {second.title.removeprefix(_subject(second.title))}",
        columns=columns,
        rows=tuple(replace(row, paper={**row.paper, **other.paper}) for row, other in rows),
        notes=tuple(dict.fromkeys(first.notes + second.notes)),
    )


def _subject(title: str) -> str:
    """What a title says before the data set: "Comparison on "."""
    return title[: title.find(" on ") + len(" on ")] if " on " in title else title


def _others(paper: Paper, wanted: Sequence[Entry], place: RunSettings) -> Iterator[tuple[str, ...]]:
    """Lines of the entries without a section, below the runs that several draw; those with one reason share a line."""
    shown = [entry for entry in paper.entries if isinstance(entry, CommandEntry)]
    runs = dict.fromkeys(command for entry in shown for command in entry.commands if _trains(command))
    if runs:
        yield "runs", "What the figures below are drawn from.", _code(runs)
    reasons: dict[str, list[Entry]] = {}
    for entry in paper.entries:
        if isinstance(entry, NotCovered):
            reasons.setdefault(entry.reason, []).append(entry)
        elif not (entry in wanted and _has_section(entry, place)):
            lines = [line for line in command_of(paper, entry).split("\n") if not _trains(line)]
            notes = (note for note in (*entry.notes, *drawn_by(entry)) if note not in SAID_ONCE)
            yield entry.name, " ".join([f"{entry.title}.", *notes]), _code(lines)
    for reason, alike in reasons.items():
        names = ", ".join(entry.name for entry in alike)
        titles = "; ".join(entry.title for entry in alike)
        yield names, titles, f"not covered: {reason}"


def _trains(command: str) -> bool:
    return command.startswith("untrimmed train ")


def _code(commands: Iterable[str]) -> str:
    return "\n".join(f"`{command}`" for command in commands)


def _preface(command: str, place: RunSettings) -> str:
    train = TRAIN.format("TRAIN")
    evaluate = EVALUATE.format("--no-moments")
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
            "under *evaluate* or the note above the table says. There are no figures of ours without the features of "
            "the papers; on a few simulated ones every row is run in `make stress` (`--simulated`), and its figures "
            "mean nothing. What compares methods on a simulated world, over seeds: [benchmarks.md](benchmarks.md)."
        )
    lines[-1] += " Tables of costs are measured, at the published sizes."
    return "\n\n".join(lines) + "\n"


def _said_once(papers: Sequence[Paper], wanted: Sequence[Entry]) -> str:
    """What is to be said of several entries of the document."""
    there = [entry for paper in papers for entry in paper.entries if entry in wanted or isinstance(entry, CommandEntry)]
    said = {note for entry in there for note in notes_of(entry)}
    return "".join(["\n", *(f"- {note}\n" for note in SAID_ONCE if note in said)])


def _index(papers: Sequence[Paper], wanted: Sequence[Entry], place: RunSettings) -> str:
    """A line for each paper: its tables by title, each on a line of its own, and its figures, which share a table."""
    lines = ["| paper | tables | figures |", "| --- | --- | --- |"]
    for paper in papers:
        sections = {section.name.split(", ")[0]: section for section in _sections(paper, wanted, place)}
        inside = {name for section in sections.values() for name in section.name.split(", ")}
        home = _anchor(paper.title)
        gathered = list[str]()
        cells: dict[str, list[str]] = {"table": [], "figure": []}
        for entry in paper.entries:
            own = sections.get(entry.name)
            kind = entry.name.rstrip("0123456789")
            if own is not None:
                cells[kind].append(_link(f"{_numbers(own.name)}: {own.title}", _anchor(_heading(paper, own))))
            elif entry.name not in inside and kind == "table":
                cells[kind].append(_link(f"{_numbers(entry.name)}: {entry.title}", home))
            elif entry.name not in inside:
                gathered.append(entry.name)
        if gathered:
            cells["figure"].append(_link(_numbers(", ".join(gathered)), home))
        lines.append(f"| {_link(paper.title, home)} | {'<br>'.join(cells['table'])} | {'<br>'.join(cells['figure'])} |")
    return "\n" + "\n".join(lines) + "\n"


def _link(text: str, anchor: str) -> str:
    return f"[{text}](#{anchor})"


def _numbers(names: str) -> str:
    """The numbers in names of tables or figures, three or more in a row as the first to the last.

    >>> _numbers("table4"), _numbers("table1, table2"), _numbers("figure1, figure2, figure3")
    ('4', '1, 2', '1 to 3')
    """
    numbers = [int(number) for number in re.findall(r"\d+", names)]
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))


def _anchor(heading: str) -> str:
    """The address of a heading on its page, as sites of Markdown make it."""
    return re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-")
