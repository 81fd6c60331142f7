"""Frame and word features in the places and under the names of the releases."""

import shutil

import h5py
import numpy as np
import pytest

from tests.data.test_check import SMALL
from tests.refusals import require_named
from untrimmed.data.check import check_dataset
from untrimmed.data.dataset import load_dataset
from untrimmed.data.layout import Layout
from untrimmed.data.layouts import open_frames, open_words
from untrimmed.data.prepare import prepare
from untrimmed.data.simulation.simulate import simulate


@pytest.fixture
def root(tmp_path):
    simulate("toy", tmp_path, num_videos=10, settings=SMALL)
    return tmp_path


def replace_frames(root, path, dtype=np.float32):
    """Write the frames of `toy` as one HDF5 file instead of a BigFile folder."""
    layout = Layout.at(root, "toy")
    source = open_frames(layout)
    videos = [video for split in ("train", "val", "test") for video in load_dataset("toy", root, split).video_ids]
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for video in videos:
            file[video] = source.read(video).astype(dtype)
    shutil.rmtree(layout.folder / "FeatureData" / "simulated")


@pytest.mark.parametrize(
    ("place", "dtype"),
    [
        ("FeatureData/i3d_resnet/feature.hdf5", np.float32),
        ("FeatureData/i3d_resnet/feature.hdf5", np.float64),
        ("FeatureData/of my own/frames.h5", np.float32),
        ("frames.h5", np.float32),
    ],
)
def test_frames_in_an_hdf5_file_equal_those_of_the_bigfile_folder(root, place, dtype):
    expected = load_dataset("toy", root, "train").features
    replace_frames(root, root / "toy" / place, dtype)
    assert check_dataset("toy", root) == []
    data = load_dataset("toy", root, "train")
    assert np.allclose(data.features.clips, expected.clips, atol=1e-6)
    assert np.allclose(data.features.frames.rows, expected.frames.rows, atol=1e-6)
    stored = "float64" if dtype == np.float64 or place == "frames.h5" else "float32"  # the plain layout as before
    assert data.features.settings.precision == stored


def test_a_bigfile_folder_has_precedence_over_the_hdf5_file_in_it(root):
    with h5py.File(root / "toy" / "FeatureData" / "simulated" / "feature.hdf5", "w") as file:
        file["other"] = np.zeros((1, 1))
    assert open_frames(Layout.at(root, "toy")).place == root / "toy" / "FeatureData" / "simulated"


def test_a_renamed_folder_is_read(root):
    (root / "toy").rename(root / "renamed")
    assert check_dataset("renamed", root) == []
    assert len(load_dataset("renamed", root, "test")) > 0


def test_the_word_file_of_jsg_may_have_an_addition_to_its_name(root):
    words = root / "toy" / "TextData" / "roberta_toy_query_feat.hdf5"
    renamed = words.rename(words.with_name("roberta_toy_query_feat(reloclnet-v0).hdf5"))
    assert open_words(Layout.at(root, "toy")).place == renamed


def charades_files(folder):
    folder.mkdir()
    (folder / "charades_sta_test.txt").write_text("A 1.0 5.0##first video.\nB 2.0 3.0##second.\n")
    (folder / "Charades_v1_test.csv").write_text("id,length\nA,10\nB,8\n")
    return folder


@pytest.mark.parametrize("place", ["frames.h5", "FeatureData/i3d_rgb_lgi/feature.hdf5"])
def test_prepare_finds_features_and_can_leave_out_videos_without_them(tmp_path, place):
    frames = tmp_path / "out" / "charades" / place
    frames.parent.mkdir(parents=True)
    with h5py.File(frames, "w") as file:
        file["B"] = np.ones((3, 4), np.float32)
    annotations = charades_files(tmp_path / "in")
    prepared = prepare("charades", annotations, tmp_path / "out")
    assert prepared.frames == (frames,)
    assert [split.videos for split in prepared.splits] == [2, 2]
    problems = check_dataset("charades", tmp_path / "out", splits=["test"])
    require_named(problems[0], "'A'", "--only-with-features")
    prepared = prepare("charades", annotations, tmp_path / "out", only_with_features=True)
    assert [split.videos for split in prepared.splits] == [1, 1]


def test_features_with_other_names_are_shown_with_one_of_them(root):
    source = root / "toy" / "FeatureData" / "features" / "feature.hdf5"
    shutil.rmtree(root / "toy" / "FeatureData" / "simulated")
    source.parent.mkdir()
    with h5py.File(source, "w") as file:
        file["v_lake.mp4"] = np.ones((3, 5), np.float32)
    require_named(check_dataset("toy", root)[0], "'v_lake.mp4'")


def test_a_data_set_has_a_short_repr_a_length_and_items(root):
    data = load_dataset("toy", root, "train")
    assert len(data) == len(data.annotations)
    require_named(repr(data), "toy", "train", str(len(data)), str(len(data.video_ids)), "5", "6")
    assert len(repr(data)) < 120
    item = data[-1]
    row = len(data) - 1
    video = data.video_index[row]
    assert item.annotation == data.annotations[row]
    assert np.array_equal(item.words, data.features.words_packed.table(row))
    assert np.array_equal(item.frames, data.features.frames.table(video))
    assert np.array_equal(item.clips, data.features.clips[video])
    assert np.array_equal(data[np.int64(row)].words, item.words)
    for outside in (len(data), -len(data) - 1):
        with pytest.raises(IndexError):
            data[outside]
    assert sum(1 for _ in data) == len(data)
    assert [part.annotation for part in data[-2:]] == list(data.annotations[-2:])
