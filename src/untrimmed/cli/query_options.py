"""Options that say more of what is searched for than one sentence does, and the query they make."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from untrimmed.cli.console import parse_time
from untrimmed.cli.options import parse_path
from untrimmed.errors import ConfigError, FeatureError, UnknownNameError

if TYPE_CHECKING:
    from untrimmed.search.query.query import Filters, Place, Query, Weights

_BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
MORE, ONLY, FORM = "More than a sentence", "Only some videos", "Form of the answer"


def _option(*names: str, metavar: str, help: str, panel: str, parser: Any = None) -> Any:
    return typer.Option(*names, metavar=metavar, help=help, parser=parser, rich_help_panel=panel, show_default=False)


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


_PLACE = "HIT|FILE@TIME|FILE@START-END"
ThenOption = Annotated[
    str,
    _option("--then", metavar="TEXT", help="What is seen afterwards, in the same video.", panel=MORE),
]
FollowOption = Annotated[
    float | None,
    typer.Option(
        "--within-s",
        min=0.0,
        metavar="S",
        help="How much later at most.  \\[default: 60.0]",
        show_default=False,
        rich_help_panel=MORE,
    ),
]
NotOption = Annotated[
    list[str] | None,
    _option("--not", metavar="TEXT", help="What must not be seen at that time; may be repeated.", panel=MORE),
]
ImageOption = Annotated[
    Path | None,
    _option("--image", metavar="FILE", help="A picture that it looks like, too.", panel=MORE, parser=parse_path),
]
LikeOption = Annotated[
    list[str] | None,
    _option(
        "--like",
        metavar=_PLACE,
        help="More like this: a hit of the last search (3, 3.2), or a frame or moment of an indexed video, named by "
        "path or id; may be repeated.",
        panel=MORE,
    ),
]
UnlikeOption = Annotated[
    list[str] | None, _option("--unlike", metavar=_PLACE, help="Less like this; may be repeated.", panel=MORE)
]
WeightOption = Annotated[
    list[str] | None,
    _option("--weight", metavar="PART=X", help="How much text, then, not, image, like or unlike count.", panel=MORE),
]
WithinOption = Annotated[
    Path | None,
    _option("--in", metavar="FOLDER", help="Only videos below this folder.", panel=ONLY, parser=parse_path),
]
SinceOption = Annotated[
    str | None, _option("--since", metavar="DATE", help="Files last changed then or later.", panel=ONLY)
]
UntilOption = Annotated[
    str | None, _option("--until", metavar="DATE", help="Files last changed before its end.", panel=ONLY)
]
MinDurationOption = Annotated[
    str | None,
    _option("--min-duration", metavar="TIME", help="90, 1:30 or longer.", panel=ONLY),
]
MaxDurationOption = Annotated[str | None, _option("--max-duration", metavar="TIME", help="No longer.", panel=ONLY)]
MinSizeOption = Annotated[str | None, _option("--min-size", metavar="BYTES", help="20M or larger.", panel=ONLY)]
MaxSizeOption = Annotated[str | None, _option("--max-size", metavar="BYTES", help="No larger.", panel=ONLY)]
MinHeightOption = Annotated[
    int | None, _option("--min-height", metavar="PIXELS", help="A picture of 720 or more.", panel=ONLY)
]
MaxHeightOption = Annotated[int | None, _option("--max-height", metavar="PIXELS", help="No higher.", panel=ONLY)]
FlatOption = Annotated[
    bool, typer.Option("--flat", help="One list of moments instead of videos.", rich_help_panel=FORM)
]
FoldOption = Annotated[
    float | None,
    _option("--fold", metavar="COSINE", help="Show once what looks as much alike, e.g. 0.95.", panel=FORM),
]


def read_filters(
    within: Path | None,
    dates: tuple[str | None, ...],
    lengths: tuple[str | None, ...],
    sizes: tuple[str | None, ...],
    heights: tuple[int | None, ...],
) -> Filters:
    """A folder, and the least and most of dates, lengths, sizes and heights, as they were typed.

    Raises:
        ConfigError: One is not written as such a thing is.
    """
    from untrimmed.search.query.query import Filters, parse_when

    since, until = (parse_when(text) if text else None for text in dates)
    shortest, longest = (parse_time(text) if text else None for text in lengths)
    smallest, largest = (parse_size(text) if text else None for text in sizes)
    return Filters(
        within=within,
        since=since,
        until=until,
        min_duration_s=shortest,
        max_duration_s=longest,
        min_bytes=smallest,
        max_bytes=largest,
        min_height=heights[0],
        max_height=heights[1],
    )


def read_query(
    text: str,
    then: str,
    within_s: float | None,
    without: Sequence[str] | None,
    image: Path | None,
    places: Mapping[str, Sequence[str]],
    weights: Weights,
    library: Path,
) -> Query:
    """What is to be seen, with pictures read and places looked up.

    Raises:
        ConfigError: It makes no sense, see `Query`.
        FeatureError: The picture cannot be read.
        UnknownNameError: A place is a hit that there was not.
    """
    from untrimmed.search.query.query import Query

    if within_s is not None and not then:
        raise ConfigError("--within-s is how much later --then may be; add --then TEXT, or leave it out")
    like, unlike = (tuple(parse_place(place, library) for place in places[what]) for what in ("like", "unlike"))
    picture = read_picture(image) if image is not None else None
    return Query(
        text,
        then=then,
        within_s=Query.within_s if within_s is None else within_s,
        without=tuple(without or ()),
        image=picture,
        like=like,
        unlike=unlike,
        weights=weights,
    )


def parse_place(text: str, library: Path) -> Place:
    """A hit of the last search by its number, or a frame or a moment of an indexed video.

    Raises:
        ConfigError: It has another form.
        UnknownNameError: There was no such hit.
    """
    from untrimmed.cli.last_search import recall
    from untrimmed.search.query.query import Place

    video, at, span = text.rpartition("@")
    if not at:
        hits = recall(library, text)
        if len(hits) > 1:
            raise ConfigError(f"{text!r} names {len(hits)} hits; name each by itself")
        return Place(hits[0].video, hits[0].start_s, hits[0].end_s)
    start, dash, end = span.partition("-")
    return Place(video, parse_time(start), parse_time(end) if dash else None)


def parse_weights(given: list[str] | None) -> Weights:
    """PART=X, as options give them.

    Raises:
        ConfigError: No number.
        UnknownNameError: No such part.
    """
    from untrimmed.search.query.query import Weights

    named = {("not" if field.name == "without" else field.name): field.name for field in fields(Weights)}
    weights = {}
    for one in given or ():
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
