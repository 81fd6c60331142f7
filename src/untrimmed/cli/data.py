"""`untrimmed data`: lay out benchmarks, check, describe and simulate data sets, and what they give untrained."""

import shlex
from dataclasses import asdict, fields
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from untrimmed.cli.bars import counting
from untrimmed.cli.console import USAGE, print_json, progress_console, result_console
from untrimmed.cli.options import FeaturesOption, ImportOption, JsonOption, RootOption
from untrimmed.config import build, parse_overrides
from untrimmed.data.benchmarks.benchmark import SPLITS
from untrimmed.data.benchmarks.registry import get_benchmark, list_benchmarks
from untrimmed.data.check import check_dataset
from untrimmed.data.describe import RATIO_EDGES, Description, describe_split
from untrimmed.data.layout import Layout
from untrimmed.data.prepare import Prepared, prepare
from untrimmed.data.simulation.simulate import simulate
from untrimmed.data.simulation.world import SimulationSettings
from untrimmed.data.text_similarity import TextSimilarity, text_similarity
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.presets import has_preset, load_preset

BAR_WIDTH = 30
_FIRST_METHOD = "gmmformer_v2"  # of a command to train, as elsewhere

data_app = typer.Typer(
    name="data",
    help="Prepare, check, describe and simulate data sets.",
    no_args_is_help=True,
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help=f"{', '.join(list_benchmarks())}, or your own.")]
OutOption = Annotated[Path, typer.Option("--out", metavar="ROOT", help="Write to ROOT/NAME.")]


class TextPooling(str, Enum):
    """What stands for a caption."""

    mean = "mean"
    last = "last"


class LayoutChoice(str, Enum):
    """The layouts that `simulate` writes."""

    field = "field"
    jsg = "jsg"
    plain = "plain"


@data_app.command("prepare")
def prepare_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"{', '.join(list_benchmarks())}.")],
    annotations: Annotated[
        Path, typer.Option("--annotations", metavar="DIR", help="The folder with its annotation files.")
    ],
    out: OutOption,
    called: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME2",
            help="Write to ROOT/NAME2: the data set with features of another network.",
            show_default=False,
        ),
    ] = None,
    train: Annotated[str | None, typer.Option(metavar="PART", help="The part to take for train.")] = None,
    val: Annotated[str | None, typer.Option(metavar="PART", help="The part to take for val.")] = None,
    test: Annotated[str | None, typer.Option(metavar="PART", help="The part to take for test, e.g. val_2.")] = None,
    imports: ImportOption = None,
) -> None:
    """Turn a benchmark's annotation files, as published, into the field's layout."""
    parts = {split: part for split, part in zip(SPLITS, (train, val, test), strict=True) if part is not None}
    _print_prepared(prepare(name, annotations, out, parts=parts, data_set=called), name)


def _print_prepared(prepared: Prepared, name: str) -> None:
    table = Table("split", "part", title=get_benchmark(name).title, title_justify="left")
    for column in ("videos", "captions", "without moment"):
        table.add_column(column, justify="right")
    table.add_column("counts")
    for split in prepared.splits:
        counts = (f"{split.videos:,}", f"{split.captions:,}", str(split.without_moment))
        table.add_row(split.split, split.part, *counts, split.published)
    result_console.print(table)
    result_console.print(f"written to {prepared.folder}")
    different = dict.fromkeys((s.part, difference) for s in prepared.splits for difference in s.differences)
    for part, difference in different:
        result_console.print(f"{part} differs from {difference}")
    for note in get_benchmark(name).notes:
        result_console.print(note)
    for missing, files in prepared.missing.items():
        line = f"not written: {missing}, its annotation file is not in the folder, expected {files}"
        progress_console.print(line)


@data_app.command("check")
def check_command(
    name: NameArgument,
    root: RootOption,
    video_features: FeaturesOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out reading every value.")] = False,
    imports: ImportOption = None,
) -> None:
    """List what is missing or wrong, each with its fix; exit code 2 if anything is."""
    with counting("checking") as progress:
        problems = check_dataset(name, root, values=not quick, video_features=video_features, progress=progress)
    for problem in problems:
        result_console.print(problem)
    if problems:
        progress_console.print(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}")
        raise typer.Exit(USAGE)
    result_console.print(f"{Layout.at(root, name).folder}: nothing missing, nothing wrong")


@data_app.command("describe")
def describe_command(
    name: NameArgument,
    root: RootOption,
    texts: Annotated[
        TextPooling | None,
        typer.Option(
            help="Also print how alike the captions are to their encoder: cosines of all pairs, a caption being the "
            "mean or the last of its word features.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
    imports: ImportOption = None,
) -> None:
    """Print counts, words per query, moments per video and the moment-ratio histogram of every split."""
    descriptions, missing = [], []
    for split in SPLITS:
        try:
            descriptions.append(describe_split(name, root, split))
        except FeatureError as error:
            missing.append(error)
    if not descriptions:
        raise missing[0]
    alike = {}
    if texts is not None:
        with progress_console.status("comparing captions"):
            alike = {d.split: text_similarity(name, root, d.split, texts.value) for d in descriptions}
    if as_json:
        documents = [asdict(description) for description in descriptions]
        of_texts = {split: asdict(own) for split, own in alike.items() if own is not None}
        print_json([d | {"texts": of_texts[d["split"]]} if d["split"] in of_texts else d for d in documents])
    else:
        _print_descriptions(name, descriptions)
        _print_text_similarity([own for own in alike.values() if own is not None])
    for reason in missing:
        progress_console.print(str(reason))


def _print_descriptions(name: str, descriptions: list[Description]) -> None:
    table = Table("", title=name, title_justify="left")
    for description in descriptions:
        table.add_column(description.split, justify="right")
    for field in fields(Description):
        if field.name not in ("split", "moment_ratios"):
            label = field.name.removesuffix("_s").replace("_", " ") + (" (s)" if field.name.endswith("_s") else "")
            table.add_row(label, *(_figure(getattr(description, field.name)) for description in descriptions))
    result_console.print(table)
    for description in descriptions:
        total = sum(description.moment_ratios)
        if total:
            result_console.print(f"\nmoment length / video length, {description.split} ({total:,} captions)")
            for low, high, count in zip(RATIO_EDGES, RATIO_EDGES[1:], description.moment_ratios, strict=False):
                bar = "█" * round(BAR_WIDTH * count / max(description.moment_ratios))
                result_console.print(f"{low:.1f} - {high:.1f} {bar:{BAR_WIDTH}} {100 * count / total:5.1f} %")


def _print_text_similarity(alike: list[TextSimilarity]) -> None:
    if not alike:
        return
    result_console.print("\ncosine of any two captions to their encoder")
    table = Table("", *(own.split for own in alike))
    for figure in ("captions", "max", "mean", "median", "min"):
        values = (getattr(own, figure) for own in alike)
        table.add_row(figure, *(f"{value:,}" if figure == "captions" else f"{value:.3f}" for value in values))
    result_console.print(table)


def _figure(value: float | int | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


@data_app.command("untrained")
def untrained_command(
    name: NameArgument, root: RootOption, as_json: JsonOption = False, imports: ImportOption = None
) -> None:
    """Print what needs no training, beside which trained methods are read: R@K on the test split, in percent.

    chance is the mean of all orders; zero-shot compares a caption's mean word with a video's mean frame as they stand,
    ridge through a linear map learned on the training split; the oracle knows what simulated features were made from.
    """
    from untrimmed.running.untrained import untrained_rows_of

    with progress_console.status("comparing"):
        rows, test = untrained_rows_of(name, root)
    if as_json:
        print_json({"queries": len(test.caption_ids), "videos": len(test.video_ids), "rows": rows})
        return
    result_console.print(f"{name}, test: {len(test.caption_ids):,} queries, {len(test.video_ids):,} videos")
    width = max(map(len, rows))
    for row, figures in rows.items():
        cells = (f"{column} {figures[column]:5.1f}" for column in ("R@1", "R@5", "R@10", "R@100", "SumR"))
        typer.echo(f"{row:<{width}}  {'   '.join(cells)}")


@data_app.command("simulate")
def simulate_command(
    name: NameArgument,
    out: OutOption,
    videos: Annotated[int, typer.Option("--videos", metavar="N", help="In all; 3 : 1 : 1 train, val, test.")] = 1000,
    annotations: Annotated[
        Path | None,
        typer.Option(
            "--annotations",
            metavar="DIR",
            help="Real captions and moments of benchmark NAME.  \\[default: a small grammar makes them]",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="The same seed gives the same files.")] = 0,
    layout: Annotated[LayoutChoice, typer.Option("--layout", help="The field's, JSG's or the plain one.")] = (
        LayoutChoice.field
    ),
    teacher: Annotated[bool, typer.Option("--teacher", help="Add CLIP-like features for DL-DKD.")] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Sizes and difficulty, e.g. video_dim=256 noise=0.2."),
    ] = None,
    imports: ImportOption = None,
) -> None:
    """Write a data set with simulated features: text and vision as two views of one hidden meaning."""
    values: dict[str, Any] = {"seed": seed} | parse_overrides(overrides or [])
    settings = build(SimulationSettings, values, where="simulate")
    if annotations is not None and not annotations.is_dir():
        raise ConfigError(f"{annotations}: no such folder; give the folder with the annotation files")
    with counting("simulating") as progress:
        written = simulate(
            name,
            out,
            num_videos=videos,
            annotations_dir=annotations,
            layout=layout.value,
            teacher=teacher,
            settings=settings,
            progress=progress,
        )
    for split in SPLITS:
        result_console.print(f"{split:5} {written.videos[split]:,} videos, {written.captions[split]:,} captions")
    result_console.print(f"written to {written.folder}")
    widths = {"model.query_dim": settings.query_dim, "model.video_dim": settings.video_dim}
    typer.echo(f"next    {_training(name, out, widths)}")


def _training(name: str, root: Path, widths: dict[str, int]) -> str:
    """The command that trains on a data set, with those widths that its preset has otherwise; without one, as found."""
    other = {}
    if has_preset(_FIRST_METHOD, name):
        published = load_preset(_FIRST_METHOD, name).model
        other = {key: width for key, width in widths.items() if published[key.removeprefix("model.")] != width}
    command = ["untrimmed", "train", _FIRST_METHOD, "--data", name, "--root", str(root)]
    return shlex.join([*command, *(f"{key}={width}" for key, width in other.items())])
