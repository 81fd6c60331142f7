"""What can go wrong at the boundary: files, configuration, requests, public calls.

Every message names the thing, the value found, the value wanted and the next step. The command line turns these into
one line and a non-zero exit; anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

EXTRAS = {  # package that only some installations have -> what to install
    "anyio": "untrimmed[server]",
    "av": "untrimmed[video]",
    "fastapi": "untrimmed[server]",
    "lance": "untrimmed[video]",
    "lightning": "untrimmed[train]",
    "matplotlib": "untrimmed[plot]",
    "mcp": "untrimmed[mcp]",
    "numkong": "untrimmed[video]",
    "onnxruntime": "untrimmed[offline]",
    "opentimelineio": "untrimmed[server]",
    "PIL": "untrimmed[video]",
    "prometheus_client": "untrimmed[server]",
    "pyarrow": "untrimmed[video]",
    "pydantic": "untrimmed[server]",
    "pywt": "untrimmed[video]",
    "ray": "untrimmed[ray]",
    "safetensors": "untrimmed[torch]",
    "scipy": "untrimmed[torch]",
    "skimage": "untrimmed[demo]",
    "sklearn": "untrimmed[plot]",
    "skvideo": "untrimmed[demo]",
    "starlette": "untrimmed[server]",
    "tokenizers": "untrimmed[offline]",
    "torch": "untrimmed[torch]",
    "transformers": "untrimmed[hub]",
    "uvicorn": "untrimmed[server]",
    "watchfiles": "untrimmed[server]",
}


class UntrimmedError(Exception):
    """The base of everything this package raises on purpose."""


class ConfigError(UntrimmedError, ValueError):
    """A setting is unknown, of the wrong type, or contradicts another one."""


class NoTimelineError(ConfigError):
    """A model keeps nothing of a video in which moments could be found."""


class UnknownNameError(UntrimmedError, LookupError):
    """A name that no registry, library or data set knows."""

    @classmethod
    def among(cls, what: str, name: str, known: Iterable[str]) -> UnknownNameError:
        """An error that names the nearest known one, and all.

        >>> print(UnknownNameError.among("model", "mssl", ["jsg", "ms_sl"]))
        no model named 'mssl'. Did you mean 'ms_sl'? Known: jsg, ms_sl
        """
        known = list(known)
        return cls(f"no {what} named {name!r}{nearest(name, known) or '.'} Known: {', '.join(known) or 'none'}")


class FeatureError(UntrimmedError, ValueError):
    """Features, captions or annotations are missing, of the wrong width, or not finite."""


class VideoError(FeatureError):
    """One media file cannot be used: empty, truncated, no picture, unknown format, over a limit."""


class EncoderError(UntrimmedError, RuntimeError):
    """An encoder cannot be loaded, or fails its self-test."""


class CheckpointError(UntrimmedError, ValueError):
    """A checkpoint is truncated, of another method, or holds something that is not weights."""


class IndexMismatchError(UntrimmedError, ValueError):
    """An index was made by another encoder or model, or is of a version this program does not read."""


class IndexBusyError(UntrimmedError, RuntimeError):
    """Another process is writing to the index."""


def require_type(value: object, kinds: Any, what: str, wanted: str) -> None:
    """Raise a ConfigError unless a value that was given in Python is of one of some kinds (a type, or `A | B`).

    >>> require_type(3, str, "method", "a name")
    Traceback (most recent call last):
    ...
    untrimmed.errors.ConfigError: method is 3, expected a name
    """
    if not isinstance(value, kinds):
        raise ConfigError(f"{what} is {shown_value(value)}, expected {wanted}")


def shown_value(value: object) -> str:
    """A value for a one-line message; of a long one its class.

    >>> shown_value("8"), shown_value(list(range(99)))
    ("'8'", 'a list')
    """
    found = repr(value)
    return f"a {type(value).__name__}" if len(found) > 60 or "\n" in found else found


def missing_package(error: ModuleNotFoundError) -> str | None:
    """What to install, on one line; None for a module that is of no extra of this package.

    >>> missing_package(ModuleNotFoundError("No module named 'av.video'", name="av.video"))
    "this needs the package 'av', which is not installed; run: pip install 'untrimmed[video]'"
    """
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    return f"this needs the package {package!r}, which is not installed; run: pip install '{EXTRAS[package]}'"


def one_line(error: BaseException) -> str:
    """What an error of another program says, on one line; its class where it says nothing.

    >>> one_line(ValueError("not a\\n  number")), one_line(TimeoutError())
    ('not a number', 'TimeoutError')
    """
    return " ".join(str(error).split())[:200] or type(error).__name__


def shown(path: Path) -> str:
    """A path for a one-line message: quoted and escaped where it holds line ends or bytes that are no text."""
    return str(path) if str(path).isprintable() else repr(str(path))


def named(names: Iterable[str], limit: int = 3) -> str:
    """The first few names for a message, and how many more there are.

    >>> named(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    listed = list(names)
    more = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a message: ". Did you mean 'x'?" when a known name is close, else nothing.

    >>> nearest("temprature", ["temperature", "dim"])
    ". Did you mean 'temperature'?"
    """
    import difflib  # only for a message: every command imports this file

    match = difflib.get_close_matches(name, list(known), n=1)
    return f". Did you mean {match[0]!r}?" if match else ""
