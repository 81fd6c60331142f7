"""Charades-STA (Gao et al., ICCV 2017, arXiv 1705.02101): 30-second indoor videos, short captions.

`charades_sta_{train,test}.txt` has one line per caption, `video start end##sentence`. The length of each video is in
the column `length` of `Charades_v1_{train,test}.csv` in the same folder. Without that file, durations are unknown, and
moments that end after their video are not cut.
"""

from pathlib import Path

from untrimmed.data.annotations import Annotation, number_captions, usable_moment
from untrimmed.data.benchmarks.benchmark import Benchmark, PublishedSize
from untrimmed.data.fields import AnnotationRow, open_lines, read_table
from untrimmed.errors import FeatureError


def read(path: Path) -> list[Annotation]:
    """Return the captions of a text file in file order.

    Raises: FeatureError for invalid content; the message names the file and the line.
    """
    durations = _read_durations(path)
    annotations = []
    for number, line in open_lines(path):
        place = f"{path}, line {number}"
        head, mark, caption = line.partition("##")
        fields = head.split()
        if not mark or len(fields) != 3:
            raise FeatureError(f"{place}: {line.strip()[:60]!r}, expected 'video start end##sentence'; fix the line")
        row = AnnotationRow({"video": fields[0], "sentence": caption}, place)
        duration_s = durations.get(row.video_id())
        moments = usable_moment(*row.span(fields[1:], "moment"), duration_s)
        annotations.append(Annotation(row.video_id(), "", row.sentence("sentence"), moments, duration_s))
    return number_captions(annotations)


def _read_durations(path: Path) -> dict[str, float]:
    split = path.stem.rpartition("_")[2]
    table = path.with_name(f"Charades_v1_{split}.csv")
    if not table.is_file():
        return {}
    return {str(row.values["id"]): row.length_s("length") for row in read_table(table, ["id", "length"])}


BENCHMARK = Benchmark(
    name="charades",
    title="Charades-STA",
    paper="arXiv 1705.02101",
    read=read,
    files={
        "train": ("charades_sta_train.txt", "charades_sta_train.jsonl.gz"),
        "test": ("charades_sta_test.txt", "charades_sta_test.jsonl.gz"),
    },
    parts={"train": "train", "val": "test", "test": "test"},
    sizes={
        "train": [
            PublishedSize(5338, 12408, "the full annotations"),
            PublishedSize(5538, 12408, "MS-SL's readme, a misprint: with the test videos it exceeds its own total"),
        ],
        "test": [PublishedSize(1334, 3720, "the full annotations and MS-SL")],
    },
    video_features="i3d_rgb_lgi",
)
