"""QVHighlights (Lei et al., NeurIPS 2021, arXiv 2107.09609) as a benchmark of partially relevant video retrieval.

`highlight_{train,val}_release.jsonl`: one line per caption with `qid, query, vid, duration, relevant_windows`. `vid` is
`<source>_<start>_<end>`, a 150-second cut of a source video.

ProtoPRVR (arXiv 2504.13035, appendix 6) merges all cuts of a source into one video. The paper reports 2,214 merged
videos with 7,218 captions for train, and 474 merged videos with 1,550 captions for val. The paper's list of merged
videos is not published, but merging by source name gives exactly these counts.
"""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from untrimmed.data.annotations import Annotation, number_captions
from untrimmed.data.benchmarks.benchmark import Benchmark, PublishedSize
from untrimmed.data.fields import read_rows
from untrimmed.errors import FeatureError


def read(path: Path) -> list[Annotation]:
    """Return the captions of a release file in file order. Each cut is a separate video.

    Raises: FeatureError for invalid content; the message names the file and the line.
    """
    annotations = []
    for row in read_rows(path, ["qid", "query", "vid", "duration", "relevant_windows"]):
        duration_s = row.length_s()
        moments = row.usable_spans("relevant_windows", duration_s)
        annotations.append(Annotation(row.video_id("vid"), "", row.sentence("query"), moments, duration_s))
    return number_captions(annotations)


def cuts_of_sources(cuts: list[str]) -> dict[str, list[str]]:
    """Return {source: cuts in temporal order}, with the sources in order of first appearance.

    The features of a merged video are the features of its cuts, in this order.

    Raises: FeatureError for a cut that is not named `<source>_<start>_<end>`.

    >>> cuts_of_sources(["a_b_210.0_360.0", "a_b_60.0_210.0"])
    {'a_b': ['a_b_60.0_210.0', 'a_b_210.0_360.0']}
    """
    sources: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for cut in cuts:
        source, start_s, _ = _parts(cut)
        sources[source][cut] = start_s
    return {source: sorted(starts, key=starts.__getitem__) for source, starts in sources.items()}


def merge(annotations: list[Annotation]) -> list[Annotation]:
    """Return the captions, in the same order, with all cuts of a source merged into one video.

    A merged video contains the cuts that have captions, in temporal order and without the gaps between cuts. Each
    moment is shifted by the total length of the earlier cuts.
    """
    durations = {annotation.video: annotation.duration_s or 0.0 for annotation in annotations}
    start_of: dict[str, float] = {}
    merged_duration: dict[str, float] = {}
    for source, cuts in cuts_of_sources(list(durations)).items():
        total = 0.0
        for cut in cuts:
            start_of[cut] = total
            total += durations[cut]
        merged_duration[source] = total
    merged = []
    for annotation in annotations:
        source = _parts(annotation.video)[0]
        shift = start_of[annotation.video]
        moments = tuple((start_s + shift, end_s + shift) for start_s, end_s in annotation.moments)
        merged.append(replace(annotation, video=source, moments=moments, duration_s=merged_duration[source]))
    return number_captions(merged)


def _parts(cut: str) -> tuple[str, float, float]:
    try:
        source, start, end = cut.rsplit("_", 2)
        return source, float(start), float(end)
    except ValueError as error:
        raise FeatureError(f"QVHighlights video {cut!r} is not named <source>_<start>_<end>; correct its id") from error


BENCHMARK = Benchmark(
    name="qvhighlights",
    title="QVHighlights",
    paper="arXiv 2107.09609",
    read=read,
    files={
        "train": ("highlight_train_release.jsonl", "qvhighlights_train.jsonl.gz"),
        "val": ("highlight_val_release.jsonl", "qvhighlights_val.jsonl.gz"),
        "test": ("qvhighlights_test.jsonl.gz",),
    },
    parts={"train": "train", "val": "val", "test": "val"},
    sizes={
        "train": [PublishedSize(2214, 7218, "ProtoPRVR, videos merged by source")],
        "val": [PublishedSize(474, 1550, "ProtoPRVR, videos merged by source")],
        "test": [],
    },
    merge=merge,
    pieces=cuts_of_sources,
    notes=("Features of the cuts also work: merged_videos.json lists the cuts of each merged video.",),
)
