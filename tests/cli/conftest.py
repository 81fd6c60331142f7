"""Commands run as they are typed, with the toy encoder, on a folder of two clips."""

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
    """The first whole numbers of a text: tests know the figures, not the words between them."""
    return [int(number) for number in re.findall(r"\d+", text)][:count]


def invoke(app, words):
    """The result of a command; an error that is none of ours is raised."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit | UntrimmedError):
        raise result.exception
    return result


@pytest.fixture
def typed(monkeypatch, capsys):
    """Type a command; gives exit code, stdout, stderr."""
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
    """Type a command for a library of the toy encoder."""
    monkeypatch.setattr(library_module, "load_encoder", lambda *_, **__: LoadedEncoder(ToyEncoder(), NOTICE))
    monkeypatch.setenv("UNTRIMMED_LIBRARY", str(tmp_path / "library"))
    return typed


@pytest.fixture
def refusal(typed):
    """The one line with which a command ends with exit code 2."""

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
