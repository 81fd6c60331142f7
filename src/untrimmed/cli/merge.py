"""`untrimmed merge`: merge several libraries into one."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from untrimmed.cli.bars import counting
from untrimmed.cli.console import print_json, result_console
from untrimmed.cli.options import JsonOption, parse_path
from untrimmed.errors import counted


def merge(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Library to create or extend.", parser=parse_path)],
    libraries: Annotated[
        list[Path], typer.Argument(metavar="PART", help="Libraries to copy videos from.", parser=parse_path)
    ],
    json_output: JsonOption = False,
) -> None:
    """Merge several libraries into one.

    The libraries can be parts made with untrimmed index --part. Nothing is
    encoded again.
    A new library appears only when it is complete. You can stop at any time
    and run the same command again to continue.
    """
    import untrimmed
    from untrimmed.search.store.bucket import name_of

    opened = untrimmed.open(out)
    with counting("copying videos", muted=json_output) as progress:
        report = opened.merge(libraries, progress=progress)
    name = name_of(opened.folder)
    if json_output:
        print_json({"library": name, **asdict(report)})
        return
    duplicates = f", {counted(report.duplicates, 'duplicate')} skipped" if report.duplicates else ""
    result_console.print(f"{report.videos} videos in {name}: {report.copied} copied{duplicates}")
