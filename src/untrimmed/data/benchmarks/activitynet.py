"""ActivityNet Captions (Krishna et al., ICCV 2017, arXiv 1705.00754): YouTube videos of about 120 s.

`train.json`, `val_1.json`, `val_2.json`: `{video: {"duration", "timestamps": [[start, end], ...], "sentences":
[...]}}`. Both validation files describe the same videos in different words.

PRVR papers use only the videos with released features: 9,043 for training and 4,430 for testing. The papers report
15,753 test captions, which is 3.56 per video. val_1 has 3.56 captions per video and val_2 has 3.49, so we test on val_1
by default.
"""

from pathlib import Path

from untrimmed.data.annotations import Annotation, number_captions, usable_moment
from untrimmed.data.benchmarks.benchmark import Benchmark, PublishedSize
from untrimmed.data.fields import AnnotationRow, read_json
from untrimmed.errors import FeatureError


def read(path: Path) -> list[Annotation]:
    """Return the captions of a JSON file in file order.

    Raises: FeatureError for invalid content; the message names the file and the video.
    """
    annotations = []
    for name, values in AnnotationRow.of(read_json(path), str(path), []).values.items():
        row = AnnotationRow.of(values, f"{path}, video {name!r}", ["duration", "timestamps", "sentences"])
        spans = row.entries("timestamps")
        sentences = row.entries("sentences")
        if len(spans) != len(sentences):
            counts = f"{len(spans)} timestamps for {len(sentences)} sentences"
            raise FeatureError(f"{row.place}: {counts}, expected one for each; download the file again")
        duration_s = row.length_s()
        for span, sentence in zip(spans, sentences, strict=True):
            caption = AnnotationRow({"video": name, "sentence": sentence}, row.place)
            moments = usable_moment(*row.span(span, "timestamp"), duration_s)
            annotations.append(Annotation(caption.video_id(), "", caption.sentence("sentence"), moments, duration_s))
    return number_captions(annotations)


BENCHMARK = Benchmark(
    name="activitynet",
    title="ActivityNet Captions",
    paper="arXiv 1705.00754",
    read=read,
    files={
        "train": ("train.json", "activitynet_captions_train.jsonl.gz"),
        "val_1": ("val_1.json", "activitynet_captions_val_1.jsonl.gz"),
        "val_2": ("val_2.json", "activitynet_captions_val_2.jsonl.gz"),
    },
    parts={"train": "train", "val": "val_1", "test": "val_1"},
    sizes={
        "train": [
            PublishedSize(10009, 37421, "the full annotations"),
            PublishedSize(9043, 33721, "PRVR papers, videos with released features only"),
        ],
        "val_1": [
            PublishedSize(4917, 17505, "the full annotations"),
            PublishedSize(4430, 15753, "PRVR papers, videos with released features only"),
        ],
        "val_2": [PublishedSize(4885, 17031, "the full annotations")],
    },
    video_features="i3d",
    notes=("`--test val_2` tests with the second set of captions of the same videos.",),
)
