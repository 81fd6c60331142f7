"""Queries, filters and limits of searches.

Each field is annotated with a `Spec`: its help, its command-line option and its bounds. The command line, the service,
the tools for agents, the web page and `Filters.admit` read the specs. So a new filter is one line in `Filters`.

This module has no `from __future__ import annotations`, because the specs must be evaluated.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field, fields
from datetime import date, datetime, time, timedelta
from numbers import Integral, Real
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args, get_origin

from untrimmed.errors import ConfigError, require_type
from untrimmed.passages.passage import Mode
from untrimmed.search.store.records import VideoRecord

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import UInt8

    Picture: TypeAlias = UInt8[np.ndarray, "Y X 3"]
else:
    Picture = Any  # an array; numpy is not imported, because a search through the service does not need it

Day: TypeAlias = date | datetime | str
GroupBy: TypeAlias = Literal["video", "moment"]
Edges: TypeAlias = Literal["sampled", "exact"]
WithoutIn: TypeAlias = Literal["shot", "video"]
NumMoments: TypeAlias = int | Literal["all"]
LONGEST_TEXT = 4000
# there is a limit, because each excluded sentence is compared with all frames, and each place is read from the table
_MAX_PARTS = 32
_MAX_S = 1e7


@dataclass(frozen=True)
class Spec:
    """The description of a field for all interfaces. Bounds of a text or tuple apply to its length."""

    help: str
    option: str = ""  # flags and placeholder on the command line, e.g. "-k N"; the default flag is the field's name
    above: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    service_maximum: float | None = None  # upper bound that applies only in the service
    at_least: str = ""  # attribute of `VideoRecord` that must be at least the value of this field
    at_most: str = ""  # attribute of `VideoRecord` that must be at most the value of this field
    unit: str = ""  # unit of the number, e.g. "s"; in the OpenAPI document it is `x-unit`
    is_json: bool = True
    is_for_display: bool = False  # whether only the page needs it, so that the command line and agents do not offer it


def specs(owner: type) -> dict[str, tuple[Any, Spec]]:
    """Return the type and the spec of each field of a class."""
    annotated = {field.name: field.type for field in fields(owner) if get_origin(field.type) is Annotated}
    return {name: (get_args(kind)[0], get_args(kind)[1]) for name, kind in annotated.items()}


def choices_of(kind: Any) -> tuple[str, ...]:
    """Return the words that a type allows besides numbers.

    >>> choices_of(NumMoments), choices_of(float | None)
    (('all',), ())
    """
    return tuple(word for part in get_args(kind) if get_origin(part) is Literal for word in get_args(part))


def check_sentence(text: str) -> None:
    """Raise a ConfigError if a sentence is empty or not valid UTF-8."""
    if not text.strip():
        raise ConfigError("the sentence to search for is empty; describe a moment")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"the sentence {text!r} is not valid UTF-8; type it again") from None


def parse_when(text: str) -> date | datetime:
    """Return the date or time in a text, with or without a time zone. Raises ConfigError for other text.

    >>> parse_when("2026-05-01"), parse_when("2026-05-01 12:30")
    (datetime.date(2026, 5, 1), datetime.datetime(2026, 5, 1, 12, 30))
    """
    for kind in (date, datetime):
        try:
            return kind.fromisoformat(text)
        except ValueError:
            continue
    raise ConfigError(f"{text!r} is not a date; write 2026-05-01 or 2026-05-01T12:30")


def _check(part: object, prefix: str = "") -> None:
    """Raise a ConfigError if a field is outside the bounds of its spec."""
    for name, (kind, spec) in specs(type(part)).items():
        value = getattr(part, name)
        if get_origin(kind) is Literal and value not in get_args(kind):
            raise ConfigError(f"{name} is {value!r}, must be {' or '.join(map(repr, get_args(kind)))}")
        if isinstance(value, tuple | list) and spec.maximum is not None and len(value) > spec.maximum:
            raise ConfigError(f"{name} has {len(value)} parts, expected at most {spec.maximum:g}")
        if spec.minimum and value == "":
            raise ConfigError(f"{name} is empty; omit it, or name a folder or file")
        kinds = get_args(kind) or (kind,)
        if value in (choices := choices_of(kind)):
            continue
        if (int in kinds or float in kinds) and value is not None:
            is_number = isinstance(value, Integral if int in kinds else Real) and not isinstance(value, bool)
            above = -math.inf if spec.above is None else spec.above
            least = -math.inf if spec.minimum is None else spec.minimum
            most = math.inf if spec.maximum is None else spec.maximum
            number: Any = value if is_number else math.nan
            if not (-math.inf < number < math.inf and above < number and least <= number <= most):
                expected = " or ".join([_bounds(spec), *map(repr, choices)])
                raise ConfigError(f"{prefix}{name} is {value!r}, must be {expected}")


def _bounds(spec: Spec) -> str:
    if spec.above is not None:
        return f"a number above {spec.above:g}"
    if spec.minimum is None:
        return "a finite number"
    return f"at least {spec.minimum:g}" if spec.maximum is None else f"from {spec.minimum:g} to {spec.maximum:g}"


def _number(name: str, value: float | date, *, is_end: bool = False) -> float:
    """Return a number unchanged. For a day, return its start, or its end if `is_end`, in seconds since 1970."""
    if not isinstance(value, date):
        return value
    try:
        if isinstance(value, datetime):
            return value.timestamp()
        day = datetime.combine(value, time())
        return (day + timedelta(days=1)).timestamp() - 1e-6 if is_end else day.timestamp()
    except (ValueError, OverflowError, OSError):
        raise ConfigError(f"{name}: {value} is out of range; use a date such as 2026-05-01") from None


@dataclass(frozen=True)
class Place:
    """A moment of an indexed video (one frame if `end_s` is None), used as an example of what to find or to avoid."""

    video: str | os.PathLike[str]  # the video's path or `video_id`
    start_s: float
    end_s: float | None = None

    def __post_init__(self) -> None:
        end_s = self.start_s if self.end_s is None else self.end_s
        if not (0 <= self.start_s <= end_s < math.inf):
            raise ConfigError(
                f"a place in {os.fspath(self.video)} is from {self.start_s} to {end_s} s; use finite times in order"
            )


Weight: TypeAlias = Annotated[float, Spec("How much this part counts.", above=0, service_maximum=1e6)]


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Weights of the parts of a query. The last three are the weights in Rocchio's formula (1971)."""

    text: Weight = 1.0
    then: Weight = 1.0
    without: Weight = 2.0
    image: Weight = 1.0
    like: Weight = 0.75
    unlike: Weight = 0.15

    def __post_init__(self) -> None:
        _check(self, "the weight of ")


def _at_least(attribute: str, help: str, option: str, service_maximum: float, unit: str = "") -> Spec:
    return Spec(help, option, minimum=0, service_maximum=service_maximum, at_least=attribute, unit=unit)


def _at_most(attribute: str, help: str, option: str, service_maximum: float, unit: str = "") -> Spec:
    return Spec(help, option, minimum=0, service_maximum=service_maximum, at_most=attribute, unit=unit)


_Path: TypeAlias = str | os.PathLike[str] | None
_Seconds: TypeAlias = float | None
_Whole: TypeAlias = int | None


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Conditions that a video must meet to be searched.

    Dates can be a `date`, a `datetime` (local time, unless it has a zone) or text (`2026-05-01`, `2026-05-01T12:30`).
    """

    within: Annotated[_Path, Spec("Only this folder or file.", "--in FOLDER", minimum=1, service_maximum=4096)] = None
    since: Annotated[Day | None, _at_least("changed_s", "Changed on this day or later.", "DATE", 40)] = None
    until: Annotated[Day | None, _at_most("changed_s", "Changed on this day or earlier.", "DATE", 40)] = None
    min_duration_s: Annotated[
        _Seconds, _at_least("duration_s", "Shortest video to include.", "--min-duration TIME", _MAX_S, "s")
    ] = None
    max_duration_s: Annotated[
        _Seconds, _at_most("duration_s", "Longest video to include.", "--max-duration TIME", _MAX_S, "s")
    ] = None
    min_bytes: Annotated[
        _Whole, _at_least("size", "Smallest file to include.", "--min-size BYTES", 10**18, "bytes")
    ] = None
    max_bytes: Annotated[_Whole, _at_most("size", "Largest file to include.", "--max-size BYTES", 10**18, "bytes")] = (
        None
    )
    min_height: Annotated[
        _Whole, _at_least("height", "Smallest picture height, in pixels.", "PIXELS", 10**5, "pixels")
    ] = None
    max_height: Annotated[
        _Whole, _at_most("height", "Largest picture height, in pixels.", "PIXELS", 10**5, "pixels")
    ] = None
    # conditions on attributes of a record: name, lowest and highest value
    ranges: tuple[tuple[str, float, float], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        for name in ("since", "until"):
            if getattr(self, name) is not None:
                require_type(getattr(self, name), date | str, name, "a date such as 2026-05-01")
            if isinstance(text := getattr(self, name), str):
                object.__setattr__(self, name, parse_when(text))
        object.__setattr__(self, "ranges", tuple(self._ranges()))

    def admit(self, record: VideoRecord) -> bool:
        """Return whether a video meets all conditions except `within`."""
        return all(least <= getattr(record, attribute) <= most for attribute, least, most in self.ranges)

    def __str__(self) -> str:
        """Return the conditions as text, with units.

        >>> str(Filters(min_duration_s=90, max_height=720))
        'shortest video to include: 90 s; largest picture height: 720 pixels'
        """
        conditions = []
        for name, (_, spec) in specs(Filters).items():
            if (value := getattr(self, name)) is not None:
                words = spec.help.rstrip(".").removesuffix(f", in {spec.unit}")
                conditions.append(f"{words[0].lower()}{words[1:]}: {value} {spec.unit}".rstrip())
        return "; ".join(conditions)

    def _ranges(self) -> Iterator[tuple[str, float, float]]:
        for name, (_, spec) in specs(type(self)).items():
            value = getattr(self, name)
            if value is not None and spec.at_least:
                yield spec.at_least, _number(name, value), math.inf
            elif value is not None and spec.at_most:
                yield spec.at_most, -math.inf, _number(name, value, is_end=True)


@dataclass(frozen=True, eq=False)
class Query:
    """A query of several parts; docs/queries.md defines the score.

    A query with only a sentence is equivalent to a plain string.

    >>> Query("a dog jumps into a lake", then="the dog shakes itself", without=("a person",)).then
    'the dog shakes itself'
    """

    text: Annotated[str, Spec("Describe what the moment shows.", "TEXT", service_maximum=LONGEST_TEXT)] = ""
    _: KW_ONLY
    then: Annotated[
        str, Spec("What the picture shows next in the same video.", "TEXT", service_maximum=LONGEST_TEXT)
    ] = ""
    within_s: Annotated[
        float,
        Spec(
            "Longest gap before the second moment, in seconds.",
            "--within-s S",
            above=0,
            service_maximum=_MAX_S,
            unit="s",
        ),
    ] = 60.0
    without: Annotated[tuple[str, ...], Spec("What to avoid in the picture.", "--not TEXT", maximum=_MAX_PARTS)] = ()
    without_in: Annotated[
        WithoutIn, Spec("Avoid the whole video if an unwanted scene is anywhere in it.", "--nowhere")
    ] = "shot"
    said: Annotated[str, Spec("What is said at the same time.", "--saying TEXT", service_maximum=LONGEST_TEXT)] = ""
    written: Annotated[
        str, Spec("Text on the screen at the same time.", "--reading TEXT", service_maximum=LONGEST_TEXT)
    ] = ""
    modes: Annotated[
        tuple[Mode, ...],
        Spec("Search only in what is seen, said or written. Default: all.", "--seen --said --written", maximum=3),
    ] = ()
    image: Annotated[Picture | None, Spec("A picture that looks like the moment.", "FILE", is_json=False)] = None
    like: Annotated[
        tuple[Place, ...], Spec("Prefer moments that look like this place.", "PLACE", maximum=_MAX_PARTS)
    ] = ()
    unlike: Annotated[
        tuple[Place, ...], Spec("Avoid moments that look like this place.", "PLACE", maximum=_MAX_PARTS)
    ] = ()
    weights: Annotated[Weights, Spec("Weight of a part of the query.", "--weight PART=X")] = Weights()
    filters: Annotated[Filters, Spec("Which videos are searched at all.")] = Filters()
    group_by: Annotated[GroupBy, Spec("List moments instead of videos.", "--flat")] = "video"
    fold: Annotated[
        float | None,
        Spec(
            "Hide a moment if its cosine with a better moment is at least COSINE (e.g. 0.95), i.e. if the two look "
            "almost alike.",
            "COSINE",
            minimum=-1,
            maximum=1,
        ),
    ] = None

    def __post_init__(self) -> None:
        require_type(self.without, tuple | list, "without", "a tuple of sentences, as ('a person',)")
        if self.image is not None and not _is_picture(self.image):
            raise ConfigError("the image is not a picture; use an 8-bit RGB array of shape (height, width, 3)")
        for name in ("like", "unlike"):
            require_type(getattr(self, name), tuple | list, name, "a tuple of places, as (Place('a.mp4', 3.0),)")
        parts = [(name, getattr(self, name)) for name in ("text", "then", "said", "written")]
        sentences = [*parts, *(("without", text) for text in self.without)]
        for name, sentence in sentences:
            require_type(sentence, str, name, "a sentence")
            if sentence or name == "without" or not (name != "text" or self.has_examples or self.has_passages):
                check_sentence(sentence)
        require_type(self.modes, tuple | list, "modes", "a tuple of modes, as ('said',)")
        if unknown := [mode for mode in self.modes if mode not in get_args(Mode)]:
            raise ConfigError(f"modes contains {unknown[0]!r}, expected {', '.join(get_args(Mode))}")
        if self.then and (self.has_passages or (self.modes and "seen" not in self.modes)):
            raise ConfigError("then is compared with pictures, so it needs 'seen' in modes and no 'said' or 'written'")
        if self.modes and "seen" not in self.modes and (self.has_examples or self.without):
            raise ConfigError("examples and sentences to avoid need 'seen' in modes; add it, or remove them")
        if self.has_examples and not self.text and not (self.image is not None or self.like):
            raise ConfigError("the query has only examples to avoid; add a sentence, an image or a similar place")
        require_type(self.weights, Weights, "weights", "untrimmed.Weights(...)")
        require_type(self.filters, Filters, "filters", "untrimmed.Filters(...)")
        _check(self)

    @property
    def has_passages(self) -> bool:
        """Whether the query has a text that must be said or written."""
        return bool(self.said or self.written)

    @property
    def needs_passages(self) -> bool:
        """Whether each hit must match a passage."""
        return self.has_passages or (bool(self.modes) and "seen" not in self.modes)

    @property
    def is_seen(self) -> bool:
        """Whether frames are searched: there is a sentence or an example, and `modes` is empty or contains "seen"."""
        return (not self.modes or "seen" in self.modes) and bool(self.text or self.has_examples)

    @property
    def has_examples(self) -> bool:
        """Whether the query has pictures or places."""
        return self.image is not None or bool(self.like or self.unlike)


@dataclass(frozen=True, kw_only=True)
class Cutoff:
    """Limits on the number of hits and moments, and on their score."""

    limit: Annotated[int, Spec("Maximum number of hits.", "-k --limit N", minimum=1, service_maximum=500)] = 10
    moments: Annotated[
        NumMoments,
        Spec(
            "Maximum number of moments per video. all: all moments, in time order.",
            "N|all",
            minimum=1,
            service_maximum=50,
        ),
    ] = 3
    min_moment_s: Annotated[
        float, Spec("Shortest moment, in seconds.", "--min-moment S", minimum=0, service_maximum=_MAX_S, unit="s")
    ] = 1.0
    edges: Annotated[Edges, Spec("Move starts and ends of moments to the exact shot changes.", "--exact-cuts")] = (
        "sampled"
    )
    min_score: Annotated[
        float | None,
        Spec(
            "Hide hits with a lower score. Usual scores depend on the encoder and the model, so search without this "
            "option first.",
            "X",
        ),
    ] = None
    min_confidence: Annotated[
        float | None,
        Spec(
            "Hide hits with a lower confidence, e.g. 0.5. Hits have a confidence if the query is a "
            "sentence, the encoder is `builtin`, and the library has no model.",
            "X",
            minimum=0,
            maximum=1,
        ),
    ] = None
    curve_points: Annotated[
        int,
        Spec(
            "Number of values of each hit's `curve`; 0: no curves.",
            minimum=0,
            service_maximum=500,
            is_for_display=True,
        ),
    ] = 0

    def __post_init__(self) -> None:
        _check(self)


def _is_picture(image: object) -> bool:
    shape: tuple[int, ...] = getattr(image, "shape", ())
    return len(shape) == 3 and shape[2] == 3 and str(getattr(image, "dtype", "")) == "uint8"
