"""`untrimmed search` and `untrimmed similar`: a sentence or a picture in, moments out."""

from __future__ import annotations

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
    parse_path,
)
from untrimmed.cli.query_options import query_options, read_part, read_query
from untrimmed.errors import ConfigError, FeatureError, shown
from untrimmed.files import whole_file
from untrimmed.precision import Precision, read_precision
from untrimmed.search.query.query import Cutoff, Filters, Query
from untrimmed.search.store.records import library_folder

if TYPE_CHECKING:
    from untrimmed.search.query.hits import Hit, Hits
    from untrimmed.types import Moment

_ROUNDED_S = 0.1  # by which a length that was read off somewhere may lie behind the end
_LIKELY = 0.5
_NAME_CHARACTERS = 50  # of a video's name in that of a saved frame: four bytes each at most, a name holds 255

SheetOption = Annotated[
    Path | None,
    typer.Option(
        "--html",
        parser=parse_path,
        metavar="FILE",
        help="Write the hits as one page with pictures and links, which needs no service.",
        show_default=False,
    ),
]
ServiceOption = Annotated[
    bool,
    typer.Option(
        " /--no-service",
        help="Search here, even if `untrimmed serve` runs; else that is asked (not with --ray, --precision).",
        show_default=False,
    ),
]
FramesOption = Annotated[
    Path | None,
    typer.Option("--save-frames", metavar="DIR", help="Write a frame of each hit there.", show_default=False),
]


@query_options()
def search(
    library: LibraryOption = None,
    ray: RayOption = None,
    shards: ShardsOption = 1,
    precision: PrecisionOption = "auto",
    service: ServiceOption = True,
    json_output: JsonOption = False,
    save_frames: FramesOption = None,
    sheet: SheetOption = None,
    imports: ImportOption = None,
    **given: Any,
) -> None:
    """Find the videos that fit a sentence, and where in them.

    Moments are separate scenes of a video, first what stands out most above the rest of it; some may adjoin.
    A HIT is one of the last search (3, or 3.2 for its second moment), a FILE an indexed video, by its path or id.
    How --then, --not, --like and the others make one score: docs/queries.md.

    Cut a hit out with: untrimmed cut NUMBER -o FILE.  Exit code 1: nothing above the threshold, or no word of the
    sentence is known to the encoder.
    """
    folder = library_folder(library)
    query, cutoff = read_query(given, folder)
    hits, keep = _found(folder, query, cutoff, service, read_precision(precision), ray, shards)
    parts = ("then", "without", "image", "like", "unlike")
    asked = {"text": query.text} | {part: given[part] for part in parts if given[part]}
    if sheet is not None:
        from untrimmed.cli.contact_sheet import write_sheet

        write_sheet(sheet, ", then ".join(filter(None, [query.text or "hits", query.then])), hits)
        progress_console.print(f"wrote {shown(sheet)}: open it in a browser")
    _show(folder, asked, hits, json_output, save_frames, keep)


def _do_nothing() -> None:
    """What a search by a service leaves to do."""


def _found(
    folder: Path,
    query: Query,
    cutoff: Cutoff,
    service: bool,
    precision: Precision,
    ray: str | None,
    shards: int,
) -> tuple[Hits, Callable[[], None]]:
    """What a running service of the library finds, or a search here; and what is to be done when that is shown."""
    if service and ray is None and shards == 1 and precision == "auto":
        from untrimmed.server.client import ask_service

        if (hits := ask_service(folder, query, cutoff)) is not None:
            return hits, _do_nothing
    import untrimmed

    opened = untrimmed.open(folder, precision=precision, ray=ray, shards=shards)
    try:
        return opened.search(query, **vars(cutoff)), opened.engine.update_cache
    finally:
        opened.close()


@query_options("limit", "moments", "min_score", "within")
def similar(
    what: Annotated[str, typer.Argument(metavar="FILE@TIME|IMAGE", help="A picture, or a time in a video.")],
    library: LibraryOption = None,
    precision: PrecisionOption = "auto",
    service: ServiceOption = True,
    json_output: JsonOption = False,
    save_frames: FramesOption = None,
    imports: ImportOption = None,
    **given: Any,
) -> None:
    """Find moments that look like a picture, or like a time of a video: clip.mp4@12.5 or clip.mp4@1:02."""
    from untrimmed.video.reader import frame_at, is_video_path, read_image

    path, at, time = what.rpartition("@")
    if at and not os.path.lexists(what):
        image = frame_at(Path(path), parse_time(time), last_for_s=_ROUNDED_S)
    elif not os.path.isfile(what):
        raise FeatureError(f"{what}: no such file; give a picture, or a video and a time: clip.mp4@12.5")
    elif is_video_path(what):
        raise ConfigError(f"{what}: is a video; name a time of it, too: {what}@12.5")
    else:
        image = read_image(Path(what))
    folder = library_folder(library)
    query = Query(image=image, filters=read_part(Filters, given, folder))
    cutoff = read_part(Cutoff, given, folder)
    hits, keep = _found(folder, query, cutoff, service, read_precision(precision), None, 1)
    _show(folder, {"like": what}, hits, json_output, save_frames, keep)


def _show(
    library: Path,
    query: dict[str, Any],
    hits: Hits,
    json_output: bool,
    save_frames: Path | None,
    keep: Callable[[], None],
) -> None:
    frames = _save_frames(hits, save_frames) if save_frames is not None else []
    document = {**query, **hits.to_json()}
    for hit, frame in zip(document["hits"], frames, strict=False):
        if frame is not None:
            hit["frame"] = str(frame)
    remember(library, hits)
    for warning in hits.warnings:
        print_marked("warning:", "yellow", f" {warning}")
    if json_output:
        print_json(document)
    for rank, hit in enumerate(hits if not json_output else (), start=1):
        for number, moment in enumerate(hit.moments):
            then = f"  then {_span(hit.then[number])}" if hit.then else ""
            if number == 0:
                chance = "" if hit.confidence is None else f"  {hit.confidence:4.0%}"
                result_console.print(f"{rank:3d}  {hit.score:6.3f}{chance}  {_span(moment)}{then}  {shown(hit.video)}")
            else:
                result_console.print(f"{'':13}{'':{len(chance)}}{_span(moment)}{then}")
        for video in hit.folded:
            result_console.print(f"{'':13}looks the same: {shown(video)}")
    best = max((hit.confidence for hit in hits if hit.confidence is not None), default=1.0)
    if best < _LIKELY and not json_output:
        progress_console.print(f"perhaps nothing shows it: the best of these does with a chance of {best:.0%}")
    keep()  # after the answer, and before the next process that would read it all again
    if not hits:
        progress_console.print("nothing found" if hits.warnings else "nothing above the threshold")
        raise typer.Exit(NOTHING_FOUND)


def _span(moment: Moment) -> str:
    return f"{clock(moment.start_s):>9} - {clock(moment.end_s):<9}"


def _save_frames(hits: Sequence[Hit], folder: Path) -> list[Path | None]:
    """One JPEG a hit, from the middle of its best moment; a video that is gone costs only its own frame."""
    from PIL import Image

    from untrimmed.video.reader import frame_at

    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path | None] = []
    for rank, hit in enumerate(hits, start=1):
        middle_s = (hit.start_s + hit.end_s) / 2
        file = folder / f"{rank:02d}_{hit.video.stem[:_NAME_CHARACTERS]}_{middle_s:.1f}s.jpg"
        try:
            picture = Image.fromarray(frame_at(hit.video, middle_s))
        except FeatureError as error:
            progress_console.print(f"no frame: {error}")
            written.append(None)
        else:
            with whole_file(file) as temporary:
                picture.save(temporary, "JPEG", quality=90)
            written.append(file)
    return written
