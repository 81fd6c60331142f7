"""Tables of text cells and their form in Markdown, and the list of a paper's tables and figures."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from untrimmed.reproduction.tables import CommandEntry, Entry, NotCovered, Paper, TrainedTable, UntrainedTable


@dataclass(frozen=True)
class Grid:
    """A table of text: `num_labels` columns of labels, then columns of numbers, then `num_commands` columns of code."""

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    num_labels: int = 2
    num_commands: int = 0

    @property
    def are_figures(self) -> tuple[bool, ...]:
        """Whether each column contains numbers. Columns with numbers are right-aligned."""
        count = len(self.header)
        return tuple(self.num_labels <= column < count - self.num_commands for column in range(count))


def in_bold(cell: str) -> str:
    """Return the text of a cell in bold Markdown."""
    return f"**{cell}**"


def mean_and_deviation(values: Sequence[float], decimals: int = 1) -> str:
    """Return, as text, the mean and (for several seeds) the standard deviation of a figure.

    >>> mean_and_deviation([1.0, 3.0]), mean_and_deviation([2.0])
    ('2.0 ± 1.4', '2.0')
    """
    deviation = f" ± {np.std(values, ddof=1):.{decimals}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{decimals}f}{deviation}"


def listing(paper: Paper) -> Grid:
    """Return a table of a paper's tables and figures: name, title, and the command (or why there is no command)."""
    lines = tuple((entry.name, entry.title, command_of(paper, entry)) for entry in paper.entries)
    return Grid(paper.title, ("name", "shows", "command"), lines, num_labels=3)


def command_of(paper: Paper, entry: Entry) -> str:
    """Return the command that produces a table or figure, or the reason why there is none."""
    if isinstance(entry, NotCovered):
        return f"not covered: {entry.reason}"
    if isinstance(entry, CommandEntry):
        return "\n".join(entry.commands)
    root = " --root DIR" if isinstance(entry, TrainedTable | UntrainedTable) else ""
    return f"untrimmed reproduce {paper.name} {entry.name}{root}"


def markdown(grid: Grid, *, heading: str = "") -> str:
    """Return the grid as a Markdown table below its title and notes. A title that equals `heading` is left out."""
    rules = ("---:" if figures else "---" for figures in grid.are_figures)
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in (grid.header, tuple(rules), *grid.lines))
    text = "\n".join(f"| {' | '.join(line)} |".replace("\n", "<br>") for line in escaped)
    above = " ".join([*([] if grid.title == heading else [f"{grid.title}."]), *grid.notes])
    return f"{above}\n\n{text}\n" if above else f"{text}\n"
