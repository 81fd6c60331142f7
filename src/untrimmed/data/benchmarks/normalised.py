"""A common annotation format for all benchmarks: one line per video, `{"video", "duration", "captions": [...]}`.

A caption is `{"caption", "start", "end"}`, with times in seconds, and may have a `type`. If it has `windows` (all
relevant spans) or `segments` (one span per annotator, in 5-second segments), `start` and `end` are ignored.
"""

from pathlib import Path

from untrimmed.data.annotations import Annotation, Span, number_captions, usable_moment
from untrimmed.data.fields import AnnotationRow, read_rows

SEGMENT_S = 5.0
"""Length of a DiDeMo segment in seconds."""


def read_normalised(path: Path) -> list[Annotation]:
    """Return the captions of a file in file order.

    Raises: FeatureError for invalid content; the message names the file and the line.
    """
    annotations = []
    for line in read_rows(path, ["video", "duration", "captions"]):
        video = line.video_id()
        duration_s = line.optional_length_s()
        for caption in line.entries("captions"):
            row = AnnotationRow.of(caption, f"{line.place}, video {video!r}", ["caption", "start", "end"])
            moments = _moments(row, duration_s)
            annotations.append(Annotation(video, "", row.sentence("caption"), moments, duration_s, row.kind()))
    return number_captions(annotations)


def _moments(row: AnnotationRow, duration_s: float | None) -> tuple[Span, ...]:
    if "windows" in row.values:
        return row.usable_spans("windows", duration_s)
    if "segments" in row.values:
        pairs = [row.pair(segment, "segment") for segment in row.entries("segments")]
        spans = [segment_span(row.segment_number(first), row.segment_number(last)) for first, last in pairs]
    else:
        times = row.values["start"], row.values["end"]
        spans = [] if times[0] is None else [row.span(times, "moment")]
    return tuple(moment for span in spans for moment in usable_moment(*span, duration_s))


def segment_span(first: int, last: int) -> Span:
    """Return when the first segment starts and the last segment ends, in seconds; segments are numbered from 0.

    >>> segment_span(1, 2)
    (5.0, 15.0)
    """
    return SEGMENT_S * first, SEGMENT_S * (last + 1)
