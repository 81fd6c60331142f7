"""The data set object: the released order of videos, captions and batches."""

import json

import numpy as np
import pytest

from tests.refusals import refused
from untrimmed.data.annotations import Annotation
from untrimmed.data.dataset import dataset_of_arrays, load_dataset
from untrimmed.data.layout import Layout
from untrimmed.data.layouts import open_frames, open_words
from untrimmed.data.packed import PackSettings
from untrimmed.data.simulation.simulate import simulate
from untrimmed.data.simulation.world import SimulationSettings
from untrimmed.errors import ConfigError, FeatureError

SMALL = SimulationSettings(query_dim=6, video_dim=5, teacher_dim=4, frames_per_second=0.5)


def test_videos_are_in_order_of_first_appearance_and_captions_in_file_order(tmp_path):
    simulate("toy", tmp_path, num_videos=10, settings=SMALL)
    path = tmp_path / "toy" / "TextData" / "toytrain.caption.txt"
    lines = path.read_text().splitlines()
    shuffled = lines[::2] + lines[1::2]
    path.write_text("\n".join(shuffled) + "\n")
    data = load_dataset("toy", tmp_path, "train")
    assert list(data.caption_ids) == [line.split(" ")[0] for line in shuffled]
    assert list(data.video_ids) == list(dict.fromkeys(line.split("#")[0] for line in shuffled))
    for row, caption_id in enumerate(data.caption_ids):
        assert data.video_ids[data.video_index[row]] == caption_id.split("#")[0]


def test_a_training_batch_has_the_longest_videos_first_and_groups_captions_by_video(tmp_path):
    simulate("toy", tmp_path, num_videos=20, settings=SMALL)
    data = load_dataset("toy", tmp_path, "train")
    drawn = np.array([5, 1, 8, 3])
    rows = data.training_rows(drawn)
    lengths = data.features.frames.lengths[rows.videos]
    assert sorted(rows.videos.tolist()) == sorted(drawn.tolist())
    assert np.all(np.diff(lengths) <= 0)
    assert np.array_equal(rows.videos[rows.video_index], data.video_index[rows.captions])
    assert np.all(np.diff(rows.video_index) >= 0)
    by_captions = data.training_rows(drawn, sort_by="captions")
    assert np.all(np.diff(np.bincount(by_captions.video_index)) <= 0)


def test_captions_have_moments_and_durations(tmp_path):
    simulate("toy", tmp_path, num_videos=10, settings=SMALL)
    data = load_dataset("toy", tmp_path, "test")
    assert all(len(moments) == 1 for moments in data.moments)
    (start_s, end_s), duration_s = data.moments[0][0], data.durations_s[data.video_index[0]]
    assert data.moment_ratios[0] == pytest.approx((end_s - start_s) / duration_s)


def test_without_a_file_of_times_there_are_no_moments_and_durations(tmp_path):
    simulate("toy", tmp_path, num_videos=10, settings=SMALL)
    (tmp_path / "toy" / "TextData" / "prvr_vcmr_test.jsonl").unlink()
    data = load_dataset("toy", tmp_path, "test")
    assert set(data.moments) == {()}
    assert np.isnan(data.durations_s).all()
    assert np.isnan(data.moment_ratios).all()


def test_the_three_layouts_contain_the_same_data(tmp_path):
    loaded = {}
    for layout in ("field", "jsg", "plain"):
        simulate("toy", tmp_path / layout, num_videos=10, layout=layout, settings=SMALL)
        loaded[layout] = load_dataset("toy", tmp_path / layout, "train")
    field = loaded.pop("field")
    for data in loaded.values():
        assert data.annotations == field.annotations
        np.testing.assert_allclose(data.features.clips, field.features.clips, atol=1e-6)
        np.testing.assert_allclose(data.features.frames.rows, field.features.frames.rows, atol=1e-6)
        np.testing.assert_array_equal(data.features.words_packed.rows, field.features.words_packed.rows)


def test_arrays_in_memory_give_the_same_features_as_files_and_write_nothing(tmp_path):
    simulate("toy", tmp_path, num_videos=10, settings=SMALL)
    stored = load_dataset(
        "toy", tmp_path, "train", cache_dir=tmp_path / "cache", num_clips=4, max_frames=9, max_words=3
    )
    layout, before = Layout.at(tmp_path, "toy"), sorted(tmp_path.rglob("*"))
    frames = {video: open_frames(layout).read(video) for video in stored.video_ids}
    words = {caption: open_words(layout).read(caption)[None] for caption in stored.caption_ids}
    data = dataset_of_arrays(
        frames, words, stored.annotations, PackSettings(num_clips=4, max_frames=9, max_words=3), split="train"
    )
    np.testing.assert_array_equal(data.features.clips, stored.features.clips)
    np.testing.assert_array_equal(data.features.frames.rows, stored.features.frames.rows)
    np.testing.assert_array_equal(data.features.frames.offsets, stored.features.frames.offsets)
    np.testing.assert_array_equal(data.features.words_packed.rows, stored.features.words_packed.rows)
    assert (data.video_ids, data.caption_ids, data.moments) == (stored.video_ids, stored.caption_ids, stored.moments)
    assert data.features.folder is None
    assert sorted(tmp_path.rglob("*")) == before


ROWS = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("frames", "words", "captions", "message"),
    [
        ({}, {"c": ROWS}, ["c"], ("mine", "frames")),
        ({"w": ROWS}, {"c": ROWS}, ["c"], ("mine", "frames", "'v'")),
        ({"v": ROWS}, {"d": ROWS}, ["c"], ("mine", "words", "'c'")),
        ({"v": ROWS[:0]}, {"c": ROWS}, ["c"], ("'v'",)),
        ({"v": ROWS}, {"c": ROWS[:0]}, ["c"], ("'c'",)),
        ({"v": ROWS * np.inf}, {"c": ROWS}, ["c"], ("'v'", "2")),
        ({"w": ROWS, "v": ROWS[:, :2]}, {"c": ROWS}, ["c"], ("'v'", "2", "'w'", "3")),
        ({"v": ROWS[0]}, {"c": ROWS}, ["c"], ("'v'", "(3,)")),
        ({"v": ROWS.astype(str)}, {"c": ROWS}, ["c"], ("'v'", "<U32")),
        ({"v": ROWS}, {"c": ROWS}, ["c", "c"], ("mine", "test", "'c'", "2")),
        ({"v": ROWS}, {"c": ROWS}, [], ("mine",)),
    ],
)
def test_the_error_names_an_unusable_array(frames, words, captions, message):
    with refused(FeatureError, *message):
        dataset_of_arrays(frames, words, [Annotation("v", c, "a dog") for c in captions], name="mine")


def test_only_the_training_split_has_a_teacher(tmp_path):
    simulate("toy", tmp_path, num_videos=10, teacher=True, settings=SMALL)
    train = load_dataset("toy", tmp_path, "train", teacher="conference")
    assert train.features.teacher.sentences.shape == (len(train.caption_ids), 4)
    assert np.array_equal(train.features.teacher.frames.lengths, train.features.frames.lengths)
    assert load_dataset("toy", tmp_path, "test", teacher="conference").features.teacher is None


@pytest.mark.shared
@pytest.mark.parametrize(
    ("case", "store", "teacher"),
    [
        ("ms-sl/collate", "ms-sl/bigfile/store", None),
        ("dl-dkd/collate", "dl-dkd/collate/store", "conference"),
        ("dl-dkd/pp-collate", "dl-dkd/pp-collate/store", "later"),
    ],
)
def test_training_batches_equal_the_released_ones(shared, tmp_path, case, store, teacher):
    parity = shared / "parity"
    expected = np.load(parity / case / "expected.npz")
    items = json.loads((parity / case / "config.json").read_text())["train_item_order"]
    data = load_dataset("toy", parity / store, "train", cache_dir=tmp_path, teacher=teacher)
    rows = data.training_rows(np.array(items), sort_by="captions" if teacher else "frames")
    videos, words = data.features.videos(rows.videos), data.features.words(rows.captions)
    assert [data.video_ids[row] for row in rows.videos] == expected["train_video_ids"].tolist()
    assert [data.caption_ids[row] for row in rows.captions] == expected["train_caption_ids"].tolist()
    np.testing.assert_array_equal(rows.video_index, expected["train_text_labels"])
    np.testing.assert_array_equal(videos.frames, expected["train_frame_video_features"])
    np.testing.assert_array_equal(videos.frame_mask, expected["train_videos_mask"])
    np.testing.assert_array_equal(words.rows, expected["train_text_feat"])
    np.testing.assert_array_equal(words.mask, expected["train_text_mask"])
    if teacher is None:
        np.testing.assert_array_equal(videos.clips, expected["train_clip_video_features"])
    else:
        taught = data.features.teacher
        np.testing.assert_array_equal(taught.frames.padded(rows.videos).rows, expected["train_teacher_video_features"])
        np.testing.assert_array_equal(taught.sentences[rows.captions], expected["train_teacher_text_feat"])


@pytest.mark.shared
def test_jsg_features_equal_the_released_ones(shared, tmp_path):
    folder = shared / "parity" / "jsg" / "feature-pipeline"
    raw, expected = np.load(folder / "batch.npz"), np.load(folder / "expected.npz")
    lengths = json.loads((folder / "config.json").read_text())["lengths"]
    write_jsg_store(tmp_path / "toy", {f"v{n}": raw[f"features_{n}"] for n in lengths})
    runs = [("fixed64", True, 64), ("fixed128", True, 128), ("notfixed64", False, 64)]
    for name, fixed, max_frames in runs:
        data = load_dataset("toy", tmp_path, "test", fixed_frames=fixed, max_frames=max_frames)
        for row, n in enumerate(lengths):
            np.testing.assert_allclose(data.features.clips[row], expected[f"clip32_{n}"], atol=2e-7)
            np.testing.assert_allclose(data.features.frames.table(row), expected[f"{name}_{n}"], atol=2e-7)


def write_jsg_store(folder, frames):
    import h5py

    (folder / "TextData").mkdir(parents=True)
    with h5py.File(folder / "toy_feat.hdf5", "w") as file:
        for video, rows in frames.items():
            file[video] = rows
    with h5py.File(folder / "TextData" / "roberta_toy_query_feat.hdf5", "w") as file:
        for row in range(len(frames)):
            file[str(row)] = np.ones((2, 3), np.float32)
    with (folder / "TextData" / "prvr_vcmr_test.jsonl").open("w") as file:
        for row, video in enumerate(frames):
            line = {"vid_name": video, "desc_id": row, "desc": "x", "duration": 9, "ts": [0, 12]}
            file.write(json.dumps(line) + "\n")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/tmp"])
def test_a_name_that_is_not_a_folder_name_is_refused(tmp_path, name):
    with pytest.raises(ConfigError):
        load_dataset(name, tmp_path, "train")


def test_a_repeated_caption_id_is_refused(tmp_path):
    simulate("toy", tmp_path, num_videos=5, settings=SimulationSettings(query_dim=6, video_dim=5))
    path = tmp_path / "toy" / "TextData" / "toytest.caption.txt"
    path.write_text(path.read_text() * 2)
    with refused(FeatureError, "toy", "test", "2"):
        load_dataset("toy", tmp_path, "test")
