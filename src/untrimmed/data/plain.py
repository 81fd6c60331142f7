"""The layout for your own data: captions in a JSONL file, and features in one file per video or in one HDF5 file.

    ROOT/NAME/captions.jsonl          {"video": "lake", "caption": "a dog jumps in", "start_s": 3, "end_s": 9}
    ROOT/NAME/frames/lake.npy         (frames, width), or frames/lake.npz, or all videos in one ROOT/NAME/frames.h5
    ROOT/NAME/words/lake#0.npy        (words, width), or all captions in one ROOT/NAME/words.h5

A line may also have `id` (by default `<video>#<n>`, where n counts the captions of the video from 0), `duration_s` and
`split` (train, val or test). If no line has a split, videos are divided 8 : 1 : 1 by a hash of their id.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from untrimmed.data.annotations import Annotation, stable_hash
from untrimmed.data.benchmarks.benchmark import SPLITS
from untrimmed.data.fields import write_rows
from untrimmed.data.labelled import Label, cut_to_video, read_labels
from untrimmed.errors import FeatureError

CAPTION_FILE = "captions.jsonl"


def read_plain(path: Path) -> dict[str, list[Annotation]]:
    """Return {split: captions in file order}.

    Raises: FeatureError for an invalid line, for a file without captions, or if only some lines have a split.
    """
    splits: dict[str, list[Annotation]] = {split: [] for split in SPLITS}
    num_captions: Counter[str] = Counter()
    for label in read_labels(path):
        splits[label.split or hashed_split(label.video)].append(_annotation(label, num_captions[label.video]))
        num_captions[label.video] += 1
    return splits


def _annotation(label: Label, number: int) -> Annotation:
    video = label.video
    moment = label.moment
    if PurePosixPath(video).is_absolute() or ".." in video.split("/"):
        raise FeatureError(f"{label.place}: video {video!r}, expected a path inside frames/; rename it")
    if moment is not None and label.duration_s is not None:
        moment = cut_to_video(moment, label.duration_s, video=video, place=label.place)
    moments = () if moment is None else (moment,)
    return Annotation(video, label.caption_id or f"{video}#{number}", label.text, moments, label.duration_s)


def hashed_split(video: str) -> str:
    """Return a video's split, chosen by a hash of its id: about 80 % of videos are train, 10 % val and 10 % test."""
    tenth = stable_hash(video) % 10
    return "train" if tenth < 8 else "val" if tenth == 8 else "test"


def write_plain(path: Path, splits: Mapping[str, Iterable[Annotation]]) -> None:
    """Write the captions of all splits to one file, each with its main moment."""
    write_rows(path, (_row(annotation, split) for split, captions in splits.items() for annotation in captions))


def _row(annotation: Annotation, split: str) -> dict[str, Any]:
    row: dict[str, Any] = {"video": annotation.video, "caption": annotation.text, "split": split}
    row["id"] = annotation.caption_id
    if annotation.main_moment is not None:
        row["start_s"], row["end_s"] = annotation.main_moment
    return row if annotation.duration_s is None else {**row, "duration_s": annotation.duration_s}
