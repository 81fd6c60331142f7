"""TVR (Lei et al., ECCV 2020, arXiv 2001.09099): scenes of six television series, five captions per video.

`tvr_{train,val}_release.jsonl`: one line per caption with `desc_id, vid_name, duration, ts [start, end], desc, type`.
The times of the test set are not public, so PRVR papers test on val.
"""

from pathlib import Path

from untrimmed.data.annotations import Annotation, number_captions, usable_moment
from untrimmed.data.benchmarks.benchmark import Benchmark, PublishedSize
from untrimmed.data.fields import read_rows


def read(path: Path) -> list[Annotation]:
    """Return the captions of a release file in file order.

    Raises: FeatureError for invalid content; the message names the file and the line.
    """
    annotations = []
    for row in read_rows(path, ["desc_id", "vid_name", "duration", "ts", "desc"]):
        duration_s = row.length_s()
        moments = usable_moment(*row.span(row.values["ts"], "ts"), duration_s)
        video = row.video_id("vid_name")
        text = row.sentence("desc")
        annotations.append(Annotation(video, "", text, moments, duration_s, row.kind()))
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
