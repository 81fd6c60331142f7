"""Write the Markdown page with the papers' results, the commands that reproduce them, and our costs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from untrimmed.presets.published import shared_notes
from untrimmed.reproduction.commands import EVALUATE, TRAIN
from untrimmed.reproduction.efficiency import SIZED_QUANTITIES, UNITS, MethodCosts, conditions
from untrimmed.reproduction.render import Grid, markdown
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

TIMES = "times.json"  # file in the folder of runs with the measured times
# notes that the page prints once instead of below each table
SHARED_NOTES = (*shared_notes(), COSTS_NOTE, *EFFICIENCY_NOTES.values(), SETTINGS_NOTE)


def grids_of(
    entry: Entry, settings: RunSettings, on_progress: OnProgress = lambda step: None, *, simulated: bool = False
) -> Iterator[Grid]:
    """Yield the result tables of an entry. Some entries have no result tables.

    The rows of a trained table are run if the settings name a root of data sets, or if `simulated` is set. Otherwise
    the tables contain only the paper's results.
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
    """Yield the parts of the page: an introduction, one section per paper, costs, and notes.

    If there are several tables of costs, they are combined into one table with the costs at the largest corpus.
    """
    yield _preface(papers, command, settings)
    costs = {
        f"{paper.name} {entry.name}": entry
        for paper in papers
        for entry in paper.entries
        if isinstance(entry, EfficiencyTable) and entry in entries
    }
    separate = [entry for entry in entries if len(costs) < 2 or not isinstance(entry, EfficiencyTable)]
    notes = dict[str, None]()  # a set that keeps its order
    for paper in papers:
        yield f"\n## {paper.title}\n"
        for section in _sections(paper, separate, settings):
            title = f"{paper.name} {section.name}: {section.title}"
            heading = title if len(paper.entries) > 1 else ""  # if a paper has only one table, the table has no heading
            yield f"\n### {heading}\n" if heading else "\n"
            for grid in _page_grids(section, settings, on_progress):
                first, *others = [*_section_notes(grid, section), ""]
                notes |= dict.fromkeys(note for note in grid.notes if note in SHARED_NOTES)
                notes |= dict.fromkeys(f"{paper.name} {section.name}: {note}" for note in others if note)
                if isinstance(section, SettingsTable):
                    yield _settings_list(grid, first)
                    continue
                if grid.title == section.title:
                    grid = replace(grid, title=title)
                yield markdown(replace(grid, notes=(first,) if first else ()), heading=heading)
    if len(costs) > 1:
        grid = _joined_costs(costs, settings, on_progress)
        notes |= dict.fromkeys(grid.notes)
        yield f"\n## Costs\n\n{markdown(replace(grid, notes=()))}"
    if notes:
        ordered = [note for note in SHARED_NOTES if note in notes]
        others = [note for note in notes if note not in SHARED_NOTES]
        yield "\n## Notes\n\n" + "".join(f"- {note}\n" for note in (*ordered, *others))


def _page_grids(entry: Entry, settings: RunSettings, on_progress: OnProgress) -> Iterator[Grid]:
    """Yield the tables of an entry for the page, with one line per row."""
    if isinstance(entry, TrainedTable) and settings.root is None:
        yield page_grid(entry)
    else:
        yield from grids_of(entry, settings, on_progress)


def _settings_list(grid: Grid, note: str) -> str:
    """Return the note on a table of settings, and a list of the settings that differ between paper and preset."""
    items = []
    missing = []
    for key, *cells in grid.lines:
        data_sets: dict[str, list[str]] = {}  # {settings as text: the data sets that have them}
        for data_set, cell in zip(grid.header[1:], cells, strict=True):
            data_sets.setdefault(cell, []).append(data_set)
        if all(cell.startswith("- /") for cell in cells):
            missing.append(f"`{key}`")
        elif unequal := [cell for cell in data_sets if " / " in cell]:
            groups = ", ".join(
                f"{cell} ({'all' if len(data_sets) == 1 else ', '.join(data_sets[cell])})" for cell in unequal
            )
            items.append(f"`{key}` {groups}")
    others = len(grid.lines) - len(items) - len(missing)
    lacking = [f"The paper does not state {', '.join(missing)}."] if missing else []
    differing = f"Settings that differ (paper / preset): {'; '.join(items)}."
    equal = f"The other {others} settings are the same in paper and preset."
    return " ".join([note, *lacking, differing, equal]).strip() + "\n"


def _joined_costs(tables: Mapping[str, EfficiencyTable], settings: RunSettings, on_progress: OnProgress) -> Grid:
    """Return one table of costs, with one line per method and one column per quantity.

    A quantity that depends on the size of the corpus is given for the largest corpus of each table.
    """
    names = list(dict.fromkeys(name for table in tables.values() for name in table.methods))
    cells: dict[str, dict[str, str]] = {name: {} for name in names}
    notes = dict[str, None]()
    for table_name, table in tables.items():
        largest = {
            quantity: {name: values[-1:] for name, values in rows.items()} for quantity, rows in table.paper.items()
        }
        at_largest = replace(table, corpus_sizes=table.corpus_sizes[-1:], paper=largest)
        for grid in grids_of(at_largest, settings, on_progress):
            for name, *figures in grid.lines:
                cells[name] |= dict(zip(_cost_columns(at_largest, grid), figures, strict=True))
            notes |= dict.fromkeys(note for note in grid.notes if note in SHARED_NOTES)
            notes |= dict.fromkeys(f"{table_name}: {note}" for note in _section_notes(grid, table))
    columns = dict.fromkeys(column for row in cells.values() for column in row)
    lines = tuple((name, *(row.get(column, "-") for column in columns)) for name, row in cells.items())
    title = f"This table combines {', '.join(tables)}. It shows only the costs for the largest corpus of each table"
    return Grid(title, ("", *columns), lines, tuple(notes), num_labels=1)


def _cost_columns(table: EfficiencyTable, grid: Grid) -> list[str]:
    """Return the column headings: the quantity and, if the quantity depends on the corpus, the size of the corpus."""
    units = {UNITS[quantity] for quantity in SIZED_QUANTITIES}
    size = f", {table.corpus_sizes[0]:,} videos" if table.corpus_sizes else ""
    return [f"{unit}{size}" if unit in units else unit for unit in grid.header[1:]]


def _section_notes(grid: Grid, entry: Entry) -> list[str]:
    """Return the notes that only this entry has, without the note on systems that are not implemented."""
    left_out = left_out_note(entry) if isinstance(entry, TrainedTable | EfficiencyTable) else ""
    return [note for note in grid.notes if note not in (*SHARED_NOTES, left_out)]


def _has_section(entry: Entry, settings: RunSettings) -> bool:
    """Whether the paper or our page has numbers for the entry."""
    if isinstance(entry, TrainedTable):
        return entry.has_figures or settings.root is not None
    return not isinstance(entry, CommandEntry | NotCovered)


def _sections(paper: Paper, entries: Sequence[Entry], settings: RunSettings) -> list[Entry]:
    """Return the requested entries that have numbers.

    Consecutive tables that differ only in their data sets are joined.
    """
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
    """Return two tables as one, or None if they differ in anything except data sets, numbers and notes."""
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
    """Return the beginning of a title up to " on ", such as "Comparison on ". Other titles are returned unchanged."""
    return title[: title.find(" on ") + len(" on ")] if " on " in title else title


def _preface(papers: Sequence[Paper], command: str, settings: RunSettings) -> str:
    versions = conditions().replace(", 1 threads", ", 1 thread")
    links = ", ".join(f"[{paper.name}](#{_anchor(paper.title)})" for paper in papers)
    if settings.root is None:
        results = (
            "The tables show the papers' results. Recalls and SumR are in percent. In the table of costs, the first "
            "number of a cell is the paper's and the second is ours. [glossary.md](glossary.md) explains the "
            "metrics.\n\n"
            "To reproduce a table, run `untrimmed reproduce PAPER TABLE --root DIR`. The command trains and evaluates "
            "all rows of the table and prints our results next to the paper's. `untrimmed reproduce PAPER` lists a "
            "paper's tables and figures.\n\n"
            f"To reproduce one row, run `{TRAIN.format('TRAIN')}`, then `{EVALUATE} EVALUATE`. Copy TRAIN and EVALUATE "
            "from the columns *train* and *evaluate*; if there is no column *evaluate*, omit EVALUATE. If a cell has "
            "several lines, each line is for one data set. If a cell contains the word DATA, replace it by the name "
            "of a data set. Headings of columns give these names in parentheses. If the heading contains the word "
            "*events*, the column measures moments: omit `--no-moments`. TF-PRVR needs no training, so its table has "
            "complete commands. The [notes](#notes) at the end of the page explain individual tables."
        )
        origin = (
            "It contains our results only for costs, because all other tables need the papers' features. "
            "[benchmarks.md](benchmarks.md) compares methods on simulated features. This page omits the papers' "
            "figures, and systems that are not implemented here."
        )
    else:
        results = f"Trained tables were run on the data sets in {settings.root}. Costs are measured at published sizes."
        origin = "Systems that are not implemented here are left out."
    made = f"This page was made by `{command}` with {versions}. {origin}"
    return f"# Reproducing the papers\n\n{results}\n\n{made}\n\nPapers: {links}\n"


def _anchor(heading: str) -> str:
    """Return the anchor that Markdown sites create for a heading."""
    return re.sub(r"[^\w\s-]", "", heading.lower()).strip().replace(" ", "-")
