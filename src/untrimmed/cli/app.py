"""The command line: one file per command, errors in one line, exit codes 0 found, 1 nothing, 2 usage, 3 some failed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from untrimmed import __version__
from untrimmed.cli.cut import cut
from untrimmed.cli.data import data_app
from untrimmed.cli.demo import demo
from untrimmed.cli.doctor import doctor
from untrimmed.cli.encoders import encoders
from untrimmed.cli.evaluate import evaluate
from untrimmed.cli.features import features
from untrimmed.cli.index import index
from untrimmed.cli.inspect import ls, rm, status
from untrimmed.cli.models import import_checkpoint, models
from untrimmed.cli.plot import plot
from untrimmed.cli.reproduce import reproduce
from untrimmed.cli.search import search, similar
from untrimmed.cli.train import train
from untrimmed.errors import UntrimmedError

USAGE = 2
INTERRUPTED = 130

app = typer.Typer(
    name="untrimmed",
    help="Find, by a sentence, the moment inside long untrimmed videos.",
    epilog="Start with: untrimmed index FOLDER, then: untrimmed search 'a dog jumps into a lake'.  "
    "Exit codes: 0 found, 1 nothing found, 2 wrong use, 3 some files failed.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
VIDEOS, RESEARCH, MORE = "Search your videos", "Train and compare", "More"
_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    VIDEOS: (index, search, similar, cut, ls, status, rm),
    RESEARCH: (models, features, train, evaluate, plot, reproduce, import_checkpoint),
    MORE: (demo, encoders, doctor),
}
for panel, commands in _PANELS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(data_app, name="data", rich_help_panel=RESEARCH)


def _show_version(wanted: bool | None) -> None:
    if wanted:
        typer.echo(f"untrimmed {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool | None, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = None,
) -> None:
    """Options before any command."""


def main() -> None:
    """Run the command line; what a user can put right is one line, anything else keeps its traceback."""
    try:
        app(prog_name="untrimmed")
    except UntrimmedError as error:
        typer.echo(f"untrimmed: {error}", err=True)
        sys.exit(USAGE)
    except OSError as error:
        if error.filename is None:
            raise
        reason = f"{error.strerror}; check the path, its permissions and the space left"
        typer.echo(f"untrimmed: {error.filename}: {reason}", err=True)
        sys.exit(USAGE)
    except SystemExit as stop:  # the framework has caught Ctrl-C by itself
        if stop.code == INTERRUPTED:
            typer.echo("untrimmed: interrupted; what was reported done is kept", err=True)
        raise
