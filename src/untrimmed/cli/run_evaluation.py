"""`untrimmed evaluate RUN`: print the results of a model on a split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.table import Table

from untrimmed.cli.console import print_json, progress_console, result_console
from untrimmed.errors import ConfigError, counted
from untrimmed.files import whole_file

if TYPE_CHECKING:
    from untrimmed.evaluation.export import ScoredSplit
    from untrimmed.evaluation.report import Report
    from untrimmed.evaluation.significance import Comparison
    from untrimmed.precision import Precision

FORMATS = ("table", "json", "csv", "latex")


@dataclass(frozen=True, kw_only=True)
class Opening:
    """The arguments of `open_model` that are options of the command `evaluate`."""

    split: str = "test"
    data: str | None = None
    root: Path | None = None
    video_features: str | None = None
    device: str = "auto"
    precision: Precision = "float32"
    changed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ExportFiles:
    """The files to write with results of every query. Fields have the names of their options. None: no file."""

    per_query: Path | None = None
    trec: Path | None = None
    qrels: Path | None = None
    scores: Path | None = None

    def __post_init__(self) -> None:
        suffixes = {"per_query": (".csv", ".jsonl"), "scores": (".npz",)}
        for name, path in self.paths.items():
            if name in suffixes and path.suffix.lower() not in suffixes[name]:
                option = f"--{name.replace('_', '-')} {path}"
                raise ConfigError(f"{option}: expected a name that ends in {' or '.join(suffixes[name])}; rename it")
        if len({path.absolute() for path in self.paths.values()}) < len(self.paths):
            raise ConfigError("two of --per-query, --trec, --qrels and --scores name the same file; rename one")

    @property
    def paths(self) -> dict[str, Path]:
        """The paths of the requested files by name of the option."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: path for name, path in values if path is not None}

    def write(self, split: ScoredSplit, temporary: Mapping[str, Path], tag: str) -> None:
        """Write each requested file to its path in `temporary`. `tag` names the run in the TREC file."""
        from untrimmed.evaluation import export

        is_jsonl = self.per_query is not None and self.per_query.suffix.lower() == ".jsonl"
        writers: dict[str, Callable[[ScoredSplit, Path], None]] = {
            "per_query": export.write_queries_jsonl if is_jsonl else export.write_queries_csv,
            "trec": partial(export.write_trec_run, tag=tag),
            "qrels": export.write_qrels,
            "scores": export.write_scores,
        }
        for name in self.paths:
            writers[name](split, temporary[name])


def is_model_folder(folder: Path) -> bool:
    """Whether this is the folder of a run or of a saved model, or the name of a model that needs no training."""
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
    files: ExportFiles | None = None,
) -> None:
    """Print the results of a model.

    Args:
        output: One of `FORMATS`.
        against: A second model. The differences from its results are printed, with significance tests.
        moments: Also print the metrics of moments, if the data set has moments.
        truths: A file of dense labels, which list all right videos of each query. They add recall of any right video.
        files: Files to write about the model in `folder`.
        opening: How to open both models. Its changed settings only apply to the model in `folder`.
    """
    from untrimmed.evaluation.report import as_document, to_csv, to_latex
    from untrimmed.evaluation.significance import compare
    from untrimmed.running.evaluate import evaluate
    from untrimmed.running.training_free import is_training_free

    require_format(output)
    if against is not None and not is_model_folder(against):
        raise ConfigError(f"--against {against}: contains no run or model; name the folder of one")
    opening = opening or Opening()
    files = files or ExportFiles()
    with ExitStack() as written, progress_console.status("scoring"):
        # open the file first, so that a path that cannot be written fails before minutes of scoring
        temporary = {name: written.enter_context(whole_file(path)) for name, path in files.paths.items()}
        report = evaluate(folder, moments=moments, truths=truths, keep_scores=bool(temporary), **vars(opening))
        if report.scores is not None:
            files.write(report.scores, temporary, tag=folder.name or str(folder))
        comparisons = None
        sources = {str(folder): report.source} if is_training_free(folder) else {}
        if against is not None:
            second = evaluate(against, moments=False, **vars(replace(opening, changed={})))
            comparisons = compare(report, second)
            if second.source != report.source:
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
        if report.moments:
            result_console.print(_moment_table(report))
    for path in files.paths.values():
        progress_console.print(f"written to {path}")
    if lines := [f"{name} read {source}" for name, source in sources.items() if source]:
        progress_console.print("; ".join(lines))
    if report.note:
        progress_console.print(report.note)
    if report.truths:
        progress_console.print(f"{report.truths_file}: {_describe_labels(report)}")
    if comparisons is not None and output != "json":
        result_console.print(_comparison_table(folder, against, comparisons))


def _describe_labels(report: Report) -> str:
    """Return a text about dense labels: how many queries have labels, and how many labels could not be used."""
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
    from untrimmed.evaluation.report import COLUMNS

    sizes = f"{counted(len(report.rank), 'query')}, {counted(report.num_videos, 'video')}"
    title = f"{report.title}: {sizes} (R@K and SumR in percent)"
    return _metrics_table(title, report.rows, COLUMNS)


def _moment_table(report: Report) -> Table:
    from untrimmed.evaluation.report import MOMENT, MOMENT_COLUMNS

    return _metrics_table("", {MOMENT: report.moments}, (*MOMENT_COLUMNS, "queries"))


def _metrics_table(title: str, rows: Mapping[str, Mapping[str, float]], columns: Sequence[str]) -> Table:
    from untrimmed.evaluation.report import cells, heading

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE, collapse_padding=True, pad_edge=False)
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(heading(column), justify="right", no_wrap=True)
    for name, figures in rows.items():
        table.add_row(name, *cells(figures, columns))
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
