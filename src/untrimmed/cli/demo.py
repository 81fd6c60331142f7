"""`untrimmed demo`: build a small corpus, index it, search it, and measure the answers."""

from pathlib import Path
from typing import Annotated

import typer

from untrimmed.cli.console import result_console


def demo(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder for the demo's files.")] = Path("demo"),
) -> None:
    """Build a small demo library, search it and measure the hits.

    The demo makes 12 or more videos from bundled photographs and clips,
    indexes them and runs 20 queries.
    """
    from untrimmed.demo.run import run_demo

    run_demo(folder, result_console)
