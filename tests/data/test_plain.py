"""The plain layout: the five-line example of docs/data.md, and its possible errors."""

import json

import h5py
import numpy as np
import pytest

from tests.refusals import refused
from untrimmed.data.dataset import load_dataset
from untrimmed.data.plain import hashed_split, read_plain
from untrimmed.errors import FeatureError

LAKE = {"video": "lake", "caption": "a dog jumps in", "start_s": 3, "end_s": 9, "duration_s": 30, "split": "train"}


def write(folder, rows, frames=(40, 4)):
    folder.mkdir(parents=True)
    (folder / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "frames").mkdir()
    (folder / "words").mkdir()
    rng = np.random.default_rng(0)
    number = {}
    for row in rows:
        video = row["video"]
        np.save(folder / "frames" / f"{video}.npy", rng.standard_normal(frames).astype(np.float32))
        index = number[video] = number.get(video, -1) + 1
        np.save(folder / "words" / f"{video}#{index}.npy", rng.standard_normal((5, 3)).astype(np.float32))
    return folder


def test_numpy_files_and_captions_make_a_data_set(tmp_path):
    write(tmp_path / "mine", [LAKE, {**LAKE, "caption": "it swims", "start_s": None, "end_s": None}])
    data = load_dataset("mine", tmp_path, "train")
    assert data.caption_ids == ("lake#0", "lake#1")
    assert data.moments == (((3.0, 9.0),), ())
    assert data.durations_s.tolist() == [30.0]
    assert (data.video_dim, data.query_dim) == (4, 3)


def test_npz_and_hdf5_files_give_the_same_features_as_npy_files(tmp_path):
    folder = write(tmp_path / "mine", [LAKE])
    before = load_dataset("mine", tmp_path, "train").features
    frames, words = np.load(folder / "frames" / "lake.npy"), np.load(folder / "words" / "lake#0.npy")
    (folder / "frames" / "lake.npy").unlink()
    np.savez(folder / "frames" / "lake.npz", frames=frames, times_s=np.arange(40.0))
    with h5py.File(folder / "words.h5", "w") as file:
        file["lake#0"] = words
    after = load_dataset("mine", tmp_path, "train").features
    assert after.folder != before.folder
    np.testing.assert_array_equal(after.clips, before.clips)
    np.testing.assert_array_equal(after.words_packed.rows, before.words_packed.rows)


def test_the_id_of_a_video_in_a_subfolder_is_its_path(tmp_path):
    folder = write(tmp_path / "mine", [LAKE])
    for kind, name in (("frames", "lake.npy"), ("words", "lake#0.npy")):
        (folder / kind / "trip").mkdir()
        (folder / kind / name).rename(folder / kind / "trip" / name)
    (folder / "captions.jsonl").write_text(json.dumps({**LAKE, "video": "trip/lake"}) + "\n")
    assert load_dataset("mine", tmp_path, "train").video_ids == ("trip/lake",)


def test_videos_without_a_split_are_divided_about_eight_to_one_to_one():
    splits = [hashed_split(f"video{i}") for i in range(2000)]
    shares = [splits.count(split) / 2000 for split in ("train", "val", "test")]
    np.testing.assert_allclose(shares, [0.8, 0.1, 0.1], atol=0.03)
    assert hashed_split("lake") == "train"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"split": "dev"}, ("line 2", "'dev'", "train", "val", "test")),
        ({"split": None}, ("captions.jsonl", "1", "2")),
        ({"end_s": 2}, ("line 2", "3", "2")),
        ({"end_s": None}, ("line 2", "end_s", "None")),
        ({"start_s": float("nan")}, ("line 2", "start_s", "nan")),
        ({"video": "../lake"}, ("line 2", "'../lake'")),
        ({"caption": 5}, ("line 2", "caption", "5")),
        ({"split": ["train"]}, ("line 2", "['train']")),
        ({"id": [1]}, ("line 2", "id", "[1]")),
        ({"duration_s": -5}, ("line 2", "duration_s", "-5")),
        ({"start_s": -3}, ("line 2", "-3", "9")),
        ({"start_s": 40, "end_s": 50}, ("line 2", "40", "50", "'lake'", "30")),
    ],
)
def test_the_error_names_an_invalid_line(tmp_path, changed, words):
    folder = tmp_path / "mine"
    write(folder, [LAKE])
    with (folder / "captions.jsonl").open("a") as file:
        file.write(json.dumps({**LAKE, **changed}) + "\n")
    with refused(FeatureError, *words):
        read_plain(folder / "captions.jsonl")


def test_a_null_id_is_ignored_a_late_end_is_cut_and_a_byte_order_mark_is_skipped(tmp_path):
    path = tmp_path / "captions.jsonl"
    path.write_text("\ufeff" + json.dumps({**LAKE, "id": None, "end_s": 31}) + "\n", encoding="utf-8")
    (caption,) = read_plain(path)["train"]
    assert (caption.caption_id, caption.moments) == ("lake#0", ((3.0, 30.0),))


def test_the_error_names_a_line_without_json_or_caption(tmp_path):
    path = tmp_path / "captions.jsonl"
    path.write_text('{"video": "a"\n')
    with refused(FeatureError, "line 1", "JSON"):
        read_plain(path)
    path.write_text('{"video": "a"}\n')
    with refused(FeatureError, "line 1", "video", "'query'"):
        read_plain(path)


def test_the_error_names_a_damaged_numpy_file(tmp_path):
    folder = write(tmp_path / "mine", [LAKE])
    content = (folder / "frames" / "lake.npy").read_bytes()
    (folder / "frames" / "lake.npy").write_bytes(content[:-10])
    with refused(FeatureError, "lake.npy"):
        load_dataset("mine", tmp_path, "train")


def test_an_npz_with_several_unknown_arrays_is_refused(tmp_path):
    folder = write(tmp_path / "mine", [LAKE])
    (folder / "frames" / "lake.npy").unlink()
    np.savez(folder / "frames" / "lake.npz", a=np.ones((3, 4)), b=np.ones(3))
    with pytest.raises(FeatureError):
        load_dataset("mine", tmp_path, "train")


def test_the_query_is_used_only_without_a_caption(tmp_path):
    path = tmp_path / "captions.jsonl"
    path.write_text('{"video": "a", "caption": "one", "query": "two"}\n{"video": "a", "query": "three"}\n')
    assert [caption.text for captions in read_plain(path).values() for caption in captions] == ["one", "three"]
