"""What to search for, among which videos, and how many hits: each field says once what every interface says of it.

The command line, the service, agents' tools, the page and `Filters.admit` read the `Spec` of a field, so that a new
filter is one line in `Filters`. Annotations are evaluated in this module: they hold the specs.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field, fields
from datetime import date, datetime, time, timedelta
from numbers import Real
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args, get_origin

from untrimmed.errors import ConfigError, require_type
from untrimmed.search.store.records import VideoRecord

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import UInt8

    Picture: TypeAlias = UInt8[np.ndarray, "Y X 3"]
else:
    Picture = Any  # a search that a service answers imports no arrays

Day: TypeAlias = date | datetime | str
GroupBy: TypeAlias = Literal["video", "moment"]
LONGEST_TEXT = 4000
_MOST_PARTS = 32  # sentences to leave out, and places like or unlike: each is one product with all frames, or one read
_LONGEST_S = 1e7


@dataclass(frozen=True)
class Spec:
    """What all interfaces say of a field. Bounds of a text or a tuple are those of its length."""

    help: str
    option: str = ""  # its flags on the command line where they are not its name, and how it is typed there: "-k N"
    above: float | None = None
    least: float | None = None
    most: float | None = None
    served: float | None = None  # the most that a service takes; a library takes more
    at_least: str = ""  # of a filter: the attribute of a video's record that has to be at least the value
    at_most: str = ""
    is_json: bool = True


def specs(owner: type) -> dict[str, tuple[Any, Spec]]:
    """The type and the spec of each field of a part of a query."""
    annotated = {one.name: one.type for one in fields(owner) if get_origin(one.type) is Annotated}
    return {name: (get_args(kind)[0], get_args(kind)[1]) for name, kind in annotated.items()}


def check_sentence(text: str) -> None:
    """Refuse what is no sentence.

    Raises:
        ConfigError: It is empty or no text.
    """
    if not text.strip():
        raise ConfigError("the sentence to search for is empty; describe what is to be seen")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"the sentence {text!r} is not valid UTF-8; type it again") from None


def parse_when(text: str) -> date | datetime:
    """A day or a time as people write it: 2026-05-01, 2026-05-01T12:30, with or without a zone.

    Raises:
        ConfigError: It is neither.

    >>> parse_when("2026-05-01"), parse_when("2026-05-01 12:30")
    (datetime.date(2026, 5, 1), datetime.datetime(2026, 5, 1, 12, 30))
    """
    for kind in (date, datetime):
        try:
            return kind.fromisoformat(text)
        except ValueError:
            continue
    raise ConfigError(f"{text!r} is no date; write 2026-05-01 or 2026-05-01T12:30")


def _check(part: object, prefix: str = "") -> None:
    """Compare the values of a part of a query with the bounds of its fields.

    Raises:
        ConfigError: One is out of bounds.
    """
    for name, (kind, spec) in specs(type(part)).items():
        value = getattr(part, name)
        if get_origin(kind) is Literal and value not in get_args(kind):
            raise ConfigError(f"{name} is {value!r}, must be {' or '.join(map(repr, get_args(kind)))}")
        if isinstance(value, tuple | list) and spec.most is not None and len(value) > spec.most:
            raise ConfigError(f"{name} has {len(value)} parts, at most {spec.most:g} are searched for")
        if spec.least and value == "":
            raise ConfigError(f"{name} is empty; leave it out, or name a folder or file")
        if kind in (int, float) or isinstance(value, Real):
            above = -math.inf if spec.above is None else spec.above
            least = -math.inf if spec.least is None else spec.least
            most = math.inf if spec.most is None else spec.most
            number: Any = value if isinstance(value, Real) else math.nan
            if not (-math.inf < number < math.inf and above < number and least <= number <= most):
                raise ConfigError(f"{prefix}{name} is {value!r}, must be {_bounds(spec)}")


def _bounds(spec: Spec) -> str:
    if spec.above is not None:
        return f"a number above {spec.above:g}"
    if spec.least is None:
        return "a finite number"
    return f"at least {spec.least:g}" if spec.most is None else f"from {spec.least:g} to {spec.most:g}"


def _number(name: str, value: float | date, *, is_end: bool = False) -> float:
    """A value as records have it: of a day the seconds since 1970 of its beginning, or its end."""
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
    """A moment of an indexed video, or with no end the frame at a time: an example of what is wanted, or is not."""

    video: str | os.PathLike[str]  # its path, or its `video_id`
    start_s: float
    end_s: float | None = None

    def __post_init__(self) -> None:
        end_s = self.start_s if self.end_s is None else self.end_s
        if not (0 <= self.start_s <= end_s < math.inf):
            raise ConfigError(
                f"a place in {os.fspath(self.video)} is from {self.start_s} to {end_s} s; name finite seconds in order"
            )


Weight: TypeAlias = Annotated[float, Spec("How much this part counts.", above=0, served=1e6)]


@dataclass(frozen=True, kw_only=True)
class Weights:
    """How much each part of a query counts; the last three are those of Rocchio's feedback (1971)."""

    text: Weight = 1.0
    then: Weight = 1.0
    without: Weight = 1.0
    image: Weight = 1.0
    like: Weight = 0.75
    unlike: Weight = 0.15

    def __post_init__(self) -> None:
        _check(self, "the weight of ")


def _least(attribute: str, help: str, option: str, served: float) -> Spec:
    return Spec(help, option, least=0, served=served, at_least=attribute)


def _most(attribute: str, help: str, option: str, served: float) -> Spec:
    return Spec(help, option, least=0, served=served, at_most=attribute)


_Path: TypeAlias = str | os.PathLike[str] | None
_Seconds: TypeAlias = float | None
_Whole: TypeAlias = int | None


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Which videos are searched at all: the best are chosen among those that meet every condition.

    A day is a `date`, a `datetime` (local time, unless it has a zone) or text (`2026-05-01`, `2026-05-01T12:30`).
    """

    within: Annotated[_Path, Spec("Only this folder or file.", "--in FOLDER", least=1, served=4096)] = None
    since: Annotated[Day | None, _least("changed_s", "Changed since this day.", "DATE", 40)] = None
    until: Annotated[Day | None, _most("changed_s", "Changed until this day.", "DATE", 40)] = None
    min_duration_s: Annotated[
        _Seconds, _least("duration_s", "Shortest video to include.", "--min-duration TIME", _LONGEST_S)
    ] = None
    max_duration_s: Annotated[
        _Seconds, _most("duration_s", "Longest video to include.", "--max-duration TIME", _LONGEST_S)
    ] = None
    min_bytes: Annotated[_Whole, _least("size", "Smallest file to include.", "--min-size BYTES", 10**18)] = None
    max_bytes: Annotated[_Whole, _most("size", "Largest file to include.", "--max-size BYTES", 10**18)] = None
    min_height: Annotated[_Whole, _least("height", "Smallest picture height, in pixels.", "PIXELS", 10**5)] = None
    max_height: Annotated[_Whole, _most("height", "Largest picture height, in pixels.", "PIXELS", 10**5)] = None
    # Of each condition that `admit` looks at: the attribute of a record, its least and its greatest value.
    ranges: tuple[tuple[str, float, float], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        for name in ("since", "until"):
            if isinstance(text := getattr(self, name), str):
                object.__setattr__(self, name, parse_when(text))
        object.__setattr__(self, "ranges", tuple(self._ranges()))

    def admit(self, record: VideoRecord) -> bool:
        """Whether a video meets all conditions but that on its folder."""
        return all(least <= getattr(record, attribute) <= most for attribute, least, most in self.ranges)

    def __str__(self) -> str:
        """The conditions that are set, in words."""
        conditions = ((spec.help.rstrip("."), getattr(self, name)) for name, (_, spec) in specs(Filters).items())
        return "; ".join(f"{words[0].lower()}{words[1:]}: {value}" for words, value in conditions if value is not None)

    def _ranges(self) -> Iterator[tuple[str, float, float]]:
        for name, (_, spec) in specs(type(self)).items():
            value = getattr(self, name)
            if value is not None and spec.at_least:
                yield spec.at_least, _number(name, value), math.inf
            elif value is not None and spec.at_most:
                yield spec.at_most, -math.inf, _number(name, value, is_end=True)


@dataclass(frozen=True, eq=False)
class Query:
    """What to look for: a sentence, examples, or both; what follows it; what must not be seen; and among which videos.

    docs/queries.md says exactly how the parts make one score. A sentence alone is the same as the plain string.

    >>> Query("a dog jumps into a lake", then="the dog shakes itself", without=("a person",)).then
    'the dog shakes itself'
    """

    text: Annotated[str, Spec("Describe what the moment shows.", "TEXT", served=LONGEST_TEXT)] = ""
    _: KW_ONLY
    then: Annotated[str, Spec("What happens next in the same video.", "TEXT", served=LONGEST_TEXT)] = ""
    within_s: Annotated[
        float, Spec("Maximum number of seconds until then.", "--within-s S", above=0, served=_LONGEST_S)
    ] = 60.0
    without: Annotated[tuple[str, ...], Spec("What the moment must not show.", "--not TEXT", most=_MOST_PARTS)] = ()
    image: Annotated[Picture | None, Spec("A picture that looks like the moment.", "FILE", is_json=False)] = None
    like: Annotated[tuple[Place, ...], Spec("Similar to this frame or moment.", "PLACE", most=_MOST_PARTS)] = ()
    unlike: Annotated[tuple[Place, ...], Spec("Unlike this frame or moment.", "PLACE", most=_MOST_PARTS)] = ()
    weights: Annotated[Weights, Spec("Weight of a part.", "--weight PART=X")] = Weights()
    filters: Annotated[Filters, Spec("Which videos are searched at all.")] = Filters()
    group_by: Annotated[GroupBy, Spec("List moments instead of videos.", "--flat")] = "video"
    fold: Annotated[
        float | None,
        Spec("Hide near-duplicates: moments with at least this cosine.", "COSINE", least=-1, most=1),
    ] = None

    def __post_init__(self) -> None:
        require_type(self.without, tuple | list, "without", "a tuple of sentences, as ('a person',)")
        if self.image is not None and not _is_picture(self.image):
            raise ConfigError("the image is no picture; give an array of RGB, 8 bits each, of shape (height, width, 3)")
        for name in ("like", "unlike"):
            require_type(getattr(self, name), tuple | list, name, "a tuple of places, as (Place('a.mp4', 3.0),)")
        for what, sentence in (("text", self.text), ("then", self.then), *(("without", some) for some in self.without)):
            require_type(sentence, str, what, "a sentence")
            if sentence or what == "without" or not (self.has_examples or what == "then"):
                check_sentence(sentence)
        if not self.text and not (self.image is not None or self.like):
            raise ConfigError(
                "the query names only what is not wanted; give a sentence, an image or a place it is like"
            )
        _check(self)

    @property
    def has_examples(self) -> bool:
        """Whether pictures or places say what is wanted, or not."""
        return self.image is not None or bool(self.like or self.unlike)


@dataclass(frozen=True, kw_only=True)
class Cutoff:
    """How many hits at most, with how many moments each, and how good they have to be."""

    limit: Annotated[int, Spec("Maximum number of hits.", "-k --limit N", least=1, served=500)] = 10
    moments: Annotated[int, Spec("Maximum number of moments per video.", "N", least=1, served=50)] = 3
    min_score: Annotated[
        float | None,
        Spec(
            "Hide hits with a lower score (a cosine without a trained model). A high score is 0.2 with the "
            "encoder builtin.",
            "X",
        ),
    ] = None
    min_confidence: Annotated[
        float | None,
        Spec(
            "Hide hits with a lower confidence, e.g. 0.5. Only sentences searched with the encoder builtin and no "
            "model have one.",
            "X",
            least=0,
            most=1,
        ),
    ] = None

    def __post_init__(self) -> None:
        _check(self)


def _is_picture(image: object) -> bool:
    shape: tuple[int, ...] = getattr(image, "shape", ())
    return len(shape) == 3 and shape[2] == 3 and str(getattr(image, "dtype", "")) == "uint8"
