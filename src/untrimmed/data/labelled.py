"""People's sentences about videos, one JSON object a line: what `evaluate`, `features` and the plain layout read.

    {"video": "lake", "caption": "a dog jumps in", "start_s": 3, "end_s": 9, "split": "train"}
    {"file": "lake.mp4", "queries": [{"query": "a dog jumps in", "start": 3, "end": 9}]}

`query` may stand for `caption`. Moment and split may be left out; a line may also have `id` and `duration_s`.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from untrimmed.data.annotations import Annotation, Span, number_captions, stable_hash, usable_moment, videos_of
from untrimmed.data.benchmarks.benchmark import SPLITS
from untrimmed.data.fields import Row, read_rows
from untrimmed.errors import FeatureError

_FEWEST = 3  # videos of the validation and the test split, where there are enough


@dataclass(frozen=True)
class Label:
    """One sentence about a video; `video` is a path, a file name, or that without the suffix."""

    video: str
    text: str
    moment: Span | None
    split: str | None
    place: str  # file and line, for messages
    caption_id: str | None = None
    duration_s: float | None = None


def read_labels(file: str | os.PathLike[str], *, splits: bool = True) -> list[Label]:
    """Return the sentences of a file in file order; without `splits`, splits are ignored.

    Raises: FeatureError for a bad line, for no sentences, or if only some lines have a split.
    """
    labels = [_label(row, splits) for line in read_rows(Path(file), []) for row in _rows(line)]
    if not labels:
        raise FeatureError(f'{file}: holds no captions; write lines like {{"video": "lake", "caption": "a dog jumps"}}')
    with_split = sum(label.split is not None for label in labels)
    if 0 < with_split < len(labels):
        raise FeatureError(f"{file}: {with_split} of {len(labels)} lines have a split; give every line one, or none")
    return labels


def inside(span: Span, duration_s: float, *, video: str, place: str) -> Span:
    """Return a moment cut at the end of its video; raises FeatureError, which begins with `place`, if it is outside."""
    for cut in usable_moment(*span, duration_s):
        return cut
    raise FeatureError(
        f"{place}{': ' if place else ''}moment from {span[0]:g} to {span[1]:g} s, the video {video!r} ends at "
        f"{duration_s:g} s; correct the line"
    )


def _rows(line: Row) -> Iterator[Row]:
    """A line with several sentences about one file as one row each."""
    if "queries" not in line.values:
        yield line
        return
    for value in line.entries("queries"):
        query = Row.of(value, line.place, ["query", "start", "end"]).values
        times = {"start_s": query["start"], "end_s": query["end"]}
        yield Row({"video": line.values.get("file", line.values.get("video")), **query, **times}, line.place)


def _label(row: Row, splits: bool) -> Label:
    values = row.values
    text = "query" if "query" in values and "caption" not in values else "caption"
    if text not in values:
        found = ", ".join(values) or "none"
        raise FeatureError(f"{row.place}: found {found}, wanted a sentence as 'query' (or 'caption'); name it so")
    Row.of(values, row.place, ["video"])
    video = values["video"]
    split = values.get("split") if splits else None
    caption_id = values.get("id")
    if not isinstance(video, str) or not video:
        raise FeatureError(f"{row.place}: video is {video!r}, wanted a path or a file name; correct the line")
    if split is not None and split not in SPLITS:  # a tuple: it can be asked about a list, too
        known = ", ".join(SPLITS)
        raise FeatureError(f"{row.place}: split {split!r}, wanted one of {known}; correct it or leave it out")
    if not isinstance(caption_id, str | int | None):
        raise FeatureError(f"{row.place}: id is {caption_id!r}, wanted text; correct it or leave it out")
    caption_id = None if caption_id is None else str(caption_id)
    duration_s = row.known_length_s("duration_s")
    return Label(video, row.sentence(text), row.moment(), split, row.place, caption_id, duration_s)


def captions_by_split(labels: Sequence[tuple[Label, str, float]], *, plain: bool) -> dict[str, list[Annotation]]:
    """Return the captions of each split, from labels with the name of the video in the data set and its length in s.

    Without splits, `deal_videos` assigns them. With `plain`, captions are numbered as in the plain layout.
    """
    annotations = number_captions([_annotation(label, video, duration_s) for label, video, duration_s in labels])
    if plain:
        annotations = [replace(caption, caption_id=caption.caption_id.replace("#enc#", "#")) for caption in annotations]
    splits: dict[str, list[Annotation]] = {split: [] for split in SPLITS}
    if not labels:
        return splits
    first = labels[0][0]
    dealt = deal_videos(videos_of(annotations), first.place.rpartition(", line ")[0]) if first.split is None else {}
    for caption, (label, _, _) in zip(annotations, labels, strict=True):
        splits[label.split or dealt[caption.video]].append(caption)
    return splits


def _annotation(label: Label, video: str, duration_s: float) -> Annotation:
    duration_s = round(duration_s, 3)
    moment = label.moment and inside(label.moment, duration_s, video=label.video, place=label.place)
    return Annotation(video, "", label.text, () if moment is None else (moment,), duration_s)


def deal_videos(videos: Iterable[str], file: str = "captions") -> dict[str, str]:
    """Assign videos to splits in hash order: a tenth val, as many test, the rest train; at most a third of few videos.

    Unlike `data.plain.dealt_split`, this leaves no split of a small data set empty. From nine videos on, val has three:
    with one, every model finds it and the first epoch wins. Raises: FeatureError for fewer than three videos.
    """
    ordered = sorted(set(videos), key=stable_hash)
    if len(ordered) < len(SPLITS):
        raise FeatureError(
            f"{file}: {len(ordered)} videos, wanted at least {len(SPLITS)} to deal them into {', '.join(SPLITS)}; "
            "add some, or give every line a split"
        )
    share = max(round(len(ordered) / 10), min(_FEWEST, len(ordered) // len(SPLITS)))
    dealt = dict.fromkeys(ordered, "train")
    return dealt | dict.fromkeys(ordered[:share], "val") | dict.fromkeys(ordered[share : 2 * share], "test")
