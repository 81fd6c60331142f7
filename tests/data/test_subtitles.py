"""Subtitles become passages and vectors of a data set, and damaged files are refused by line."""

import gzip
import json

import h5py
import numpy as np
import pytest

from tests.refusals import refused, require_named
from untrimmed.data.check import check_dataset
from untrimmed.data.dataset import load_dataset
from untrimmed.data.layout import Layout
from untrimmed.data.prepare import PreparedSubtitles, prepare
from untrimmed.data.simulation.simulate import simulate
from untrimmed.data.simulation.world import SimulationSettings
from untrimmed.data.subtitles import MAX_PASSAGES, read_subtitles, write_subtitles
from untrimmed.data.writing import write_tables
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.passages.passage import Passage

HELLO = {"text": "Hello,\n Castle.", "start": 0.5, "end": 1.9}
SMALL = SimulationSettings(query_dim=6, video_dim=5)


def line(*subtitles, video="castle_s01"):
    return json.dumps({"vid_name": video, "sub": subtitles})


def subtitle_file(folder, *lines):
    path = folder / "tvqa_preprocessed_subtitles.jsonl"
    path.write_text("".join(f"{text}\n" for text in lines))
    return path


def test_subtitles_are_passages_in_time_order(tmp_path):
    later, reversed_times = {"text": "Bye", "start": 8, "end": 9}, {"text": "Oh", "start": 3, "end": -0.25}
    path = subtitle_file(
        tmp_path, line(later, HELLO, {**HELLO, "text": " "}, reversed_times), line(HELLO, video="friends_s02")
    )
    passages = read_subtitles(path)
    assert passages["castle_s01"] == (
        Passage("Oh", 0.0, 3.0, "subtitle"),
        Passage("Hello, Castle.", 0.5, 1.9, "subtitle"),
        Passage("Bye", 8.0, 9.0, "subtitle"),
    )
    assert list(read_subtitles(path, ["friends_s02"])) == ["friends_s02"]
    write_subtitles(tmp_path / "again.jsonl", passages)
    assert read_subtitles(tmp_path / "again.jsonl") == passages


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        ("{", ["line 2"]),
        ("[]", ["line 2", "vid_name"]),
        ('{"vid_name": "a"}', ["line 2", "'sub'"]),
        ('{"vid_name": "a", "sub": {}}', ["line 2", "sub"]),
        ('{"vid_name": "a#b", "sub": []}', ["line 2", "'a#b'"]),
        (line("Hello", video="a"), ["line 2, subtitle 1", "text"]),
        (line(HELLO, {"text": "x", "start": 1}, video="a"), ["line 2, subtitle 2", "'end'"]),
        (line({**HELLO, "text": 5}, video="a"), ["line 2, subtitle 1", "int"]),
        (line({**HELLO, "text": "x" * 10_001}, video="a"), ["line 2, subtitle 1", "10,001", "10,000"]),
        (line({**HELLO, "end": float("nan")}, video="a"), ["line 2, subtitle 1", "end"]),
        (line({**HELLO, "start": True}, video="a"), ["line 2, subtitle 1", "start"]),
        (line(HELLO), ["line 2", "castle_s01"]),
        (line(*[0] * (MAX_PASSAGES + 1), video="a"), ["line 2", "10,001", "10,000"]),
    ],
)
def test_a_damaged_line_is_named(damaged, words, tmp_path):
    with refused(FeatureError, "tvqa_preprocessed_subtitles.jsonl", *words):
        read_subtitles(subtitle_file(tmp_path, line(HELLO), damaged))


def test_a_file_of_other_videos_is_refused(tmp_path):
    with refused(FeatureError, "'castle_s01'"):
        read_subtitles(subtitle_file(tmp_path, line(HELLO)), ["house_s01"])
    with refused(FeatureError, "vid_name"):
        read_subtitles(subtitle_file(tmp_path))


def tvr_files(folder, videos=("a", "b")):
    rows = [
        {"desc_id": n, "vid_name": video, "duration": 9, "ts": [1, 3], "desc": "x y"} for n, video in enumerate(videos)
    ]
    folder.mkdir(exist_ok=True)
    (folder / "tvr_val_release.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_prepare_writes_passages_and_vectors_of_the_benchmarks_videos(tmp_path):
    annotations = tvr_files(tmp_path / "in")
    texts = subtitle_file(tmp_path, line(HELLO, HELLO, video="a"), line(video="b"), line(HELLO, video="other"))
    vectors = tmp_path / "vectors.h5"
    write_tables(vectors, {"a": np.ones((3, 4)), "other": np.ones((1, 4))}.items())
    prepared = prepare("tvr", annotations, tmp_path, subtitles=texts, subtitle_features=vectors)
    assert prepared.subtitles == PreparedSubtitles(videos=2, passages=2, videos_with_vectors=1)
    layout = Layout.at(tmp_path, "tvr")
    assert {video: len(passages) for video, passages in read_subtitles(layout.subtitles).items()} == {"a": 2, "b": 0}
    with h5py.File(layout.subtitle_vectors) as file:
        assert {name: table.shape for name, table in file.items()} == {"a": (3, 4)}
    assert prepare("tvr", annotations, tmp_path).subtitles is None
    assert layout.subtitle_vectors.is_file()


def test_prepare_writes_nothing_if_subtitles_are_of_other_videos(tmp_path):
    annotations = tvr_files(tmp_path / "in")
    vectors = tmp_path / "vectors.h5"
    write_tables(vectors, {"other": np.ones((1, 4))}.items())
    for wrong in ({"subtitles": subtitle_file(tmp_path, line(HELLO))}, {"subtitle_features": vectors}):
        with refused(FeatureError, "'castle_s01'" if "subtitles" in wrong else "'other'"):
            prepare("tvr", annotations, tmp_path / "out", **wrong)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def data(tmp_path):
    simulate("tvr", tmp_path, num_videos=8, settings=SMALL, subtitles=True)
    return tmp_path


def test_a_video_without_subtitles_has_one_row_of_zeros(data):
    layout = Layout.at(data, "tvr")
    first = load_dataset("tvr", data, "train").video_ids[0]
    with h5py.File(layout.subtitle_vectors, "a") as file:
        del file[first]
    loaded = load_dataset("tvr", data, "train", max_passages=4)
    passages = loaded.features.passages
    assert passages.table(0).tolist() == [[0.0] * 6]
    assert passages.lengths[1:].tolist() == [4] * (len(loaded.video_ids) - 1)
    assert np.allclose(np.linalg.norm(passages.table(1), axis=1), 1, atol=1e-4)  # lengths are divided by length + 1e-5
    again = load_dataset("tvr", data, "train", max_passages=4)
    assert again.features.folder == loaded.features.folder
    assert np.array_equal(again.features.passages.rows, passages.rows)


def test_data_without_subtitles_keep_their_cache_and_have_no_passages(data):
    before = load_dataset("tvr", data, "test")
    assert before.features.passages is None
    Layout.at(data, "tvr").subtitle_vectors.unlink()
    assert load_dataset("tvr", data, "test").features.folder == before.features.folder
    with refused(FeatureError, "subtitles.jsonl", "--subtitle-features"):
        load_dataset("tvr", data, "test", max_passages=4)
    with refused(ConfigError, "-1"):
        load_dataset("tvr", data, "test", max_passages=-1)


def test_vectors_of_other_videos_are_refused(data):
    write_tables(Layout.at(data, "tvr").subtitle_vectors, {"other": np.ones((1, 6))}.items())
    with refused(FeatureError, "subtitles.h5", "'other'"):
        load_dataset("tvr", data, "train", max_passages=4)


def test_check_reads_subtitles(data):
    layout = Layout.at(data, "tvr")
    assert check_dataset("tvr", data) == []
    videos = load_dataset("tvr", data, "train").video_ids
    write_tables(layout.subtitle_vectors, {video: np.full((2, 7), np.nan) for video in videos}.items())
    *damaged, width = check_dataset("tvr", data)
    assert len(damaged) == len(videos)
    require_named(damaged[0], "subtitles.h5", "not finite")
    require_named(width, "subtitles.h5", "width 7", "6")
    layout.subtitles.write_text("{\n")
    assert any("subtitles.jsonl, line 1" in problem for problem in check_dataset("tvr", data))


def test_simulated_subtitles_mention_captions_and_change_nothing_else(tmp_path):
    captions = [
        {"caption": text, "start": 8 * n, "end": 8 * n + 8, "type": kind}
        for n, (text, kind) in enumerate((("zebra violin", "v"), ("giraffe trumpet", "t"), ("lion piano", "vt")))
    ]
    rows = [{"video": f"v{n}", "duration": 40, "captions": captions if n == 0 else captions[:1]} for n in range(3)]
    with gzip.open(tmp_path / "tvr_val.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    for root, subtitles in (("with", True), ("without", False)):
        simulate("tvr", tmp_path / root, num_videos=3, annotations_dir=tmp_path, settings=SMALL, subtitles=subtitles)
    passages = read_subtitles(tmp_path / "with" / "tvr" / "subtitles.jsonl")
    assert [(p.start_s, p.end_s) for p in passages["v0"]] == [(4.0 * n, 4.0 * n + 4) for n in range(10)]
    for words, span in ({"giraffe", "trumpet"}, {2, 3}), ({"lion", "piano"}, {4, 5}):
        numbers = {n for n, passage in enumerate(passages["v0"]) if words & {*passage.text.split()}}
        assert len(numbers) == 1
        assert numbers <= span
    files = [{p.relative_to(tmp_path / root) for p in (tmp_path / root).rglob("*")} for root in ("with", "without")]
    assert {path.name for path in files[0] - files[1]} == {"subtitles.jsonl", "subtitles.h5"}
    loaded = [load_dataset("tvr", tmp_path / root, "test").features for root in ("with", "without")]
    assert np.array_equal(loaded[0].frames.rows, loaded[1].frames.rows)
