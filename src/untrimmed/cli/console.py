"""How commands speak: times as people write them, the two streams, exit codes."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from untrimmed.errors import ConfigError

NOTHING_FOUND, USAGE, SOME_FAILED = 1, 2, 3  # exit codes

# What is printed stands as it is: names may hold [brackets] and :colons:, which would else be markup and emoji.
_AS_IT_IS: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False, "soft_wrap": True}
progress_console = Console(stderr=True, **_AS_IT_IS)  # progress, notices, failures: one line each
result_console = Console(**_AS_IT_IS)  # what was asked for


def print_marked(word: str, colour: str, text: str) -> None:
    """One line of progress that begins with a coloured word."""
    progress_console.print(Text.assemble((word, colour), text))


def print_notice(notice: str | None) -> None:
    """One line about the encoder in use, where it is not the best there is."""
    if notice:
        print_marked("note:", "yellow", f" {notice}")


def print_json(document: Any, *, indent: int | None = 2) -> None:
    """What `--json` asks for: paths as text, letters of any script as they are.

    Where the stream cannot take one, as half of a character in a path that is no text, all are written as escapes.
    """
    text = json.dumps(document, default=str, indent=indent, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(document, default=str, indent=indent)
    typer.echo(text)


def clock(time_s: float) -> str:
    """Seconds as people read a player: 75.25 -> '1:15.2'.

    >>> clock(75.25), clock(3600.0), clock(59.96)
    ('1:15.2', '1:00:00.0', '1:00.0')
    """
    tenths = round(time_s * 10)
    minutes, rest = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{rest // 10:02d}.{rest % 10}"
    return f"{hours}:{minutes:02d}:{seconds}" if hours else f"{minutes}:{seconds}"


def parse_time(text: str) -> float:
    """Seconds of '75.2', '1:15.2' or '1:02:03'.

    >>> parse_time("1:15.2"), parse_time("90"), parse_time("1:02:03")
    (75.2, 90.0, 3723.0)

    Raises:
        ConfigError: It is none of these.
    """
    if not re.fullmatch(r"(\d+:){0,2}\d+(\.\d+)?", text.strip()):
        raise ConfigError(f"time {text!r} is not understood; write seconds (75.2) or 1:15.2")
    seconds = 0.0
    for part in text.strip().split(":"):
        seconds = seconds * 60 + float(part)
    return seconds
