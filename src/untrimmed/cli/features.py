"""`untrimmed features`: make a data set for training from your own videos and captions."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from untrimmed.cli.bars import counting
from untrimmed.cli.console import SOME_FAILED, print_json, progress_console, result_console
from untrimmed.cli.index import index_files, print_report
from untrimmed.cli.options import (
    DeviceOption,
    EncoderOption,
    FpsOption,
    JsonOption,
    PicturesFpsOption,
    PrecisionOption,
    parse_path,
)
from untrimmed.errors import ConfigError
from untrimmed.precision import read_precision

if TYPE_CHECKING:
    from untrimmed.search.indexing.export import ExportedFeatures, ExportLayout
    from untrimmed.search.library import Library


class ExportLayoutChoice(StrEnum):
    """The layouts that `features` writes."""

    plain = "plain"
    field = "field"


CaptionsOption = Annotated[
    Path | None,
    typer.Option(
        "--captions",
        metavar="FILE",
        help='JSON lines like {"video": ..., "caption": ..., "start_s": 1.5, "end_s": 4, "split": "train"}; times and '
        "split are optional.  \\[default: frames only]",
        show_default=False,
    ),
]
LayoutOption = Annotated[
    ExportLayoutChoice | None,
    typer.Option(
        "--layout",
        help="plain: one file per video. field: BigFile and HDF5.  \\[default: plain; field for prepared captions]",
        show_default=False,
    ),
]
LibraryFolderOption = Annotated[
    Path | None,
    typer.Option(
        "--library",
        metavar="LIB",
        help="Library that stores the encoded frames. Indexed videos are not decoded again.  "
        "\\[default: DIR/NAME-library]",
        show_default=False,
    ),
]
KindOption = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="Kind of features that benchmarks use: resnet152, i3d, slowfast, clip, or roberta (for words). "
        "It replaces --encoder. Repeat the option to join several kinds. KIND=WEIGHTS sets the weights: a file, "
        "folder or hub id, with #sha256=HASH to pin them. See: untrimmed encoders",
        show_default=False,
    ),
]


def features(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Write to DIR/NAME.")],
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH", help="Videos or folders.  \\[default: all of --library]", parser=parse_path),
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the data set.")] = "mine",
    layout: LayoutOption = None,
    captions: CaptionsOption = None,
    kind: KindOption = None,
    encoder: EncoderOption = None,
    fps: FpsOption = None,
    pictures_fps: PicturesFpsOption = None,
    library: LibraryFolderOption = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    json_output: JsonOption = False,
) -> None:
    """Export features of your own videos and captions for training.

    Videos are first indexed into a library, which a trained model can search.
    If `untrimmed data prepare` wrote captions to DIR/NAME, they are used.
    Videos and captions are matched by file name.
    Exit code 3: some files failed, or captions are about missing videos (each
    is listed).
    """
    import untrimmed
    from untrimmed.data.labelled import read_labels
    from untrimmed.search.indexing.export import prepared_data_set

    if not paths and library is None:
        raise ConfigError("nothing to export; add video files or folders, or a --library with videos")
    for_indexing = {"--kind": kind, "--encoder": encoder, "--fps": fps, "--pictures-fps": pictures_fps}
    if not paths and (unused := [name for name, value in for_indexing.items() if value]):
        raise ConfigError(
            f"{' and '.join(unused)} can only be used with videos to index; add their paths, or export the videos of "
            f"{library} as they are, without {'it' if len(unused) == 1 else 'them'}"
        )
    layout_name: ExportLayout | None = None if layout is None else layout.value
    prepared_data_set(out, name, layout_name, captions=captions is not None)  # checked now, before hours of decoding
    if captions is not None:
        read_labels(captions)
    folder = library if library is not None else out / f"{name}-library"
    opened = untrimmed.open(folder, precision=read_precision(precision))
    if kind:
        encoder, fps = _feature_encoder(kind, encoder, fps, opened)
    some_failed = False
    if paths:
        report = index_files(opened, paths, encoder=encoder, fps=fps, pictures_fps=pictures_fps, device=device)
        some_failed = bool(report.failed)
        if not json_output:
            print_report(report)
    with counting("writing features") as progress:
        written = opened.export_features(
            out,
            name=name,
            layout=layout_name,
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


def _feature_encoder(
    kinds: list[str], encoder: str | None, fps: float | None, library: Library
) -> tuple[str, float | None]:
    """Return the name of the encoder that joins these kinds of features, and its number of frames per second.

    For CLIP alone in a new library, the default number is that of the papers.
    """
    from untrimmed.encoders.features.kinds import join_parts
    from untrimmed.search.store.records import read_settings

    if encoder is not None:
        raise ConfigError(f"--kind {kinds[0]} and --encoder {encoder} both name an encoder; leave out one of them")
    spec = join_parts(kinds)
    if spec.is_clip and fps is None and read_settings(library.folder) is None:
        fps = spec.fps
    return str(spec), fps


def _print_written(written: ExportedFeatures, library: Library, name: str) -> None:
    from untrimmed.data.benchmarks.registry import find_benchmark

    captions = ", ".join(f"{count:,} {split}" for split, count in written.captions.items() if count)
    print_line = result_console.print
    print_line(f"frames  {written.num_videos:,} videos, width {written.frame_dim}")
    print_line(f"words   captions: {captions or 'none'}, width {written.word_dim}")
    print_line(f"written to {written.folder}")
    if captions:
        widths = f" model.query_dim={written.word_dim} model.video_dim={written.frame_dim}"
        print_line(
            f"next    untrimmed train gmmformer_v2 --data {name} --root {written.folder.parent}"
            # the preset of a benchmark is for the released features, so the command must set the widths
            f"{widths if find_benchmark(name) else ''}"
        )
        print_line(f"then    untrimmed index --model RUN --library {library.folder}")
