"""Shells complete commands and options, and completing an option loads one command only."""

import os
import subprocess
import sys

import pytest

REPORT = """
import sys
from untrimmed.cli.app import main
try:
    main()
finally:
    print(*(name for name in sys.modules if name.startswith("untrimmed.cli.")), file=sys.stderr)
"""


def complete(shell, line):
    """The shell's candidates for a command line, and the modules of commands that were loaded for them."""
    variables = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    environment = os.environ | variables | {"_UNTRIMMED_COMPLETE": f"complete_{shell}"}
    done = subprocess.run([sys.executable, "-c", REPORT], env=environment, capture_output=True, text=True)
    return done.stdout, done.stderr.split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_and_their_options_are_completed(shell):
    names, _ = complete(shell, "untrimmed se")
    assert "search" in names
    assert "serve" in names
    assert "index" not in names
    options, modules = complete(shell, "untrimmed search --th")
    assert "--then" in options
    assert "untrimmed.cli.search" in modules
    assert "untrimmed.cli.train" not in modules
