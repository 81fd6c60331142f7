"""`untrimmed evaluate RUN`: print the results of a model on a split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.table import Table

from untrimmed.cli.console import print_json, progress_console, result_console
from untrimmed.errors import ConfigError

if TYPE_CHECKING:
    from untrimmed.evaluation.report import Report
    from untrimmed.evaluation.significance import Comparison
    from untrimmed.precision import Precision

FORMATS = ("table", "json", "csv", "latex")


@dataclass(frozen=True, kw_only=True)
class Opening:
    """The options of opening a model with a split of a data set, named like the arguments of `open_model`."""

    split: str = "test"
    data: str | None = None
    root: Path | None = None
    video_features: str | None = None
    device: str = "auto"
    precision: Precision = "float32"
    changed: Mapping[str, Any] = field(default_factory=dict)


def is_model_folder(folder: Path) -> bool:
    """Whether `evaluate_run` accepts it: the folder of a run or a saved model, or the name of a training-free model."""
    from untrimmed.running.run import is_model, is_run
    from untrimmed.running.training_free import is_training_free

    return is_run(folder) or is_model(folder) or is_training_free(folder)


def require_format(output: str) -> None:
    """Raise a ConfigError for a format that is not in `FORMATS`."""
    if output not in FORMATS:
        raise ConfigError(f"--format is {output!r}, expected one of {', '.join(FORMATS)}")


def evaluate_run(
    folder: Path,
    opening: Opening | None = None,
    *,
    output: str = "table",
    against: Path | None = None,
    moments: bool = True,
    truths: Path | None = None,
) -> None:
    """Print the results of a model in one of `FORMATS`, and the difference from `against` with significance tests.

    `moments` adds event-level recall if the data have moments. `truths`, a file of dense labels, adds recall with
    several right videos. The changed settings of `opening` apply only to the first model.
    """
    from untrimmed.evaluation.report import as_document, to_csv, to_latex
    from untrimmed.evaluation.significance import compare
    from untrimmed.running.evaluate import evaluate
    from untrimmed.running.training_free import is_training_free

    require_format(output)
    if against is not None and not is_model_folder(against):
        raise ConfigError(f"--against {against}: contains no run or model; name the folder of one")
    opening = opening or Opening()
    with progress_console.status("scoring"):
        report = evaluate(folder, moments=moments, truths=truths, **vars(opening))
        comparisons = None
        sources = {str(folder): report.source} if is_training_free(folder) else {}
        if against is not None:
            second = evaluate(against, moments=False, **vars(replace(opening, changed={})))
            comparisons = compare(report, second)
            sources = {str(folder): report.source, str(against): second.source}
    if output == "json":
        document = as_document(report)
        if comparisons is not None:
            document["against"] = {"run": str(against), "comparisons": [asdict(c) for c in comparisons]}
        print_json(document)
    elif output in ("csv", "latex"):
        typer.echo({"csv": to_csv, "latex": to_latex}[output](report), nl=False)
    else:
        result_console.print(_report_table(report))
    if lines := [f"{name} read {source}" for name, source in sources.items() if source]:
        progress_console.print("; ".join(lines))
    if report.note:
        progress_console.print(report.note)
    if report.truths:
        progress_console.print(f"{truths}: {_describe_labels(report)}")
    if comparisons is not None and output != "json":
        result_console.print(_comparison_table(folder, against, comparisons))


def _describe_labels(report: Report) -> str:
    """The number of queries with labels, and the numbers of labels that could not be used."""
    counts = report.truths
    unused = {
        "queries that are not in the split": counts["other_queries"],
        "queries whose caption in the split is different": counts["other_texts"],
        "right videos that are not in the split": counts["other_videos"],
    }
    text = (
        f"{counts['queries']:,.0f} of {len(report.rank):,} queries have labels, {counts['right_videos']:.3f} right "
        f"videos on average; {counts['several']:,.0f} queries have more than one"
    )
    left_out = ", ".join(f"{count:,.0f} {reason}" for reason, count in unused.items() if count)
    return f"{text}; left out: {left_out}" if left_out else text


def _report_table(report: Report) -> Table:
    from untrimmed.evaluation.report import COLUMNS, cells, heading

    title = f"{report.title}: {len(report.rank):,} queries, {report.num_videos:,} videos (R@K and SumR in percent)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE, collapse_padding=True, pad_edge=False)
    table.add_column("", no_wrap=True)
    for column in COLUMNS:
        table.add_column(heading(column), justify="right", no_wrap=True)
    for name, figures in report.rows.items():
        table.add_row(name, *cells(figures))
    return table


def _comparison_table(first: Path, second: Path | None, comparisons: list[Comparison]) -> Table:
    from untrimmed.evaluation.significance import format_p

    title = f"{first} against {second}, paired over queries, two-sided"
    table = Table("", title=title, title_justify="left", box=box.SIMPLE)
    for column in ("first", "second", "difference", "p (Fisher)", "p (Student)"):
        table.add_column(column, justify="right")
    for c in comparisons:
        decimals = 4 if c.metric == "mAP" else 1
        figures = (f"{value:.{decimals}f}" for value in (c.first, c.second))
        difference = f"{c.difference:+.{decimals}f}"
        table.add_row(c.metric, *figures, difference, format_p(c.fisher_p), format_p(c.student_p))
    return table
