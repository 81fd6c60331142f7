"""The results of a model on a split, and their JSON, CSV and LaTeX forms."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from untrimmed.evaluation.export import ScoredSplit
from untrimmed.evaluation.moment_ratio import GMMFORMER_EDGES, MS_SL_EDGES, recall_by_moment_ratio
from untrimmed.evaluation.recall import RECALL_AT, ranks, recall, retrieval_metrics

COLUMNS = ("R@1", "R@5", "R@10", "R@100", "SumR", "mAP", "median_rank", "mean_rank", "queries")
HEADINGS = {"median_rank": "MdR", "mean_rank": "MnR"}  # {our name of a metric: heading in papers}, if they differ
GROUPINGS = (MS_SL_EDGES, GMMFORMER_EDGES)
MOMENT_COLUMNS = ("R1@IoU=0.3", "R1@IoU=0.5", "R1@IoU=0.7", "mIoU")  # percentages of moments in the right video
MOMENT = "moment in the right video"
DECIMALS = {"mAP": 4}  # mAP is a fraction; other metrics are percentages, ranks or counts
EVENT = "event "  # prefix of the rows of event-level recall
# names of two rows for the queries with dense labels
ONE_RIGHT, ANY_RIGHT = "one right video", "any right video"


@dataclass(frozen=True)
class Report:
    """Results of a model on a split.

    - `rows` contains metrics by row name. There are rows for the fused score, for each branch alone, for event-level
      recall at each IoU, and for the fused score by moment ratio (M/V, in the groups of MS-SL and of GMMFormer). R@K
      and SumR are percentages, mAP is a fraction, and ranks start at 1. If the data set has dense labels, the row "one
      right video" accepts only the annotated video, and the row "any right video" accepts every labelled video.
    - `rank` is the rank of each query's annotated video, in caption order.
    - `moments` contains the metrics of `moment_metrics`, if they were computed. `note` is one line that explains why
      moments are not scored, or empty.
    - `truths` contains counts of dense labels, and `truths_file` is the path of their file.
    - `source` describes the features, if known.
    - `scores` contains the scores of all pairs, if they were requested.
    """

    title: str
    num_videos: int
    rows: Mapping[str, Mapping[str, float]]
    rank: Int[np.ndarray, " Q"]
    caption_ids: tuple[str, ...]
    note: str = ""
    truths: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    moments: Mapping[str, float] = field(default_factory=dict)
    truths_file: str = ""
    scores: ScoredSplit | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """Return the title and the metrics of the fused score on one line."""
        columns = zip(COLUMNS, cells(self.figures), strict=True)
        return f"{self.title}: " + ", ".join(f"{heading(name)} {cell}" for name, cell in columns if cell)

    @property
    def figures(self) -> Mapping[str, float]:
        """The metrics of the fused score."""
        return self.rows["fused"]

    @property
    def events(self) -> dict[str, float]:
        """The result of `event_recall`, {`R@K IoU=m`: percentage}, or an empty dictionary if it was not computed."""
        return {
            f"{key} {name.removeprefix(EVENT)}": value
            for name, figures in self.rows.items()
            if name.startswith(EVENT)
            for key, value in figures.items()
            if key != "queries"
        }


def make_report(
    title: str,
    fused: Float[np.ndarray, "Q V"],
    branches: Mapping[str, Float[np.ndarray, "Q V"]],
    video_index: Int[np.ndarray, " Q"],
    *,
    caption_ids: Sequence[str],
    moment_ratios: Float[np.ndarray, " Q"],
    events: Mapping[str, float] | None = None,
    num_events: int = 0,
    note: str = "",
    right_videos: Int[np.ndarray, "Q N"] | None = None,
    truths: Mapping[str, float] | None = None,
) -> Report:
    """Return the report of a score matrix.

    - `moment_ratios` is NaN for queries without a moment. These queries are in no M/V group.
    - `events` is {`R@K IoU=m`: event-level recall}, computed over `num_events` queries.
    - `right_videos` contains the indices of all correct videos of each query, padded with -1. For a query without
      labels, all entries are -1.
    - `truths` contains counts of the labels.
    """
    rank = ranks(fused, video_index)
    rows = {"fused": retrieval_metrics(fused, video_index) | {"queries": float(len(rank))}}
    for name, scores in branches.items():
        rows[f"{name} only"] = retrieval_metrics(scores, video_index) | {"queries": float(len(rank))}
    if right_videos is not None:
        rows |= _by_labels(fused, video_index, right_videos)
    for key, value in (events or {}).items():
        at, _, threshold = key.partition(" ")
        rows.setdefault(f"{EVENT}{threshold}", {"queries": float(num_events)})[at] = value
    has_moment = np.isfinite(moment_ratios)
    if has_moment.any():
        for edges in GROUPINGS:
            groups = recall_by_moment_ratio(rank[has_moment], moment_ratios[has_moment], edges=edges)
            rows |= {f"M/V {name}": figures for name, figures in groups.items()}
    return Report(title, fused.shape[1], rows, rank, tuple(caption_ids), note, truths or {})


def _by_labels(
    fused: Float[np.ndarray, "Q V"], video_index: Int[np.ndarray, " Q"], right_videos: Int[np.ndarray, "Q N"]
) -> dict[str, dict[str, float]]:
    """Return two rows for the queries with dense labels, which accept the annotated video or any labelled video.

    The second row has no mAP, because our mAP is defined only for one correct video.
    """
    labelled = np.flatnonzero((right_videos >= 0).any(axis=1))
    queries = {"queries": float(len(labelled))}
    rank = ranks(fused[labelled], right_videos[labelled])
    any_right = recall(rank) | {"median_rank": float(np.median(rank)), "mean_rank": float(rank.mean())}
    one_right = retrieval_metrics(fused[labelled], video_index[labelled])
    return {ONE_RIGHT: one_right | queries, ANY_RIGHT: any_right | queries}


def heading(metric: str) -> str:
    """Return the column heading of a metric, as in papers.

    >>> heading("mean_rank"), heading("R@1")
    ('MnR', 'R@1')
    """
    return HEADINGS.get(metric, metric)


def cells(figures: Mapping[str, float], columns: Sequence[str] = COLUMNS) -> list[str]:
    """Return the cells of a row as text, one per column. Cells of missing metrics are empty.

    >>> cells({"R@1": 12.345, "mAP": 0.21234, "queries": 80.0}, ["R@1", "mAP", "SumR", "queries"])
    ['12.3', '0.2123', '', '80']
    """
    return [_cell(column, figures[column]) if column in figures else "" for column in columns]


def _cell(column: str, value: float) -> str:
    if np.isnan(value):
        return "-"
    return f"{value:.0f}" if column == "queries" else f"{value:.{DECIMALS.get(column, 1)}f}"


def as_document(report: Report) -> dict[str, Any]:
    """Return the report as a dictionary for JSON: metrics in full precision, and {caption id: rank}."""
    moments = {key: _number(value) for key, value in report.moments.items()}
    rows = {name: {key: _number(value) for key, value in figures.items()} for name, figures in report.rows.items()}
    by_caption = dict(zip(report.caption_ids, report.rank.tolist(), strict=True))
    return {
        "title": report.title,
        "videos": report.num_videos,
        "note": report.note,
        "truths": dict(report.truths) or None,
        "truths_file": report.truths_file or None,
        "rows": rows,
        "moments": moments or None,
        "ranks": by_caption,
    }


def _number(value: float) -> float | None:
    return None if np.isnan(value) else value


def to_csv(report: Report) -> str:
    """Return a CSV table with metrics in full precision, one line per row and one line for moments."""
    columns = COLUMNS + (MOMENT_COLUMNS if report.moments else ())
    rows = {**report.rows, **({MOMENT: report.moments} if report.moments else {})}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", *columns])
    for name, figures in rows.items():
        writer.writerow([name, *(_number(figures.get(column, np.nan)) for column in columns)])
    return text.getvalue()


def to_latex(report: Report) -> str:
    """Return a LaTeX table, and a second table if moments were scored. The tables need the LaTeX package booktabs."""
    lines = [
        f"% {report.title}, {len(report.rank)} queries, {report.num_videos} videos",
        *([f"% {report.note}"] if report.note else []),
        *_tabular(report.rows, COLUMNS),
    ]
    if report.moments:
        lines += ["", *_tabular({MOMENT: report.moments}, (*MOMENT_COLUMNS, "queries"))]
    return "\n".join(lines) + "\n"


def _tabular(rows: Mapping[str, Mapping[str, float]], columns: Sequence[str]) -> list[str]:
    lines = ([escape_latex(name), *cells(figures, columns)] for name, figures in rows.items())
    return latex_table(["", *map(heading, columns)], lines)


def latex_table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a LaTeX table with labels in the first column. Cells must be escaped.

    The table needs the LaTeX package booktabs.
    """
    return [
        rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        r"\toprule",
        rf"{' & '.join(header)} \\",
        r"\midrule",
        *(rf"{' & '.join(line)} \\" for line in lines),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def escape_latex(text: str) -> str:
    r"""Return a text in which characters with a meaning in LaTeX are escaped, except the backslash.

    >>> print(escape_latex("a_b & 5 $"))
    a\_b \& 5 \$
    """
    for character in "&%#_${}":
        text = text.replace(character, rf"\{character}")
    return text


def per_query(rank: Int[np.ndarray, " Q"], metric: str) -> Float[np.ndarray, " Q"]:
    """Return one value per query. The mean of the values is the metric: R@K or SumR in percent, or mAP.

    >>> per_query(np.array([1, 4]), "R@1").tolist(), per_query(np.array([1, 4]), "mAP").tolist()
    ([100.0, 0.0], [1.0, 0.25])
    """
    if metric == "mAP":
        return 1.0 / rank
    if metric == "SumR":
        return np.sum([100.0 * (rank <= k) for k in RECALL_AT], axis=0)
    return 100.0 * (rank <= int(metric.removeprefix("R@")))
