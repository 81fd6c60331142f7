"""The export formats, and the function that writes moments in them."""

import contextlib
import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from untrimmed.errors import ConfigError, FeatureError, UnknownNameError, shown
from untrimmed.exports.counting import Cut, ExportedMoment, TimelineRate, cuts, timecode_warnings, usual_rate
from untrimmed.exports.fcpxml import to_fcpxml
from untrimmed.exports.names import file_name, printable_line, with_folder
from untrimmed.exports.text import to_chapters, to_csv, to_json, to_srt, to_vtt
from untrimmed.exports.timelines import to_edl, to_final_cut_7, to_kdenlive, to_otio
from untrimmed.search.store.records import folders_of_equal_names
from untrimmed.video.timing import Timing


@dataclass(frozen=True)
class Format:
    """An export format. One of its three writers is set: for a timeline, a table, or a file about a single video."""

    suffix: str
    kind: str  # media type of the files
    timeline: Callable[[Sequence[Cut], TimelineRate, str], str] | None = None
    table: Callable[[Sequence[ExportedMoment], TimelineRate | None], str] | None = None
    per_video: Callable[[Sequence[ExportedMoment]], str] | None = None


FORMATS = {
    "otio": Format(".otio", "application/json", timeline=to_otio),
    "edl": Format(".edl", "text/plain; charset=utf-8", timeline=to_edl),
    "xml": Format(".xml", "application/xml", timeline=to_final_cut_7),
    "fcpxml": Format(".fcpxml", "application/xml", timeline=to_fcpxml),
    "kdenlive": Format(".kdenlive", "application/xml", timeline=to_kdenlive),
    "csv": Format(".csv", "text/csv; charset=utf-8", table=to_csv),
    "json": Format(".json", "application/json", table=to_json),
    "srt": Format(".srt", "application/x-subrip", per_video=to_srt),
    "vtt": Format(".vtt", "text/vtt; charset=utf-8", per_video=to_vtt),
    "chapters": Format(".ffmetadata", "text/plain; charset=utf-8", per_video=to_chapters),
}


@dataclass(frozen=True)
class ExportedFile:
    """The content of an exported file, its suffix and media type, and warnings of one line each."""

    content: bytes
    suffix: str
    kind: str
    warnings: tuple[str, ...] = ()


def export(
    moments: Sequence[ExportedMoment],
    format: str,
    rate: TimelineRate | None,
    read_timing: Callable[[ExportedMoment], Timing],
    title: str = "moments",
) -> ExportedFile:
    """Return moments (at least one) as a file in one of the `FORMATS`.

    Args:
        rate: The frame rate of the timeline. None is the most common rate of the files.
        read_timing: Reads the timing of a moment's file. For timelines and tables, it is called only if the timing is
            unknown. For subtitles and chapters, it is called once per video, because their times count from the start
            of the sound if the sound begins before the picture. It may raise a FeatureError.
        title: The name of the timeline in editors.

    Raises:
        UnknownNameError: There is no such format.
        ConfigError: A span is empty or outside its video, or the format cannot store the moments.
        FeatureError: A timeline needs the timing of a file that cannot be read.
    """
    if format not in FORMATS:
        raise UnknownNameError.among("export format", format, FORMATS)
    form = FORMATS[format]
    for moment in moments:
        if not moment.start_s < moment.end_s:
            name = shown(moment.video)
            raise ConfigError(
                f"{name}: span is {moment.start_s:g} to {moment.end_s:g} s, expected the start before the end"
            )
        if 0 < moment.duration_s <= moment.start_s:
            raise ConfigError(
                f"{shown(moment.video)}: ends at {moment.duration_s:g} s, so it shows nothing between "
                f"{moment.start_s:g} and {moment.end_s:g} s; choose a span inside the video"
            )
    if form.per_video is not None:
        return _one_file_per_video(moments, form, form.per_video, read_timing)
    timed = _with_timing(moments, read_timing, is_required=form.timeline is not None)
    timeline = rate or usual_rate([moment.timing for moment in timed if moment.timing is not None])
    if form.table is not None:
        text = form.table(timed, rate)
    else:
        assert form.timeline is not None
        text = form.timeline(cuts(timed, timeline), timeline, printable_line(title))
    return ExportedFile(_encoded(text), form.suffix, form.kind, tuple(timecode_warnings(timed, timeline)))


def format_of(path: Path) -> str | None:
    """Return the name of the format with the suffix of this path, or None if there is none."""
    return next((name for name, form in FORMATS.items() if form.suffix == path.suffix.lower()), None)


def _with_timing(
    moments: Sequence[ExportedMoment], read_timing: Callable[[ExportedMoment], Timing], *, is_required: bool
) -> list[ExportedMoment]:
    timings: dict[Path, Timing | None] = {}
    for moment in moments:
        if moment.video not in timings:
            timing = moment.timing
            with contextlib.nullcontext() if is_required else contextlib.suppress(FeatureError):
                timing = timing or read_timing(moment)
            timings[moment.video] = timing
    return [replace(moment, timing=timings[moment.video]) for moment in moments]


def _one_file_per_video(
    moments: Sequence[ExportedMoment],
    form: Format,
    write: Callable[[Sequence[ExportedMoment]], str],
    read_timing: Callable[[ExportedMoment], Timing],
) -> ExportedFile:
    """Return one file if all moments are in the same video, otherwise a ZIP archive with one file per video."""
    by_video: dict[Path, list[ExportedMoment]] = {}
    for moment in moments:
        by_video.setdefault(moment.video, []).append(moment)
    texts = {video: _encoded(write(_in_player_time(spans, read_timing))) for video, spans in by_video.items()}
    if len(texts) == 1:
        return ExportedFile(next(iter(texts.values())), form.suffix, form.kind)
    folders = folders_of_equal_names(texts)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for number, (video, content) in enumerate(texts.items(), start=1):
            name = file_name(with_folder(str(video), folders.get(video, "")))
            out.writestr(f"{number:02d}_{name}{form.suffix}", content)
    return ExportedFile(archive.getvalue(), ".zip", "application/zip")


def _in_player_time(
    moments: Sequence[ExportedMoment], read_timing: Callable[[ExportedMoment], Timing]
) -> list[ExportedMoment]:
    """Return one video's moments, timed from its picture or sound, whichever starts first."""
    start_s = 0.0
    with contextlib.suppress(FeatureError):  # if the file cannot be read: sound usually begins with it
        start_s = read_timing(moments[0]).picture_start_s
    return [replace(moment, start_s=moment.start_s + start_s, end_s=moment.end_s + start_s) for moment in moments]


def _encoded(text: str) -> bytes:
    """Return a text in UTF-8. Bytes in file names that are not valid UTF-8 are escaped."""
    return text.encode("utf-8", "backslashreplace")
