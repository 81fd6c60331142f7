"""`untrimmed reproduce`: the papers' tables and figures, and what comes out here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from untrimmed.cli.console import progress_console, result_console
from untrimmed.cli.options import DeviceOption, SeedOption
from untrimmed.errors import ConfigError
from untrimmed.files import whole_file

if TYPE_CHECKING:
    from rich.status import Status

    from untrimmed.reproduction.render import Grid
    from untrimmed.reproduction.runner import RunSettings, TableProgress
    from untrimmed.reproduction.tables import Entry, Paper, TrainedTable, UntrainedTable


def reproduce(
    paper: Annotated[str | None, typer.Argument(metavar="[PAPER]", help="Without it, the papers are listed.")] = None,
    entry: Annotated[
        str | None, typer.Argument(metavar="[TABLE|FIGURE]", help="table1, figure5 ... Without it, all are listed.")
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The folder with the data sets, to train a table's rows.  \\[default: what the paper prints]",
            show_default=False,
        ),
    ] = None,
    simulated: Annotated[
        bool,
        typer.Option("--simulated", help="Try a table's rows on a few simulated features, to see that they run."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE.md",
            help="Write the table, or all of the paper or of all papers; with --root, run them.",
        ),
    ] = None,
    seed: SeedOption = None,
    runs: Annotated[
        Path, typer.Option(metavar="DIR", help="Where runs are kept; finished rows are read there.")
    ] = Path("runs/reproduction"),
    device: DeviceOption = "auto",
) -> None:
    """List or reproduce the tables and figures of the papers.

    A trained table is run with --root; a stopped command goes on where it was. Without, it is what the paper prints,
    and the commands that train and evaluate each row.
    """
    from untrimmed.reproduction.papers import PAPERS, paper_named

    _require_fit(root, out, simulated)
    chosen = None if paper is None else paper_named(paper)
    papers = list(PAPERS.values()) if chosen is None else [chosen]
    only = None if chosen is None or entry is None else chosen.entry(entry)
    if out is None and only is None:
        _print_papers(papers)
        return
    from untrimmed.reproduction.runner import RunSettings

    place = RunSettings(runs, root=root, seed=seed, device=device)
    if out is not None:
        _write(papers, only, place, out, _command(paper, entry, place, out))
    elif chosen is not None and only is not None:
        _run(chosen, only, place, simulated=simulated)


def _require_fit(root: Path | None, out: Path | None, simulated: bool) -> None:
    if out is not None and out.suffix.lower() != ".md":
        raise ConfigError(f"--out {out}: the document is Markdown; name a file that ends in .md")
    if root is not None and not root.is_dir():
        raise ConfigError(f"{root}: no such folder; --root is the folder that holds data sets")
    if simulated and (root is not None or out is not None):
        raise ConfigError("--simulated only tries whether rows run, it has no figures; leave out --root and --out")


def _run(paper: Paper, entry: Entry, place: RunSettings, *, simulated: bool) -> None:
    """Measure one table or figure and print it; of one that other commands draw, print these."""
    from untrimmed.reproduction.commands import drawing
    from untrimmed.reproduction.document import grids_of
    from untrimmed.reproduction.tables import TrainedTable, UntrainedTable

    if simulated and not isinstance(entry, TrainedTable):
        raise ConfigError(
            f"{paper.name} {entry.name}: has no row that is trained, so there is nothing that --simulated could try; "
            "leave it out"
        )
    with progress_console.status("starting") as status:
        grids = list(grids_of(entry, place, _ProgressLine(status), simulated=simulated))
    for grid in grids:
        _print(grid)
    if not grids:
        _print_behind(paper, entry)
    if isinstance(entry, TrainedTable) and place.root is not None:
        for command in drawing(entry, place):
            typer.echo(f"next    {command}")
    elif isinstance(entry, TrainedTable | UntrainedTable) and place.root is None and not simulated:
        _print_commands(entry)
        result_console.print(f"next    untrimmed reproduce {paper.name} {entry.name} --root DIR")


def _print_behind(paper: Paper, entry: Entry) -> None:
    """What other commands draw, or why nothing does; commands stand on lines that can be copied whole."""
    from untrimmed.reproduction.render import command_of

    result_console.print(f"{entry.title}.", *entry.notes)
    typer.echo(command_of(paper, entry))


def _print_commands(table: TrainedTable | UntrainedTable) -> None:
    """What trains and evaluates each row, on lines that can be copied whole."""
    from untrimmed.reproduction.commands import commands_of, untrained_commands
    from untrimmed.reproduction.tables import UntrainedTable

    if isinstance(table, UntrainedTable):
        for column, command in untrained_commands(table):
            typer.echo(f"# {table.row}, {column.label}\n{command}")
        return
    for each in commands_of(table):
        typer.echo(f"# {each.row.name}, {each.column.label}\n{each.train}\n{each.evaluate}")


def _write(papers: list[Paper], only: Entry | None, place: RunSettings, out: Path, command: str) -> None:
    """Measure one entry, or all but sweeps, and write the document."""
    from untrimmed.reproduction.document import document
    from untrimmed.reproduction.tables import TrainedTable

    every = [each for one in papers for each in one.entries] if only is None else [only]
    wanted = [each for each in every if each is only or not (isinstance(each, TrainedTable) and each.sweep)]
    # The file is opened first: nobody should learn after hours that it cannot be written.
    with whole_file(out) as path, progress_console.status("starting") as status:
        path.write_text("".join(document(papers, wanted, place, command, _ProgressLine(status))), encoding="utf-8")
    result_console.print(f"written to {out}")


def _command(paper: str | None, entry: str | None, place: RunSettings, out: Path) -> str:
    words = ["untrimmed reproduce", paper, entry]
    words += [f"--root {place.root}" if place.root else None, None if place.seed is None else f"--seed {place.seed}"]
    return " ".join(word for word in [*words, f"--out {out}"] if word)


def _print_papers(papers: list[Paper]) -> None:
    """All papers in short, or one with its tables and figures."""
    from untrimmed.reproduction.render import listing

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
    width = len(grid.header) - grid.num_commands  # commands are printed whole, below
    for name, figures in zip(grid.header[:width], grid.are_figures, strict=False):
        table.add_column(name, justify="right" if figures else "left", overflow="fold")
    for line in grid.lines:
        table.add_row(*line[:width])
    result_console.print(table if width > grid.num_labels or not grid.num_commands else grid.title)
    for note in grid.notes:
        result_console.print(note)


class _ProgressLine:
    """What is under way on one line of a terminal; each finished row on a line of its own."""

    def __init__(self, status: Status):
        self._status = status

    def __call__(self, step: TableProgress) -> None:
        """Show one step."""
        line = f"{step.number}/{step.total} {step.name}: {step.doing}"
        self._status.update(escape(line))
        if step.finished:
            progress_console.print(line)
