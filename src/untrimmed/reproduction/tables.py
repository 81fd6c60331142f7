"""What a paper prints, as data: tables that can be run, and what stands for everything else in it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from untrimmed.data.benchmarks.registry import find_benchmark
from untrimmed.errors import UnknownNameError
from untrimmed.presets.published import RECALL


@dataclass(frozen=True, kw_only=True)
class Column:
    """A data set of a table: which preset trains on it and what is reported.

    `events` asks for moments among all videos (R@K IoU=m) instead of videos, `split` is the one that the printed
    figures are of. `name` is its name in `published.yaml`, `title` what people call it where that is not the
    benchmark's own title.
    """

    name: str
    metrics: tuple[str, ...] = RECALL
    data: str = ""  # the folder below the root; empty: as `name`
    preset: str = ""  # empty: as `name`
    title: str = ""
    events: bool = False
    split: str = "test"
    overrides: Mapping[str, Any] = field(default_factory=dict)  # of all rows on it

    @property
    def data_name(self) -> str:
        """The data set's folder."""
        return self.data or self.name

    @property
    def preset_name(self) -> str:
        """The data set whose preset is used."""
        return self.preset or self.name

    @property
    def label(self) -> str:
        """The data set as people call it, with a word where its moments are meant.

        >>> Column(name="charades_event", data="charades", events=True).label
        'Charades-STA, events'
        """
        known = self.title or titled(self.data_name)
        return f"{known}, events" if self.events else known


def titled(data: str) -> str:
    """What people call the data set of that folder: the title of the benchmark, else the folder's name.

    >>> titled("activitynet"), titled("mine")
    ('ActivityNet Captions', 'mine')
    """
    benchmark = find_benchmark(data)
    return data if benchmark is None else benchmark.title


@dataclass(frozen=True)
class TableRow:
    """A trained system: a method with attachments (`gmmformer_v2+ral`), what differs from its preset, what is printed.

    `paper` has, for each column that prints any, as many figures as the column has metrics; `papers.py` fills it from
    `presets/published.yaml`, as it does in the other tables. `evaluated_with` are settings of the model that change
    after training (ranking strategies), by dotted keys as in `overrides`. `without` says why a row cannot be run; it is
    listed all the same.
    """

    name: str
    method: str = ""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    evaluated_with: Mapping[str, Any] = field(default_factory=dict)
    without: str = ""
    paper: Mapping[str, Sequence[float | None]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One table or figure: `name` as the command takes it (`table1`), `title` of what it shows."""

    name: str
    title: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrainedTable(Entry):
    """A table whose rows are trained and evaluated, or a figure that shows such figures as curves.

    A `sweep` is run when it is asked for by name, not with everything else. `left_out` names the rows of systems that
    have no program here. Of a figure, `picture` is the name by which `untrimmed plot` draws its runs; where it has
    `panels`, each is drawn by itself from the rows whose names begin so.
    """

    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    sweep: bool = False
    left_out: str = ""
    picture: str = ""
    panels: tuple[str, ...] = ("",)

    @property
    def has_figures(self) -> bool:
        """Whether the paper prints figures, not bars or curves alone."""
        return any(row.paper for row in self.rows)


@dataclass(frozen=True, kw_only=True)
class UntrainedTable(Entry):
    """A table of a model that needs no training, on data sets that differ by the encoder of their features.

    `model` as `untrimmed evaluate` takes it, `row` as the paper calls it; it prints figures of `beside` next to these.
    """

    model: str
    row: str
    columns: tuple[Column, ...]
    beside: str
    paper: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)  # row -> column -> figures


@dataclass(frozen=True, kw_only=True)
class EfficiencyTable(Entry):
    """A table of costs, computed at the published sizes on random features.

    `quantities` by method: published figures in the units of `efficiency.UNITS`; `runtime_ms` and the like have one
    figure for each corpus size.
    """

    methods: Mapping[str, str]  # as printed -> composition
    corpus_sizes: tuple[int, ...] = ()
    left_out: str = ""
    paper: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)  # quantity -> name -> figures


@dataclass(frozen=True, kw_only=True)
class SettingsTable(Entry):
    """A table of hyper-parameters, compared with the presets; keys are dotted keys of a preset."""

    method: str
    datasets: tuple[str, ...]
    paper: Mapping[str, Sequence[float]] = field(default_factory=dict)  # key -> a figure for each data set


@dataclass(frozen=True, kw_only=True)
class CommandEntry(Entry):
    """A figure that other commands draw."""

    commands: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NotCovered(Entry):
    """A table or figure without a program here, and the reason."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper with all its tables and figures, in their order."""

    name: str
    title: str
    entries: tuple[Entry, ...]

    def entry(self, wanted: str) -> Entry:
        """The table or figure of that name; `table 1`, `T1`, `tab.1` and `fig5` are understood.

        Raises: UnknownNameError when the paper has none.
        """
        name = entry_name(wanted)
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise UnknownNameError.among(f"table or figure of {self.name}", name, [entry.name for entry in self.entries])


def entry_name(text: str) -> str:
    """The name of a table or figure as people write it.

    >>> entry_name("Table 4"), entry_name("T4"), entry_name("fig. 5")
    ('table4', 'table4', 'figure5')
    """
    match = re.fullmatch(r"\s*(t|tab|table|f|fig|figure)[\s.]*(\d+)\s*", text.lower())
    return f"{'table' if match[1].startswith('t') else 'figure'}{match[2]}" if match else text
