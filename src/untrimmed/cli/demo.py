"""`untrimmed demo`: build a small corpus, index it, search it, and say how well it went."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from untrimmed.cli.console import result_console


def demo(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the demo's files go.")] = Path("demo"),
) -> None:
    """Make 12+ untrimmed reels from bundled photographs and clips, index them, run 20 queries, measure the answers."""
    from untrimmed.demo.run import run_demo

    run_demo(folder, result_console)
