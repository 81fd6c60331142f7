"""Captions of your own videos, one JSON object per line, for `evaluate`, `features` and the plain layout.

    {"video": "lake", "caption": "a dog jumps in", "start_s": 3, "end_s": 9, "split": "train"}
    {"file": "lake.mp4", "queries": [{"query": "a dog jumps in", "start": 3, "end": 9}]}

`query` is another name for `caption`. Moment, split, `id` and `duration_s` are optional.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from untrimmed.data.annotations import Annotation, Span, number_captions, stable_hash, usable_moment, videos_of
from untrimmed.data.benchmarks.benchmark import SPLITS
from untrimmed.data.fields import AnnotationRow, read_rows
from untrimmed.errors import FeatureError

_MIN_VIDEOS = 3  # fewest videos in validation and in test, if there are at least nine videos


@dataclass(frozen=True)
class Label:
    """A sentence about a video. `video` is a path or a file name, with or without suffix."""

    video: str
    text: str
    moment: Span | None
    split: str | None
    place: str  # file and line of the label, for messages
    caption_id: str | None = None
    duration_s: float | None = None


def read_labels(file: str | os.PathLike[str], *, splits: bool = True) -> list[Label]:
    """Return the sentences of a file in file order; with `splits=False`, splits are ignored.

    Raises: FeatureError for an invalid line, for a file without sentences, or if only some lines have a split.
    """
    labels = [_label(row, splits) for line in read_rows(Path(file), []) for row in _rows(line)]
    if not labels:
        raise FeatureError(f'{file}: no captions; write lines like {{"video": "lake", "caption": "a dog jumps"}}')
    with_split = sum(label.split is not None for label in labels)
    if 0 < with_split < len(labels):
        raise FeatureError(f"{file}: {with_split} of {len(labels)} lines have a split; add it to all or to none")
    return labels


def cut_to_video(span: Span, duration_s: float, *, video: str, place: str) -> Span:
    """Return the part of a moment that is inside its video.

    Raises: FeatureError if no part is inside; the message begins with `place`.
    """
    for cut in usable_moment(*span, duration_s):
        return cut
    raise FeatureError(
        f"{place}{': ' if place else ''}moment from {span[0]:g} to {span[1]:g} s, but the video {video!r} ends at "
        f"{duration_s:g} s; fix the line"
    )


def _rows(line: AnnotationRow) -> Iterator[AnnotationRow]:
    """Split a line with several queries about one video into one row per query."""
    if "queries" not in line.values:
        yield line
        return
    for value in line.entries("queries"):
        query = AnnotationRow.of(value, line.place, ["query", "start", "end"]).values
        times = {"start_s": query["start"], "end_s": query["end"]}
        yield AnnotationRow({"video": line.values.get("file", line.values.get("video")), **query, **times}, line.place)


def _label(row: AnnotationRow, splits: bool) -> Label:
    values = row.values
    text = "query" if "query" in values and "caption" not in values else "caption"
    if text not in values:
        names = ", ".join(values) or "none"
        raise FeatureError(f"{row.place}: found fields {names}, expected 'caption' or 'query'; add the sentence")
    AnnotationRow.of(values, row.place, ["video"])
    video = values["video"]
    split = values.get("split") if splits else None
    caption_id = values.get("id")
    if not isinstance(video, str) or not video:
        raise FeatureError(f"{row.place}: video is {video!r}, expected a path or a file name; fix the line")
    if split is not None and split not in SPLITS:  # SPLITS is a tuple, so an unhashable value raises no error here
        raise FeatureError(f"{row.place}: split {split!r}, expected {', '.join(SPLITS)}; fix it or remove it")
    if not isinstance(caption_id, str | int | None):
        raise FeatureError(f"{row.place}: id is {caption_id!r}, expected text; fix it or remove it")
    caption_id = None if caption_id is None else str(caption_id)
    duration_s = row.optional_length_s("duration_s")
    return Label(video, row.sentence(text), row.moment(), split, row.place, caption_id, duration_s)


def captions_by_split(labels: Sequence[tuple[Label, str, float]], *, plain: bool) -> dict[str, list[Annotation]]:
    """Return {split: captions}.

    `labels` are triples of a label, the name of its video in the data set, and the length of the video in seconds. If
    the labels have no splits, `assign_splits` chooses them. With `plain`, caption ids are `<video>#<n>`, as in the
    plain layout. Without `plain`, they are `<video>#enc#<n>`.
    """
    annotations = number_captions([_annotation(label, video, duration_s) for label, video, duration_s in labels])
    if plain:
        annotations = [replace(caption, caption_id=caption.caption_id.replace("#enc#", "#")) for caption in annotations]
    splits: dict[str, list[Annotation]] = {split: [] for split in SPLITS}
    if not labels:
        return splits
    file = labels[0][0].place.rpartition(", line ")[0]
    split_of = {} if labels[0][0].split else assign_splits(videos_of(annotations), file)
    for caption, (label, _, _) in zip(annotations, labels, strict=True):
        splits[label.split or split_of[caption.video]].append(caption)
    return splits


def _annotation(label: Label, video: str, duration_s: float) -> Annotation:
    duration_s = round(duration_s, 3)
    moment = label.moment and cut_to_video(label.moment, duration_s, video=label.video, place=label.place)
    return Annotation(video, "", label.text, () if moment is None else (moment,), duration_s)


def assign_splits(videos: Iterable[str], file: str = "captions") -> dict[str, str]:
    """Return {video: split}, chosen by a hash of the video id.

    Val and test each get a tenth of the videos. If there are nine or more videos, val and test each get at least three.
    Train gets the rest. The minimum matters: if val had a single video, every model would rank it first, and the first
    epoch would always be the best.

    Raises: FeatureError for fewer than three videos.
    """
    ordered = sorted(set(videos), key=stable_hash)
    if len(ordered) < len(SPLITS):
        raise FeatureError(
            f"{file}: {len(ordered)} videos, expected at least {len(SPLITS)} for {', '.join(SPLITS)}; "
            "add videos, or add a split to every line"
        )
    share = max(round(len(ordered) / 10), min(_MIN_VIDEOS, len(ordered) // len(SPLITS)))
    split_of = dict.fromkeys(ordered, "train")
    return split_of | dict.fromkeys(ordered[:share], "val") | dict.fromkeys(ordered[share : 2 * share], "test")
