"""`untrimmed data`: find, prepare, check, describe and simulate data sets, and evaluate them without training."""

import shlex
from dataclasses import asdict, fields
from enum import StrEnum
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from untrimmed.cli.bars import counting
from untrimmed.cli.console import USAGE, print_json, progress_console, result_console, with_options
from untrimmed.cli.options import FeaturesOption, ImportOption, JsonOption, RootOption
from untrimmed.config import build, parse_overrides
from untrimmed.data.archives import list_archives
from untrimmed.data.benchmarks.benchmark import SPLITS
from untrimmed.data.benchmarks.registry import get_benchmark, list_benchmarks
from untrimmed.data.check import check_dataset
from untrimmed.data.describe import RATIO_EDGES, Description, describe_split
from untrimmed.data.layout import Layout
from untrimmed.data.layouts import open_frames, open_words
from untrimmed.data.prepare import Prepared, prepare
from untrimmed.data.simulation.simulate import simulate
from untrimmed.data.simulation.world import SimulationSettings
from untrimmed.data.text_similarity import TextSimilarity, text_similarity
from untrimmed.errors import ConfigError, FeatureError, counted
from untrimmed.presets import has_preset, load_preset

BAR_WIDTH = 30
_FIRST_METHOD = "gmmformer_v2"  # the method in the suggested training command

data_app = typer.Typer(
    name="data",
    help="Find, prepare, check, describe and simulate data sets.",
    no_args_is_help=True,
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A benchmark or your own data set.")]
OutOption = Annotated[Path, typer.Option("--out", metavar="ROOT", help="Write to ROOT/NAME.")]


class TextPooling(StrEnum):
    """How the word features of a caption become one vector: their mean, or the last word's."""

    mean = "mean"
    last = "last"


class LayoutChoice(StrEnum):
    """The layouts that `simulate` writes."""

    field = "field"
    jsg = "jsg"
    plain = "plain"


@data_app.command("prepare")
def prepare_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(list_benchmarks())}.")],
    annotations: Annotated[
        Path, typer.Option("--annotations", metavar="DIR", help="Folder with the benchmark's annotation files.")
    ],
    out: OutOption,
    data_set: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME2",
            help="Write to ROOT/NAME2 instead of ROOT/NAME, e.g. to use other features with the same captions.",
            show_default=False,
        ),
    ] = None,
    train: Annotated[
        str | None, typer.Option(metavar="PART", help="Published part to use as the training split.")
    ] = None,
    val: Annotated[
        str | None, typer.Option(metavar="PART", help="Published part to use as the validation split.")
    ] = None,
    test: Annotated[
        str | None, typer.Option(metavar="PART", help="Published part to use as the test split, e.g. val_2.")
    ] = None,
    as_json: JsonOption = False,
    only_with_features: Annotated[
        bool,
        typer.Option(
            "--only-with-features",
            help="Leave out videos without frame features in ROOT/NAME, as papers do for ActivityNet Captions.",
        ),
    ] = False,
    subtitles: Annotated[
        Path | None,
        typer.Option(
            "--subtitles",
            metavar="FILE",
            help="Subtitles of the videos, as in tvqa_preprocessed_subtitles.jsonl.",
            show_default=False,
        ),
    ] = None,
    subtitle_features: Annotated[
        Path | None,
        typer.Option(
            "--subtitle-features",
            metavar="FILE",
            help="Vectors of the subtitles: an HDF5 file with one array of shape (passages, width) per video.",
            show_default=False,
        ),
    ] = None,
    imports: ImportOption = None,
) -> None:
    """Convert a benchmark's published annotation files to a data set folder."""
    parts = {split: part for split, part in zip(SPLITS, (train, val, test), strict=True) if part is not None}
    prepared = prepare(
        name,
        annotations,
        out,
        parts=parts,
        data_set=data_set,
        only_with_features=only_with_features,
        subtitles=subtitles,
        subtitle_features=subtitle_features,
    )
    if as_json:
        print_json(asdict(prepared))
    else:
        _print_prepared(prepared, name)


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
    for path in prepared.frames:
        result_console.print(f"frames   {path.relative_to(prepared.folder)}")
    if not prepared.frames:
        result_console.print(f"frames   none yet; see untrimmed data sources {name}, or make them: untrimmed features")
    if (subtitles := prepared.subtitles) is not None:
        passages = f"{subtitles.passages:,} passages of {subtitles.videos:,} videos"
        result_console.print(f"subtitles {passages}; vectors of {subtitles.videos_with_vectors:,} videos")
    different = dict.fromkeys((s.part, difference) for s in prepared.splits for difference in s.differences)
    for part, difference in different:
        result_console.print(f"{part} differs from {difference}")
    for note in get_benchmark(name).notes:
        result_console.print(note)
    for missing, files in prepared.missing.items():
        progress_console.print(f"not written: {missing}, whose annotation file is missing; expected {files}")


@data_app.command("sources")
def sources_command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help=f"One of {', '.join(list_benchmarks())}.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
    imports: ImportOption = None,
) -> None:
    """Print where to download benchmarks, and the commands that unpack them.

    In the commands, DOWNLOADS is the folder with the downloaded files and ROOT
    the folder that contains the data sets.
    """
    archives = list_archives(name)
    if as_json:
        print_json([asdict(archive) for archive in archives])
        return
    for archive in archives:
        result_console.print(f"{archive.benchmark}: {archive.content}")
        commit = "" if archive.commit is None else f", commit {archive.commit}"
        facts = {
            "where": None if archive.place is None else f"{archive.place}{commit}",
            "size": archive.size,
            "sha256": archive.sha256,
            "licence": archive.licence,
        }
        for label, text in zip(("files", *repeat("", len(archive.files) - 1)), archive.files, strict=True):
            result_console.print(f"  {label:8} {text}")
        for label, fact in facts.items():
            if fact:
                result_console.print(f"  {label:8} {fact}")
        if unknown := [label for label, fact in facts.items() if not fact]:
            result_console.print(f"  not known: {', '.join(unknown)}")
        if archive.note:
            result_console.print(f"  {'note':8} {archive.note}")
        result_console.print(f"  {'command':8} {archive.command}\n")


@data_app.command("check")
def check_command(
    name: NameArgument,
    root: RootOption,
    video_features: FeaturesOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Do not read the feature values.")] = False,
    as_json: JsonOption = False,
    imports: ImportOption = None,
) -> None:
    """List the problems of a data set, each with a fix. Exit code 2 if there is a problem."""
    with counting("checking") as progress:
        problems = check_dataset(name, root, values=not quick, video_features=video_features, progress=progress)
    if as_json:
        print_json({"problems": [with_options(problem) for problem in problems]})
        raise typer.Exit(USAGE if problems else 0)
    for problem in problems:
        result_console.print(with_options(problem))
    if problems:
        progress_console.print(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}")
        raise typer.Exit(USAGE)
    layout = Layout.at(root, name)
    result_console.print(f"{layout.folder}: no problems")
    for what, source in (("frames", open_frames(layout, video_features)), ("words", open_words(layout))):
        result_console.print(f"{what:8} {source.place}, {source.dim} wide")


@data_app.command("describe")
def describe_command(
    name: NameArgument,
    root: RootOption,
    texts: Annotated[
        TextPooling | None,
        typer.Option(
            help="Also print the similarity of captions: cosines of all pairs. A caption's vector is the mean of its "
            "word features, or the feature of its last word.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
    imports: ImportOption = None,
) -> None:
    """Print statistics of each split.

    The statistics are counts, words per query, moments per video, and a
    histogram of moment length / video length.
    """
    descriptions = []
    missing = []
    for split in SPLITS:
        try:
            descriptions.append(describe_split(name, root, split))
        except FeatureError as error:
            missing.append(error)
    if not descriptions:
        raise missing[0]
    similarity = {}
    if texts is not None:
        with progress_console.status("comparing captions"):
            similarity = {d.split: text_similarity(name, root, d.split, texts.value) for d in descriptions}
    if as_json:
        documents = [asdict(description) for description in descriptions]
        texts_of = {split: asdict(cosines) for split, cosines in similarity.items() if cosines is not None}
        print_json([d | {"texts": texts_of[d["split"]]} if d["split"] in texts_of else d for d in documents])
    else:
        _print_descriptions(name, descriptions)
        _print_text_similarity([cosines for cosines in similarity.values() if cosines is not None])
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


def _print_text_similarity(similarities: list[TextSimilarity]) -> None:
    if not similarities:
        return
    result_console.print("\ncosines of all pairs of captions")
    table = Table("", *(similarity.split for similarity in similarities))
    for figure in ("captions", "max", "mean", "median", "min"):
        values = (getattr(similarity, figure) for similarity in similarities)
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
    """Print R@K (percent) of baselines without a trained method, on the test split.

    A caption is represented by the mean of its word features.

    chance: videos in random order
    zero-shot: cosine of a caption and the mean of a video's frame features
    ridge: like zero-shot, after a linear map that is fitted to the training split
    subtitles: cosine of a caption and the most similar passage of a video
    oracle: the best possible result (simulated data only)
    """
    from untrimmed.running.untrained import untrained_rows_of

    with progress_console.status("comparing"):
        rows, test = untrained_rows_of(name, root)
    if as_json:
        print_json({"queries": len(test.caption_ids), "videos": len(test.video_ids), "rows": rows})
        return
    sizes = f"{counted(len(test.caption_ids), 'query')}, {counted(len(test.video_ids), 'video')}"
    result_console.print(f"{name}, test: {sizes}")
    width = max(map(len, rows))
    for row, figures in rows.items():
        cells = (f"{column} {figures[column]:5.1f}" for column in ("R@1", "R@5", "R@10", "R@100", "SumR"))
        typer.echo(f"{row:<{width}}  {'   '.join(cells)}")


@data_app.command("simulate")
def simulate_command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A new name. With --annotations: the name of a benchmark.")
    ],
    out: OutOption,
    videos: Annotated[
        int, typer.Option("--videos", metavar="N", help="Number of videos in train, val and test (3 : 1 : 1).")
    ] = 1000,
    annotations: Annotated[
        Path | None,
        typer.Option(
            "--annotations",
            metavar="DIR",
            help="Use real captions and moments of benchmark NAME.  \\[default: invent them]",
            show_default=False,
        ),
    ] = None,
    data_set: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME2",
            help="Write to ROOT/NAME2 instead, for a variant of the simulation.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="The same seed writes the same files.")] = 0,
    layout: Annotated[LayoutChoice, typer.Option("--layout", help="Layout of the files.")] = LayoutChoice.field,
    teacher: Annotated[
        bool, typer.Option("--teacher", help="Also write features of a teacher, which the method dl_dkd needs.")
    ] = False,
    subtitles: Annotated[
        bool, typer.Option("--subtitles", help="Also write subtitles, which contain words of some captions.")
    ] = False,
    as_json: JsonOption = False,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Sizes, difficulty and variants, e.g. video_dim=256 noise=0.2."),
    ] = None,
    imports: ImportOption = None,
) -> None:
    """Write a data set with simulated features.

    The features of a text and of its video are derived from the same hidden
    meaning.

    The standard simulation favours some methods. Three variants change one
    property each:

    words=mixed: the meaning of a sentence is not the sum of its words
    runs=scattered: only some frames of a moment show what its caption says
    teacher_map=nonlinear: teacher features are not linear in the hidden meaning
    """
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
            subtitles=subtitles,
            settings=settings,
            data_set=data_set,
            progress=progress,
        )
    if as_json:
        print_json(asdict(written))
        return
    for split in SPLITS:
        result_console.print(f"{split:5} {written.videos[split]:,} videos, {written.captions[split]:,} captions")
    result_console.print(f"written to {written.folder}")
    widths = {"model.query_dim": settings.query_dim, "model.video_dim": settings.video_dim}
    typer.echo(f"next    {_training(name, data_set or name, out, widths)}")


def _training(name: str, data_set: str, root: Path, widths: dict[str, int]) -> str:
    """Return a training command for a data set.

    The command sets widths that differ from the preset. If there is no preset, training detects the widths.
    """
    overrides = {}
    preset = ["--preset", name] if has_preset(_FIRST_METHOD, name) and data_set != name else []
    if has_preset(_FIRST_METHOD, name):
        published = load_preset(_FIRST_METHOD, name).model
        overrides = {key: width for key, width in widths.items() if published[key.removeprefix("model.")] != width}
    command = ["untrimmed", "train", _FIRST_METHOD, "--data", data_set, "--root", str(root), *preset]
    return shlex.join([*command, *(f"{key}={width}" for key, width in overrides.items())])
