"""Options that several commands share, so that they have the same name and help everywhere."""

import secrets
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

# Names of the groups in `--help`. Options without a group (--library, --import, --help) are listed first.
DATA_PANEL = "Data"
OUTPUT_PANEL = "Output"
RUNTIME_PANEL = "Where it runs"
data_option = partial(typer.Option, rich_help_panel=DATA_PANEL)
output_option = partial(typer.Option, rich_help_panel=OUTPUT_PANEL)
runtime_option = partial(typer.Option, rich_help_panel=RUNTIME_PANEL)
service_option = partial(typer.Option, rich_help_panel="Who can connect")
settings_option = partial(typer.Option, rich_help_panel="Settings")
videos_option = partial(typer.Option, rich_help_panel="How videos are read")


def parse_path(text: str) -> Path:
    """Return the path that an argument names.

    An empty text, for example from an unset shell variable, is an error, because `Path("")` is the current folder.

    Raises:
        typer.BadParameter: The text is empty.
    """
    if not text:
        raise typer.BadParameter("is empty; name a file or a folder ('.' is the current one)")
    return Path(text)


def _parse_library(text: str) -> Path:
    path = parse_path(text)
    if path.is_file():
        raise typer.BadParameter(f"{text} is a file; name the folder of a library")
    return path


def _import_all(modules: list[str] | None) -> list[str] | None:
    """Import the modules of `--import` during option parsing, before the command looks up a name in a registry."""
    for module in modules or ():
        from untrimmed.plugins import import_module

        import_module(module)
    return modules


def _make_token(text: str | None) -> str | None:
    """Return the given token, or a new random token for "auto"."""
    return secrets.token_urlsafe(24) if text == "auto" else text


ImportOption = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        callback=_import_all,
        help="Python module or FILE.py that adds methods or data layouts.",
    ),
]
LibraryOption = Annotated[
    Path | None,
    typer.Option(
        "--library",
        parser=_parse_library,
        metavar="DIR",
        envvar="UNTRIMMED_LIBRARY",
        help="The library: a folder or s3://BUCKET/NAME.  \\[default: your library]",
    ),
]
EncoderOption = Annotated[
    str | None,
    videos_option(
        metavar="NAME", help="Encoder: a name (see: untrimmed encoders), hub id or folder.  \\[default: the library's]"
    ),
]
FpsOption = Annotated[
    float | None,
    videos_option(metavar="N", help="Frames per second to encode.  \\[default: the library's; 2 in a new one]"),
]
PicturesFpsOption = Annotated[
    float | None,
    videos_option(
        "--pictures-fps",
        metavar="N",
        help="Read folders of numbered pictures as videos with N pictures per second (TVR: 3).  "
        "\\[default: ignore them]",
    ),
]
DeviceOption = Annotated[str, runtime_option("--device", metavar="NAME", help="Device: auto, cpu or cuda.")]
PrecisionOption = Annotated[
    str, runtime_option("--precision", metavar="FORMAT", help="Number format: auto, float32 or bfloat16.")
]
RayOption = Annotated[
    str | None,
    runtime_option("--ray", metavar="ADDRESS", help="Use a Ray cluster: auto, HOST:PORT, or local to start one."),
]
ShardsOption = Annotated[
    int,
    runtime_option(
        "--shards", min=1, metavar="N", help="With --ray: number of processes, each with a part of the videos."
    ),
]
HostOption = Annotated[
    str,
    service_option(
        "--host", metavar="ADDRESS", help="Address to listen on. If other machines can reach it, add --token."
    ),
]
TokenOption = Annotated[
    str | None,
    service_option(
        "--token",
        metavar="TEXT",
        envvar="UNTRIMMED_TOKEN",
        callback=_make_token,
        help="Require this token, 16 characters or more; auto creates one.",
    ),
]
AllowHostOption = Annotated[
    list[str] | None,
    service_option(
        "--allow-host", metavar="NAME", help="Also answer requests for this host name, for example the name of a proxy."
    ),
]
CompileOption = Annotated[
    bool, runtime_option("--compile", help="Use torch.compile. It needs a C++ compiler, and Triton on GPUs.")
]
JsonOption = Annotated[bool, output_option("--json", help="Print JSON (see docs/json.md).")]
SplitOption = Annotated[str, data_option(metavar="NAME", help="Split: val or test.")]
RootOption = Annotated[Path, data_option("--root", metavar="DIR", help="Folder that contains the data sets.")]
MovedRootOption = Annotated[
    Path | None, data_option("--root", metavar="DIR", help="Folder that contains the data set, if it has moved.")
]
FeaturesOption = Annotated[
    str | None,
    data_option("--video-features", metavar="NAME", help="Frame features to use, if there are several."),
]
SeedOption = Annotated[
    int | None, settings_option("--seed", metavar="N", min=0, help="Random seed.  \\[default: the preset's]")
]
OverridesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Settings, e.g. train.epochs=30 losses.optimal_matching=null."),
]
