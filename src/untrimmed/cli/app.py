"""The command line. Each command has its own file. An error that the user can fix is printed in one line.

Exit codes: 0 success, 1 nothing found, 2 usage error, 3 some files failed.
"""

import contextlib
import errno
import gc
import importlib
import importlib.util
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from untrimmed import __version__
from untrimmed.cli.console import USAGE, with_options
from untrimmed.cli.desktop import has_desktop
from untrimmed.errors import UntrimmedError, missing_package

INTERRUPTED = 130  # exit code after Ctrl-C
PIPE_CLOSED = 141  # exit code if the reader of a pipe has closed it

_OS_ADVICE = {
    errno.EACCES: "check its permissions",
    errno.EPERM: "check its permissions",
    errno.ENOSPC: "free some disk space",
    errno.EROFS: "choose a folder that is not read-only",
}
_QUICK = {"ls", "search", "status"}  # commands that only read, so the process can end without cleanup
EVERYDAY, RESEARCH = "Search your videos", "Train and compare methods"
_COMMANDS = {  # command -> (panel in `--help`, module in `cli/`)
    "index": (EVERYDAY, "index"),
    "search": (EVERYDAY, "search"),
    "serve": (EVERYDAY, "serve"),
    "cut": (EVERYDAY, "cut"),
    "similar": (EVERYDAY, "search"),
    "transcript": (EVERYDAY, "transcript"),
    "ls": (EVERYDAY, "inspect"),
    "status": (EVERYDAY, "inspect"),
    "rm": (EVERYDAY, "inspect"),
    "doctor": (EVERYDAY, "doctor"),
    "demo": (EVERYDAY, "demo"),
    "encoders": (EVERYDAY, "encoders"),
    "merge": (EVERYDAY, "merge"),
    "mcp": (EVERYDAY, "mcp"),
    "train": (RESEARCH, "train"),
    "evaluate": (RESEARCH, "evaluate"),
    "compare": (RESEARCH, "compare"),
    "study": (RESEARCH, "study"),
    "reproduce": (RESEARCH, "reproduce"),
    "data": (RESEARCH, "data"),
    "features": (RESEARCH, "features"),
    "plot": (RESEARCH, "plot"),
    "models": (RESEARCH, "models"),
    "import-checkpoint": (RESEARCH, "models"),
}

EXAMPLES = {  # command with required arguments -> arguments of an example, which errors print
    "cut": "1 -o clip.mp4",
    "similar": "clip.mp4@1:02",
    "transcript": "clip.mp4",
    "merge": "all part1 part2",
    "train": "gmmformer_v2 --data tvr --root data",
    "evaluate": "runs/gmmformer_v2-tvr",
    "compare": "runs/*",
    "study": "ms_sl gmmformer_v2 --data tvr --root data --out study",
    "features": "videos --out data",
    "import-checkpoint": "holmes best.ckpt --out runs/holmes",
    "data prepare": "tvr --annotations downloads --out data",
    "data check": "tvr --root data",
    "data describe": "tvr --root data",
    "data untrained": "tvr --root data",
    "data simulate": "toy --out data",
}
# typer may use click or its own copy of click; this is the one that it uses
_usage: Any = sys.modules[typer.BadParameter.__module__]


class _Command(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. The errors contain an example of the command, or the name of a similar option."""
        try:
            return super().parse_args(ctx, args)
        except _usage.MissingParameter as error:
            name = " ".join(ctx.command_path.split()[1:])
            if name in EXAMPLES:
                error.message = f"Example: untrimmed {name} {EXAMPLES[name]}"
            raise
        except _usage.NoSuchOption as error:
            if error.possibilities:
                error.message = f"{error.message.rstrip('.')}. Did you mean {error.possibilities[0]}?"
                error.possibilities = None
            elif any(param.name == "overrides" for param in self.params):
                error.message = f"{error.message.rstrip('.')}. Settings have the form KEY=VALUE, e.g. train.epochs=30."
            raise

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_needless_types(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_needless_types(super().get_params(ctx))


def _without_needless_types(params: list[Any]) -> list[Any]:
    """Remove the types of flags and arguments from the help.

    `--json <bool>` would look as if the flag required a value, and `<list[Path]>` is a Python type.
    """
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
        elif param.param_type_name == "argument":
            param.display_type_rich = lambda ctx: None
    return params


def build_app(command: str | None = None) -> typer.Typer:
    """Return the app with all commands, or with only the given command.

    Importing the modules of all commands takes longer than running most commands.
    """
    app = typer.Typer(
        name="untrimmed",
        cls=_Group,
        help="Find moments in long videos by describing them.",
        epilog="To begin: `untrimmed index FOLDER`, then `untrimmed search a dog in a lake`\n\n"
        "On a desktop, `untrimmed` without a command opens the web page.\n\n"
        "Exit codes: 0 success, 1 nothing found, 2 usage error, 3 some files failed, 130 interrupted",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in [command] if command in _COMMANDS else _COMMANDS:
        panel, module_name = _COMMANDS[name]
        module = importlib.import_module(f"untrimmed.cli.{module_name}")
        if name == "data":
            for registered in module.data_app.registered_commands:
                registered.cls = _Command
            app.add_typer(module.data_app, name=name, cls=_Group, rich_help_panel=panel)
        else:
            app.command(name, cls=_Command, rich_help_panel=panel)(getattr(module, name.replace("-", "_")))
    return app


def _show_version(is_requested: bool | None) -> None:
    if is_requested:
        typer.echo(f"untrimmed {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool | None, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = None,
) -> None:
    """Options that precede the command."""


def main() -> None:
    """Run the command line. An error that the user can fix is printed in one line, a bug with its traceback.

    Without arguments, the program opens the page on a desktop. Elsewhere it prints how to open the page, and its help.
    If the service is not installed, it prints only its help.
    """
    is_completion = "_UNTRIMMED_COMPLETE" in os.environ
    if len(sys.argv) == 1 and not is_completion and importlib.util.find_spec("uvicorn"):
        if has_desktop():
            sys.argv.append("serve")
        else:
            typer.echo(_how_to_open_page(), err=True)
    try:
        build_app(_requested_command())(prog_name="untrimmed")
    except UntrimmedError as error:
        _end(str(error))
    except ModuleNotFoundError as error:
        reason = missing_package(error)
        if reason is None:
            raise
        _end(reason)
    except OSError as error:
        if error.filename is None or hasattr(error, "__notes__"):  # the note names the user's own function that failed
            raise
        _end(f"{error.filename}: {error.strerror}; {_OS_ADVICE.get(error.errno or 0, 'check the path')}")
    except SystemExit as stop:  # typer raises it after Ctrl-C, and with code 1 after a closed pipe
        if isinstance(stop.__context__, BrokenPipeError):
            sys.exit(PIPE_CLOSED)
        # `serve` and `mcp` normally end with Ctrl-C
        if stop.code == INTERRUPTED and sys.argv[1:2] not in (["serve"], ["mcp"]):
            progress = "finished work is saved; run the same command again to continue"
            typer.echo(f"untrimmed: interrupted; {progress}", err=True)
        raise


def _how_to_open_page() -> str:
    """Return a line for machines without a desktop."""
    from untrimmed.search.store.records import library_folder
    from untrimmed.server.notice import find_notice

    if (notice := find_notice(library_folder())) is not None:
        return f"no desktop was found; the service runs, open its page: {notice.address}"
    return "no desktop was found; open the page with: untrimmed serve"


def _requested_command() -> str | None:
    """Return the first word after the program's name, or None if there is none.

    During shell completion, the words are in an environment variable, not in `sys.argv`.
    """
    words = sys.argv
    if "_UNTRIMMED_COMPLETE" in os.environ:  # bash sets COMP_WORDS; zsh and fish set the other variable
        words = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or "").split()
    return next(iter(words[1:]), None)


def _end(reason: str) -> None:
    typer.echo(f"untrimmed: {with_options(reason)}", err=True)
    sys.exit(USAGE)


def start() -> None:
    """Run the command line. This is the entry point of the process.

    After a command that only reads, the process ends without Python's slow shutdown.
    """
    gc.set_threshold(100_000, 20)  # collect garbage less often, because imports create many objects and no garbage
    try:
        main()
    except SystemExit as stop:
        if sys.argv[1:2] and sys.argv[1] in _QUICK and isinstance(stop.code, int):
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
                # the normal shutdown unloads hundreds of modules, which takes a tenth of the command's time
                os._exit(stop.code)
        raise
