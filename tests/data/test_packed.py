"""The packed cache is complete or absent, and never outdated."""

import os

import h5py
import numpy as np
import pytest

from tests.refusals import refused
from untrimmed.data.dataset import load_dataset
from untrimmed.data.packed import RaggedRows, _create
from untrimmed.data.simulation.simulate import simulate
from untrimmed.data.simulation.world import SimulationSettings
from untrimmed.errors import ConfigError, FeatureError, UnknownNameError

SMALL = SimulationSettings(query_dim=6, video_dim=48, teacher_dim=4, frames_per_second=0.5)


@pytest.fixture
def root(tmp_path):
    simulate("toy", tmp_path, num_videos=10, settings=SMALL)
    return tmp_path


def rewrite(path, name, values):
    with h5py.File(path, "r+") as file:
        del file[name]
        file[name] = values


def test_padded_tables_are_in_the_requested_order_and_end_with_zeros():
    ragged = RaggedRows(np.arange(12, dtype=np.float16).reshape(6, 2), np.array([0, 1, 4, 6]))
    rows, mask = ragged.padded(np.array([2, 0]))
    assert rows.dtype == np.float32
    assert rows.tolist() == [[[8, 9], [10, 11]], [[0, 1], [0, 0]]]
    assert mask.tolist() == [[True, True], [True, False]]


def test_a_batch_of_one_video_and_one_caption_works(root):
    data = load_dataset("toy", root, "val")
    videos, words = data.features.videos(np.array([0])), data.features.words(np.array([0]))
    assert videos.clips.shape == (1, 32, 48)
    assert videos.frame_mask.all()
    assert words.rows.shape[0] == 1


def test_the_cache_is_reused_and_other_settings_get_another_cache(root):
    first = load_dataset("toy", root, "train")
    stamp = (first.features.folder / "clips.npy").stat().st_mtime_ns
    again = load_dataset("toy", root, "train")
    shorter = load_dataset("toy", root, "train", num_clips=16)
    assert again.features.folder == first.features.folder
    assert (again.features.folder / "clips.npy").stat().st_mtime_ns == stamp
    assert shorter.features.folder != first.features.folder
    assert shorter.features.clips.shape[1] == 16


def test_changed_features_get_a_new_cache(root):
    before = load_dataset("toy", root, "train")
    path = root / "toy" / "FeatureData" / "simulated" / "feature.bin"
    values = np.fromfile(path, dtype="<f4")
    (values[::-1]).tofile(path)
    os.utime(path, ns=(1, 1))
    after = load_dataset("toy", root, "train")
    assert after.features.folder != before.features.folder
    assert not np.allclose(after.features.clips, before.features.clips)


def test_half_precision_is_close_to_single_and_half_as_large(root):
    single = load_dataset("toy", root, "test")
    half = load_dataset("toy", root, "test", dtype="float16")
    index = np.arange(len(single.video_ids))
    assert half.features.clips.nbytes == single.features.clips.nbytes // 2
    np.testing.assert_allclose(half.features.videos(index).frames, single.features.videos(index).frames, atol=5e-4)


def test_fixed_frames_gives_every_video_the_same_number_of_rows(root):
    data = load_dataset("toy", root, "train", fixed_frames=True, max_frames=100)
    assert set(data.features.frames.lengths.tolist()) == {100}


def test_val_and_test_share_a_cache_if_their_captions_are_equal(root):
    text = root / "toy" / "TextData"
    (text / "toyval.caption.txt").write_text((text / "toytest.caption.txt").read_text())
    val, test = load_dataset("toy", root, "val"), load_dataset("toy", root, "test")
    assert val.features.folder == test.features.folder


def test_a_packing_error_leaves_no_cache(root):
    words = root / "toy" / "TextData" / "roberta_toy_query_feat.hdf5"
    name = (root / "toy" / "TextData" / "toytest.caption.txt").read_text().split(" ")[0]
    rewrite(words, name, np.full((3, 6), np.nan, np.float32))
    with refused(FeatureError, name, "3", "0"):
        load_dataset("toy", root, "test")
    assert not (root / "toy" / "packed").exists()


def test_a_caption_of_a_video_without_features_is_refused(root):
    with (root / "toy" / "TextData" / "toytest.caption.txt").open("a") as file:
        file.write("ghost#enc#0 nobody\n")
    with pytest.raises(FeatureError, match="ghost"):
        load_dataset("toy", root, "test")


def test_unknown_splits_features_and_settings_are_refused(root):
    with refused(UnknownNameError, "'dev'"):
        load_dataset("toy", root, "dev")
    with refused(UnknownNameError, "simulated"):
        load_dataset("toy", root, "test", video_features="i3d")
    with refused(ConfigError, "num_clips", "0"):
        load_dataset("toy", root, "test", num_clips=0)
    with refused(FeatureError, "captions.jsonl"):
        load_dataset("other", root, "test")


def test_an_unwritable_cache_folder_is_refused(root):
    (root / "file").write_text("")
    with refused(FeatureError, "cache_dir"):
        load_dataset("toy", root, "test", cache_dir=root / "file" / "cache")


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="no posix_fallocate on this system")
def test_disk_space_is_allocated_before_packing(tmp_path):
    array = _create(tmp_path, "frames", (1000, 1000), "float32")
    file = (tmp_path / "frames.npy").stat()
    assert file.st_blocks * 512 >= file.st_size > array.nbytes
