"""`untrimmed reproduce`: list and run the tables and figures of the papers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from untrimmed.cli.console import print_json, progress_console, result_console
from untrimmed.cli.options import DeviceOption, JsonOption, SeedOption
from untrimmed.errors import ConfigError
from untrimmed.files import whole_file

if TYPE_CHECKING:
    from rich.status import Status

    from untrimmed.reproduction.render import Grid
    from untrimmed.reproduction.runner import RunSettings, TableProgress
    from untrimmed.reproduction.tables import Entry, Paper, TrainedTable, UntrainedTable


def reproduce(
    paper: Annotated[
        str | None, typer.Argument(metavar="PAPER", help="Name of a paper.  \\[default: list the papers]")
    ] = None,
    entry: Annotated[
        str | None, typer.Argument(metavar="TABLE|FIGURE", help="E.g. table1 or figure5.  \\[default: list all]")
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder that contains the data sets. With it, the models of the table are trained and evaluated.",
            show_default=False,
        ),
    ] = None,
    simulated: Annotated[
        bool,
        typer.Option("--simulated", help="As a check, train and evaluate each model briefly on simulated features."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE.md",
            help="Markdown file for the tables of PAPER, or of all papers. With --root, it also shows your results.",
        ),
    ] = None,
    seed: SeedOption = None,
    runs: Annotated[Path, typer.Option(metavar="DIR", help="Folder for runs; finished runs are reused.")] = Path(
        "runs/reproduction"
    ),
    device: DeviceOption = "auto",
    json_output: JsonOption = False,
) -> None:
    """List or reproduce the tables and figures of the papers.

    A table shows the paper's results, and the commands that train and evaluate
    the model of each row. With --root, these commands are run, and the table also
    shows your results. If this is interrupted, run the same command again.
    """
    from untrimmed.reproduction.papers import PAPERS, paper_named

    _require_compatible(root, out, simulated)
    selected = None if paper is None else paper_named(paper)
    papers = list(PAPERS.values()) if selected is None else [selected]
    selection = None if selected is None or entry is None else selected.entry(entry)
    if json_output and out is not None:
        raise ConfigError(f"--json prints the tables, --out {out} writes them as Markdown; remove one of them")
    if out is None and selection is None:
        _print_papers(papers, json_output)
        return
    from untrimmed.reproduction.runner import RunSettings

    settings = RunSettings(runs, root=root, seed=seed, device=device)
    if out is not None:
        _write(papers, selection, settings, out, _command(paper, entry, settings, out))
    elif selected is not None and selection is not None:
        _run(selected, selection, settings, simulated=simulated, json_output=json_output)


def _require_compatible(root: Path | None, out: Path | None, simulated: bool) -> None:
    if out is not None and out.suffix.lower() != ".md":
        raise ConfigError(f"--out {out}: the document is Markdown; name a file that ends in .md")
    if root is not None and not root.is_dir():
        raise ConfigError(f"{root}: no such folder; --root is the folder that contains the data sets")
    if simulated and (root is not None or out is not None):
        raise ConfigError("--simulated only checks that rows run and has no results; remove --root and --out")


def _run(paper: Paper, entry: Entry, settings: RunSettings, *, simulated: bool, json_output: bool) -> None:
    """Print a table with its results, or the command that draws a figure."""
    from untrimmed.reproduction.commands import drawing
    from untrimmed.reproduction.document import grids_of
    from untrimmed.reproduction.tables import TrainedTable, UntrainedTable

    if simulated and not isinstance(entry, TrainedTable):
        raise ConfigError(
            f"{paper.name} {entry.name}: has no trained rows, so --simulated has nothing to check; remove it"
        )
    with progress_console.status("starting") as status:
        grids = list(grids_of(entry, settings, _ProgressLine(status), simulated=simulated))
    if json_output:
        tables = [_grid_document(grid) for grid in grids]
        print_json({"paper": paper.name, "name": entry.name, "title": entry.title, "tables": tables})
        return
    for grid in grids:
        _print(grid)
    if not grids:
        _print_entry(paper, entry)
    if isinstance(entry, TrainedTable) and settings.root is not None:
        for command in drawing(entry, settings):
            typer.echo(f"next    {command}")
    elif isinstance(entry, TrainedTable | UntrainedTable) and settings.root is None and not simulated:
        _print_commands(entry)
        result_console.print(f"next    untrimmed reproduce {paper.name} {entry.name} --root DIR")


def _print_entry(paper: Paper, entry: Entry) -> None:
    """Print an entry's title, notes and command. The command is not wrapped, so that it can be copied."""
    from untrimmed.reproduction.render import command_of

    result_console.print(f"{entry.title}.", *entry.notes)
    typer.echo(command_of(paper, entry))


def _print_commands(table: TrainedTable | UntrainedTable) -> None:
    """Print the commands that train and evaluate each row. They are not wrapped, so that they can be copied."""
    from untrimmed.reproduction.commands import commands_of, untrained_commands
    from untrimmed.reproduction.tables import UntrainedTable

    if isinstance(table, UntrainedTable):
        for column, command in untrained_commands(table):
            typer.echo(f"# {table.row}, {column.label}\n{command}")
        return
    for commands in commands_of(table):
        typer.echo(f"# {commands.row.name}, {commands.column.label}\n{commands.train}\n{commands.evaluate}")


def _write(papers: list[Paper], selection: Entry | None, settings: RunSettings, out: Path, command: str) -> None:
    """Write the page of the selected entry, or of all entries of the papers.

    A sweep, which trains many variants, is included only if it is selected.
    """
    from untrimmed.reproduction.document import document
    from untrimmed.reproduction.tables import TrainedTable

    entries = [selection] if selection else [entry for paper in papers for entry in paper.entries]
    included = [
        entry for entry in entries if entry is selection or not (isinstance(entry, TrainedTable) and entry.sweep)
    ]
    # open the file first, so that an unwritable path fails before hours of training
    with whole_file(out) as path, progress_console.status("starting") as status:
        parts = document(papers, included, settings, command, _ProgressLine(status))
        path.write_text("".join(parts), encoding="utf-8")
    result_console.print(f"written to {out}")


def _command(paper: str | None, entry: str | None, settings: RunSettings, out: Path) -> str:
    words = ["untrimmed reproduce", paper, entry]
    words += [
        f"--root {settings.root}" if settings.root else None,
        None if settings.seed is None else f"--seed {settings.seed}",
    ]
    return " ".join(word for word in [*words, f"--out {out}"] if word)


def _grid_document(grid: Grid) -> dict[str, object]:
    """Return a table for JSON, with its cells as they are printed."""
    return {"title": grid.title, "header": grid.header, "rows": grid.lines, "notes": grid.notes}


def _print_papers(papers: list[Paper], json_output: bool) -> None:
    """Print the list of papers, or one paper's tables and figures."""
    from untrimmed.reproduction.render import command_of, listing

    if json_output:
        documents = [
            {
                "paper": paper.name,
                "title": paper.title,
                "entries": [
                    {"name": entry.name, "title": entry.title, "command": command_of(paper, entry)}
                    for entry in paper.entries
                ],
            }
            for paper in papers
        ]
        print_json(documents if len(papers) > 1 else documents[0])
        return
    if len(papers) == 1:
        _print(listing(papers[0]))
        return
    table = Table("paper", "", title="papers", title_justify="left", box=box.SIMPLE)
    table.add_column("tables and figures", justify="right")
    for paper in papers:
        table.add_row(paper.name, paper.title, f"{len(paper.entries)}")
    result_console.print(table)
    result_console.print("next    untrimmed reproduce PAPER, or: untrimmed reproduce --out FILE.md")


def _print(grid: Grid) -> None:
    table = Table(title=grid.title, title_justify="left", box=box.SIMPLE)
    # the columns with commands are printed after the table, without wrapping
    width = len(grid.header) - grid.num_commands
    for name, figures in zip(grid.header[:width], grid.are_figures, strict=False):
        table.add_column(name, justify="right" if figures else "left", overflow="fold")
    for line in grid.lines:
        table.add_row(*line[:width])
    result_console.print(table if grid.lines else grid.title)
    for note in grid.notes:
        result_console.print(note)


class _ProgressLine:
    """Shows progress in the terminal's status line, and prints a line for each finished row."""

    def __init__(self, status: Status):
        self._status = status

    def __call__(self, progress: TableProgress) -> None:
        """Show the current row and activity."""
        line = f"{progress.number}/{progress.total} {progress.name}: {progress.activity}"
        self._status.update(escape(line))
        if progress.is_finished:
            progress_console.print(line)
