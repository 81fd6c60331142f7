"""`untrimmed search` and `untrimmed similar`: find moments by a sentence or a picture."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from untrimmed.cli.console import (
    NOTHING_FOUND,
    clock,
    parse_time,
    print_json,
    print_marked,
    progress_console,
    result_console,
)
from untrimmed.cli.last_search import remember
from untrimmed.cli.options import (
    ImportOption,
    JsonOption,
    LibraryOption,
    PrecisionOption,
    RayOption,
    ShardsOption,
    output_option,
    parse_path,
    runtime_option,
)
from untrimmed.cli.query_options import is_hit_number, parse_place, query_options, read_part, read_query, with_flags
from untrimmed.errors import ConfigError, FeatureError, shown
from untrimmed.files import whole_file
from untrimmed.precision import Precision, read_precision
from untrimmed.search.query.query import Cutoff, Filters, Place, Query
from untrimmed.search.store.listing import path_of
from untrimmed.search.store.records import library_folder

if TYPE_CHECKING:
    from untrimmed.search.query.hits import Hit, Hits
    from untrimmed.span import Evidence
    from untrimmed.types import Moment

_ROUNDED_S = 0.1  # a printed time may be this many seconds after the end of the video, because it is rounded
_LIKELY = 0.5
_TEXT_CHARACTERS = 160  # longest passage that is printed whole
_CHARACTERS_BEFORE = 40  # characters that are printed before the first matching word of a longer passage
# largest number of characters of a video's name in the file name of a frame: at most 200 of the 255 bytes of a name
_NAME_CHARACTERS = 50

SheetOption = Annotated[
    Path | None,
    output_option(
        "--html", parser=parse_path, metavar="FILE", help="Write the hits to one web page with pictures and links."
    ),
]
NoServiceOption = Annotated[
    bool,
    runtime_option(
        "--no-service",
        help="Search in this process, even if `untrimmed serve` is running. The other options of this group imply "
        "--no-service.",
        show_default=False,
    ),
]
FramesOption = Annotated[
    Path | None, output_option("--save-frames", metavar="DIR", help="Save a frame of each hit to this folder.")
]


@query_options()
def search(
    library: LibraryOption = None,
    json_output: JsonOption = False,
    save_frames: FramesOption = None,
    sheet: SheetOption = None,
    ray: RayOption = None,
    shards: ShardsOption = 1,
    precision: PrecisionOption = "auto",
    no_service: NoServiceOption = False,
    imports: ImportOption = None,
    **query_values: Any,
) -> None:
    """Find the moments that match a sentence.

    Example: untrimmed search a dog jumps into a lake -k 5

    A PLACE is a hit of the last search (3, or 3.2 for its second moment),
    FILE@TIME or FILE@START-END. FILE is the path or id of a video.
    docs/queries.md explains how --then, --not, --like etc. change the score.

    Save a hit with: untrimmed cut HIT -o FILE.
    Exit code 1: no hits, or the encoder knows no word of the sentence.
    """
    folder = library_folder(library)
    query, cutoff = read_query(query_values, folder)
    if sheet is not None and sheet.is_dir():
        raise ConfigError(f"--html {shown(sheet)}: is a folder, expected the name of a file")
    hits, update_cache = _search(folder, query, cutoff, not no_service, read_precision(precision), ray, shards)
    parts = ("then", "said", "written", "without", "image", "like", "unlike")
    request = {"text": query.text} | {part: query_values[part] for part in parts if query_values[part]}
    if sheet is not None:
        from untrimmed.cli.contact_sheet import write_sheet

        write_sheet(sheet, ", then ".join(filter(None, [query.text or "hits", query.then])), hits, folder)
        progress_console.print(f"wrote {shown(sheet)}; open it in a browser")
    _show(folder, request, hits, json_output, save_frames, update_cache)


def _do_nothing() -> None:
    """Do nothing. It is used if a running service answered, because the service updates the cache."""


def _search(
    folder: Path, query: Query, cutoff: Cutoff, service: bool, precision: Precision, ray: str | None, shards: int
) -> tuple[Hits, Callable[[], None]]:
    """Return the hits, and a function that updates the library's cache.

    If a service for this library is running, it answers the search.
    """
    try:
        if service and ray is None and shards == 1 and precision == "auto":
            from untrimmed.server.client import ask_service

            if (hits := ask_service(folder, query, cutoff)) is not None:
                return hits, _do_nothing
        import untrimmed

        with contextlib.closing(untrimmed.open(folder, precision=precision, ray=ray, shards=shards)) as opened:
            return opened.search(query, **vars(cutoff)), opened.engine.update_cache
    except ConfigError as error:
        raise ConfigError(with_flags(str(error))) from None


@query_options("limit", "moments", "min_score", "within")
def similar(
    example: Annotated[
        str, typer.Argument(metavar="IMAGE|FILE@TIME|HIT", help="A picture, a time in a video, or a hit.")
    ],
    library: LibraryOption = None,
    json_output: JsonOption = False,
    save_frames: FramesOption = None,
    precision: PrecisionOption = "auto",
    no_service: NoServiceOption = False,
    imports: ImportOption = None,
    **query_values: Any,
) -> None:
    """Find moments that look like a picture, a frame or a hit.

    Examples: untrimmed similar beach.jpg, untrimmed similar clip.mp4@1:02,
    untrimmed similar 3 (the third hit of the last search; 3.2 is its second
    moment)
    """
    from untrimmed.video.reader import frame_at, is_video_path, read_image

    folder = library_folder(library)
    path, at, time = example.rpartition("@")
    exists = os.path.lexists(example)
    image = None
    like: tuple[Place, ...] = ()
    if is_hit_number(example) and not exists:
        like = (parse_place(example, folder),)
    elif at and not exists:
        image = frame_at(path_of(folder, path), parse_time(time), last_for_s=_ROUNDED_S)
    elif not os.path.isfile(example):
        raise FeatureError(f"{example}: no such file; name a picture, or a video and a time: clip.mp4@12.5")
    elif is_video_path(example):
        raise ConfigError(f"{example}: is a video without a time; add one: {example}@12.5")
    else:
        image = read_image(Path(example))
    query = Query(image=image, like=like, filters=read_part(Filters, query_values, folder))
    cutoff = read_part(Cutoff, query_values, folder)
    hits, update_cache = _search(folder, query, cutoff, not no_service, read_precision(precision), None, 1)
    _show(folder, {"like": example}, hits, json_output, save_frames, update_cache)


def _show(
    library: Path,
    request: dict[str, Any],
    hits: Hits,
    json_output: bool,
    save_frames: Path | None,
    update_cache: Callable[[], None],
) -> None:
    frames = _save_frames(hits, save_frames) if save_frames is not None else []
    document = {**request, **hits.to_json()}
    for hit, frame in zip(document["hits"], frames, strict=False):
        if frame is not None:
            hit["frame"] = str(frame)
    sentence = ", then ".join(request[part] for part in ("text", "then") if request.get(part))
    remember(library, hits, sentence, query=", ".join(f"{part}: {value}" for part, value in request.items() if value))
    for warning in hits.warnings:
        print_marked("warning:", "yellow", f" {warning}")
    if json_output:
        print_json(document)
    no_confidence = "" if all(hit.confidence is None for hit in hits) else " " * len("  100%")
    for rank, hit in enumerate(hits if not json_output else (), start=1):
        is_sorted_by_time = (hit.moments[0].start_s, hit.moments[0].end_s) != (hit.start_s, hit.end_s)
        for number, moment in enumerate(hit.moments):
            then = f"  then {_span(hit.then[number])}" if hit.then else ""
            if is_sorted_by_time and (moment.start_s, moment.end_s) == (hit.start_s, hit.end_s):
                then += "  (best)"
            places = [moment, hit.then[number]] if hit.then else [moment]
            reasons = [_reason(evidence, place) for place in places for evidence in place.evidence]
            lines = [f"{'':15}{line}" for line in reasons if line]
            if number == 0:
                confidence = no_confidence if hit.confidence is None else f"  {hit.confidence:4.0%}"
                figures = f"{rank:3d}  {hit.score:6.3f}{confidence}"
                result_console.print(f"{figures}  {_span(moment)}{then}  {shown(hit.video)}")
            else:
                result_console.print(f"{'':13}{'':{len(confidence)}}{_span(moment)}{then}".rstrip())
            for line in lines:
                result_console.print(line, markup=False)
        for video in hit.folded:
            result_console.print(f"{'':13}near-duplicate: {shown(video)}")
    has_text = any(why.text for hit in hits for moment in hit.moments for why in moment.evidence)
    confidences = [hit.confidence for hit in hits if hit.confidence is not None]
    best = max(confidences, default=1.0) if not has_text else 1.0
    if round(best, 2) < _LIKELY and not json_output:
        progress_console.print(f"there may be no match: the best hit has {best:.0%} confidence")
    # The cache is updated after printing, so that the user does not wait. Later searches then read it, not the table.
    update_cache()
    if not hits:
        progress_console.print("nothing found" if hits.warnings else "no hits above the threshold")
        raise typer.Exit(NOTHING_FOUND)


def _reason(evidence: Evidence, moment: Moment) -> str:
    """Return a line that shows a passage, with the time of its first matching word in the moment if it is known.

    If the evidence is no passage, the text is empty.
    """
    if not evidence.text:
        return ""
    times_s = [word.start_s for word in evidence.words if word.start_s is not None]
    start_s = next(
        (time_s for time_s in times_s if moment.start_s <= time_s < moment.end_s),
        max(evidence.start_s, min(moment.start_s, evidence.end_s)),
    )
    return f"{evidence.mode} at {clock(start_s)} ({evidence.source}): {_excerpt(evidence)}"


def _excerpt(evidence: Evidence) -> str:
    """Return the part of a passage with the first matching words."""
    text = evidence.text
    start = 0
    if evidence.words and evidence.words[-1].end > _TEXT_CHARACTERS:
        start = max(0, min(evidence.words[0].start - _CHARACTERS_BEFORE, len(text) - _TEXT_CHARACTERS))
        start = text.find(" ", start, evidence.words[0].start) + 1 or start
    stop = start + _TEXT_CHARACTERS
    excerpt = f"{'…' if start else ''}{text[start:stop]}{'…' if stop < len(text) else ''}"
    return "".join(
        character if character.isprintable() or character in "\u200c\u200d" else " " for character in excerpt
    )


def _span(moment: Moment) -> str:
    return f"{clock(moment.start_s):>9} - {clock(moment.end_s):<9}"


def _save_frames(hits: Sequence[Hit], folder: Path) -> list[Path | None]:
    """Save one JPEG per hit, the frame at the peak of its first moment, and return the paths.

    If a video cannot be read, a message is printed and the path is None.
    """
    from PIL import Image

    from untrimmed.video.reader import frame_at

    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path | None] = []
    for rank, hit in enumerate(hits, start=1):
        peak_s = hit.moments[0].picture_s
        file = folder / f"{rank:02d}_{hit.video.stem[:_NAME_CHARACTERS]}_{peak_s:.1f}s.jpg"
        try:
            picture = Image.fromarray(frame_at(hit.video, peak_s, pictures_s=hit.duration_s))
        except FeatureError as error:
            progress_console.print(f"no frame saved: {error}")
            written.append(None)
        else:
            with whole_file(file) as temporary:
                picture.save(temporary, "JPEG", quality=90)
            written.append(file)
    return written
