"""Compare finished runs in a Markdown, LaTeX or CSV table, with the best runs first.

Runs that differ only in the seed share a row.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from untrimmed.config import flat, to_plain
from untrimmed.errors import ConfigError
from untrimmed.evaluation.report import Report, escape_latex, latex_table
from untrimmed.evaluation.significance import format_p, p_of_sum_r, values_of_seeds
from untrimmed.models.registry import plain_sections
from untrimmed.presets import WIDTHS, choose_preset
from untrimmed.presets.published import RECALL
from untrimmed.reproduction.render import Grid, in_bold, markdown, mean_and_deviation
from untrimmed.running.run import Run, RunConfig, seed_groups, settings_without_seed
from untrimmed.study.setup import SIZES, follows_from_epochs
from untrimmed.study.stored import parse_name

TESTS = ("p to best, seeds", "p to best, queries")
_HEADER = ("", "seeds", *RECALL, *TESTS)


@dataclass(frozen=True)
class JointRow:
    """The runs of one method with equal settings, and the report of each seed."""

    data: str
    label: str
    reports: tuple[Report, ...]

    @property
    def sum_r(self) -> float:
        """The mean SumR over seeds."""
        return float(np.mean(values_of_seeds(self.reports)))


def joint_rows(runs: Sequence[Run], report_of: Callable[[Run], Report]) -> list[JointRow]:
    """Return the rows of all runs. Data sets are in the order of the runs, and rows of a data set are sorted by SumR.

    Labels include the settings that differ from the preset. If all runs are of studies with the same sizes, labels
    include the settings in the run's name instead. If a method has several rows on a data set, their labels also
    include the settings in which they differ.

    Raises: ConfigError for two runs with the same settings and seed.
    """
    by_folder = {str(run.folder): run for run in runs}
    groups = seed_groups({folder: run.config for folder, run in by_folder.items()})
    of_run = {folder: report_of(run) for folder, run in by_folder.items()}  # also imports the classes for the labels
    firsts = [by_folder[group[0]] for group in groups]
    settings = [settings_without_seed(run.config) for run in firsts]
    in_study = len({_sizes_of_study(run) for run in runs}) == 1  # otherwise, names would hide different sizes
    rows = [
        JointRow(run.config.data.name, _label(run, settings, in_study), tuple(of_run[folder] for folder in group))
        for run, group in zip(firsts, groups, strict=True)
    ]
    data_sets = list(dict.fromkeys(row.data for row in rows))
    return sorted(rows, key=lambda row: (data_sets.index(row.data), -row.sum_r))


def _sizes_of_study(run: Run) -> str | None:
    """Return the sizes of the study that the run belongs to, as text, or None."""
    return None if _settings_of_study(run) is None else (run.folder.resolve().parent / SIZES).read_text()


def _label(run: Run, all_settings: Sequence[dict[str, Any]], in_study: bool) -> str:
    """Return the method's name, followed by settings as described at `joint_rows`."""
    settings = settings_without_seed(run.config)
    named = _settings_of_study(run) if in_study else None
    namesakes = [entry for entry in all_settings if all(entry[key] == settings[key] for key in ("method", "data.name"))]
    keys = dict.fromkeys(key for entry in namesakes for key in entry)
    differing = [key for key in keys if len({repr(entry.get(key)) for entry in namesakes}) > 1]
    if named is None:
        named = _changes(run.config, settings)
    else:
        differing = [key for key in differing if not follows_from_epochs(key)]
    texts = {key: f"{key}={settings.get(key)}" for key in differing}
    return ",".join([settings["method"], *(named | texts | named).values()])


def _settings_of_study(run: Run) -> dict[str, str] | None:
    """Return {key: KEY=VALUE} of the settings in the name of a run of `untrimmed study`, or None for another run."""
    folder = run.folder.resolve()
    try:
        candidate, point, _, _ = parse_name(folder.name)
    except ValueError:
        return None
    if not (folder.parent / SIZES).is_file() or str(candidate.name) != run.config.method:
        return None
    return {text.partition("=")[0]: text for text in (*candidate.settings, *point.settings)}


def _changes(config: RunConfig, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return {key: KEY=VALUE} of the settings that differ from the preset, without the feature widths."""
    try:
        preset = choose_preset(config.name, config.dataset)
    except ConfigError:  # only the run has the weight of a loss from outside this package
        weights = {f"weights.{name}": weight for name, weight in config.weights.items()}
        preset = choose_preset(config.name, config.dataset, overrides=weights)
    sizes = preset.sizes()
    sections = plain_sections(sizes) | {"weights": preset.weights_in(sizes)}
    sections |= {"train": to_plain(preset.train), "features": to_plain(preset.features)}
    published = flat(sections)
    return {
        key: f"{key}={value}"
        for key, value in settings.items()
        if key.partition(".")[0] in sections
        and key.removeprefix("model.") not in WIDTHS
        and (key, value) not in published.items()
    }


def recall_cells(reports: Sequence[Report]) -> list[str]:
    """Return one text per recall, and one for SumR: the mean and standard deviation over seeds."""
    return [mean_and_deviation(values_of_seeds(reports, column)) for column in RECALL]


def _cells(rows: Sequence[JointRow], bold: Callable[[str], str], text: Callable[[str], str]) -> list[list[str]]:
    """Return the cells of each row of one data set: label, seeds, figures and p-values. The best row is bold."""
    best = rows[0]
    lines = []
    for row in rows:
        cells = [text(row.label), str(len(row.reports)), *recall_cells(row.reports)]
        lines.append([*(map(bold, cells) if row is best else cells), *map(format_p, _p_to_best(row, best))])
    return lines


def _p_to_best(row: JointRow, best: JointRow) -> tuple[float | None, float | None]:
    """Return p-values (over seeds, over queries) of the difference between a row and the best row.

    Both are None if the row is the best row. Only the first is None if `p_over_seeds` returns None.
    """
    return (None, None) if row is best else p_of_sum_r(row.reports, best.reports)


def _by_data(rows: Sequence[JointRow]) -> dict[str, list[JointRow]]:
    return {data: [row for row in rows if row.data == data] for data in dict.fromkeys(row.data for row in rows)}


def joint_markdown(rows: Sequence[JointRow]) -> str:
    """Return a Markdown table for each data set."""
    tables = []
    for data, part in _by_data(rows).items():
        lines = tuple(tuple(line) for line in _cells(part, in_bold, lambda label: f"`{label}`"))
        tables.append(markdown(Grid(data, _HEADER, lines, num_labels=1)))
    return "\n".join(tables)


def joint_latex(rows: Sequence[JointRow]) -> str:
    """Return a LaTeX table for each data set. The tables need the LaTeX package booktabs."""
    texts = []
    for data, part in _by_data(rows).items():
        cells = _cells(part, lambda cell: rf"\textbf{{{cell}}}", escape_latex)
        lines = [[cell.replace("±", r"$\pm$").replace("< ", "$<$ ") for cell in line] for line in cells]
        texts += [f"% {data}", *latex_table(_HEADER, lines)]
    return "\n".join(texts) + "\n"


def joint_entries(rows: Sequence[JointRow]) -> list[dict[str, Any]]:
    """Return the fields of each row in full precision: `figures_over_seeds` and p-values.

    The p-values of a data set's best row are None.
    """
    return [
        {"data": data, "model": row.label, **figures_over_seeds(row.reports)}
        | dict(zip(TESTS, _p_to_best(row, part[0]), strict=True))
        for data, part in _by_data(rows).items()
        for row in part
    ]


def figures_over_seeds(reports: Sequence[Report]) -> dict[str, float | None]:
    """Return the number of seeds, and the mean and standard deviation of each recall and of SumR over seeds.

    Deviations are None if there is a single seed.
    """
    values = {column: values_of_seeds(reports, column) for column in RECALL}
    figures: dict[str, float | None] = {"seeds": len(reports)}
    figures |= {column: float(np.mean(seeds)) for column, seeds in values.items()}
    deviations = (None if len(seeds) < 2 else float(np.std(seeds, ddof=1)) for seeds in values.values())
    return figures | {f"{column} deviation": value for column, value in zip(values, deviations, strict=True)}


def joint_csv(rows: Sequence[JointRow]) -> str:
    """Return a CSV table of all data sets, with the fields of `joint_entries`."""
    entries = joint_entries(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(entries[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(entries)
    return text.getvalue()
