"""`untrimmed search` and `untrimmed similar`: a sentence or a picture in, moments out."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
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
from untrimmed.cli.query_options import (
    FlatOption,
    FoldOption,
    FollowOption,
    ImageOption,
    LikeOption,
    MaxDurationOption,
    MaxHeightOption,
    MaxSizeOption,
    MinDurationOption,
    MinHeightOption,
    MinSizeOption,
    NotOption,
    SinceOption,
    ThenOption,
    UnlikeOption,
    UntilOption,
    WeightOption,
    WithinOption,
    parse_weights,
    read_filters,
    read_query,
)
from untrimmed.errors import ConfigError, FeatureError, shown
from untrimmed.files import whole_file
from untrimmed.precision import Precision, read_precision
from untrimmed.search.store.records import library_folder

if TYPE_CHECKING:
    from untrimmed.search.query.hits import Hit, Hits
    from untrimmed.search.query.query import Query
    from untrimmed.types import Moment

_ROUNDED_S = 0.1  # by which a length that was read off somewhere may lie behind the end
_LIKELY = 0.5
_NAME_CHARACTERS = 50  # of a video's name in that of a saved frame: four bytes each at most, a name holds 255

LimitOption = Annotated[int, typer.Option("-k", "--limit", min=1, help="How many videos, or moments, at most.")]
MomentsOption = Annotated[int, typer.Option("--moments", min=1, help="How many moments of each video at most.")]
ScoreOption = Annotated[
    float | None,
    typer.Option(
        "--min-score",
        metavar="X",
        help="Leave out videos that score less. A score, the number before each hit, is the cosine of what is asked "
        "and the video's best seconds (a trained model has its own). What is high depends on the encoder: builtin 0.2.",
        show_default=False,
    ),
]
ConfidenceOption = Annotated[
    float | None,
    typer.Option(
        "--min-confidence",
        min=0.0,
        max=1.0,
        metavar="X",
        help="Leave out what holds it with a smaller chance, e.g. 0.5; then nothing may be left. Known for sentences "
        "with the encoder builtin, searched without a model.",
        show_default=False,
    ),
]
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


def search(
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="What is to be seen, in plain words.", show_default=False)
    ] = "",
    then: ThenOption = "",
    within_s: FollowOption = None,
    without: NotOption = None,
    image: ImageOption = None,
    like: LikeOption = None,
    unlike: UnlikeOption = None,
    weight: WeightOption = None,
    within: WithinOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    min_duration: MinDurationOption = None,
    max_duration: MaxDurationOption = None,
    min_size: MinSizeOption = None,
    max_size: MaxSizeOption = None,
    min_height: MinHeightOption = None,
    max_height: MaxHeightOption = None,
    library: LibraryOption = None,
    limit: LimitOption = 10,
    moments: MomentsOption = 3,
    min_score: ScoreOption = None,
    min_confidence: ConfidenceOption = None,
    flat: FlatOption = False,
    fold: FoldOption = None,
    ray: RayOption = None,
    shards: ShardsOption = 1,
    precision: PrecisionOption = "auto",
    service: ServiceOption = True,
    json_output: JsonOption = False,
    save_frames: FramesOption = None,
    sheet: SheetOption = None,
    imports: ImportOption = None,
) -> None:
    """Find the videos that fit a sentence, and where in them.

    Moments are separate scenes of a video, first what stands out most above the rest of it; some may adjoin.
    How --then, --not, --like and the others make one score: docs/queries.md.

    Cut a hit out with: untrimmed cut NUMBER -o FILE.  Exit code 1: nothing above the threshold, or no word of the
    sentence is known to the encoder.
    """
    folder, products = library_folder(library), read_precision(precision)
    least_most = (since, until), (min_duration, max_duration), (min_size, max_size), (min_height, max_height)
    filters = read_filters(within, *least_most)
    places = {"like": like or [], "unlike": unlike or []}
    query = read_query(text, then, within_s, without, image, places, parse_weights(weight), folder)
    query = replace(query, filters=filters, group_by="moment" if flat else "video", fold=fold)
    amounts = {"limit": limit, "moments": moments, "min_score": min_score, "min_confidence": min_confidence}
    hits, keep = _found(folder, query, amounts, service, products, ray, shards)
    told = {"then": then, "without": without, "image": image and str(image), **places}
    asked = {"text": text} | {what: some for what, some in told.items() if some}
    if sheet is not None:
        from untrimmed.cli.contact_sheet import write_sheet

        write_sheet(sheet, ", then ".join(filter(None, [text or "hits", then])), hits)
        progress_console.print(f"wrote {shown(sheet)}: open it in a browser")
    _show(folder, asked, hits, json_output, save_frames, keep)


def _do_nothing() -> None:
    """What a search by a service leaves to do."""


def _found(
    folder: Path,
    query: Query,
    amounts: dict[str, Any],
    service: bool,
    precision: Precision,
    ray: str | None,
    shards: int,
) -> tuple[Hits, Callable[[], None]]:
    """What a running service of the library finds, or a search here; and what is to be done when that is shown."""
    if service and ray is None and shards == 1 and precision == "auto":
        from untrimmed.server.client import ask_service

        if (hits := ask_service(folder, query, **amounts)) is not None:
            return hits, _do_nothing
    import untrimmed

    opened = untrimmed.open(folder, precision=precision, ray=ray, shards=shards)
    try:
        return opened.search(query, **amounts), opened.engine.keep
    finally:
        opened.close()


def similar(
    what: Annotated[str, typer.Argument(metavar="FILE@TIME|IMAGE", help="A picture, or a time in a video.")],
    library: LibraryOption = None,
    limit: LimitOption = 10,
    moments: MomentsOption = 3,
    min_score: ScoreOption = None,
    within: WithinOption = None,
    precision: PrecisionOption = "auto",
    service: ServiceOption = True,
    json_output: JsonOption = False,
    save_frames: FramesOption = None,
    imports: ImportOption = None,
) -> None:
    """Find moments that look like a picture, or like a time of a video: clip.mp4@12.5 or clip.mp4@1:02."""
    from untrimmed.search.query.query import Filters, Query
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
    folder, query = library_folder(library), Query(image=image, filters=Filters(within=within))
    amounts = {"limit": limit, "moments": moments, "min_score": min_score, "min_confidence": None}
    hits, keep = _found(folder, query, amounts, service, read_precision(precision), None, 1)
    _show(folder, {"like": what}, hits, json_output, save_frames, keep)


def _show(
    library: Path,
    query: dict[str, Any],
    hits: Hits,
    json_output: bool,
    save_frames: Path | None,
    keep: Callable[[], None],
) -> None:
    frames = _save_frames(hits, save_frames) if save_frames is not None else [None] * len(hits)
    found = [_as_json(i, hit, f) for i, (hit, f) in enumerate(zip(hits, frames, strict=True), 1)]
    document = {**query, "warnings": hits.warnings, "partial": hits.partial, "hits": found}
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


def _as_json(rank: int, hit: Hit, frame: Path | None) -> dict[str, Any]:
    found = {
        "rank": rank,
        "video": str(hit.video),
        "video_id": hit.video_id,
        "score": round(hit.score, 6),
        "confidence": hit.confidence if hit.confidence is None else round(hit.confidence, 3),
        "duration_s": round(hit.duration_s, 3),
        "start_s": round(hit.start_s, 3),
        "end_s": round(hit.end_s, 3),
        "moments": _spans_as_json(hit.moments),
    }
    if hit.then:
        found["then"] = _spans_as_json(hit.then)
    if hit.folded:
        found["folded"] = [str(video) for video in hit.folded]
    return found if frame is None else {**found, "frame": str(frame)}


def _spans_as_json(moments: Sequence[Moment]) -> list[dict[str, float]]:
    return [{"start_s": round(m.start_s, 3), "end_s": round(m.end_s, 3), "score": round(m.score, 6)} for m in moments]


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
