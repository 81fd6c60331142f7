"""`untrimmed features`: people's own videos and captions as a data set that methods train on."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from untrimmed.cli.bars import counting
from untrimmed.cli.console import SOME_FAILED, print_json, progress_console, result_console
from untrimmed.cli.index import index_files, print_report
from untrimmed.cli.options import DeviceOption, EncoderOption, FpsOption, JsonOption, PrecisionOption, parse_path
from untrimmed.errors import ConfigError
from untrimmed.precision import read_precision

if TYPE_CHECKING:
    from untrimmed.search.indexing.export import ExportedFeatures, ExportLayout
    from untrimmed.search.library import Library


class ExportLayoutChoice(str, Enum):
    """The layouts that `features` writes."""

    plain = "plain"
    field = "field"


CaptionsOption = Annotated[
    Path | None,
    typer.Option(
        "--captions",
        metavar="FILE",
        help='JSON lines: {"video": ..., "caption": ..., "start_s": 1.5, "end_s": 4, "split": "train"}; the last '
        "three may be left out.  \\[default: frames only]",
        show_default=False,
    ),
]
LayoutOption = Annotated[
    ExportLayoutChoice | None,
    typer.Option(
        "--layout",
        help="A file per video, or BigFile and HDF5.  \\[default: plain; beside prepared captions field]",
        show_default=False,
    ),
]
KeptOption = Annotated[
    Path | None,
    typer.Option(
        "--library",
        metavar="LIB",
        help="Where the frames are kept, so that none is decoded twice.  \\[default: DIR/NAME-library]",
        show_default=False,
    ),
]


def features(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Write to DIR/NAME.")],
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH...", help="Videos, or folders.  \\[default: all of --library]", parser=parse_path),
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What the data set is called.")] = "mine",
    layout: LayoutOption = None,
    captions: CaptionsOption = None,
    encoder: EncoderOption = None,
    fps: FpsOption = None,
    library: KeptOption = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    json_output: JsonOption = False,
) -> None:
    """Export features of your own videos and captions for training.

    Videos are indexed into a library and exported from there: a model trained on them serves that library. Where
    DIR/NAME has captions that untrimmed data prepare wrote, these get features: name the files as they name videos.
    Exit code 3: some files could not be used, or captions name videos that are not there (all are named).
    """
    import untrimmed
    from untrimmed.data.labelled import read_labels
    from untrimmed.search.indexing.export import prepared_at

    if not paths and library is None:
        raise ConfigError("nothing to export: name video files or folders, or a --library that holds some")
    kind: ExportLayout | None = None if layout is None else layout.value
    prepared_at(
        out, name, kind, captions=captions is not None
    )  # this and the captions' file are looked at before hours of decoding, not after
    if captions is not None:
        read_labels(captions)
    place = library if library is not None else out / f"{name}-library"
    opened = untrimmed.open(place, precision=read_precision(precision))
    some_failed = False
    if paths:
        report = index_files(opened, paths, encoder=encoder, fps=fps, device=device)
        some_failed = bool(report.failed)
        if not json_output:
            print_report(report)
    with counting("writing features") as progress:
        written = opened.export_features(
            out,
            name=name,
            layout=kind,
            captions=captions,
            within=paths or None,
            progress=progress,
        )
    for label in written.left_out:
        progress_console.print(f"left out  {label.place}: no video {label.video!r}")
    if json_output:
        print_json(asdict(written))
    else:
        _print_written(written, opened, name)
    if some_failed or written.left_out:
        raise typer.Exit(SOME_FAILED)


def _print_written(written: ExportedFeatures, library: Library, name: str) -> None:
    from untrimmed.data.benchmarks.registry import find_benchmark

    captions = ", ".join(f"{count:,} {split}" for split, count in written.captions.items() if count)
    say = result_console.print
    say(f"frames  {written.num_videos:,} videos, width {written.frame_dim}")
    say(f"words   captions: {captions or 'none'}, width {written.word_dim}")
    say(f"written to {written.folder}")
    if captions:
        widths = (
            f" model.query_dim={written.word_dim} model.video_dim={written.frame_dim}"  # a preset has the release's
        )
        say(
            f"next    untrimmed train gmmformer_v2 --data {name} --root {written.folder.parent}"
            f"{widths if find_benchmark(name) else ''}"
        )
        say(f"then    untrimmed index --model RUN --library {library.folder}")
