"""Options that several commands share, each with one name, form and help."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer


def parse_path(text: str) -> Path:
    """A path as it is typed; an empty one, as an unset variable leaves it, would be the current folder."""
    if not text:
        raise typer.BadParameter("is empty; name a file or a folder ('.' is the current one)")
    return Path(text)


def _import_all(modules: list[str] | None) -> list[str] | None:
    """Import what `--import` names while the options are read, before anything is looked up by its name."""
    for module in modules or ():
        from untrimmed.plugins import import_module

        import_module(module)
    return modules


def _make_token(text: str | None) -> str | None:
    """The token that was named, or a new one."""
    return secrets.token_urlsafe(24) if text == "auto" else text


ImportOption = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE|FILE.py",
        callback=_import_all,
        help="Your own methods, losses or data: a module to import. A run remembers it.",
        show_default=False,
    ),
]
LibraryOption = Annotated[
    Path | None,
    typer.Option(
        "--library",
        parser=parse_path,
        metavar="DIR",
        envvar="UNTRIMMED_LIBRARY",
        help="Where the library lies: a folder, or s3://BUCKET/NAME.  \\[default: a folder of your user data]",
        show_default=False,
    ),
]
EncoderOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Short name (see: untrimmed encoders), hub id, or local folder.  \\[default: the library's own]",
        show_default=False,
    ),
]
FpsOption = Annotated[
    float | None,
    typer.Option(
        metavar="N",
        help="Frames a second to look at.  \\[default: the library's; 2 for a new one]",
        show_default=False,
    ),
]
DeviceOption = Annotated[str, typer.Option("--device", help="Where models run: auto, cpu, cuda.")]
PrecisionOption = Annotated[
    str,
    typer.Option(
        "--precision",
        metavar="auto|float32|bfloat16",
        help="Number format of the products; auto: bfloat16 where it is faster.",
    ),
]
RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="On a Ray cluster: auto, HOST:PORT, or local to start one here (docs/scale.md).",
        show_default=False,
    ),
]
ShardsOption = Annotated[
    int, typer.Option("--shards", min=1, metavar="N", help="How many processes of --ray share the videos.")
]
HostOption = Annotated[
    str,
    typer.Option("--host", metavar="ADDRESS", help="Where to listen; others than this machine's own need --token."),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TEXT|auto",
        envvar="UNTRIMMED_TOKEN",
        callback=_make_token,
        help="Answer only who names it: at least 16 characters; auto makes one and prints it.",
        show_default=False,
    ),
]
AllowHostOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        metavar="NAME",
        help="Another name under which it may be asked, as behind a proxy.",
        show_default=False,
    ),
]
CompileOption = Annotated[
    bool, typer.Option("--compile", help="Steps through torch.compile (needs a C++ compiler; CUDA: Triton).")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON (docs/json.md).")]
SplitOption = Annotated[str, typer.Option(help="Of a run's data: val or test.")]
RootOption = Annotated[Path, typer.Option("--root", metavar="DIR", help="The folder with NAME in it.")]
MovedRootOption = Annotated[
    Path | None,
    typer.Option("--root", metavar="DIR", help="Where a run's data lies, if it has moved.", show_default=False),
]
FeaturesOption = Annotated[
    str | None,
    typer.Option(
        "--video-features", metavar="NAME", help="Which frame features, where there are several.", show_default=False
    ),
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        help="Of first weights and of chance in training.  \\[default: the preset's]",
        show_default=False,
    ),
]
OverridesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings, e.g. train.epochs=30 losses.optimal_matching=null."),
]
