"""Moments as files that other programs read: clips, tables, subtitles, chapters, edit lists."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from untrimmed.errors import VideoError
from untrimmed.search.store.records import VideoRecord
from untrimmed.server.media import MediaFile, media_file
from untrimmed.server.problems import PublicError
from untrimmed.server.schemas import ExportRequest, Mark, file_name
from untrimmed.video.process import Limits
from untrimmed.video.reader import cut

MOST_CLIP_S = 600.0
_MOST_CLIPS_S = 3600.0  # of one archive, together
_LIMITS = Limits(total_s=300.0, stall_s=60.0)
_EDL_RATE = 25  # frames a second of its timecodes
_Moments = Sequence[tuple[Mark, VideoRecord]]


@dataclass(frozen=True)
class Exported:
    """A file, alone in a folder of its own; who has sent it removes both."""

    path: Path
    kind: str


def export(request: ExportRequest, records: Sequence[VideoRecord], ends: threading.Event) -> Exported:
    """Write moments in the format asked for; the clip at work is left once `ends` is set.

    Raises:
        PublicError: A span is empty or too long, or all clips are, a video cannot be read, or the service ends.
        VideoError: A clip cannot be cut.
    """
    moments = list(zip(request.moments, records, strict=True))
    for mark, record in moments:
        check_span(record, mark.start_s, mark.end_s, MOST_CLIP_S if request.format == "clips" else math.inf)
    total_s = sum(mark.end_s - mark.start_s for mark, _ in moments)
    if request.format == "clips" and total_s > _MOST_CLIPS_S:
        raise PublicError(
            422, f"the clips last {total_s:g} s together, wanted up to {_MOST_CLIPS_S:g} s; save them in parts"
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


def check_span(record: VideoRecord, start_s: float, end_s: float, most_s: float = MOST_CLIP_S) -> None:
    """Refuse a span of a video that is none, or too long: by default, for a clip.

    Raises:
        PublicError: It is empty or too long.
    """
    if not 0 < end_s - start_s <= most_s:
        wanted = "above 0" if most_s == math.inf else f"above 0 and up to {most_s:g} s"
        raise PublicError(
            422,
            f"{Path(record.path).name!r}: the span from {start_s:g} to {end_s:g} s, wanted a length {wanted}",
        )


def clip_name(record: VideoRecord, start_s: float, end_s: float) -> str:
    """What a clip is called: by its video and its span."""
    return f"{file_name(record.path)}_{start_s:.1f}-{end_s:.1f}s.mp4"


def write_clip(file: MediaFile, start_s: float, end_s: float, out: Path, ends: threading.Event) -> Path:
    """Cut a span out of an indexed file, until `ends` is set.

    Raises:
        PublicError: The service ends.
        VideoError: It cannot be decoded, or shows nothing there.
    """
    try:
        cut(file.path, start_s, end_s, out, limits=_LIMITS, identity=file.identity, stop=ends)
    except VideoError:
        if ends.is_set():
            raise PublicError(503, "the service ends; ask again when it runs") from None
        raise
    return out


def _write_clips(moments: _Moments, out: Path, ends: threading.Event) -> Path:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for number, (mark, record) in enumerate(moments, start=1):
            name = f"{number:02d}_{clip_name(record, mark.start_s, mark.end_s)}"
            clip = write_clip(media_file(record), mark.start_s, mark.end_s, out.with_name("clip.mp4"), ends)
            archive.write(clip, name)
            clip.unlink()
    return out


def _csv(moments: _Moments) -> str:
    out = io.StringIO()
    rows = csv.writer(out)
    rows.writerow(["video", "start_s", "end_s", "note"])
    for mark, record in moments:
        # A name that begins like a formula is one to a spreadsheet.
        texts = [
            "'" + text if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
            for text in (record.path, mark.note)
        ]
        rows.writerow([texts[0], f"{mark.start_s:.3f}", f"{mark.end_s:.3f}", texts[1]])
    return out.getvalue()


def _json(moments: _Moments) -> str:
    found = [
        {
            "video": record.path,
            "video_id": record.video_id,
            "start_s": mark.start_s,
            "end_s": mark.end_s,
            "note": mark.note,
        }
        for mark, record in moments
    ]
    return json.dumps({"moments": found}, ensure_ascii=False, indent=2) + "\n"


def _srt(moments: _Moments) -> str:
    """A subtitle a moment, at its time in its own video: of several videos, each one's moments in a row."""
    blocks = [
        f"{number}\n{_clock(mark.start_s, ',')} --> {_clock(mark.end_s, ',')}\n{title}\n"
        for number, (mark, title) in enumerate(_titled(moments), start=1)
    ]
    return "\n".join(blocks)


def _chapters(moments: _Moments) -> str:
    """Chapters as FFmpeg reads them (`ffmetadata`), in milliseconds."""
    lines = [";FFMETADATA1"]
    for mark, title in _titled(moments):
        title = "".join(f"\\{letter}" if letter in "=;#\\" else letter for letter in title)
        start, end = round(mark.start_s * 1000), round(mark.end_s * 1000)
        lines += ["[CHAPTER]", "TIMEBASE=1/1000", f"START={start}", f"END={end}", f"title={title}"]
    return "\n".join(lines) + "\n"


def _edl(moments: _Moments) -> str:
    """An edit list (CMX 3600) that lays the moments one behind the other."""
    lines, at = ["TITLE: moments", "FCM: NON-DROP FRAME", ""], 0
    for number, (mark, record) in enumerate(moments, start=1):
        start, end = round(mark.start_s * _EDL_RATE), round(mark.end_s * _EDL_RATE)
        times = " ".join(_timecode(frames) for frames in (start, end, at, at + end - start))
        lines += [f"{number:03d}  AX       V     C        {times}"]
        lines += [f"* FROM CLIP NAME: {' '.join(Path(record.path).name.split())}"]
        lines += [f"* COMMENT: {' '.join(mark.note.split())}"] if mark.note.strip() else []
        at += end - start
    return "\n".join(lines) + "\n"


def _otio(moments: _Moments) -> str:
    """A timeline of OpenTimelineIO that lays the moments one behind the other."""
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


def _titled(moments: _Moments) -> Iterator[tuple[Mark, str]]:
    """Moments video by video, each with its note on one line, of several videos after its video's name."""
    several = len({record.video_id for _, record in moments}) > 1
    for mark, record in sorted(moments, key=lambda moment: (moment[1].path, moment[0].start_s)):
        name, note = (" ".join(text.split()) for text in (Path(record.path).stem, mark.note))
        yield mark, (": ".join(filter(None, (name, note))) if several else note or name) or "moment"


def _clock(time_s: float, point: str) -> str:
    seconds, milliseconds = divmod(round(time_s * 1000), 1000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{point}{milliseconds:03d}"


def _timecode(frames: int) -> str:
    seconds, rest = divmod(frames, _EDL_RATE)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}:{rest:02d}"
