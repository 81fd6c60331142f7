"""The command line: one file per command, errors in one line, exit codes 0 found, 1 nothing, 2 usage, 3 some failed."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from typing import Annotated

import typer

from untrimmed import __version__
from untrimmed.cli.console import USAGE
from untrimmed.errors import UntrimmedError, missing_package

INTERRUPTED, UNREAD = 130, 141  # as of a program that the signal of Ctrl-C, or of a closed pipe, has ended

_QUICK = {"ls", "search", "status"}  # they only read, and leave nothing that is cleared away at the end
VIDEOS, RESEARCH, MORE = "Search your videos", "Train and compare", "More"
_COMMANDS = {  # name -> panel of the help, module
    "index": (VIDEOS, "index"),
    "search": (VIDEOS, "search"),
    "similar": (VIDEOS, "search"),
    "cut": (VIDEOS, "cut"),
    "serve": (VIDEOS, "serve"),
    "mcp": (VIDEOS, "mcp"),
    "ls": (VIDEOS, "inspect"),
    "status": (VIDEOS, "inspect"),
    "rm": (VIDEOS, "inspect"),
    "merge": (VIDEOS, "merge"),
    "models": (RESEARCH, "models"),
    "features": (RESEARCH, "features"),
    "train": (RESEARCH, "train"),
    "evaluate": (RESEARCH, "evaluate"),
    "plot": (RESEARCH, "plot"),
    "reproduce": (RESEARCH, "reproduce"),
    "study": (RESEARCH, "study"),
    "import-checkpoint": (RESEARCH, "models"),
    "data": (RESEARCH, "data"),
    "demo": (MORE, "demo"),
    "encoders": (MORE, "encoders"),
    "doctor": (MORE, "doctor"),
}


def build_app(wanted: str | None = None) -> typer.Typer:
    """The whole command line, or one command alone: what others need takes longer to import than most take to run."""
    app = typer.Typer(
        name="untrimmed",
        help="Find, by a sentence, the moment inside long untrimmed videos.",
        epilog="Start with: untrimmed index FOLDER, then: untrimmed search 'a dog jumps into a lake'.  "
        "Exit codes: 0 found, 1 nothing found, 2 wrong use, 3 some files failed, 130 interrupted.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in [wanted] if wanted in _COMMANDS else _COMMANDS:
        panel, module_name = _COMMANDS[name]
        module = importlib.import_module(f"untrimmed.cli.{module_name}")
        if name == "data":
            app.add_typer(module.data_app, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(getattr(module, name.replace("-", "_")))
    return app


def _show_version(wanted: bool | None) -> None:
    if wanted:
        typer.echo(f"untrimmed {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool | None, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = None,
) -> None:
    """Options before any command."""


def main() -> None:
    """Run the command line; what a user can put right is one line, anything else keeps its traceback."""
    try:
        build_app(next(iter(sys.argv[1:]), None))(prog_name="untrimmed")
    except UntrimmedError as error:
        _end(str(error))
    except ModuleNotFoundError as error:
        reason = missing_package(error)
        if reason is None:
            raise
        _end(reason)
    except OSError as error:
        if error.filename is None:
            raise
        _end(f"{error.filename}: {error.strerror}; check the path, its permissions and the space left")
    except SystemExit as stop:  # the framework has caught Ctrl-C by itself, and a reader that went: with code 1
        if isinstance(stop.__context__, BrokenPipeError):
            sys.exit(UNREAD)
        if stop.code == INTERRUPTED and sys.argv[1:2] not in (["serve"], ["mcp"]):  # they say that Ctrl-C ends them
            kept = "what was reported done is kept; run the same command again to go on"
            typer.echo(f"untrimmed: interrupted; {kept}", err=True)
        raise


def _end(reason: str) -> None:
    typer.echo(f"untrimmed: {reason}", err=True)
    sys.exit(USAGE)


def start() -> None:
    """The process's whole life: `main`, without the time that Python takes for what a short command does not need."""
    gc.set_threshold(100_000, 20)  # imports make many objects, none of them garbage
    try:
        main()
    except SystemExit as stop:
        if sys.argv[1:2] and sys.argv[1] in _QUICK and isinstance(stop.code, int):
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(stop.code)  # taking hundreds of modules apart takes a tenth of the command's time
        raise
