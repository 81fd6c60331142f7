"""People's own data: one JSONL of captions, one feature file per video or one HDF5.

    ROOT/NAME/captions.jsonl          {"video": "lake", "caption": "a dog jumps in", "start_s": 3, "end_s": 9}
    ROOT/NAME/frames/lake.npy         (frames, width), or frames/lake.npz, or all videos in one ROOT/NAME/frames.h5
    ROOT/NAME/words/lake#0.npy        (words, width), or all captions in one ROOT/NAME/words.h5

A line may also have `id` (else `<video>#<n>`, n counting the captions of the video from 0), `duration_s` and `split`
(train, val or test). If no line has a split, videos are dealt 8 : 1 : 1 by a hash of their ids, the same on every
machine.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from untrimmed.data.annotations import Annotation, Span, length_s, one_line, read_json_lines, seconds, usable_moment
from untrimmed.data.benchmarks.benchmark import SPLITS
from untrimmed.errors import FeatureError
from untrimmed.files import whole_file

CAPTION_FILE = "captions.jsonl"


def read_plain(path: Path) -> dict[str, list[Annotation]]:
    """The captions of each split, in file order.

    Raises:
        FeatureError: naming file and line; also if some lines have a split and others have none.
    """
    splits: dict[str, list[Annotation]] = {split: [] for split in SPLITS}
    number: Counter[str] = Counter()
    lines_with_split = 0
    rows = list(read_json_lines(path, ["video", "caption"]))
    for place, row in rows:
        annotation = _read_row(row, place, number)
        split = row.get("split")
        lines_with_split += split is not None
        if split is None:
            split = dealt_split(annotation.video)
        elif split not in SPLITS:  # a tuple: it can be asked about a list, too
            raise FeatureError(
                f"{place}: split {split!r}, wanted one of {', '.join(SPLITS)}; correct it or leave it out"
            )
        splits[split].append(annotation)
    if 0 < lines_with_split < len(rows):
        found = f"{lines_with_split} of {len(rows)} lines have a split"
        raise FeatureError(f"{path}: {found}; give every line one, or none")
    return splits


def _read_row(row: dict[str, Any], place: str, number: Counter[str]) -> Annotation:
    video = row["video"]
    if not isinstance(video, str) or not video or PurePosixPath(video).is_absolute() or ".." in video.split("/"):
        raise FeatureError(f"{place}: video {video!r}, wanted a name below frames/; rename it")
    if not isinstance(row["caption"], str):
        raise FeatureError(f"{place}: caption is {row['caption']!r}, wanted a sentence; correct the line")
    caption_id = f"{video}#{number[video]}" if row.get("id") is None else row["id"]
    if not isinstance(caption_id, str | int):
        raise FeatureError(f"{place}: id is {caption_id!r}, wanted text; correct it or leave it out")
    number[video] += 1
    return Annotation(video, str(caption_id), one_line(row["caption"]), *_read_times(row, place))


def _read_times(row: dict[str, Any], place: str) -> tuple[tuple[Span, ...], float | None]:
    """The moment of a line, cut at the end of the video, and the length of the video, where it has them."""
    duration_s = None if row.get("duration_s") is None else length_s(row["duration_s"], place, "duration_s")
    if row.get("start_s") is None and row.get("end_s") is None:
        return (), duration_s
    start_s = seconds(row.get("start_s"), place, "start_s")
    end_s = seconds(row.get("end_s"), place, "end_s")
    if end_s <= start_s:
        raise FeatureError(f"{place}: moment from {start_s:g} to {end_s:g} s ends before it starts; correct the line")
    if start_s < 0 or (duration_s is not None and start_s >= duration_s):
        video = "the video" if duration_s is None else f"the video of {duration_s:g} s"
        raise FeatureError(f"{place}: moment from {start_s:g} to {end_s:g} s is not inside {video}; correct the line")
    return usable_moment(start_s, end_s, duration_s), duration_s


def dealt_split(video: str) -> str:
    """The split of a video without one: 8 of 10 train, 1 val, 1 test, by a hash of the id."""
    place = int.from_bytes(hashlib.blake2b(video.encode(), digest_size=8).digest(), "big") % 10
    return "train" if place < 8 else "val" if place == 8 else "test"


def write_plain(path: Path, splits: Mapping[str, Iterable[Annotation]]) -> None:
    """Write the captions of all splits to one file; of several moments the main one."""
    with whole_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for split, annotations in splits.items():
            for annotation in annotations:
                row: dict[str, Any] = {"video": annotation.video, "caption": annotation.text, "split": split}
                row["id"] = annotation.caption_id
                if annotation.main_moment is not None:
                    row["start_s"], row["end_s"] = annotation.main_moment
                if annotation.duration_s is not None:
                    row["duration_s"] = annotation.duration_s
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
