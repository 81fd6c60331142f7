"""Generate a search command's options from the fields of `Query`, `Filters` and `Cutoff`, and read their values."""

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
from untrimmed.passages.passage import Mode
from untrimmed.search.query.query import Cutoff, Filters, NumMoments, Place, Query, Spec, Weights, choices_of, specs

_BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_HITS_PANEL = "Which hits to show"
_PANELS = {Query: "What to find", Filters: "Which videos to search", Cutoff: _HITS_PANEL}
_HIT_FIELDS = {"group_by", "fold"}  # fields of `Query` whose options are in the panel `_HITS_PANEL` of the help
_EXAMPLES = {  # metavar of an option -> example of a value for its help
    "TIME": "e.g. 90 or 1:30",
    "BYTES": "e.g. 500k or 1.5G",
    "DATE": "e.g. 2026-05-01",
    "PART=X": "PART: text, then, not, image, like or unlike",
}
Command = TypeVar("Command", bound=Callable[..., None])


def query_options(*names: str) -> Callable[[Command], Command]:
    """Return a decorator that adds search options to a command: those of the named fields, or of all fields.

    An option that is not given has the value None, or False if it is a flag.
    """

    def decorate(command: Command) -> Command:
        parameters = inspect.signature(command, eval_str=True).parameters.values()
        handwritten = [p.replace(kind=p.KEYWORD_ONLY) for p in parameters if p.kind is not p.VAR_KEYWORD]
        generated = [option for owner in _PANELS for option in _options(owner) if not names or option.name in names]
        command.__signature__ = inspect.Signature([*generated, *handwritten])  # type: ignore[attr-defined]
        return command

    return decorate


def _options(owner: type) -> Iterator[inspect.Parameter]:
    for name, (kind, spec) in specs(owner).items():
        if name == "modes":
            for flag in _flags(name, spec):
                help = f"Search only what is {flag[2:]} (can be combined)."
                option = typer.Option(flag, help=help, show_default=False, rich_help_panel=_PANELS[owner])
                parameter = f"mode_{flag[2:]}"
                yield inspect.Parameter(
                    parameter, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option]
                )
        elif kind is not Filters and not spec.is_for_display:
            default = False if get_origin(kind) is Literal else None
            is_sentence = owner is Query and name == "text"
            # a list of words, so that the user need not quote a sentence
            option_type = list[str] | None if is_sentence else _typed(kind, spec)
            annotation = Annotated[option_type, _option(owner, name, kind, spec)]
            yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _form(spec: Spec) -> str:
    """Return the placeholder of an option's value: the last word of `Spec.option`, or "" if that word is a flag."""
    return next((word for word in spec.option.split()[-1:] if not word.startswith("-")), "")


def _flags(name: str, spec: Spec) -> list[str]:
    return [word for word in spec.option.split() if word.startswith("-")] or [f"--{name.replace('_', '-')}"]


def _typed(kind: Any, spec: Spec) -> Any:
    """Return the type of an option for typer.

    A choice between two values is a switch. Values that `read_part` parses are text.
    """
    if get_origin(kind) is Literal:
        return bool
    number = next((number_type for number_type in (int, float) if number_type in (kind, *get_args(kind))), None)
    if number and _form(spec) not in _EXAMPLES and not choices_of(kind):
        return number | None
    return list[str] | None if get_origin(kind) is tuple or kind is Weights else str | None


def _option(owner: type, name: str, kind: Any, spec: Spec) -> Any:
    form = _form(spec)
    default = getattr(owner, name)
    if owner is Query and name == "text":
        return typer.Argument(metavar=form, help=f"{spec.help} Quotes are optional.", show_default=False)
    notes = [_EXAMPLES.get(form, ""), "repeatable" if get_origin(kind) is tuple else ""]
    note = f" ({'; '.join(filter(None, notes))})" if any(notes) else ""
    default_note = f"  \\[default: {default:g}]" if default and isinstance(default, int | float) else ""

    return typer.Option(
        *_flags(name, spec),
        metavar=form or None,
        parser=parse_path if form in ("FILE", "FOLDER") else None,
        help=f"{spec.help.removesuffix('.')}{note}.{default_note}" if note else f"{spec.help}{default_note}",
        show_default=False,
        rich_help_panel=_HITS_PANEL if name in _HIT_FIELDS else _PANELS[owner],
    )


def read_query(options: dict[str, Any], library: Path) -> tuple[Query, Cutoff]:
    """Return the query and the cutoff that a command's options describe.

    Pictures are read from their files, and numbers of hits are replaced by places in videos.

    Raises:
        ConfigError: A value cannot be parsed, or the query is invalid (see `Query`).
        FeatureError: The picture cannot be read.
        UnknownNameError: The last search has no such hit, or a weight is for an unknown part of the query.
    """
    if options.get("within_s") is not None and not options["then"]:
        raise ConfigError("--within-s limits how much later --then may be; add --then TEXT or remove --within-s")
    if options.get("without_in") and not options["without"]:
        raise ConfigError("--nowhere extends --not to the whole video; add --not TEXT or remove --nowhere")
    for name in ("then", "said", "written"):
        if options.get(name) is not None and not options[name].strip():
            raise ConfigError(with_flags(f"{name} is an empty sentence; add words, or remove the option"))
    modes = tuple(mode for mode in get_args(Mode) if options.get(f"mode_{mode}"))
    options = options | {"text": " ".join(options.get("text") or ()) or None, "modes": modes or None}
    return read_part(Query, options, library), read_part(Cutoff, options, library)


def read_part(owner: type, options: dict[str, Any], library: Path) -> Any:
    """Return a `Query`, `Filters` or `Cutoff` from a command's options.

    A field whose option is not given has its default. Raises the same errors as `read_query`.
    """
    parsers: dict[str, Callable[[Any], Any]] = {
        "TIME": parse_time,
        "BYTES": parse_size,
        "FILE": read_picture,
        "PLACE": partial(parse_place, library=library),
        "PART=X": parse_weights,
        "N|all": parse_number_or_all,
    }
    values = {}
    for name, (kind, spec) in specs(owner).items():
        value = options.get(name)
        parse = parsers.get(_form(spec), lambda value: value)
        if kind is Filters:
            values[name] = read_part(Filters, options, library)
        elif get_origin(kind) is Literal:
            values[name] = get_args(kind)[bool(value)]
        elif value is not None:
            try:
                values[name] = tuple(map(parse, value)) if get_origin(kind) is tuple else parse(value)
            except ConfigError as error:
                raise ConfigError(f"{_flags(name, spec)[0]}: {error}") from None
    try:
        return owner(**values)
    except ConfigError as error:
        raise ConfigError(with_flags(str(error))) from None


def with_flags(message: str) -> str:
    """Return an error message in which the flags of options replace the names of fields.

    >>> with_flags("min_confidence: use min_score"), with_flags("then needs 'seen' in modes")
    ('--min-confidence: use --min-score', '--then needs --seen')
    """
    message = message.replace("'seen' in modes", "--seen")
    for owner in _PANELS:
        for name, (_, spec) in specs(owner).items():
            # A name with an underscore is no English word. Other names are replaced at the start and in quotes.
            place = rf"\b{name}\b" if "_" in name else rf"^{name}\b|'{name}'"
            if name not in ("text", "modes"):
                message = re.sub(place, _flags(name, spec)[0], message)
    return message


def parse_size(text: str) -> int:
    """Return the number of bytes in a size such as 500k, 20M or 1.5GB.

    Raises:
        ConfigError: The text is not a size.

    >>> parse_size("1.5GB"), parse_size("20m")
    (1500000000, 20000000)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", text.strip().lower())
    if match is None:
        raise ConfigError(f"{text!r} is not a size; write e.g. 500k, 20M or 1.5G")
    return round(float(match[1]) * _BYTES[match[2]])


def parse_number_or_all(text: str) -> NumMoments:
    """Return the number in a text, or "all" if the text is that word.

    Raises:
        ConfigError: The text is neither a number nor "all".
    """
    if text == "all":
        return "all"
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{text!r} is neither a number nor all; write e.g. 5") from None


def is_hit_number(text: str) -> bool:
    """Whether a text has the form of a hit's number: 3, or 3.2 for its second moment."""
    return re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text) is not None


def parse_place(text: str, library: Path) -> Place:
    """Return the place that a text names: the number of a hit of the last search, FILE@TIME or FILE@START-END.

    Raises:
        ConfigError: The text cannot be parsed.
        UnknownNameError: The last search has no such hit.
    """
    from untrimmed.cli.last_search import recall

    video, at, span = text.rpartition("@")
    if not at:
        if not is_hit_number(text):
            raise ConfigError(f"{text!r} is not a place; write 3, 3.2, FILE@TIME or FILE@START-END")
        (hit,) = recall(library, text)
        return Place(hit.video, hit.start_s, hit.end_s)
    start, dash, end = span.partition("-")
    return Place(video, parse_time(start), parse_time(end) if dash else None)


def parse_weights(assignments: list[str]) -> Weights:
    """Return the weights in a list of assignments PART=X, such as "then=0.5".

    Raises:
        ConfigError: X is not a number.
        UnknownNameError: No part of a query has this name.
    """
    fields = {("not" if name == "without" else name): name for name in specs(Weights)}
    weights = {}
    for assignment in assignments:
        part, _, number = assignment.partition("=")
        if part not in fields:
            raise UnknownNameError.among("part of a query", part, fields)
        try:
            weights[fields[part]] = float(number)
        except ValueError:
            raise ConfigError(f"{number!r} in {assignment!r} is not a number; write e.g. {part}=2") from None
    return Weights(**weights)


def read_picture(file: Path) -> Any:
    """Return the RGB pixels (height, width, 3) of the picture in a file.

    Raises:
        FeatureError: The picture cannot be read.
        ConfigError: The file is a video.
    """
    from untrimmed.video.reader import is_video_path, read_image

    if not file.is_file():
        raise FeatureError(f"{file}: no such file; name an existing picture")
    if is_video_path(file):
        raise ConfigError(f"{file}: is a video, expected a picture; add a time to use a frame: --like {file}@12.5")
    return read_image(file)
