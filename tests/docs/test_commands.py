"""Commands and options on the pages of the documentation exist."""

import re

import pytest
import typer

from tests.docs.test_references import PAGES
from untrimmed.cli.app import build_app

COMMANDS = typer.main.get_command(build_app()).commands


def commands_on(text):
    """Pairs of a command and its arguments, from code blocks and backticks that begin with `untrimmed`."""
    text = text.replace("\\\n", " ")
    blocks = re.findall(r"(?ms)^```[^\n]*\n(.*?)^```", text)
    pieces = [line for block in blocks for line in block.splitlines()] + re.findall(r"`([^`\n]+)`", text)
    for piece in pieces:
        if match := re.match(r"(?:\$ )?untrimmed ([a-z][\w-]*)(.*)", piece.strip()):
            yield match[1], match[2].partition("#")[0]


def problems(name, rest):
    command = COMMANDS.get(name)
    if command is None:
        return [name]
    if hasattr(command, "commands"):
        name, _, rest = rest.strip().partition(" ")
        return problems_of(command.commands[name], rest) if name in command.commands else [name]
    return problems_of(command, rest)


def problems_of(command, rest):
    valid = {"--help"} | {
        option for parameter in command.params for option in parameter.opts + parameter.secondary_opts
    }
    return [f"{command.name} {option}" for option in re.findall(r"(?<!\S)--?[a-z][\w-]*", rest) if option not in valid]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_on_a_page_exist(page):
    commands = commands_on(page.read_text(encoding="utf-8"))
    assert [problem for name, rest in commands for problem in problems(name, rest)] == []


def test_unknown_commands_and_options_are_reported():
    text = "`untrimmed serch x`\n```\n$ untrimmed index --modell RUN \\\n    --library L\n```\n`untrimmed data chek`"
    assert [p for name, rest in commands_on(text) for p in problems(name, rest)] == ["index --modell", "serch", "chek"]
