"""The annotation files of JSG (MM 2023): captions with their moments, `prvr_vcmr_<split>.jsonl`.

Fields: `vid_name`, `desc_id`, `desc`, `duration`, `ts` ([start, end] in seconds, or a list of such pairs) and TVR's
`type`. Caption files of the other methods contain no times. `untrimmed data prepare` therefore also writes JSG's files.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from untrimmed.data.annotations import Annotation, Span
from untrimmed.data.fields import AnnotationRow, read_rows, write_rows


def read_jsg(path: Path) -> list[Annotation]:
    """Return the captions of a file in file order, with `desc_id` as the caption id.

    Spans may end after the video, as in the released evaluation. A span is dropped if its end is not after its start.
    `duration` may be null.

    Raises: FeatureError for invalid content; the message names the file and the line.
    """
    annotations = []
    for row in read_rows(path, ["vid_name", "desc_id", "desc", "duration", "ts"]):
        video = row.video_id("vid_name")
        text = row.sentence("desc")
        caption_id = str(row.values["desc_id"])
        annotations.append(Annotation(video, caption_id, text, _spans(row), row.optional_length_s(), row.kind()))
    return annotations


def _spans(row: AnnotationRow) -> tuple[Span, ...]:
    times = row.values["ts"]
    pairs = times if isinstance(times, list) and all(isinstance(item, list) for item in times) else [times]
    spans = (row.span(pair, "ts") for pair in pairs)
    return tuple((start_s, end_s) for start_s, end_s in spans if start_s < end_s)


def write_jsg(path: Path, annotations: Iterable[Annotation]) -> None:
    """Write the captions in order. `ts` is a pair if there is one moment, otherwise a list of pairs."""
    write_rows(path, map(_row, annotations))


def _row(annotation: Annotation) -> dict[str, Any]:
    spans = [list(span) for span in annotation.moments]
    row: dict[str, Any] = {
        "vid_name": annotation.video,
        "desc_id": annotation.caption_id,
        "desc": annotation.text,
        "duration": annotation.duration_s,
        "ts": spans[0] if len(spans) == 1 else spans,
    }
    return row if annotation.kind is None else {**row, "type": annotation.kind}
