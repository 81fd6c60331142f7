"""Read a few annotations in the published format of each benchmark."""

import csv
import gzip
import json
from contextlib import suppress

import pytest

from tests.refusals import refused
from untrimmed.data.annotations import Annotation
from untrimmed.data.benchmarks import activitynet, charades, didemo, qvhighlights, tvr
from untrimmed.data.benchmarks.normalised import read_normalised
from untrimmed.data.benchmarks.registry import get_benchmark, list_benchmarks
from untrimmed.data.jsg import read_jsg
from untrimmed.errors import FeatureError, UnknownNameError


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_tvr_lines_become_annotations_with_released_caption_ids(tmp_path):
    row = {"desc_id": 7, "vid_name": "house_s01", "duration": 60.5, "ts": [3, 9.5], "desc": " He runs. ", "type": "vt"}
    path = write_lines(tmp_path / "tvr.jsonl", [row, {**row, "desc_id": 8, "desc": "She waits."}])
    first, second = tvr.read(path)
    assert first == Annotation("house_s01", "house_s01#enc#0", "He runs.", ((3.0, 9.5),), 60.5, "vt")
    assert second.caption_id == "house_s01#enc#1"


def test_activitynet_pairs_each_sentence_with_its_times(tmp_path):
    path = tmp_path / "train.json"
    table = {"v_a": {"duration": 10, "timestamps": [[0, 4], [9, 5]], "sentences": ["One.", "Two\nlines."]}}
    path.write_text(json.dumps(table))
    assert [(a.text, a.moments) for a in activitynet.read(path)] == [
        ("One.", ((0.0, 4.0),)),
        ("Two lines.", ((5.0, 9.0),)),
    ]


def test_activitynet_refuses_a_sentence_without_times(tmp_path):
    path = tmp_path / "train.json"
    path.write_text(json.dumps({"v_a": {"duration": 10, "timestamps": [], "sentences": ["One."]}}))
    with refused(FeatureError, "train.json", "'v_a'", "0", "1"):
        activitynet.read(path)


def test_charades_takes_durations_from_the_csv_and_cuts_moments_to_them(tmp_path):
    path = tmp_path / "charades_sta_test.txt"
    path.write_text("3MSZA 24.3 33.0##person turns a light on.\nAMT7R 1.0 2.0##person sits.\n")
    (tmp_path / "Charades_v1_test.csv").write_text("id,subject,length\n3MSZA,X,30.96\n")
    light, sits = charades.read(path)
    assert light.moments == ((24.3, 30.96),)
    assert light.duration_s == 30.96
    assert sits.duration_s is None


TVR_LINE = {"desc_id": 1, "vid_name": "a", "duration": 60.0, "ts": [1.0, 2.0], "desc": "a dog", "type": "v"}
ACTIVITYNET_ROW = {"duration": 60.0, "timestamps": [[1.0, 2.0]], "sentences": ["a dog"]}
DIDEMO_ROW = {"annotation_id": 1, "description": "a dog", "video": "a.mov", "times": [[0, 0]], "num_segments": 6}
QVH_LINE = {"qid": 1, "query": "a dog", "vid": "a_0.0_150.0", "duration": 150, "relevant_windows": [[0, 2]]}
COPY_LINE = {"video": "a", "duration": 60.0, "captions": [{"caption": "a dog", "start": 1.0, "end": 2.0}]}
JUNK = (None, "", "x", -1, float("nan"), True, [], {}, [None], [[]], [[1]], [[1, 2, 3]], [["a", "b"]], [{}])


@pytest.mark.parametrize(
    ("read", "row", "wrap"),
    [
        (tvr.read, TVR_LINE, lambda row: row),
        (activitynet.read, ACTIVITYNET_ROW, lambda row: {"v_a": row}),
        (didemo.read, DIDEMO_ROW, lambda row: [row]),
        (qvhighlights.read, QVH_LINE, lambda row: row),
        (read_jsg, TVR_LINE, lambda row: row),
        (read_normalised, COPY_LINE, lambda row: row),
    ],
    ids=["tvr", "activitynet", "didemo", "qvhighlights", "jsg", "copy"],
)
def test_any_value_of_a_field_is_read_or_refused(tmp_path, read, row, wrap):
    path = tmp_path / "annotations"
    path.write_text(json.dumps(wrap(row)))
    assert read(path)[0].text == "a dog"
    for field in row:
        for junk in JUNK:
            path.write_text(json.dumps(wrap({**row, field: junk})))
            with suppress(FeatureError):  # any other error fails the test
                for annotation in read(path):
                    assert isinstance(annotation.text, str)
                    assert annotation.text
                    assert annotation.duration_s is None or annotation.duration_s > 0


@pytest.mark.parametrize("line", ["3MSZA 24.3 33.0 no mark", "3MSZA 24.3##text", "3MSZA soon later##text"])
def test_charades_errors_name_the_invalid_line(tmp_path, line):
    path = tmp_path / "charades_sta_test.txt"
    path.write_text(f"3MSZA 24.3 33.0##fine\n{line}\n")
    with refused(FeatureError, "charades_sta_test.txt", "2"):
        charades.read(path)


def test_didemo_keeps_all_spans_and_the_main_moment_is_the_most_frequent(tmp_path):
    row = {"annotation_id": 1, "description": "a bug", "video": "12@N04_x.mov", "num_segments": 6}
    path = tmp_path / "val_data.json"
    path.write_text(json.dumps([{**row, "times": [[0, 0], [4, 5], [4, 5], [1, 1]]}]))
    (annotation,) = didemo.read(path)
    assert annotation.video == "12@N04_x"
    assert annotation.moments == ((0.0, 5.0), (20.0, 30.0), (20.0, 30.0), (5.0, 10.0))
    assert annotation.main_moment == (20.0, 30.0)
    assert annotation.duration_s == 30.0


def test_didemo_refuses_a_segment_after_the_last(tmp_path):
    row = {"annotation_id": 1, "description": "a bug", "video": "x.mov", "num_segments": 5, "times": [[4, 5]]}
    path = tmp_path / "val_data.json"
    path.write_text(json.dumps([row]))
    with refused(FeatureError, "4", "5"):
        didemo.read(path)


def test_qvhighlights_merges_the_cuts_of_a_source_in_temporal_order(tmp_path):
    row = {"qid": 1, "duration": 150, "query": "later", "vid": "a_b_210.0_360.0", "relevant_windows": [[10, 20]]}
    rows = [
        row,
        {**row, "query": "earlier", "vid": "a_b_60.0_210.0", "relevant_windows": [[0, 2], [4, 6]]},
        {**row, "query": "elsewhere", "vid": "c_60.0_210.0"},
    ]
    second, first, single = qvhighlights.merge(qvhighlights.read(write_lines(tmp_path / "train.jsonl", rows)))
    assert (second.video, second.caption_id, second.moments) == ("a_b", "a_b#enc#0", ((160.0, 170.0),))
    assert (first.caption_id, first.moments) == ("a_b#enc#1", ((0.0, 2.0), (4.0, 6.0)))
    assert (second.duration_s, single.duration_s) == (300.0, 150.0)


MSRVTT = {
    "info": {"year": "2016"},
    "videos": [
        {"video_id": "video7", "category": 9, "url": "x", "start time": 137.5, "end time": 149.5, "split": "train"},
        {"video_id": "video8", "category": 1, "url": "y", "start time": 0, "end time": 10.25, "split": "test"},
    ],
    "sentences": [
        {"caption": "a man  cooks", "video_id": "video7", "sen_id": 0},
        {"caption": "a car drives", "video_id": "video8", "sen_id": 1},
        {"caption": "someone is cooking", "video_id": "video7", "sen_id": 2},
    ],
}


def msrvtt_files(folder, data=MSRVTT, train="video_id\nvideo7\n"):
    (folder / "MSRVTT_data.json").write_text(json.dumps(data))
    (folder / "MSRVTT_train.9k.csv").write_text(train)
    test = 'key,vid_key,video_id,sentence\nret0,msr8,video8,"a car, seen from above"\n'
    (folder / "MSRVTT_JSFUSION_test.csv").write_text(test)
    return get_benchmark("msrvtt")


def test_msrvtt_trains_with_all_sentences_and_tests_with_one_per_video(tmp_path):
    benchmark = msrvtt_files(tmp_path)
    assert benchmark.read_part("train", tmp_path) == [
        Annotation("video7", "video7#enc#0", "a man cooks", (), 12.0),
        Annotation("video7", "video7#enc#1", "someone is cooking", (), 12.0),
    ]
    tested = Annotation("video8", "video8#enc#0", "a car, seen from above", (), 10.25)
    assert benchmark.read_part("test", tmp_path) == [tested]
    (tmp_path / "MSRVTT_data.json").unlink()
    assert benchmark.read_part("test", tmp_path)[0].duration_s is None
    with refused(FeatureError, "MSRVTT_data.json"):
        benchmark.read_part("train", tmp_path)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("video\nvideo7\n", ("line 2", "'video_id'")),
        ("video_id\nvideo7\n\nvideo9\n", ("line 4", "'video9'", "MSRVTT_data.json")),
        ("video_id\nvideo 7\n", ("line 2", "'video 7'")),
        ("video_id\n" + "x" * 200_000 + "\n", ("line 2", "CSV")),
    ],
)
def test_msrvtt_errors_name_the_invalid_line_of_the_list(tmp_path, train, message):
    with refused(FeatureError, *message):
        msrvtt_files(tmp_path, train=train).read_part("train", tmp_path)


@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        ("videos", {"end time": 100.0}, ("videos", "entry 0", "duration", "-37.5")),
        ("videos", {"start time": None}, ("videos", "entry 0", "start", "None")),
        ("sentences", {"caption": " "}, ("sentences", "entry 0", "caption")),
        ("sentences", None, ("sentences", "None")),
    ],
)
def test_msrvtt_errors_name_the_invalid_entry_of_the_json_file(tmp_path, field, change, message):
    entries = None if change is None else [MSRVTT[field][0] | change, *MSRVTT[field][1:]]
    benchmark = msrvtt_files(tmp_path, data=MSRVTT | {field: entries})
    with refused(FeatureError, *message):
        benchmark.read_part("train", tmp_path)


@pytest.mark.shared
def test_msrvtt_test_captions_have_the_ids_of_their_dense_labels(tmp_path, shared):
    with gzip.open(shared / "data" / "dense_labels" / "msrvtt.gt.jsonl.gz", "rt", encoding="utf-8") as lines:
        labels = [json.loads(line) for line in lines]
    videos = [label["query_id"].partition("#")[0] for label in labels]
    with (tmp_path / "MSRVTT_JSFUSION_test.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["key", "vid_key", "video_id", "sentence"])
        table.writerows((f"ret{i}", "", videos[i], label["caption"]) for i, label in enumerate(labels))
    captions = get_benchmark("msrvtt").read_part("test", tmp_path)
    assert [caption.caption_id for caption in captions] == [label["query_id"] for label in labels]
    assert get_benchmark("msrvtt").published("test", len(set(videos)), len(captions)).startswith("as in")


def test_windows_and_segments_of_normalised_copies_replace_start_and_end(tmp_path):
    path = tmp_path / "x.jsonl.gz"
    caption = {"caption": "x", "start": 0, "end": 1}
    captions = [caption, {**caption, "windows": [[2, 3], [5, 6]]}, {**caption, "segments": [[1, 2]]}]
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(json.dumps({"video": "v", "duration": 30, "captions": captions}) + "\n")
    assert [a.moments for a in read_normalised(path)] == [((0.0, 1.0),), ((2.0, 3.0), (5.0, 6.0)), ((5.0, 15.0),)]


def test_the_error_names_a_truncated_gzip_file(tmp_path):
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"video": "v"}\n' * 100)[:-20])
    with pytest.raises(FeatureError, match=r"x.jsonl.gz"):
        read_normalised(path)


def test_the_error_for_an_unknown_benchmark_suggests_a_name():
    with refused(UnknownNameError, "'charades'"):
        get_benchmark("charade")


@pytest.mark.parametrize("name", list_benchmarks())
def test_all_splits_and_published_parts_have_files(name):
    benchmark = get_benchmark(name)
    assert set(benchmark.parts) == {"train", "val", "test"}
    assert set(benchmark.parts.values()) | set(benchmark.sizes) <= set(benchmark.files)


@pytest.mark.check
@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "part", "videos", "captions"),
    [
        ("tvr", "val", 2179, 10895),
        ("activitynet", "val_2", 4885, 17031),
        ("charades", "train", 5338, 12408),
        ("charades", "test", 1334, 3720),
        ("didemo", "test", 1004, 4021),
        ("qvhighlights", "train", 2214, 7218),
        ("qvhighlights", "val", 474, 1550),
    ],
)
def test_real_annotations_have_the_published_sizes(shared, name, part, videos, captions):
    annotations = get_benchmark(name).read_part(part, shared / "data" / "annotations")
    assert (len({a.video for a in annotations}), len(annotations)) == (videos, captions)
    assert get_benchmark(name).published(part, videos, captions).startswith("as in")
