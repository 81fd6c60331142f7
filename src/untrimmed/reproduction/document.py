"""The Markdown page of the papers' results, the commands that reproduce them, and our costs."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from untrimmed.presets.published import shared_notes
from untrimmed.reproduction.commands import EVALUATE, TRAIN
from untrimmed.reproduction.efficiency import MethodCosts, conditions
from untrimmed.reproduction.render import Grid, command_of, markdown
from untrimmed.reproduction.results import (
    COSTS_NOTE,
    EFFICIENCY_NOTES,
    SETTINGS_NOTE,
    efficiency_grid,
    left_out_note,
    page_grid,
    printed_grids,
    settings_grid,
    smoke_grid,
    trained_grids,
    untrained_grid,
)
from untrimmed.reproduction.runner import OnProgress, RunSettings, TableProgress, run_table
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

TIMES = "times.json"  # in the folder of runs
SHARED_NOTES = (*shared_notes(), COSTS_NOTE, *EFFICIENCY_NOTES.values(), SETTINGS_NOTE)  # printed once a page


def grids_of(
    entry: Entry, settings: RunSettings, on_progress: OnProgress = lambda step: None, *, simulated: bool = False
) -> Iterator[Grid]:
    """Yield the result tables of an entry. An entry that other commands produce, or nothing, has no tables.

    A trained table is run if the settings have a root of data sets, or if `simulated`. Otherwise its grids have the
    paper's results.
    """
    if isinstance(entry, TrainedTable):
        if settings.root is not None:
            yield from trained_grids(entry, run_table(entry, settings, on_progress), settings)
        elif simulated:
            yield smoke_grid(entry, run_table(entry, settings, on_progress), settings)
        else:
            yield from printed_grids(entry)
    elif isinstance(entry, EfficiencyTable):
        names = list(entry.methods)

        def report(name: str) -> None:
            on_progress(TableProgress(names.index(name) + 1, len(names), name, "measuring"))

        yield efficiency_grid(entry, MethodCosts(settings.runs / TIMES), report)
    elif isinstance(entry, UntrainedTable):
        yield untrained_grid(entry, settings)
    elif isinstance(entry, SettingsTable):
        yield settings_grid(entry)


def document(
    papers: Sequence[Paper],
    entries: Sequence[Entry],
    settings: RunSettings,
    command: str,
    on_progress: OnProgress = lambda step: None,
) -> Iterator[str]:
    """Yield the parts of the page: how to read it, each paper with its entries, and notes."""
    yield _preface(papers, command, settings)
    shared = dict[str, None]()
    details = list[str]()
    for paper in papers:
        yield f"\n## {paper.title}\n"
        for section in _sections(paper, entries, settings):
            title = f"{paper.name} {section.name}: {section.title}"
            yield f"\n### {title}\n"
            for grid in _page_grids(section, settings, on_progress):
                shared |= dict.fromkeys(note for note in grid.notes if note in SHARED_NOTES)
                notes = _section_notes(grid, section)
                details += [f"{paper.name} {section.name}: {note}" for note in notes[1:]]
                yield markdown(replace(grid, notes=tuple(notes[:1])), heading=section.title)
        if lines := tuple(_command_lines(paper, entries, settings)):
            shared |= dict.fromkeys(note for entry in paper.entries for note in entry.notes if note in SHARED_NOTES)
            yield f"\n### {paper.name}: other tables and figures\n"
            yield markdown(Grid("", ("", "shows", "command"), lines, num_labels=3))
    if shared or details:
        ordered = [note for note in SHARED_NOTES if note in shared]
        yield "\n## Notes\n\n" + "".join(f"- {note}\n" for note in (*ordered, *details))


def _page_grids(entry: Entry, settings: RunSettings, on_progress: OnProgress) -> Iterator[Grid]:
    """The grids of an entry for the page, which has one line per row."""
    if isinstance(entry, TrainedTable) and settings.root is None:
        yield page_grid(entry)
        return
    for grid in grids_of(entry, settings, on_progress):
        if isinstance(entry, SettingsTable):
            lines = tuple(line for line in grid.lines if any(" / " in cell for cell in line))
            others = f"{len(grid.lines) - len(lines)} others"
            grid = replace(grid, lines=(*lines, (others, *["same"] * (len(grid.header) - 1))))
        yield grid


def _section_notes(grid: Grid, entry: Entry) -> list[str]:
    """The notes that only this entry has, without the list of systems that are not available."""
    left_out = left_out_note(entry) if isinstance(entry, TrainedTable | EfficiencyTable) else ""
    return [note for note in grid.notes if note not in (*SHARED_NOTES, left_out)]


def _has_section(entry: Entry, settings: RunSettings) -> bool:
    """Whether the paper or this page has numbers for the entry."""
    if isinstance(entry, TrainedTable):
        return entry.has_figures or settings.root is not None
    return not isinstance(entry, CommandEntry | NotCovered)


def _sections(paper: Paper, entries: Sequence[Entry], settings: RunSettings) -> list[Entry]:
    """The requested entries with numbers; consecutive tables that differ only by their data sets are joined."""
    sections: list[Entry] = []
    for entry in paper.entries:
        if entry not in entries or not _has_section(entry, settings):
            continue
        joined = _joined(sections[-1], entry) if sections else None
        if joined is None:
            sections.append(entry)
        else:
            sections[-1] = joined
    return sections


def _joined(first: Entry, second: Entry) -> TrainedTable | None:
    """Join two tables, or return None if they differ by more than data sets, numbers and notes."""
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
    """The part of a title before the data set: "Comparison on "."""
    return title[: title.find(" on ") + len(" on ")] if " on " in title else title


def _command_lines(paper: Paper, entries: Sequence[Entry], settings: RunSettings) -> Iterator[tuple[str, ...]]:
    """Lines of the entries without a section. The runs that several of them use are listed once, in the first line."""
    shared = [entry for entry in paper.entries if isinstance(entry, CommandEntry)]
    runs = dict.fromkeys(command for entry in shared for command in entry.commands if _is_training(command))
    if runs:
        yield "runs", "The runs for the figures below.", _code(runs)
    for entry in paper.entries:
        if isinstance(entry, NotCovered) or (entry in entries and _has_section(entry, settings)):
            continue
        lines = [line for line in command_of(paper, entry).split("\n") if not _is_training(line)]
        notes = [note for note in entry.notes if note not in SHARED_NOTES]
        if isinstance(entry, TrainedTable) and entry.picture:
            notes.append(f"The command ends by printing one that draws it (`untrimmed plot {entry.picture}`).")
        yield entry.name, " ".join([f"{entry.title}.", *notes]), _code(lines)


def _is_training(command: str) -> bool:
    return command.startswith("untrimmed train ")


def _code(commands: Iterable[str]) -> str:
    return "\n".join(f"`{command}`" for command in commands)


def _preface(papers: Sequence[Paper], command: str, settings: RunSettings) -> str:
    versions = conditions().replace(", 1 threads", ", 1 thread")
    links = ", ".join(f"[{paper.name}](#{_anchor(paper.title)})" for paper in papers)
    if settings.root is None:
        results = (
            "Results are the papers', in percent. Two numbers in a cell are the paper's / ours. "
            "`untrimmed reproduce PAPER TABLE --root DIR` trains and evaluates all rows of a table and prints our "
            f"results beside the paper's. For a single row run `{TRAIN.format('TRAIN')}`, "
            f"then `{EVALUATE} EVALUATE`:\n\n"
            "- TRAIN and EVALUATE are the row's cells *train* and *evaluate* (no such column: omit EVALUATE).\n"
            "- DATA is the name in code font in the head of a column.\n"
            "- For columns named *events*, omit `--no-moments`.\n\n"
            "The [notes](#notes) at the end have details of single tables."
        )
        origin = (
            "Only the tables of costs have our results, because trained tables need the papers' features; "
            "[benchmarks.md](benchmarks.md) compares methods on simulated features. Systems that are not "
            "implemented here and figures that only illustrate an idea are left out."
        )
    else:
        results = f"Trained tables were run on the data sets in {settings.root}. Costs are measured at published sizes."
        origin = "Systems that are not implemented here are left out."
    return (
        f"# Reproducing the papers\n\n{results}\n\nMade by `{command}` with {versions}. {origin}\n\nPapers: {links}\n"
    )


def _anchor(heading: str) -> str:
    """The anchor that Markdown sites create for a heading."""
    return re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-")
