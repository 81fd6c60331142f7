"""Exports moments to files: clips, tables, subtitles, chapters, edit lists."""

import csv
import io
import json
import math
import re
import shutil
import tempfile
import threading
import unicodedata
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from untrimmed.errors import VideoError
from untrimmed.search.store.records import VideoRecord, folders_of_equal_names
from untrimmed.server.media import MediaFile, media_file
from untrimmed.server.problems import PublicError
from untrimmed.server.schemas import ExportRequest, Mark, file_name
from untrimmed.video.process import Limits
from untrimmed.video.reader import cut

MAX_CLIP_S = 600.0
_MAX_CLIPS_S = 3600.0  # largest total duration of the clips in one archive
_LIMITS = Limits(total_s=300.0, stall_s=60.0)
_FOLDER_CHARACTERS = 20  # largest number of characters of the folder in the name of a clip
_EDL_RATE = 25  # frames per second of the timecodes
_Moments = Sequence[tuple[Mark, VideoRecord]]


@dataclass(frozen=True)
class Exported:
    """A file in a temporary folder. The caller removes both."""

    path: Path
    kind: str


def export(request: ExportRequest, records: Sequence[VideoRecord], ends: threading.Event) -> Exported:
    """Write moments in the requested format. Setting `ends` cancels the current clip.

    Raises:
        PublicError: A span is empty or too long, the clips are too long in total, a video cannot be read, or the
            service is shutting down.
        VideoError: A clip cannot be cut.
    """
    moments = list(zip(request.moments, records, strict=True))
    for mark, record in moments:
        check_span(record, mark.start_s, mark.end_s, MAX_CLIP_S if request.format == "clips" else math.inf)
    total_s = sum(mark.end_s - mark.start_s for mark, _ in moments)
    if request.format == "clips" and total_s > _MAX_CLIPS_S:
        raise PublicError(
            422,
            f"the clips are {total_s:g} s long in total, expected up to {_MAX_CLIPS_S:g} s; export fewer at a time",
        )
    folder = Path(tempfile.mkdtemp(prefix="untrimmed-"))
    try:
        if request.format == "clips":
            return Exported(_write_clips(moments, folder / "moments.zip", ends), "application/zip")
        suffix, kind, write = _WRITERS[request.format]
        file = folder / f"moments{suffix}"
        file.write_text(write(moments), encoding="utf-8", errors="backslashreplace", newline="")
        return Exported(file, kind)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def check_span(record: VideoRecord, start_s: float, end_s: float, max_s: float = MAX_CLIP_S) -> None:
    """Check the length of a span. The default maximum is that of a clip.

    Raises:
        PublicError: The span is empty or too long.
    """
    if not 0 < end_s - start_s <= max_s:
        expected = "above 0" if max_s == math.inf else f"above 0 and up to {max_s:g} s"
        raise PublicError(
            422,
            f"{Path(record.path).name!r}: the length of the span from {start_s:g} to {end_s:g} s must be {expected}",
        )


def clip_name(record: VideoRecord, start_s: float, end_s: float, folder: str = "") -> str:
    """The file name of a clip, from its video and span, and the folder if others have the same name."""
    name = f"{folder[:_FOLDER_CHARACTERS]}_{Path(record.path).name}" if folder else record.path
    return f"{file_name(name)}_{start_s:.1f}-{end_s:.1f}s.mp4"


def write_clip(file: MediaFile, start_s: float, end_s: float, out: Path, ends: threading.Event) -> Path:
    """Write a span of an indexed file to `out`. Setting `ends` cancels it.

    Raises:
        PublicError: The service is shutting down.
        VideoError: The file cannot be decoded, or has no frame in the span.
    """
    try:
        cut(file.path, start_s, end_s, out, limits=_LIMITS, identity=file.identity, stop=ends)
    except VideoError:
        if ends.is_set():
            raise PublicError(503, "the service is shutting down; retry after it restarts") from None
        raise
    return out


def _write_clips(moments: _Moments, out: Path, ends: threading.Event) -> Path:
    folders = folders_of_equal_names(record.path for _, record in moments)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for number, (mark, record) in enumerate(moments, start=1):
            folder = folders.get(Path(record.path), "")
            name = f"{number:02d}_{clip_name(record, mark.start_s, mark.end_s, folder)}"
            clip = write_clip(media_file(record), mark.start_s, mark.end_s, out.with_name("clip.mp4"), ends)
            archive.write(clip, name)
            clip.unlink()
    return out


def _csv(moments: _Moments) -> str:
    out = io.StringIO()
    rows = csv.writer(out)
    rows.writerow(["video", "start_s", "end_s", "note"])
    for mark, record in moments:
        rows.writerow([_as_text(record.path), f"{mark.start_s:.3f}", f"{mark.end_s:.3f}", _as_text(mark.note)])
    return out.getvalue()


def _as_text(cell: str) -> str:
    """A cell that spreadsheets show and do not evaluate: an apostrophe precedes everything that begins like a formula.

    Spreadsheets of some countries also split cells at semicolons, and then at line breaks.

    >>> _as_text("=1+1"), _as_text(" ＝1+1"), _as_text("a;=1+1"), _as_text("a = b")
    ("'=1+1", "' ＝1+1", "a;'=1+1", 'a = b')
    """
    parts = re.split(r"(?<=[;\t\r\n])", cell)
    return "".join(f"'{part}" if _begins_like_formula(part) else part for part in parts)


def _begins_like_formula(text: str) -> bool:
    """Whether the first visible character, after quotation marks, begins a formula in plain or full-width form."""
    visible = (letter for letter in text if letter != '"' and unicodedata.category(letter)[0] not in "CMZ")
    return unicodedata.normalize("NFKC", next(visible, "."))[0] in "=+-−@"


def _json(moments: _Moments) -> str:
    entries = [
        {
            "video": record.path,
            "video_id": record.video_id,
            "start_s": mark.start_s,
            "end_s": mark.end_s,
            "note": mark.note,
        }
        for mark, record in moments
    ]
    return json.dumps({"moments": entries}, ensure_ascii=False, indent=2) + "\n"


def _srt(moments: _Moments) -> str:
    """One subtitle per moment, at its time in its video, sorted by video.

    Players would read a title with `-->` as times, so an arrow replaces it.
    """
    blocks = [
        f"{number}\n{_clock(mark.start_s, ',')} --> {_clock(mark.end_s, ',')}\n{title.replace('-->', '→')}\n"
        for number, (mark, title) in enumerate(_with_titles(moments), start=1)
    ]
    return "\n".join(blocks)


def _chapters(moments: _Moments) -> str:
    """Chapters as FFmpeg reads them (`ffmetadata`), in milliseconds."""
    lines = [";FFMETADATA1"]
    for mark, title in _with_titles(moments):
        title = "".join(f"\\{letter}" if letter in "=;#\\" else letter for letter in title)
        start, end = round(mark.start_s * 1000), round(mark.end_s * 1000)
        lines += ["[CHAPTER]", "TIMEBASE=1/1000", f"START={start}", f"END={end}", f"title={title}"]
    return "\n".join(lines) + "\n"


def _edl(moments: _Moments) -> str:
    """An edit list (CMX 3600) that plays the moments one after another."""
    lines = ["TITLE: moments", "FCM: NON-DROP FRAME", ""]
    at = 0
    for number, (mark, record) in enumerate(moments, start=1):
        start, end = round(mark.start_s * _EDL_RATE), round(mark.end_s * _EDL_RATE)
        times = " ".join(_timecode(frames) for frames in (start, end, at, at + end - start))
        lines += [f"{number:03d}  AX       V     C        {times}"]
        lines += [f"* FROM CLIP NAME: {' '.join(Path(record.path).name.split())}"]
        lines += [f"* COMMENT: {' '.join(mark.note.split())}"] if mark.note.strip() else []
        at += end - start
    return "\n".join(lines) + "\n"


def _otio(moments: _Moments) -> str:
    """An OpenTimelineIO timeline that plays the moments one after another."""
    import opentimelineio as otio

    def span(start_s: float, end_s: float) -> otio.opentime.TimeRange:
        start, end = (otio.opentime.RationalTime(round(at_s * 1000), 1000) for at_s in (start_s, end_s))
        return otio.opentime.TimeRange(start, end - start)

    timeline = otio.schema.Timeline("moments")
    track = otio.schema.Track("moments", kind=otio.schema.TrackKind.Video)
    timeline.tracks.append(track)
    for mark, record in moments:
        media = otio.schema.ExternalReference(
            target_url=Path(record.path).as_uri(), available_range=span(0, record.duration_s)
        )
        name = Path(record.path).name.encode("utf-8", "backslashreplace").decode()
        clip = otio.schema.Clip(name, media, span(mark.start_s, mark.end_s))
        clip.metadata["untrimmed"] = {"video_id": record.video_id, "note": mark.note}
        track.append(clip)
    return str(otio.adapters.write_to_string(timeline, "otio_json"))


_WRITERS: dict[str, tuple[str, str, Callable[[_Moments], str]]] = {
    "csv": (".csv", "text/csv; charset=utf-8", _csv),
    "json": (".json", "application/json", _json),
    "srt": (".srt", "application/x-subrip", _srt),
    "chapters": (".ffmetadata", "text/plain; charset=utf-8", _chapters),
    "edl": (".edl", "text/plain; charset=utf-8", _edl),
    "otio": (".otio", "application/json", _otio),
}


def _with_titles(moments: _Moments) -> Iterator[tuple[Mark, str]]:
    """Moments with one-line titles, sorted by video. Titles start with the video's name if there are several."""
    has_several_videos = len({record.video_id for _, record in moments}) > 1
    for mark, record in sorted(moments, key=lambda moment: (moment[1].path, moment[0].start_s)):
        name, note = (" ".join(text.split()) for text in (Path(record.path).stem, mark.note))
        yield mark, (": ".join(filter(None, (name, note))) if has_several_videos else note or name) or "moment"


def _clock(time_s: float, point: str) -> str:
    seconds, milliseconds = divmod(round(time_s * 1000), 1000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{point}{milliseconds:03d}"


def _timecode(frames: int) -> str:
    seconds, remainder = divmod(frames, _EDL_RATE)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}:{remainder:02d}"
