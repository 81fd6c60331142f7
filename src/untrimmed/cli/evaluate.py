"""`untrimmed evaluate`: how well a model ranks a data set, or a library answers labelled sentences."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from untrimmed.cli.console import print_json, progress_console, result_console
from untrimmed.cli.options import DeviceOption, FeaturesOption, ImportOption, MovedRootOption, SplitOption, parse_path
from untrimmed.config import parse_overrides
from untrimmed.errors import ConfigError
from untrimmed.precision import Precision, read_precision

TargetArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN|LIBRARY|tf_prvr",
        parser=parse_path,
        help="The folder of a run or of a library; or tf_prvr, which needs no training but --data and --root.",
    ),
]
QueriesOption = Annotated[
    Path | None,
    typer.Option(
        "--queries",
        metavar="FILE",
        help="For a run with --top: a file with the id or the text of a caption on each line, or ids with commas. "
        'For a library: JSON lines, each a sentence {"video": ..., "query": ..., "start_s": 1.5, "end_s": 4}, or '
        'a video {"file": ..., "queries": [{"query": ..., "start": 1.5, "end": 4}, ...]}.',
        show_default=False,
    ),
]
SkipUnknownOption = Annotated[
    bool, typer.Option("--skip-unknown", help="For a library: leave out sentences on videos that it does not hold.")
]
AgainstOption = Annotated[
    Path | None, typer.Option("--against", metavar="RUN2", help="For a run: test the difference.", show_default=False)
]
MomentsOption = Annotated[
    bool, typer.Option("--moments/--no-moments", help="For a run: find moments too, minutes on TVR.")
]
TopOption = Annotated[
    int | None,
    typer.Option(
        "--top",
        metavar="K",
        help="For a run: instead list the first K videos of each query, which one is right, and the best moments.",
        show_default=False,
    ),
]
OtherDataOption = Annotated[
    str | None, typer.Option("--data", metavar="NAME", help="For a run: another data set.", show_default=False)
]
TruthsOption = Annotated[
    Path | None,
    typer.Option(
        "--truths",
        metavar="FILE",
        help="For a run: dense labels, JSON lines or .gz of them, each "
        '{"query_id": ..., "gt_video_ids": [...]}: recall with several right videos, beside the usual.',
        show_default=False,
    ),
]
ChangedArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="For a run: settings of the trained model to change, e.g. model.glance_weight=1 model.gaze_weight=0, and "
        "train.annotators=1: a moment of DiDeMo is right if it meets one annotator, as in JSG's paper (program: 2).",
    ),
]
RunPrecisionOption = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="auto|float32|bfloat16",
        help="Number format of products.  \\[default: float32 for a run, auto for a library]",
        show_default=False,
    ),
]

_SHOWN_AS = {"mean IoU": "mean IoU in the true video"}  # beside the demo's, which is that of first hits


def evaluate(
    target: TargetArgument,
    queries: QueriesOption = None,
    skip_unknown: SkipUnknownOption = False,
    details: Annotated[bool, typer.Option("--details", help="For a library: print every query's outcome.")] = False,
    split: SplitOption = "test",
    data: OtherDataOption = None,
    root: MovedRootOption = None,
    video_features: FeaturesOption = None,
    against: AgainstOption = None,
    top: TopOption = None,
    moments: MomentsOption = True,
    truths: TruthsOption = None,
    output: Annotated[str, typer.Option("--format", help="table, json, or for a run csv, latex.")] = "table",
    device: DeviceOption = "auto",
    precision: RunPrecisionOption = None,
    overrides: ChangedArgument = None,
    imports: ImportOption = None,
) -> None:
    """Score a model, or a library on your labelled queries.

    A run is scored by R@K and SumR per moment-to-video ratio, mAP, median and
    mean rank and, if the data have moments, event-level recall (R@K, IoU=m).
    A library is scored by R@K, mean IoU in the true video and moment recall.
    """
    from untrimmed.cli.run_evaluation import Opening, evaluate_run, is_model_folder
    from untrimmed.cli.run_top import evaluate_top
    from untrimmed.search.store.records import settings_file

    if not settings_file(target).exists() and is_model_folder(target):  # what asks for runs needs torch
        if details or skip_unknown or (queries is not None and top is None):
            raise ConfigError(
                f"{target}: a run; --skip-unknown and --details are for a library, --queries for one or with --top K"
            )
        if top is not None and (against is not None or truths is not None or not moments):
            raise ConfigError("--top lists videos with moments; leave --against, --truths and --no-moments out")
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
            evaluate_run(target, opening, output=output, against=against, moments=moments, truths=truths)
    else:
        _refuse_options_of_runs(target, {"--truths": truths, "--top": top, "KEY=VALUE": overrides})
        if queries is None:
            raise ConfigError(f"{target}: {_missing_run(target)}")
        chosen = read_precision(precision or "auto")
        _evaluate_library(target, queries, chosen, output, details, skip_unknown)


def _missing_run(target: Path) -> str:
    from untrimmed.models.registry import is_method

    if is_method(str(target)):
        return f"is a method; train it (untrimmed train {target}), then name the run's folder"
    return "no run here; to score a library, name its labelled sentences with --queries FILE"


def _refuse_options_of_runs(target: Path, options: Mapping[str, object]) -> None:
    for name, given in options.items():
        if given:
            raise ConfigError(f"{target}: no run here; {name} is for a run, leave it out")


def _evaluate_library(
    library: Path, queries: Path, precision: Precision, output: str, details: bool, skip_unknown: bool
) -> None:
    import untrimmed
    from untrimmed.search.labelled import evaluate_library, read_queries

    if output not in ("table", "json"):
        raise ConfigError(f"format {output!r} is not known for a library; choose table or json")
    labelled = read_queries(queries)
    opened = untrimmed.open(library, precision=precision)
    with progress_console.status("searching"):
        quality = evaluate_library(opened, labelled, skip_unknown=skip_unknown)
    if quality.skipped:
        videos = len({query.video for query in quality.skipped})
        progress_console.print(
            f"left out  {len(quality.skipped)} sentences on {videos} videos that are not in the library"
        )
    if num_doubtful := sum(bool(outcome.warnings) for outcome in quality.outcomes):
        progress_console.print(f"warning: of {num_doubtful} sentences not all words count; --format json says which")
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
        document = {
            "figures": quality.figures,
            "videos": quality.num_videos,
            "queries": outcomes,
            "skipped": skipped,
        }
        print_json(document)
        return
    if details:
        for outcome in sorted(quality.outcomes, key=lambda o: (o.rank or 10**9, -o.iou)):
            rank = outcome.rank or "-"
            result_console.print(f"{rank!s:>4}  IoU {outcome.iou:.2f}  {outcome.query.text}")
    table = Table(title=f"{len(quality.outcomes)} queries, {quality.num_videos} videos (percent)", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for name, value in quality.figures.items():
        table.add_row(_SHOWN_AS.get(name, name), f"{value:.1f}")
    result_console.print(table)
