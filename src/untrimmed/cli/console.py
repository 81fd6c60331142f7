"""Printing for all commands: the two output streams, JSON, times and exit codes."""

import json
import re
import sys
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from untrimmed.errors import ConfigError

NOTHING_FOUND, USAGE, SOME_FAILED = 1, 2, 3  # exit codes of all commands
# Python arguments that messages name, and that are options of commands
_ARGUMENTS = r"\((compile|data|device|out|root|split|video_features)\)(?=[ ,]|$)"

# Print text verbatim: rich would interpret [brackets] and :colons: in file names as markup and emoji.
_VERBATIM: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False, "soft_wrap": True}
progress_console = Console(stderr=True, **_VERBATIM)  # for progress, notices and failures, one line each
result_console = Console(**_VERBATIM)


def print_marked(word: str, colour: str, text: str) -> None:
    """Print one line to the error stream. It begins with a coloured word."""
    progress_console.print(Text.assemble((word, colour), text))


def print_notice(notice: str | None) -> None:
    """Print a notice about the encoder, if there is one."""
    if notice:
        print_marked("note:", "yellow", f" {notice}")


def print_json(document: Any, *, indent: int | None = 2) -> None:
    """Print a document as JSON. Paths become strings.

    Characters outside ASCII are escaped only if the output stream cannot encode one of them, for example in a path that
    is not valid UTF-8.
    """
    text = json.dumps(document, default=str, indent=indent, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(document, default=str, indent=indent)
    typer.echo(text)


def with_options(message: str) -> str:
    """Return an error message in which options replace the arguments in parentheses, such as `(out)`.

    Only the advice after the last semicolon is changed, because a path before it may contain such a name.

    >>> with_options("runs/one (out): is a file; choose another folder (out)")
    'runs/one (out): is a file; choose another folder (--out)'
    """
    problem, semicolon, advice = message.rpartition("; ")
    if not semicolon:
        return message
    return problem + semicolon + re.sub(_ARGUMENTS, lambda match: f"(--{match[1].replace('_', '-')})", advice)


def clock(time_s: float) -> str:
    """Return a time in seconds as hours, minutes and seconds, like a video player.

    >>> clock(75.25), clock(3600.0), clock(59.96)
    ('1:15.2', '1:00:00.0', '1:00.0')
    """
    tenths = round(time_s * 10)
    minutes, rest = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{rest // 10:02d}.{rest % 10}"
    return f"{hours}:{minutes:02d}:{seconds}" if hours else f"{minutes}:{seconds}"


def round_time(time_s: float) -> str:
    """Return an estimated duration (`time_s` in seconds) as rounded text.

    >>> round_time(7), round_time(50), round_time(200), round_time(5000), round_time(200_000)
    ('10 s', '50 s', '3 min', '1 h 25 min', '56 h')
    """
    if time_s < 55:
        return f"{max(1, round(time_s / 10)) * 10} s"
    minutes = max(1, round(time_s / 60))
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 600:
        minutes = round(minutes / 5) * 5
        return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
    return f"{round(minutes / 60)} h"


def parse_time(text: str) -> float:
    """Return the seconds in a time such as '75.2', '1:15.2' or '1:02:03'.

    >>> parse_time("1:15.2"), parse_time("90"), parse_time("1:02:03")
    (75.2, 90.0, 3723.0)

    Raises:
        ConfigError: The text has another form.
    """
    if not re.fullmatch(r"(\d+:){0,2}\d+(\.\d+)?", text.strip()):
        raise ConfigError(f"{text!r} is not a time; write seconds, e.g. 75.2, or minutes and seconds, e.g. 1:15.2")
    seconds = 0.0
    for part in text.strip().split(":"):
        seconds = seconds * 60 + float(part)
    return seconds
