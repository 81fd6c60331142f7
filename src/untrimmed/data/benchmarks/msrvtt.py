"""MSR-VTT (Xu et al., CVPR 2016), split 1k-A: trimmed videos of 10 to 30 s. Each caption describes a whole video.

`MSRVTT_data.json`: `{"videos": [{"video_id", "start time", "end time", ...}], "sentences": [{"video_id", "caption",
...}]}`, twenty sentences per video. `start time` and `end time` are the video's position in a longer source video.
Captions have no moments.

Training uses the 9,000 videos of `MSRVTT_train.9k.csv` (column `video_id`) with all their sentences. Validation and
test use the other 1,000 videos, with one sentence each, from `MSRVTT_JSFUSION_test.csv` (columns `video_id` and
`sentence`).
"""

from collections import defaultdict
from pathlib import Path

from untrimmed.data.annotations import Annotation, number_captions
from untrimmed.data.benchmarks.benchmark import Benchmark, PublishedSize
from untrimmed.data.fields import AnnotationRow, read_json, read_table
from untrimmed.errors import FeatureError

DATA = "MSRVTT_data.json"


def read(path: Path) -> list[Annotation]:
    """Return the captions of a split, in the order of the CSV file `path`, which lists the videos of the split.

    The test file also contains the test captions. The training captions and all durations come from `MSRVTT_data.json`
    in the same folder.

    Raises: FeatureError for invalid content; the message names the file and the entry.
    """
    is_test = path.stem.endswith("_test")
    data = path.with_name(DATA)
    rows = list(read_table(path, ["video_id", "sentence"] if is_test else ["video_id"]))
    if is_test:
        durations = _durations(data) if data.is_file() else {}
        texts = [[row.sentence("sentence")] for row in rows]
    else:
        durations = _durations(data)
        sentences = _sentences(data)
        texts = [sentences.get(row.video_id("video_id"), []) for row in rows]
    annotations = []
    for row, captions in zip(rows, texts, strict=True):
        video = row.video_id("video_id")
        if not captions:
            raise FeatureError(f"{row.place}: {data} has no sentence for {video!r}; use the complete JSON file")
        annotations += [Annotation(video, "", text, (), durations.get(video)) for text in captions]
    return number_captions(annotations)


def _entries(data: Path, field: str, required: list[str]) -> list[AnnotationRow]:
    entries = AnnotationRow.of(read_json(data), str(data), [field]).entries(field)
    return [AnnotationRow.of(values, f"{data}, {field}, entry {i}", required) for i, values in enumerate(entries)]


def _durations(data: Path) -> dict[str, float]:
    durations = {}
    for row in _entries(data, "videos", ["video_id", "start time", "end time"]):
        start_s, end_s = row.span((row.values["start time"], row.values["end time"]), "times")
        durations[row.video_id("video_id")] = AnnotationRow({"duration": end_s - start_s}, row.place).length_s()
    return durations


def _sentences(data: Path) -> dict[str, list[str]]:
    sentences: defaultdict[str, list[str]] = defaultdict(list)
    for row in _entries(data, "sentences", ["video_id", "caption"]):
        sentences[row.video_id("video_id")].append(row.sentence("caption"))
    return sentences


BENCHMARK = Benchmark(
    name="msrvtt",
    title="MSR-VTT, split 1k-A",
    paper="CVPR 2016",
    read=read,
    files={"train": ("MSRVTT_train.9k.csv",), "test": ("MSRVTT_JSFUSION_test.csv",)},
    parts={"train": "train", "val": "test", "test": "test"},
    sizes={
        "train": [PublishedSize(9000, 180000, "the split 1k-A")],
        "test": [PublishedSize(1000, 1000, "the split 1k-A")],
    },
    notes=("Captions describe whole videos: no moments, no event-level recall.",),
)
