"""Options that several commands share, each with one name, form and help."""

import secrets
from pathlib import Path
from typing import Annotated

import typer

# Group titles of `--help`. Options without a group (--library, --import, --help) come first.
DATA_PANEL = "Data"
OUTPUT_PANEL = "Output"
RUNTIME_PANEL = "Where it runs"
SERVICE_PANEL = "Who can connect"
SETTINGS_PANEL = "Settings"
VIDEOS_PANEL = "How videos are read"


def parse_path(text: str) -> Path:
    """The path of an argument. An empty one, e.g. of an unset variable, would be the current folder, so it is an error.

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
    """Import the modules of `--import` while options are parsed, before any name is looked up in a registry."""
    for module in modules or ():
        from untrimmed.plugins import import_module

        import_module(module)
    return modules


def _make_token(text: str | None) -> str | None:
    """The token itself, or a new random one for "auto"."""
    return secrets.token_urlsafe(24) if text == "auto" else text


ImportOption = Annotated[
    list[str] | None,
    typer.Option(
        "--import", metavar="MODULE", callback=_import_all, help="Module or FILE.py with your methods or data."
    ),
]
LibraryOption = Annotated[
    Path | None,
    typer.Option(
        "--library",
        parser=_parse_library,
        metavar="DIR",
        envvar="UNTRIMMED_LIBRARY",
        help="Folder or s3://BUCKET/NAME.  \\[default: user data]",
    ),
]
EncoderOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Name (see: untrimmed encoders), hub id or folder.  \\[default: the library's]",
        rich_help_panel=VIDEOS_PANEL,
    ),
]
FpsOption = Annotated[
    float | None,
    typer.Option(
        metavar="N",
        help="Frames per second to encode.  \\[default: the library's; 2 in a new one]",
        rich_help_panel=VIDEOS_PANEL,
    ),
]
DeviceOption = Annotated[
    str, typer.Option("--device", metavar="NAME", help="Device: auto, cpu or cuda.", rich_help_panel=RUNTIME_PANEL)
]
PrecisionOption = Annotated[
    str,
    typer.Option("--precision", metavar="FORMAT", help="auto, float32 or bfloat16.", rich_help_panel=RUNTIME_PANEL),
]
RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Use a Ray cluster: auto, HOST:PORT, or local to start one.",
        rich_help_panel=RUNTIME_PANEL,
    ),
]
ShardsOption = Annotated[
    int,
    typer.Option(
        "--shards",
        min=1,
        metavar="N",
        help="With --ray: processes that share the videos.",
        rich_help_panel=RUNTIME_PANEL,
    ),
]
HostOption = Annotated[
    str,
    typer.Option(
        "--host",
        metavar="ADDRESS",
        help="Address to listen on. A public one needs --token.",
        rich_help_panel=SERVICE_PANEL,
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TEXT",
        envvar="UNTRIMMED_TOKEN",
        callback=_make_token,
        help="Require this token, 16 characters or more; auto creates one.",
        rich_help_panel=SERVICE_PANEL,
    ),
]
AllowHostOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        metavar="NAME",
        help="Also answer requests for this host name, e.g. of a proxy.",
        rich_help_panel=SERVICE_PANEL,
    ),
]
CompileOption = Annotated[
    bool,
    typer.Option("--compile", help="Use torch.compile; needs a C++ compiler or Triton.", rich_help_panel=RUNTIME_PANEL),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON (see docs/json.md).", rich_help_panel=OUTPUT_PANEL)
]
SplitOption = Annotated[str, typer.Option(metavar="NAME", help="Split: val or test.", rich_help_panel=DATA_PANEL)]
RootOption = Annotated[
    Path, typer.Option("--root", metavar="DIR", help="Folder that contains the data sets.", rich_help_panel=DATA_PANEL)
]
MovedRootOption = Annotated[
    Path | None,
    typer.Option(
        "--root", metavar="DIR", help="Folder that contains the data set, if it has moved.", rich_help_panel=DATA_PANEL
    ),
]
FeaturesOption = Annotated[
    str | None,
    typer.Option(
        "--video-features",
        metavar="NAME",
        help="Frame features to use if there are several.",
        rich_help_panel=DATA_PANEL,
    ),
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        help="Random seed.  \\[default: the preset's]",
        rich_help_panel=SETTINGS_PANEL,
    ),
]
OverridesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Settings, e.g. train.epochs=30 losses.optimal_matching=null."),
]
