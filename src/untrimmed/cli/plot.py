"""`untrimmed plot`: the figures of the papers, drawn from runs."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from untrimmed.cli.console import print_json, progress_console, result_console
from untrimmed.cli.options import DeviceOption, ImportOption, JsonOption, MovedRootOption, SplitOption
from untrimmed.errors import ConfigError


def plot(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the figure.  \\[default: list all]")
    ] = None,
    runs: Annotated[list[Path] | None, typer.Argument(metavar="RUN", help="Folders of runs.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Output file: .png or .svg.")] = None,
    query: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="Id of the caption that the figure shows. The figure `top` can show several (repeat the option).  "
            "\\[default: a caption of the video that has the most moments]",
            show_default=False,
        ),
    ] = None,
    videos: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Figure `top`: folder of the video files, whose frames are shown.", show_default=False
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="Figure `texts`: random seed that selects the videos.", show_default=False
        ),
    ] = None,
    moment_ratio: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="LOW HIGH",
            help="Figure `uncertainty`: show only captions whose moment takes this share of the video, e.g. 0.2 0.4.",
            show_default=False,
        ),
    ] = None,
    split: SplitOption = "test",
    root: MovedRootOption = None,
    device: DeviceOption = "auto",
    json_output: JsonOption = False,
    imports: ImportOption = None,
) -> None:
    """Draw one of the papers' figures from your own runs, or list the figures."""
    from untrimmed.plots import catalogue

    if name is None:
        _list_pictures(json_output)
        return
    if json_output:
        raise ConfigError(f"plot {name}: --json is only for the list of figures; remove it")
    catalogue.get_picture(name)
    if out is None:
        raise ConfigError(f"plot {name}: no output file; add -o {name}.png or -o {name}.svg")
    options = catalogue.PlotOptions(query=tuple(query or ()), videos=videos, seed=seed, moment_ratio=moment_ratio)
    with progress_console.status("drawing"):
        catalogue.plot(name, runs or [], out, options, split=split, root=root, device=device)
    result_console.print(f"written to {out}")


def _list_pictures(json_output: bool) -> None:
    from untrimmed.plots.catalogue import MOST_WITH_SEEDS, PICTURES

    if json_output:
        fields = ("description", "figures", "methods", "fewest_runs", "most_runs")
        print_json({name: {field: getattr(picture, field) for field in fields} for name, picture in PICTURES.items()})
        return
    table = Table(title="pictures", title_justify="left", box=None, show_header=False, padding=(0, 1))
    table.add_column("name", no_wrap=True)
    table.add_column("about")
    for name, picture in PICTURES.items():
        fewest, most = picture.fewest_runs, picture.most_runs
        runs = f"{fewest} to {most} runs" if fewest != most else "1 run"
        runs = f"{fewest} {'run' if fewest == 1 else 'runs'} or more" if most == MOST_WITH_SEEDS else runs
        about = (f"\n{picture.figures}; {picture.methods}; {runs}", "dim")
        table.add_row(name, Text.assemble(picture.description, about))
    result_console.print(table)
    result_console.print("next    untrimmed plot NAME RUN [RUN...] -o FILE.png")
