"""`untrimmed evaluate`: score a model on a data set, or a library on labelled sentences."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from untrimmed.cli.console import print_json, progress_console, result_console
from untrimmed.cli.options import (
    DeviceOption,
    FeaturesOption,
    ImportOption,
    MovedRootOption,
    SplitOption,
    data_option,
    output_option,
    parse_path,
    runtime_option,
)
from untrimmed.config import parse_overrides
from untrimmed.errors import ConfigError, counted
from untrimmed.precision import Precision, read_precision

_library_option = partial(typer.Option, rich_help_panel="Only for a library")
_run_option = partial(typer.Option, rich_help_panel="Only for a run")
TargetArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN|LIBRARY",
        parser=parse_path,
        help="Folder of a run or a library, or tf_prvr (no training; needs --data and --root).",
    ),
]
OtherDataOption = Annotated[
    str | None, data_option("--data", metavar="NAME", help="Name of the data set.  \\[default: the run's]")
]
QueriesOption = Annotated[
    Path | None,
    data_option("--queries", metavar="FILE", help="For a library: sentences with their moments. With --top: captions."),
]
SkipUnknownOption = Annotated[
    bool, _library_option("--skip-unknown", help="Ignore sentences about videos that are not in the library.")
]
DetailsOption = Annotated[bool, _library_option("--details", help="List the result of every query.")]
MomentsOption = Annotated[
    bool, _run_option("--moments/--no-moments", help="Also score moments (takes minutes on TVR).")
]
TruthsOption = Annotated[
    Path | None,
    _run_option(
        "--truths",
        metavar="FILE",
        help="File with all correct videos of each query. Recall is also computed with them.  "
        "\\[default: the data set's, if it has them]",
    ),
]
_file_option = partial(typer.Option, rich_help_panel="Files about every query of a run")
PerQueryOption = Annotated[
    Path | None,
    _file_option("--per-query", metavar="FILE", help="Rank, scores and best moment of each query: .csv or .jsonl."),
]
TrecOption = Annotated[
    Path | None, _file_option("--trec", metavar="FILE", help="TREC run file with the first 1,000 videos.")
]
QrelsOption = Annotated[
    Path | None, _file_option("--qrels", metavar="FILE", help="Right videos in TREC's format, for trec_eval.")
]
ScoresOption = Annotated[
    Path | None,
    _file_option("--scores", metavar="FILE", help="Score matrices of all branches and their fusion: .npz."),
]
AgainstOption = Annotated[
    Path | None,
    _run_option("--against", metavar="RUN2", help="Also test whether the results differ from those of RUN2."),
]
TopOption = Annotated[
    int | None, _run_option("--top", metavar="K", help="List the first K videos of each query instead of the metrics.")
]
OverridesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Settings of a run to change, e.g. model.glance_weight=1."),
]
FormatOption = Annotated[
    str, output_option("--format", metavar="FORMAT", help="table or json; for a run also csv or latex.")
]
RunPrecisionOption = Annotated[
    str | None,
    runtime_option(
        "--precision",
        metavar="FORMAT",
        help="Number format: auto, float32 or bfloat16.  \\[default: float32; auto for a library]",
    ),
]

# `demo` prints a mean IoU too, but only of first hits, so the label here is more precise
_LABELS = {"mean IoU": "mean IoU in the true video"}


def evaluate(
    target: TargetArgument,
    split: SplitOption = "test",
    data: OtherDataOption = None,
    root: MovedRootOption = None,
    video_features: FeaturesOption = None,
    queries: QueriesOption = None,
    skip_unknown: SkipUnknownOption = False,
    details: DetailsOption = False,
    moments: MomentsOption = True,
    truths: TruthsOption = None,
    against: AgainstOption = None,
    top: TopOption = None,
    per_query: PerQueryOption = None,
    trec: TrecOption = None,
    qrels: QrelsOption = None,
    scores: ScoresOption = None,
    output: FormatOption = "table",
    device: DeviceOption = "auto",
    precision: RunPrecisionOption = None,
    overrides: OverridesArgument = None,
    imports: ImportOption = None,
) -> None:
    """Measure the accuracy of a trained model, or of searches in a library.

    For a run, the metrics are R@K, SumR, mAP, and the median and mean rank. If
    the data set has moments, there are also event-level recall and the IoU of the
    best moment in the right video. R@K and SumR are also printed for groups of
    queries whose moments cover a similar share of the video.
    For a library, the metrics are R@K, moment recall, and the mean IoU in the
    right video. A line of --queries has one or several sentences about a video:
    {"video": "a.mp4", "query": "a dog runs", "start_s": 1.5, "end_s": 4}
    {"file": "a.mp4", "queries": [{"query": "a dog", "start": 1.5, "end": 4}]}
    A line of --truths is {"query_id": "q1", "gt_video_ids": ["v1", "v2"]}.
    With --top, --queries is a list of caption ids (ID,ID2), or a file with one id
    or caption per line.
    """
    from untrimmed.cli.run_evaluation import ExportFiles, Opening, evaluate_run, is_model_folder
    from untrimmed.cli.run_top import evaluate_top
    from untrimmed.search.store.records import settings_file

    # `is_model_folder` is called last, because it imports torch
    if not settings_file(target).exists() and is_model_folder(target):
        for_library = {"--skip-unknown": skip_unknown, "--details": details}
        _require_unset(
            for_library | {"--queries without --top": top is None and queries}, target, "is a run", "library"
        )
        files = ExportFiles(per_query=per_query, trec=trec, qrels=qrels, scores=scores)
        if top is not None and (against is not None or truths is not None or not moments or files.paths):
            options = "--against, --truths, --no-moments, --per-query, --trec, --qrels and --scores"
            raise ConfigError(f"--top only lists videos and moments; remove {options}")
        opening = Opening(
            split=split,
            data=data,
            root=root,
            video_features=video_features,
            device=device,
            precision=read_precision(precision or "float32"),
            changed=parse_overrides(overrides or []),
        )
        if top is not None:
            evaluate_top(target, top, queries, opening, output=output)
        else:
            evaluate_run(target, opening, output=output, against=against, moments=moments, truths=truths, files=files)
    else:
        for_run: dict[str, object] = {"--truths": truths, "--top": top, "KEY=VALUE": overrides}
        for_run |= {"--per-query": per_query, "--trec": trec, "--qrels": qrels, "--scores": scores}
        is_library = settings_file(target).exists()
        if is_library:  # otherwise the path is the mistake, and these options may be right
            for_run |= {"--against": against, "--no-moments": not moments, "--split": split != "test"}
            for_run |= {"--data": data, "--root": root, "--video-features": video_features}
        _require_unset(for_run, target, "is not a run", "run")
        if queries is None:
            raise ConfigError(f"{target}: {_explain_missing_queries(target, is_library)}")
        _evaluate_library(target, queries, read_precision(precision or "auto"), output, details, skip_unknown)


def _explain_missing_queries(target: Path, is_library: bool) -> str:
    from untrimmed.models.registry import is_method

    if is_library:
        return "is a library; add its labelled sentences with --queries FILE"
    if is_method(str(target)):
        return f"is a method; train it (untrimmed train {target}), then name the run's folder"
    state = "contains no run, model or library" if target.exists() else "no such folder"
    return f"{state}; name a folder that `untrimmed train`, `import-checkpoint` or `index` wrote"


def _require_unset(options: Mapping[str, object], target: Path, state: str, kind: str) -> None:
    for name, value in options.items():
        if value:
            raise ConfigError(f"{target}: {state}, but {name} is only for a {kind}; remove it")


def _evaluate_library(
    library: Path, queries: Path, precision: Precision, output: str, details: bool, skip_unknown: bool
) -> None:
    import untrimmed
    from untrimmed.search.labelled import evaluate_library, read_queries

    if output not in ("table", "json"):
        raise ConfigError(f"--format is {output!r}, expected table or json for a library")
    labelled = read_queries(queries)
    opened = untrimmed.open(library, precision=precision)
    with progress_console.status("searching"):
        quality = evaluate_library(opened, labelled, skip_unknown=skip_unknown)
    if quality.skipped:
        videos = len({query.video for query in quality.skipped})
        progress_console.print(
            f"left out  {len(quality.skipped)} sentences about {videos} videos that are not in the library"
        )
    if num_doubtful := sum(bool(outcome.warnings) for outcome in quality.outcomes):
        progress_console.print(f"warning: {num_doubtful} sentences have words that were ignored; see --format json")
    if output == "json":
        outcomes = [
            {
                "query": outcome.query.text,
                "video": outcome.query.video,
                "rank": outcome.rank,
                "start_s": round(outcome.moment.start_s, 3),
                "end_s": round(outcome.moment.end_s, 3),
                "iou": round(outcome.iou, 4),
                "warnings": outcome.warnings,
            }
            for outcome in quality.outcomes
        ]
        skipped = [{"query": query.text, "video": query.video, "place": query.place} for query in quality.skipped]
        document = {"figures": quality.figures, "videos": quality.num_videos, "queries": outcomes, "skipped": skipped}
        print_json(document)
        return
    if details:
        for outcome in sorted(quality.outcomes, key=lambda o: (o.rank or 10**9, -o.iou)):
            rank = outcome.rank or "-"
            result_console.print(f"{rank!s:>4}  IoU {outcome.iou:.2f}  {outcome.query.text}")
    sizes = f"{counted(len(quality.outcomes), 'query')}, {counted(quality.num_videos, 'video')}"
    table = Table(title=f"{sizes} (percent)", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in quality.figures.items():
        table.add_row(_LABELS.get(name, name), f"{value:.1f}")
    result_console.print(table)
