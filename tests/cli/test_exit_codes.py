"""Exit codes of commands whose output is closed."""

import os
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from tests.search.store.test_table import SETTINGS, stored
from untrimmed.cli.app import EXAMPLES, build_app
from untrimmed.search.store.table import VideoIndex


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["table", "json"])
def test_a_closed_pipe_has_its_own_exit_code(tmp_path, options):
    with VideoIndex(tmp_path / "library", create=True) as index:
        index.write_settings(SETTINGS)
        index.put(stored("/v/a.mp4"))
    reader, writer = os.pipe()
    os.close(reader)  # as `| head -1` does
    command = [sys.executable, "-m", "untrimmed", "ls", "--library", tmp_path / "library", *options]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_missing_arguments_are_refused_with_an_example_that_has_all_of_them():
    for name, example in EXAMPLES.items():
        command = typer.main.get_command(build_app())
        for word in name.split():
            command = command.commands[word]
        command.make_context(name, example.split())  # raises if a required argument is missing
    result = CliRunner().invoke(build_app("cut"), ["cut", "1"], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "Example: untrimmed cut 1 -o clip.mp4" in result.output


def test_a_misspelled_option_is_refused_with_a_similar_one():
    result = CliRunner().invoke(build_app("ls"), ["ls", "--jsn"], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "Did you mean --json?" in result.output
