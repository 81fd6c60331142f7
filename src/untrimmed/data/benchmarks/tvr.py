"""TVR (Lei et al., ECCV 2020, arXiv 2001.09099): scenes of six television series, five captions a video.

`tvr_{train,val}_release.jsonl`: a line a caption with `desc_id, vid_name, duration, ts [start, end], desc, type`. The
times of the authors' own test set are not public, so PRVR papers test on val.
"""

from __future__ import annotations

from pathlib import Path

from untrimmed.data.annotations import (
    Annotation,
    kind_of,
    length_s,
    number_captions,
    pair,
    read_json_lines,
    seconds,
    sentence,
    usable_moment,
    video_id,
)
from untrimmed.data.benchmarks.benchmark import Benchmark, PublishedSize


def read(path: Path) -> list[Annotation]:
    """The captions of a release file, in file order.

    Raises:
        FeatureError: naming file and line.
    """
    annotations = []
    for place, row in read_json_lines(path, ["desc_id", "vid_name", "duration", "ts", "desc"]):
        duration_s = length_s(row["duration"], place)
        start, end = pair(row["ts"], place, "ts")
        moments = usable_moment(seconds(start, place, "start"), seconds(end, place, "end"), duration_s)
        video = video_id(row["vid_name"], place)
        text = sentence(row["desc"], place, "desc")
        annotations.append(Annotation(video, "", text, moments, duration_s, kind_of(row, place)))
    return number_captions(annotations)


BENCHMARK = Benchmark(
    name="tvr",
    title="TVR",
    paper="arXiv 2001.09099",
    read=read,
    files={
        "train": ("tvr_train_release.jsonl", "tvr_train.jsonl.gz"),
        "val": ("tvr_val_release.jsonl", "tvr_val.jsonl.gz"),
    },
    parts={"train": "train", "val": "val", "test": "val"},
    sizes={
        "train": [PublishedSize(17435, 87175, "the TVR paper and MS-SL")],
        "val": [PublishedSize(2179, 10895, "the TVR paper and MS-SL")],
    },
    video_features="i3d_resnet",
)
