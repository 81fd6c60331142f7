"""The options of a search, made from the fields of `Query`, `Filters` and `Cutoff`, and the query that they make."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer

from untrimmed.cli.console import parse_time
from untrimmed.cli.options import parse_path
from untrimmed.errors import ConfigError, FeatureError, UnknownNameError
from untrimmed.search.query.query import Cutoff, Filters, Place, Query, Spec, Weights, specs

_BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_PANELS = {Query: "More than a sentence", Filters: "Only some videos", Cutoff: None}
_EXAMPLES = {  # of what is typed in a form of its own, by its name in the help
    "TIME": "e.g. 90 or 1:30",
    "BYTES": "e.g. 500k or 1.5G",
    "DATE": "e.g. 2026-05-01 or 2026-05-01T12:30",
    "PLACE": "HIT, FILE@TIME or FILE@START-END",
    "PART=X": "PART is text, then, not, image, like or unlike",
}
Command = TypeVar("Command", bound=Callable[..., None])


def query_options(*names: str) -> Callable[[Command], Command]:
    """Give a command the options of these fields, by default of all; they come as keywords, None if not given."""

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters.values()
        rest = [one.replace(kind=one.KEYWORD_ONLY) for one in own if one.kind is not one.VAR_KEYWORD]
        made = [one for owner in _PANELS for one in _options(owner) if not names or one.name in names]
        command.__signature__ = inspect.Signature([*made, *rest])  # type: ignore[attr-defined]
        return command

    return decorate


def _options(owner: type) -> Iterator[inspect.Parameter]:
    for name, (kind, spec) in specs(owner).items():
        if kind is not Filters:
            default = False if get_origin(kind) is Literal else None
            annotation = Annotated[_typed(kind, spec), _option(owner, name, kind, spec)]
            yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _form(spec: Spec) -> str:
    """How a value is typed: the last word of `Spec.option`, if it is no flag."""
    return next((word for word in spec.option.split()[-1:] if not word.startswith("-")), "")


def _typed(kind: Any, spec: Spec) -> Any:
    """What typer makes of a value: a choice between two is a switch, forms of their own are read later."""
    if get_origin(kind) is Literal:
        return bool
    number = next((one for one in (int, float) if one in (kind, *get_args(kind))), None)
    if number and _form(spec) not in _EXAMPLES:
        return number | None
    return list[str] | None if get_origin(kind) is tuple or kind is Weights else str | None


def _option(owner: type, name: str, kind: Any, spec: Spec) -> Any:
    form, default = _form(spec), getattr(owner, name)
    if owner is Query and name == "text":
        return typer.Argument(metavar=form, help=spec.help, show_default=False)
    flags = [word for word in spec.option.split() if word.startswith("-")] or [f"--{name.replace('_', '-')}"]
    notes = [_EXAMPLES.get(form, ""), "may be repeated" if get_origin(kind) is tuple else ""]
    note = f" ({'; '.join(filter(None, notes))})" if any(notes) else ""
    shown = f"  \\[default: {default}]" if default and isinstance(default, int | float) else ""
    is_number = _typed(kind, spec) in (int | None, float | None)
    return typer.Option(
        *flags,
        metavar=form or None,
        parser=parse_path if form in ("FILE", "FOLDER") else None,
        min=(spec.least if spec.above is None else spec.above) if is_number else None,
        max=spec.most if is_number else None,
        help=f"{spec.help.removesuffix('.')}{note}.{shown}" if note else f"{spec.help}{shown}",
        show_default=False,
        rich_help_panel=_PANELS[owner],
    )


def read_query(given: dict[str, Any], library: Path) -> tuple[Query, Cutoff]:
    """The query that was typed, with pictures read and places looked up, and how many hits.

    Raises:
        ConfigError: A value has another form, or the query makes no sense, see `Query`.
        FeatureError: The picture cannot be read.
        UnknownNameError: A place is a hit that there was not, or a weight is of no part.
    """
    if given.get("within_s") is not None and not given["then"]:
        raise ConfigError("--within-s is how much later --then may be; add --then TEXT, or leave it out")
    return read_part(Query, given, library), read_part(Cutoff, given, library)


def read_part(owner: type, given: dict[str, Any], library: Path) -> Any:
    """A part of the query by what was typed; a value that was not given is the default one.

    Raises: As `read_query`.
    """
    read: dict[str, Callable[[Any], Any]] = {
        "TIME": parse_time,
        "BYTES": parse_size,
        "FILE": read_picture,
        "PLACE": partial(parse_place, library=library),
        "PART=X": parse_weights,
    }
    values = {}
    for name, (kind, spec) in specs(owner).items():
        value, as_value = given.get(name), read.get(_form(spec), lambda value: value)
        if kind is Filters:
            values[name] = read_part(Filters, given, library)
        elif get_origin(kind) is Literal:
            values[name] = get_args(kind)[bool(value)]
        elif value is not None:
            values[name] = tuple(map(as_value, value)) if get_origin(kind) is tuple else as_value(value)
    return owner(**values)


def parse_size(text: str) -> int:
    """A size as people write it: 500k, 20M, 1.5GB.

    Raises:
        ConfigError: It is none.

    >>> parse_size("1.5GB"), parse_size("20m")
    (1500000000, 20000000)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", text.strip().lower())
    if match is None:
        raise ConfigError(f"{text!r} is no size; write 500k, 20M or 1.5G")
    return round(float(match[1]) * _BYTES[match[2]])


def parse_place(text: str, library: Path) -> Place:
    """A hit of the last search by its number, or a frame or a moment of an indexed video.

    Raises:
        ConfigError: It has another form.
        UnknownNameError: There was no such hit.
    """
    from untrimmed.cli.last_search import recall

    video, at, span = text.rpartition("@")
    if not at:
        hits = recall(library, text)
        if len(hits) > 1:
            raise ConfigError(f"{text!r} names {len(hits)} hits; name each by itself")
        return Place(hits[0].video, hits[0].start_s, hits[0].end_s)
    start, dash, end = span.partition("-")
    return Place(video, parse_time(start), parse_time(end) if dash else None)


def parse_weights(given: list[str]) -> Weights:
    """PART=X, as options give them.

    Raises:
        ConfigError: No number.
        UnknownNameError: No such part.
    """
    named = {("not" if name == "without" else name): name for name in specs(Weights)}
    weights = {}
    for one in given:
        part, _, number = one.partition("=")
        if part not in named:
            raise UnknownNameError.among("part of a query", part, named)
        try:
            weights[named[part]] = float(number)
        except ValueError:
            raise ConfigError(f"--weight {one}: {number!r} is no number; write {part}=2") from None
    return Weights(**weights)


def read_picture(file: Path) -> Any:
    """A picture's RGB.

    Raises:
        FeatureError: It cannot be read.
        ConfigError: It is a video.
    """
    from untrimmed.video.reader import is_video_path, read_image

    if not file.is_file():
        raise FeatureError(f"{file}: no such file; name a picture")
    if is_video_path(file):
        raise ConfigError(f"{file}: is a video; name a time of it: --like {file}@12.5")
    return read_image(file)
