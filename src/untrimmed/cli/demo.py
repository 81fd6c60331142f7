"""`untrimmed demo`: make a few videos, index them, search them, and compare the hits with the correct moments."""

from pathlib import Path
from typing import Annotated

import typer

from untrimmed.cli.console import result_console


def demo(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder for the demo's files.")] = Path("demo"),
) -> None:
    """Make a small demo library, search it and measure the results.

    The demo makes 12 videos, indexes them and runs 20 queries. The videos are
    made from photographs and clips that installed Python packages contain.
    """
    from untrimmed.demo.run import run_demo

    run_demo(folder, result_console)
