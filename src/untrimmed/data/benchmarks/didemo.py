"""DiDeMo (Hendricks et al., ICCV 2017, arXiv 1708.01641): 30-second videos, spans of four or more annotators.

`{train,val,test}_data.json`: a list of `annotation_id, description, video, times [[first, last], ...], num_segments`.
`times` has one pair of segment numbers per annotator. The video id is the file name without its suffix, because a few
videos are listed with two different suffixes. We take five seconds times the number of segments as the duration,
although the last segment may be shorter.
"""

from pathlib import Path
from typing import Any

from untrimmed.data.annotations import Annotation, Span, number_captions
from untrimmed.data.benchmarks.benchmark import Benchmark, PublishedSize
from untrimmed.data.benchmarks.normalised import SEGMENT_S, segment_span
from untrimmed.data.fields import AnnotationRow, read_json
from untrimmed.errors import FeatureError


def read(path: Path) -> list[Annotation]:
    """Return the captions of a JSON file in file order.

    Raises: FeatureError for invalid content; the message names the file and the annotation.
    """
    rows = read_json(path)
    if not isinstance(rows, list):
        raise FeatureError(f"{path}: found {type(rows).__name__}, expected a list of annotations; download it again")
    annotations = []
    for number, values in enumerate(rows):
        required = ["annotation_id", "description", "video", "times", "num_segments"]
        row = AnnotationRow.of(values, f"{path}, annotation {number}", required)
        video = AnnotationRow({"video": Path(str(row.values["video"])).stem}, row.place).video_id()
        num_segments = row.segment_number(row.values["num_segments"])
        moments = tuple(_span(row, times, num_segments) for times in row.entries("times"))
        annotations.append(Annotation(video, "", row.sentence("description"), moments, SEGMENT_S * num_segments))
    return number_captions(annotations)


def _span(row: AnnotationRow, times: Any, num_segments: int) -> Span:
    first, last = map(row.segment_number, row.pair(times, "times"))
    if first > last or last >= num_segments:
        raise FeatureError(f"{row.place}: segments {first} to {last} of {num_segments}; download the file again")
    return segment_span(first, last)


BENCHMARK = Benchmark(
    name="didemo",
    title="DiDeMo",
    paper="arXiv 1708.01641",
    read=read,
    files={
        "train": ("train_data.json", "didemo_train.jsonl.gz"),
        "val": ("val_data.json", "didemo_val.jsonl.gz"),
        "test": ("test_data.json", "didemo_test.jsonl.gz"),
    },
    parts={"train": "train", "val": "val", "test": "test"},
    sizes={
        "train": [PublishedSize(8395, 33005, "the DiDeMo paper")],
        "val": [PublishedSize(1065, 4180, "the DiDeMo paper")],
        "test": [PublishedSize(1004, 4021, "the DiDeMo paper")],
    },
    several_annotators=True,
)
