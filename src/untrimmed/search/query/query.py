"""What is searched for where one sentence does not say it all, and among which videos."""

from __future__ import annotations

import math
import os
from dataclasses import KW_ONLY, dataclass, fields
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Literal

from untrimmed.errors import ConfigError, require_type
from untrimmed.search.query.sentence import check_sentence
from untrimmed.search.store.records import VideoRecord

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import UInt8

MOST_PARTS = 32  # sentences to leave out, and places like or unlike: each is one product with all frames, or one read


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


@dataclass(frozen=True, kw_only=True)
class Weights:
    """How much each part of a query counts; the last three are those of Rocchio's feedback (1971)."""

    text: float = 1.0
    then: float = 1.0
    without: float = 1.0
    image: float = 1.0
    like: float = 0.75
    unlike: float = 0.15

    def __post_init__(self) -> None:
        for field in fields(self):
            weight = getattr(self, field.name)
            if not (isinstance(weight, int | float) and 0 < weight < math.inf):
                raise ConfigError(f"the weight of {field.name} is {weight!r}, must be a number above 0")


_IN_WORDS = {
    "within": "below {}",
    "since": "changed since {}",
    "until": "changed until {}",
    "min_duration_s": "at least {:g} s long",
    "max_duration_s": "at most {:g} s long",
    "min_bytes": "at least {:,} bytes",
    "max_bytes": "at most {:,} bytes",
    "min_height": "at least {} pixels high",
    "max_height": "at most {} pixels high",
}


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Which videos are searched at all: the best are chosen among those that meet every condition."""

    within: str | os.PathLike[str] | None = None  # below this folder, or this file
    since: date | datetime | None = None  # when the file was last changed; without a zone it is local time
    until: date | datetime | None = None  # a date without a time: up to the end of that day
    min_duration_s: float | None = None
    max_duration_s: float | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    min_height: int | None = None  # of the picture, in pixels
    max_height: int | None = None

    def __post_init__(self) -> None:
        for name, when, end in (("since", self.since, False), ("until", self.until, True)):
            try:
                if when is not None:
                    _seconds(when, end=end)
            except (ValueError, OverflowError, OSError):
                raise ConfigError(f"{name} is {when}, wanted a day that clocks reach") from None

    def admit(self, record: VideoRecord) -> bool:
        """Whether a video meets all conditions but that on its folder."""
        changed_s = record.mtime_ns / 1e9
        return (
            _between(changed_s, _seconds(self.since), _seconds(self.until, end=True))
            and _between(record.duration_s, self.min_duration_s, self.max_duration_s)
            and _between(record.size, self.min_bytes, self.max_bytes)
            and _between(record.height, self.min_height, self.max_height)
        )

    @property
    def look_at_each(self) -> bool:
        """Whether there is a condition that `admit` has to look at."""
        return any(getattr(self, field.name) is not None for field in fields(self) if field.name != "within")

    def __str__(self) -> str:
        """The conditions that are set, in words."""
        conditions = ((words, getattr(self, name)) for name, words in _IN_WORDS.items())
        return ", ".join(words.format(value) for words, value in conditions if value is not None)


@dataclass(frozen=True, eq=False)
class Query:
    """What to look for: a sentence, examples, or both; what follows it; what must not be seen; and among which videos.

    docs/queries.md says exactly how the parts make one score. A sentence alone is the same as the plain string.

    >>> Query("a dog jumps into a lake", then="the dog shakes itself", without=("a person",)).then
    'the dog shakes itself'
    """

    text: str = ""
    _: KW_ONLY
    then: str = ""  # what is seen afterwards
    within_s: float = 60.0  # at most so many seconds later
    without: tuple[str, ...] = ()
    image: UInt8[np.ndarray, "Y X 3"] | None = None  # RGB
    like: tuple[Place, ...] = ()
    unlike: tuple[Place, ...] = ()
    weights: Weights = Weights()
    filters: Filters = Filters()
    group_by: Literal["video", "moment"] = "video"  # a hit is a video with its moments, or one moment
    fold: float | None = None  # moments whose mean vectors have at least this cosine count as one

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
        if not 0 < self.within_s < math.inf:
            raise ConfigError(f"within_s is {self.within_s}, must be a number of seconds above 0")
        if self.group_by not in ("video", "moment"):
            raise ConfigError(f"group_by is {self.group_by!r}, must be 'video' or 'moment'")
        if self.fold is not None and not -1 <= self.fold <= 1:
            raise ConfigError(f"fold is {self.fold}, must be a cosine: 0.95 folds what looks almost the same")
        if (most := max(map(len, (self.without, self.like, self.unlike)))) > MOST_PARTS:
            raise ConfigError(f"the query has {most} parts of one kind, at most {MOST_PARTS} are searched for")

    @property
    def has_examples(self) -> bool:
        """Whether pictures or places say what is wanted, or not."""
        return self.image is not None or bool(self.like or self.unlike)


def _is_picture(image: object) -> bool:
    shape: tuple[int, ...] = getattr(image, "shape", ())
    return len(shape) == 3 and shape[2] == 3 and str(getattr(image, "dtype", "")) == "uint8"


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


def _seconds(when: date | datetime | None, *, end: bool = False) -> float | None:
    """Since 1970; of a day its beginning, or its end."""
    if when is None or isinstance(when, datetime):
        return None if when is None else when.timestamp()
    day = datetime.combine(when, time())
    return (day + timedelta(days=1)).timestamp() - 1e-6 if end else day.timestamp()


def _between(value: float, least: float | None, most: float | None) -> bool:
    return (least is None or value >= least) and (most is None or value <= most)
