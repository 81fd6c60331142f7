"""The errors that this package raises for wrong files, settings, requests and arguments.

Every message names the file or setting, its value, the expected value and what the user can do. The command line prints
the message on one line and exits with a non-zero code. Any other exception is a bug, and is shown with its traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

EXTRAS = {  # optional package -> the extra that installs it
    "anyio": "server",
    "av": "video",
    "chardet": "video",
    "ctranslate2": "speech",
    "fastapi": "server",
    "faster_whisper": "speech",
    "h5py": "torch",
    "lance": "video",
    "lightning": "train",
    "matplotlib": "plot",
    "mcp": "mcp",
    "numkong": "video",
    "onnxruntime": "offline",
    "opentimelineio": "video",
    "PIL": "video",
    "prometheus_client": "server",
    "pyarrow": "video",
    "pydantic": "server",
    "pywt": "video",
    "rapidocr": "screen-text",
    "ray": "ray",
    "safetensors": "torch",
    "scipy": "torch",
    "skimage": "demo",
    "sklearn": "plot",
    "skvideo": "demo",
    "starlette": "server",
    "tensorboard": "tensorboard",
    "tokenizers": "offline",
    "torch": "torch",
    "transformers": "hub",
    "uvicorn": "server",
    "wandb": "wandb",
    "watchfiles": "server",
}


class UntrimmedError(Exception):
    """The base class of all errors that this package raises on purpose."""


class ConfigError(UntrimmedError, ValueError):
    """A setting is unknown, has the wrong type, or contradicts another setting."""


class NoTimelineError(ConfigError):
    """The method encodes a video as one vector, so it cannot find moments."""


class UnknownNameError(UntrimmedError, LookupError):
    """A registry, library or data set has no entry with this name."""

    @classmethod
    def among(cls, what: str, name: str, known: Iterable[str]) -> UnknownNameError:
        """Return an error that suggests the most similar known name and lists all known names.

        >>> print(UnknownNameError.among("model", "mssl", ["jsg", "ms_sl"]))
        no model named 'mssl'. Did you mean 'ms_sl'? Known: jsg, ms_sl
        """
        choices = list(known)
        return cls(f"no {what} named {name!r}{nearest(name, choices) or '.'} Known: {', '.join(choices) or 'none'}")


class FeatureError(UntrimmedError, ValueError):
    """Features, captions or annotations are missing, have the wrong width, or are not finite."""


class VideoError(FeatureError):
    """A media file cannot be used, e.g. because it is empty or truncated, has no picture, or exceeds a limit."""


class EncoderError(UntrimmedError, RuntimeError):
    """An encoder cannot be loaded, or fails its self-test."""


class CheckpointError(UntrimmedError, ValueError):
    """A checkpoint is truncated, belongs to another method, or contains something other than weights."""


class IndexMismatchError(UntrimmedError, ValueError):
    """An index was made with another encoder or model, or has a format version that this program cannot read."""


class IndexBusyError(UntrimmedError, RuntimeError):
    """Another process is writing to the index."""


class StaleVersionError(UntrimmedError, RuntimeError):
    """A request to change a stored object names an old version of the object."""


def require_type(value: object, kinds: Any, what: str, expected: str) -> None:
    """Raise a ConfigError unless `value` has one of the types `kinds` (a type, or `A | B`).

    >>> require_type(3, str, "method", "a name")
    Traceback (most recent call last):
    ...
    untrimmed.errors.ConfigError: method is 3, expected a name
    """
    if not isinstance(value, kinds):
        raise ConfigError(f"{what} is {shown_value(value)}, expected {expected}")


def shown_value(value: object) -> str:
    """Return the text of a value for a one-line message. A long value is shown as its type.

    >>> shown_value("8"), shown_value(list(range(99)))
    ("'8'", 'a list')
    """
    text = repr(value)
    return f"a {type(value).__name__}" if len(text) > 60 or "\n" in text else text


def counted(number: int, noun: str) -> str:
    """Return a number with a noun.

    >>> counted(1, "query"), counted(1200, "query"), counted(2, "passage")
    ('1 query', '1,200 queries', '2 passages')
    """
    plural = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def install_advice(extra: str) -> str:
    """Return the next step for a message: the command that adds an extra to the environment in which the program runs.

    The package is installed from a checkout of its repository, not from a package index.
    """
    environment = Path(sys.prefix)
    if (environment / "pipx_metadata.json").is_file():
        command = f"pipx runpip untrimmed install -c constraints.txt '.[{extra}]'"
    elif (environment / "uv-receipt.toml").is_file():
        # uv installs the tool again, so the command also names the usual extras
        extras = ",".join(dict.fromkeys(["offline", "server", extra]))
        command = f"uv tool install --constraints constraints.txt '.[{extras}]'"
    else:
        command = f"pip install -c constraints.txt '.[{extra}]'"
    return f"in a checkout of untrimmed, run: {command}"


def missing_package(error: ModuleNotFoundError) -> str | None:
    """Return a one-line message with the command that installs a missing package.

    The result is None if none of the optional extras of untrimmed installs the missing package.

    >>> message = missing_package(ModuleNotFoundError("No module named 'av.video'", name="av.video"))
    >>> message.partition("; ")[0]
    "this needs the package 'av', which is not installed"
    """
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    return f"this needs the package {package!r}, which is not installed; {install_advice(EXTRAS[package])}"


def one_line(error: BaseException) -> str:
    """Return at most 200 characters of an exception's message on one line, or its class if the message is empty.

    >>> one_line(ValueError("not a\\n  number")), one_line(TimeoutError())
    ('not a number', 'TimeoutError')
    """
    return " ".join(str(error).split())[:200] or type(error).__name__


def shown(path: Path) -> str:
    """Return a path as text for a one-line message. Paths with unprintable characters are quoted and escaped."""
    return str(path) if str(path).isprintable() else repr(str(path))


def names_file_beside(video: Path, warning: str) -> bool:
    """Whether a warning about a video begins with the path of a file beside it, such as a subtitle file.

    Several videos can have the same warning about such a file.
    """
    return warning.startswith(str(video.parent))


def named(names: Iterable[str], limit: int = 3) -> str:
    """Return the first names as text for a message, with the number of further names.

    >>> named(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    listed = list(names)
    more = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return the hint ". Did you mean 'x'?" for a message if a known name is similar, else "".

    >>> nearest("temprature", ["temperature", "dim"])
    ". Did you mean 'temperature'?"
    """
    import difflib  # imported here, because every command imports this file but few commands need a hint

    by_small_name = {choice.lower(): choice for choice in choices}
    match = difflib.get_close_matches(name.lower(), by_small_name, n=1)
    return f". Did you mean {by_small_name[match[0]]!r}?" if match else ""
