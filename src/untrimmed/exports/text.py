"""Write moments as text: tables, subtitles and chapters."""

import csv
import html
import io
import json
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from untrimmed.exports.counting import Cut, ExportedMoment, TimelineRate, cuts, timecode, usual_rate
from untrimmed.exports.names import printable_line

Moments = Sequence[ExportedMoment]


def to_csv(moments: Moments, rate: TimelineRate | None) -> str:
    """Return a table with one row per moment. Spreadsheets do not evaluate its cells as formulas."""
    out = io.StringIO()
    rows = csv.writer(out)
    entries = _entries(moments, rate)
    rows.writerow(entries[0])
    for entry in entries:
        rows.writerow(map(_cell, entry.values()))
    return out.getvalue()


def _cell(value: str | float | int | None) -> str:
    match value:
        case None:
            return ""
        case str():
            return _as_text(value)
        case float():
            return f"{value:.3f}"
        case _:
            return str(value)


def to_json(moments: Moments, rate: TimelineRate | None) -> str:
    """Return a JSON object with one entry per moment."""
    return json.dumps({"moments": _entries(moments, rate)}, ensure_ascii=False, indent=2) + "\n"


def _entries(moments: Moments, rate: TimelineRate | None) -> list[dict[str, Any]]:
    """Return the fields of each moment. Fields in frames are None if the timing of the file is unknown."""
    timings = [moment.timing for moment in moments if moment.timing is not None]
    rate = rate or usual_rate(timings)
    counted: Sequence[Cut | None] = cuts(moments, rate) if len(timings) == len(moments) else [None] * len(moments)
    return [_entry(moment, cut, rate) for moment, cut in zip(moments, counted, strict=True)]


def _entry(moment: ExportedMoment, cut: Cut | None, rate: TimelineRate) -> dict[str, Any]:
    fields: dict[str, Any] = dict.fromkeys(_FRAME_FIELDS)
    if cut is not None:
        source = [
            timecode(cut.start_frame + frame, cut.rate, is_drop=cut.has_drop_timecode)
            for frame in (cut.source_in, cut.source_out)
        ]
        record = rate.timecode(cut.record_in), rate.timecode(cut.record_out)
        file = str(cut.rate), cut.source_in, cut.source_out, *source
        fields = dict(zip(_FRAME_FIELDS, (*file, str(rate.frames_per_s), *record), strict=True))
    seconds = {"start_s": float(moment.start_s), "end_s": float(moment.end_s)}
    return {"video": str(moment.video), **seconds, "note": moment.note, "video_id": moment.video_id, **fields}


_FRAME_FIELDS = (
    "frame_rate",
    "in_frame",
    "out_frame",
    "source_in",
    "source_out",
    "timeline_rate",
    "record_in",
    "record_out",
)


def _as_text(cell: str) -> str:
    """Return a cell that spreadsheets show as text: an apostrophe is added before anything that looks like a formula.

    Some spreadsheets split cells at semicolons and line breaks, so each part of a cell is checked.

    >>> _as_text("=1+1"), _as_text(" ＝1+1"), _as_text("a;=1+1"), _as_text("a = b")
    ("'=1+1", "' ＝1+1", "a;'=1+1", 'a = b')
    """
    parts = re.split(r"(?<=[;\t\r\n])", cell)
    return "".join(f"'{part}" if _begins_like_formula(part) else part for part in parts)


def _begins_like_formula(text: str) -> bool:
    """Whether the first visible character of a text can begin a formula. Quotation marks before it are ignored."""
    visible = (letter for letter in text if letter != '"' and unicodedata.category(letter)[0] not in "CMZ")
    return unicodedata.normalize("NFKC", next(visible, "."))[0] in "=+-−@"


def to_srt(moments: Moments) -> str:
    """Return the moments of one video as subtitles (SubRip)."""
    blocks = [
        f"{number}\n{_clock(moment.start_s, ',')} --> {_clock(moment.end_s, ',')}\n{_subtitle(moment)}\n"
        for number, moment in enumerate(_in_order(moments), start=1)
    ]
    return "\n".join(blocks)


def to_vtt(moments: Moments) -> str:
    """Return the moments of one video as subtitles (WebVTT)."""
    blocks = [
        f"{_clock(moment.start_s, '.')} --> {_clock(moment.end_s, '.')}\n"
        f"{html.escape(_subtitle(moment), quote=False)}\n"
        for moment in _in_order(moments)
    ]
    return "\n".join(["WEBVTT\n", *blocks])


def to_chapters(moments: Moments) -> str:
    """Return the moments of one video as chapters for FFmpeg (`ffmetadata`), with times in milliseconds."""
    lines = [";FFMETADATA1"]
    for moment in _in_order(moments):
        title = "".join(f"\\{letter}" if letter in "=;#\\" else letter for letter in _title(moment))
        start, end = round(moment.start_s * 1000), round(moment.end_s * 1000)
        lines += ["[CHAPTER]", "TIMEBASE=1/1000", f"START={start}", f"END={end}", f"title={title}"]
    return "\n".join(lines) + "\n"


def _in_order(moments: Moments) -> list[ExportedMoment]:
    return sorted(moments, key=lambda moment: moment.start_s)


def _title(moment: ExportedMoment) -> str:
    return printable_line(moment.note) or printable_line(moment.video.stem) or "moment"


def _subtitle(moment: ExportedMoment) -> str:
    """Return the text of a moment's subtitle. Players would read `-->` as part of a time, so an arrow replaces it."""
    return _title(moment).replace("-->", "→")


def _clock(time_s: float, point: str) -> str:
    seconds, milliseconds = divmod(round(time_s * 1000), 1000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{point}{milliseconds:03d}"
