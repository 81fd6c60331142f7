"""The annotation lines of JSG (MM 2023): captions with their moments, `prvr_vcmr_<split>.jsonl`.

Fields: `vid_name`, `desc_id`, `desc`, `duration`, `ts` ([start, end] in seconds, or a list of such pairs) and TVR's
`type`. The caption files of the other methods hold no times, so `untrimmed data prepare` writes these beside them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from untrimmed.data.annotations import (
    Annotation,
    Span,
    kind_of,
    length_s,
    pair,
    read_json_lines,
    seconds,
    sentence,
    video_id,
)
from untrimmed.files import whole_file


def read_jsg(path: Path) -> list[Annotation]:
    """The captions of a file, in file order; caption ids are `desc_id` as a string.

    Spans are taken as they stand, even past the end of the video, because the released evaluation does so; one that
    does not end after its start is dropped. `duration` may be null.

    Raises:
        FeatureError: naming file and line.
    """
    annotations = []
    for place, row in read_json_lines(path, ["vid_name", "desc_id", "desc", "duration", "ts"]):
        duration_s = None if row["duration"] is None else length_s(row["duration"], place)
        moments = _read_spans(row["ts"], place)
        video, text = video_id(row["vid_name"], place), sentence(row["desc"], place, "desc")
        annotations.append(Annotation(video, str(row["desc_id"]), text, moments, duration_s, kind_of(row, place)))
    return annotations


def _read_spans(value: Any, place: str) -> tuple[Span, ...]:
    pairs = value if isinstance(value, list) and all(isinstance(item, list) for item in value) else [value]
    spans = []
    for item in pairs:
        start, end = pair(item, place, "ts")
        start_s, end_s = seconds(start, place, "start"), seconds(end, place, "end")
        if start_s < end_s:
            spans.append((start_s, end_s))
    return tuple(spans)


def write_jsg(path: Path, annotations: Iterable[Annotation]) -> None:
    """Write the captions in order; `ts` is one pair where there is one moment, else a list of pairs."""
    with whole_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for annotation in annotations:
            spans = [list(span) for span in annotation.moments]
            row: dict[str, Any] = {
                "vid_name": annotation.video,
                "desc_id": annotation.caption_id,
                "desc": annotation.text,
                "duration": annotation.duration_s,
                "ts": spans[0] if len(spans) == 1 else spans,
            }
            if annotation.kind is not None:
                row["type"] = annotation.kind
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
