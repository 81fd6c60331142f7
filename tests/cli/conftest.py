"""Fixtures that run commands with the toy encoder on a folder of two clips."""

import re
import sys

import pytest
from typer.testing import CliRunner

from tests.toy import ToyEncoder, write_clip
from untrimmed.cli import app as app_module
from untrimmed.encoders.registry import LoadedEncoder
from untrimmed.errors import UntrimmedError
from untrimmed.search import library as library_module

NOTICE = "using the encoder 'toy'; install more for better results"


def numbers(text, count=None):
    """The first integers in a text. Tests check the numbers and not the words between them."""
    return [int(number) for number in re.findall(r"\d+", text)][:count]


def invoke(app, words):
    """The result of a command. Errors that are not this package's own are raised."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit | UntrimmedError):
        raise result.exception
    return result


@pytest.fixture
def typed(monkeypatch, capsys):
    """A function that runs a command and returns exit code, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["untrimmed", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            app_module.main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def run(typed, tmp_path, monkeypatch):
    """A function that runs a command with a library of the toy encoder."""
    monkeypatch.setattr(library_module, "load_encoder", lambda *_, **__: LoadedEncoder(ToyEncoder(), NOTICE))
    monkeypatch.setenv("UNTRIMMED_LIBRARY", str(tmp_path / "library"))
    return typed


@pytest.fixture
def refusal(typed):
    """The error line of a command that ends with exit code 2."""

    def run(*words):
        code, _, error = typed(*words)
        assert code == 2
        assert len(error.strip().splitlines()) == 1
        return error

    return run


@pytest.fixture
def videos(tmp_path):
    folder = tmp_path / "videos"
    folder.mkdir()
    write_clip(folder / "flag.mp4", ["red", "white", "green"])
    write_clip(folder / "sea [1].mp4", ["blue", "blue"])
    return folder
