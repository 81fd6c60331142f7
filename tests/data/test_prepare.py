"""Published annotation files become data sets in the standard layout."""

import json

import h5py
import numpy as np

from tests.refusals import refused, require_named
from untrimmed.data.annotations import Annotation
from untrimmed.data.bigfile import write_bigfile
from untrimmed.data.dataset import load_dataset
from untrimmed.data.jsg import read_jsg, write_jsg
from untrimmed.data.layout import Layout
from untrimmed.data.layouts import open_frames, read_split
from untrimmed.data.prepare import prepare
from untrimmed.errors import ConfigError, FeatureError, UnknownNameError


def charades_files(folder):
    folder.mkdir()
    (folder / "charades_sta_test.txt").write_text("B 1.0 5.0##second video.\nA 2.0 3.0##first.\nB 0.0 9.0##again.\n")
    (folder / "Charades_v1_test.csv").write_text("id,length\nA,10\nB,8\n")
    return folder


def test_captions_are_written_in_order_with_their_moments(tmp_path):
    prepared = prepare("charades", charades_files(tmp_path / "in"), tmp_path / "out")
    text = tmp_path / "out" / "charades" / "TextData"
    assert (text / "charadestest.caption.txt").read_text() == (
        "B#enc#0 second video.\nA#enc#0 first.\nB#enc#1 again.\n"
    )
    again = read_split("charades", tmp_path / "out", "test")
    assert again[2] == Annotation("B", "B#enc#1", "again.", ((0.0, 8.0),), 8.0)
    assert [split.split for split in prepared.splits] == ["val", "test"]
    assert list(prepared.missing) == ["train"]
    require_named(*prepared.splits[1].differences, "1,334 / 3,720", "MS-SL")


def test_nothing_is_written_if_a_file_is_damaged(tmp_path):
    folder = charades_files(tmp_path / "in")
    (folder / "charades_sta_train.txt").write_text("no mark here\n")
    with refused(FeatureError, "charades_sta_train.txt", "1"):
        prepare("charades", folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_parts_can_be_chosen_and_unknown_parts_are_refused(tmp_path):
    folder = charades_files(tmp_path / "in")
    prepared = prepare("charades", folder, tmp_path / "out", parts={"train": "test"})
    assert prepared.missing == {}
    with refused(UnknownNameError, "'dev'"):
        prepare("charades", folder, tmp_path / "out", parts={"test": "dev"})


def test_the_error_for_an_empty_folder_names_the_expected_files(tmp_path):
    with refused(FeatureError, "tvr_train_release.jsonl"):
        prepare("tvr", tmp_path, tmp_path / "out")


def test_merged_videos_have_the_frames_of_their_cuts_in_temporal_order(tmp_path):
    row = {"qid": 1, "duration": 150, "query": "later", "vid": "a_b_210.0_360.0", "relevant_windows": [[10, 20]]}
    earlier = {**row, "query": "earlier", "vid": "a_b_60.0_210.0"}
    release = tmp_path / "highlight_val_release.jsonl"
    release.write_text(json.dumps(row) + "\n" + json.dumps(earlier) + "\n")
    prepare("qvhighlights", tmp_path, tmp_path / "out")
    layout = Layout.at(tmp_path / "out", "qvhighlights")
    cuts = {"a_b_210.0_360.0": np.full((2, 3), 2.0), "a_b_60.0_210.0": np.full((1, 3), 1.0)}
    write_bigfile(layout.folder / "FeatureData" / "clip", cuts.items())
    frames = open_frames(layout)
    assert frames.count("a_b") == 3
    assert frames.read("a_b")[:, 0].tolist() == [1.0, 2.0, 2.0]
    assert "a_c" not in frames
    assert layout.merged_videos in frames.files(["a_b"])  # so that packed frames change with this file


def test_jsg_lines_preserve_spans_kinds_and_ids(tmp_path):
    path = tmp_path / "prvr_vcmr_test.jsonl"
    several = Annotation("v", "3", "x", ((0.0, 5.0), (5.0, 10.0)), 30.0, "vt")
    single = Annotation("v", "4", "y", ((1.0, 2.0),), None)
    write_jsg(path, [several, single])
    assert read_jsg(path) == [several, single]
    assert json.loads(path.read_text().splitlines()[1])["ts"] == [1.0, 2.0]
    path.write_text('{"vid_name": "v", "desc_id": 12, "desc": "x", "duration": 5, "ts": [1, 9]}\n')
    assert read_jsg(path) == [Annotation("v", "12", "x", ((1.0, 9.0),), 5.0)]


def test_times_are_matched_by_video_and_text_if_ids_differ(tmp_path):
    text = tmp_path / "toy" / "TextData"
    text.mkdir(parents=True)
    (text / "toytest.caption.txt").write_text("v#enc#0 he runs\nv#enc#1 she waits\n")
    write_jsg(text / "prvr_vcmr_test_comp.jsonl", [Annotation("v", "77", "she waits", ((2.0, 4.0),), 9.0)])
    first, second = read_split("toy", tmp_path, "test")
    assert (first.moments, first.duration_s) == ((), None)
    assert (second.caption_id, second.moments, second.duration_s) == ("v#enc#1", ((2.0, 4.0),), 9.0)


def didemo_files(folder):
    folder.mkdir()
    row = {"annotation_id": 1, "description": "a dog", "video": "A.mp4", "times": [[0, 0], [1, 1]], "num_segments": 6}
    (folder / "test_data.json").write_text(json.dumps([row]))
    return folder


def test_a_benchmark_keeps_its_rules_under_another_name(tmp_path):
    prepare("didemo", didemo_files(tmp_path / "in"), tmp_path, data_set="didemo_clip")
    layout = Layout.at(tmp_path, "didemo_clip")
    write_bigfile(layout.folder / "FeatureData" / "clip", [("A", np.ones((2, 3)))])
    with h5py.File(layout.words, "w") as file:
        file["A#enc#0"] = np.ones((2, 4))
    assert load_dataset("didemo_clip", tmp_path, "test").several_annotators
    layout.benchmark_note.unlink()  # older folders have no such file
    assert not load_dataset("didemo_clip", tmp_path, "test").several_annotators
    layout.benchmark_note.write_text("didemos\n")
    with refused(FeatureError, "benchmark.txt", "'didemos'"):
        load_dataset("didemo_clip", tmp_path, "test")


def test_a_benchmark_keeps_its_features_and_its_command_under_another_name(tmp_path):
    prepare("charades", charades_files(tmp_path / "in"), tmp_path, data_set="charades_two")
    layout = Layout.at(tmp_path, "charades_two")
    for features in ("clip", "i3d_rgb_lgi"):
        write_bigfile(layout.folder / "FeatureData" / features, [("A", np.ones((2, 3)))])
    assert layout.frames().name == "i3d_rgb_lgi"
    with refused(FeatureError, "untrimmed data prepare charades --name charades_two --annotations"):
        read_split("charades_two", tmp_path, "train")


def test_the_folder_of_another_benchmark_is_refused(tmp_path):
    charades, out = charades_files(tmp_path / "in"), tmp_path / "out"
    with refused(ConfigError, "activitynet", "charades"):
        prepare("charades", charades, out, data_set="activitynet")
    with refused(ConfigError, "''"):
        prepare("charades", charades, out, data_set="")
    assert not out.exists()
    prepare("charades", charades, out, data_set="other")
    with refused(ConfigError, "other", "charades", "didemo"):
        prepare("didemo", didemo_files(tmp_path / "didemo"), out, data_set="other")
