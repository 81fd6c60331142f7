"""Metrics of a library on labelled sentences, compared with values worked out by hand."""

from pathlib import Path

import pytest

from tests.refusals import refused
from untrimmed.errors import FeatureError, UnknownNameError
from untrimmed.search.labelled import LabelledQuery, evaluate_library, read_queries
from untrimmed.search.library import Library
from untrimmed.search.query.hits import Hit, Hits
from untrimmed.search.store.records import VideoRecord
from untrimmed.types import Moment


class AnsweringLibrary(Library):
    """Returns the ranking in `rankings`, and as the best moment of any video the span in `spans`, by sentence."""

    def __init__(self, paths, rankings, spans):
        super().__init__("/library")
        self.paths, self.rankings, self.spans = paths, rankings, spans

    def videos(self):
        return [record(path) for path in self.paths]

    def rank(self, sentences, *, limit):
        return [{Path(path): 0.5 for path in self.rankings[text][:limit]} for text in sentences]

    def search(self, text, *, limit=10, moments=3, min_score=None, within=None):
        ranked = [str(within)] if within is not None else self.rankings[text][:limit]
        moment = Moment(*self.spans[text])
        return Hits(Hit(Path(path), path, moment.start_s, moment.end_s, 0.5, 20.0, (moment,)) for path in ranked)


def record(path):
    return VideoRecord(
        video_id=path, path=path, content_hash="", size=1, mtime_ns=1, duration_s=20.0, width=4, height=4,
        num_frames=40, sampling="2 fps", encoder_identity="toy:1", model="frames", indexed_at=0.0,
    )  # fmt: skip


A, B, C, D = (f"/videos/{name}.mp4" for name in "abcd")


@pytest.fixture
def library():
    return AnsweringLibrary(
        [A, B, C, D],
        {"one": [A, B, C, D], "two": [C, A, B, D], "three": [A, B], "four": [D, A, B, C]},
        {"one": (0.0, 4.0), "two": (0.0, 10.0), "three": (5.0, 6.0), "four": (1.0, 2.0)},
    )


QUERIES = [
    LabelledQuery("one", "a", (Moment(2.0, 6.0),)),  # rank 1; IoU (4 - 2) / (6 - 0) = 1/3
    LabelledQuery("two", "b.mp4", (Moment(0.0, 8.0),)),  # rank 3; IoU 8 / 10
    LabelledQuery("three", C, (Moment(0.0, 1.0), Moment(5.0, 7.0))),  # not ranked; the better IoU is 1 / 2
    LabelledQuery("four", "d", ()),  # rank 1; without a known moment
]


def test_recall_of_videos_counts_all_queries(library):
    figures = evaluate_library(library, QUERIES).figures
    assert figures["R@1"] == 50.0  # "one" and "four", of four
    assert figures["R@5"] == figures["R@10"] == figures["R@100"] == 75.0  # also "two", at rank 3
    assert figures["SumR"] == 50.0 + 3 * 75.0


def test_moment_metrics_use_only_queries_with_known_moments(library):
    figures = evaluate_library(library, QUERIES).figures
    assert figures["mean IoU"] == pytest.approx(100 * (1 / 3 + 0.8 + 0.5) / 3)
    assert figures["R1@IoU=0.3"] == 100.0
    assert figures["R1@IoU=0.5"] == pytest.approx(100 * 2 / 3)  # 0.8 and exactly 0.5
    assert figures["R1@IoU=0.7"] == pytest.approx(100 / 3)


def test_events_require_the_video_and_the_moment(library):
    figures = evaluate_library(library, QUERIES).figures
    assert figures["event R@1,IoU=0.3"] == pytest.approx(100 / 3)  # only "one" is at rank 1 with a known moment
    assert figures["event R@1,IoU=0.5"] == 0.0
    assert figures["event R@5,IoU=0.3"] == pytest.approx(100 * 2 / 3)
    assert figures["event R@5,IoU=0.7"] == figures["event R@10,IoU=0.7"] == pytest.approx(100 / 3)


def test_every_query_has_an_outcome_and_reports_progress(library):
    steps = []
    quality = evaluate_library(library, QUERIES, progress=lambda *step: steps.append(step))
    assert [outcome.rank for outcome in quality.outcomes] == [1, 3, None, 1]
    assert [round(outcome.iou, 3) for outcome in quality.outcomes] == [0.333, 0.8, 0.5, 0.0]
    assert quality.num_videos == 4
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_without_known_moments_there_are_no_moment_metrics(library):
    figures = evaluate_library(library, QUERIES[3:]).figures
    assert figures == {"R@1": 100.0, "R@5": 100.0, "R@10": 100.0, "R@100": 100.0, "SumR": 400.0}


def test_one_error_names_all_unknown_and_ambiguous_videos(library):
    library.paths.append("/other/a.mp4")
    strange = [
        LabelledQuery("five", "e.mp4", (), "q.jsonl, line 3"),
        LabelledQuery("six", "e.mp4", (), "q.jsonl, line 9"),
        LabelledQuery("seven", "f", (), "q.jsonl, line 4"),
    ]
    with refused(UnknownNameError, "/library", "3", "'a'", "2", "'e.mp4'", "line 3", "'f'", "line 4"):
        evaluate_library(library, [*QUERIES, *strange])
    assert evaluate_library(library, [LabelledQuery("one", A, ())]).figures["R@1"] == 100.0


def test_many_unknown_videos_are_counted(library):
    with refused(UnknownNameError, "30", "'v9'", "20"):
        evaluate_library(library, [LabelledQuery("one", f"v{number}", ()) for number in range(30)])


def test_skip_unknown_skips_and_lists_unknown_videos(library):
    strange = LabelledQuery("five", "e.mp4", (), "q.jsonl, line 3")
    quality = evaluate_library(library, [strange, *QUERIES], skip_unknown=True)
    assert quality.figures == evaluate_library(library, QUERIES).figures
    assert quality.skipped == (strange,)
    for skip_unknown in (False, True):  # no query would remain
        with refused(UnknownNameError, "'e.mp4'") as refusal:
            evaluate_library(library, [strange], skip_unknown=skip_unknown)
        assert "--skip-unknown" not in str(refusal.value)
    with refused(UnknownNameError, "'e.mp4'", "skip-unknown"):
        evaluate_library(library, [strange, *QUERIES])


def test_a_moment_after_the_end_is_refused_and_one_across_it_is_cut(library):
    outside = LabelledQuery("one", "a", (Moment(20.0, 25.0),), "q.jsonl, line 2")
    with refused(FeatureError, "q.jsonl", "line 2", "20", "25", "'a'"):
        evaluate_library(library, [outside])
    library.spans["one"] = (10.0, 20.0)
    beyond = LabelledQuery("one", "a", (Moment(10.0, 30.0),))
    assert evaluate_library(library, [beyond]).figures["mean IoU"] == 100.0


def test_both_line_formats_are_read_and_repeated_lines_add_moments(tmp_path):
    file = tmp_path / "queries.jsonl"
    file.write_text(
        '{"video": "a", "query": "one", "start_s": 1, "end_s": 2.5}\n'
        "\n"
        '{"file": "b.mp4", "queries": [{"query": "two", "start": 0, "end": 3}]}\n'
        '{"video": "a", "query": "one", "start_s": 7, "end_s": 9}\n'
        '{"video": "c", "caption": "three", "split": "any"}\n'
    )
    assert read_queries(file) == [
        LabelledQuery("one", "a", (Moment(1.0, 2.5), Moment(7.0, 9.0)), f"{file}, line 1"),
        LabelledQuery("two", "b.mp4", (Moment(0.0, 3.0),), f"{file}, line 3"),
        LabelledQuery("three", "c", (), f"{file}, line 5"),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"video": "a"}', ("line 1", "video", "'query'")),
        ('{"video": "a", "query": " "}', ("line 1", "query")),
        ('{"video": "a", "query": "one", "start_s": 3, "end_s": 3}', ("line 1", "3")),
        ('{"video": "a", "query": "one", "end_s": 3}', ("line 1", "start_s", "None")),
        (
            '{"video": "a", "query": "one", "start_s": "x", "end_s": 3}',
            ("line 1", "start_s", "'x'"),
        ),
        ("[1]", ("line 1",)),
        ("{", ("line 1",)),
        ("", ()),
    ],
)
def test_an_invalid_line_is_named_in_one_line(tmp_path, line, message):
    file = tmp_path / "queries.jsonl"
    file.write_text(line + "\n")
    with refused(FeatureError, *message) as caught:
        read_queries(file)
    assert "\n" not in str(caught.value)
    with refused(FeatureError, "nowhere.jsonl"):
        read_queries(tmp_path / "nowhere.jsonl")
