"""The tables and figures of a paper as data, with the settings to run them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from untrimmed.data.benchmarks.registry import find_benchmark
from untrimmed.errors import UnknownNameError
from untrimmed.presets.published import RECALL


@dataclass(frozen=True, kw_only=True)
class Column:
    """A data set of a table, the preset that trains on it, and the reported metrics.

    - `name` is the data set's name in `published.yaml`.
    - `title` is the label of the data set, by default the title of the benchmark.
    - If `events` is set, moments of all videos are ranked (R@K IoU=m) instead of videos.
    - `split` is the evaluated split.
    """

    name: str
    metrics: tuple[str, ...] = RECALL
    data: str = ""  # folder of the data set in the root; empty: the same as `name`
    preset: str = ""  # name of the preset; empty: the same as `name`
    title: str = ""
    events: bool = False
    split: str = "test"
    overrides: Mapping[str, Any] = field(default_factory=dict)  # settings that apply to all rows

    @property
    def data_name(self) -> str:
        """The name of the data set's folder."""
        return self.data or self.name

    @property
    def preset_name(self) -> str:
        """The name of the preset."""
        return self.preset or self.name

    @property
    def label(self) -> str:
        """The label of the data set. If moments are ranked, the label ends with "events".

        >>> Column(name="charades_event", data="charades", events=True).label
        'Charades-STA, events'
        """
        title = self.title or titled(self.data_name)
        return f"{title}, events" if self.events else title


def titled(data: str) -> str:
    """Return the title of the benchmark with this name, or the name if there is no such benchmark.

    >>> titled("activitynet"), titled("mine")
    ('ActivityNet Captions', 'mine')
    """
    benchmark = find_benchmark(data)
    return data if benchmark is None else benchmark.title


@dataclass(frozen=True)
class TableRow:
    """A row of a table: a method with attachments (`gmmformer_v2+ral`), changed settings and printed results.

    - `overrides` are settings of the training, and `evaluated_with` are settings of the evaluation. Both have dotted
      keys.
    - `without` says why the row cannot be run. It is empty if the row can be run. Rows that cannot be run are still
      listed.
    - `paper` is {column: printed results}, with one number per metric.
    """

    name: str
    method: str = ""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    evaluated_with: Mapping[str, Any] = field(default_factory=dict)
    without: str = ""
    paper: Mapping[str, Sequence[float | None]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The printed name of the row.

        The label of CLIP4Clip also describes our variant, because its authors train the encoder and we do not.

        >>> TableRow("CLIP4Clip", "clip4clip").label, TableRow("JSG", "jsg").label
        ('CLIP4Clip (ours: mean pooling over frozen features)', 'JSG')
        """
        is_clip4clip = self.method.partition("+")[0] == "clip4clip"
        return f"{self.name} (ours: mean pooling over frozen features)" if is_clip4clip else self.name


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One table or figure. `name` is the argument of the command (`table1`)."""

    name: str
    title: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrainedTable(Entry):
    """A table whose rows are trained and evaluated, or a figure that plots such results.

    - A table with `sweep` is run only if the user requests it by name.
    - `left_out` lists systems that are not implemented.
    - `picture` is the name of a figure in `untrimmed plot`. Each panel in `panels` shows the rows whose names begin
      with the panel's name.
    """

    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    sweep: bool = False
    left_out: str = ""
    picture: str = ""
    panels: tuple[str, ...] = ("",)

    @property
    def has_figures(self) -> bool:
        """Whether the paper prints numbers, not only bars or curves."""
        return any(row.paper for row in self.rows)


@dataclass(frozen=True, kw_only=True)
class UntrainedTable(Entry):
    """A table of a model without training, on data sets whose features come from different encoders.

    `model` is the argument of `untrimmed evaluate`. `row` is the model's row in the paper, and `beside` is the row that
    it is compared with.
    """

    model: str
    row: str
    columns: tuple[Column, ...]
    beside: str
    paper: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)  # row -> column -> numbers


@dataclass(frozen=True, kw_only=True)
class EfficiencyTable(Entry):
    """A table of costs at the published sizes, measured on random features.

    `paper` contains the published numbers in the units of `efficiency.UNITS`. Quantities that depend on the corpus
    (`runtime_ms`, `memory_mb`, `matching_g`) have one number per corpus size.
    """

    methods: Mapping[str, str]  # printed name -> method with attachments
    corpus_sizes: tuple[int, ...] = ()
    left_out: str = ""
    paper: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)  # quantity -> name -> numbers


@dataclass(frozen=True, kw_only=True)
class SettingsTable(Entry):
    """A table of hyper-parameters that is compared with the presets.

    A table named `settings` is not a table of the paper. Its numbers come from the text of the paper.
    """

    method: str
    datasets: tuple[str, ...]
    paper: Mapping[str, Sequence[float | None]] = field(
        default_factory=dict
    )  # dotted key of a preset -> a number for each data set; None if the paper does not state the number


@dataclass(frozen=True, kw_only=True)
class CommandEntry(Entry):
    """A figure or table that other commands produce."""

    commands: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NotCovered(Entry):
    """A table or figure that we do not reproduce, and the reason."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper with all its tables and figures in order."""

    name: str
    title: str
    entries: tuple[Entry, ...]

    def entry(self, text: str) -> Entry:
        """Return the table or figure with this name. Spellings such as `table 1`, `T1`, `tab.1` and `fig5` are allowed.

        Raises: UnknownNameError if the paper has no such table or figure.
        """
        name = entry_name(text)
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise UnknownNameError.among(f"table or figure of {self.name}", name, [entry.name for entry in self.entries])


def entry_name(text: str) -> str:
    """Return the name of a table or figure from any common spelling.

    >>> entry_name("Table 4"), entry_name("T4"), entry_name("fig. 5")
    ('table4', 'table4', 'figure5')
    """
    match = re.fullmatch(r"\s*(t|tab|table|f|fig|figure)[\s.]*(\d+)\s*", text.lower())
    return f"{'table' if match[1].startswith('t') else 'figure'}{match[2]}" if match else text
