"""The subtitles of a data set: passages in `subtitles.jsonl`, and their vectors by video in `subtitles.h5`.

`subtitles.jsonl` has the format of TVR's `tvqa_preprocessed_subtitles.jsonl`:

    {"vid_name": "castle_s01e01_seg02_clip_00", "sub": [{"text": "Hello.", "start": 0.5, "end": 1.9}]}
"""

from collections.abc import Collection, Mapping
from pathlib import Path

from untrimmed.data.annotations import single_spaced
from untrimmed.data.fields import AnnotationRow, read_rows, write_rows
from untrimmed.errors import FeatureError
from untrimmed.passages.passage import Passage

MAX_PASSAGES = 10_000
"""Largest number of subtitles of one video."""
MAX_TEXT = 10_000
"""Largest number of characters of one subtitle."""

Passages = Mapping[str, tuple[Passage, ...]]


def read_subtitles(path: Path, videos: Collection[str] | None = None) -> dict[str, tuple[Passage, ...]]:
    """Return {video: passages in temporal order}, for all videos of the file or only for `videos`.

    Subtitles without text are left out. If a subtitle ends before it starts, its times are swapped. Negative times
    become 0.

    Raises: FeatureError with file and line for an invalid or repeated line, and for a file without any of the videos.
    """
    chosen = None if videos is None else frozenset(videos)
    passages: dict[str, tuple[Passage, ...]] = {}
    first = None
    for row in read_rows(path, ["vid_name", "sub"]):
        video = row.video_id("vid_name")
        first = first or video
        if video in passages:
            raise FeatureError(f"{row.place}: video {video!r} is repeated; keep one of its lines")
        entries = row.entries("sub")
        if len(entries) > MAX_PASSAGES:
            count = f"{len(entries):,} subtitles, expected at most {MAX_PASSAGES:,}"
            raise FeatureError(f"{row.place}: video {video!r} has {count}; split the video or remove some")
        of_video = [_passage(entry, f"{row.place}, subtitle {number}") for number, entry in enumerate(entries, start=1)]
        if chosen is None or video in chosen:
            passages[video] = tuple(sorted(filter(None, of_video), key=lambda passage: passage.start_s))
    if not passages:
        expected = "lines with vid_name and sub" if first is None else f"videos of this data set, found {first!r}"
        raise FeatureError(f"{path}: no subtitles, expected {expected}; use the file of this data set")
    return passages


def _passage(entry: object, place: str) -> Passage | None:
    """Return a subtitle as a passage, or None for an empty text."""
    row = AnnotationRow.of(entry, place, ["text", "start", "end"])
    text = row.values["text"]
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        actual = f"{len(text):,} characters" if isinstance(text, str) else f"a {type(text).__name__}"
        raise FeatureError(f"{place}: text has {actual}, expected text of at most {MAX_TEXT:,}; fix the line")
    times = row.span((row.values["start"], row.values["end"]), "start and end")
    start_s, end_s = sorted(max(time, 0.0) for time in times)
    text = single_spaced(text)
    return Passage(text, start_s, end_s, "subtitle") if text else None


def write_subtitles(path: Path, passages: Passages) -> None:
    """Write passages in the format of `read_subtitles`."""
    rows = (
        {"vid_name": video, "sub": [{"text": p.text, "start": p.start_s, "end": p.end_s} for p in of_video]}
        for video, of_video in passages.items()
    )
    write_rows(path, rows)


def width_error(place: str, subtitle_dim: int, word_dim: int) -> FeatureError:
    """Return the error for vectors of subtitles and words of different widths."""
    what = f"vectors of subtitles have width {subtitle_dim}, vectors of words {word_dim}"
    return FeatureError(f"{place}: {what}; make both with one network")
