"""A library as a data set: training reads the vectors that search stores, in both layouts, and exports are complete."""

import json
import re
import shutil

import h5py
import numpy as np
import pytest

import untrimmed
from tests.refusals import refused
from tests.search.conftest import use_encoder
from tests.toy import WideWordEncoder
from untrimmed.data.check import check_dataset
from untrimmed.data.dataset import load_dataset
from untrimmed.data.labelled import assign_splits
from untrimmed.data.layout import Layout
from untrimmed.data.layouts import open_frames, open_words
from untrimmed.data.resampling import prepare_video, prepare_words
from untrimmed.errors import FeatureError, IndexMismatchError, UnknownNameError
from untrimmed.search.store.table import VideoIndex

LABELS = [
    {"video": "flag", "caption": "it is red", "start_s": 0, "end_s": 2, "split": "train"},
    {"video": "flag.mp4", "caption": "white and\ngreen", "start_s": 2, "end_s": 9.5, "split": "train"},
    {"video": "sea # 1", "caption": "blue", "split": "train"},
    {"video": "sun", "query": "a yellow and red sun", "start_s": 0.5, "end_s": 3.5, "split": "val"},
    {"video": "wood", "caption": "something green", "split": "test"},
]
FIELD_IDS = {"sea # 1": "sea%20%23%201"}
LAYOUTS = ("plain", "field")


@pytest.fixture
def captions(tmp_path):
    """A function that writes labels (or lines of text) to a file and returns its path."""

    def write(labels=LABELS):
        lines = (label if isinstance(label, str) else json.dumps(label) for label in labels)
        (tmp_path / "captions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return tmp_path / "captions.jsonl"

    return write


def stored_frames(lib):
    """Return the stored vectors by name without suffix."""
    index = VideoIndex(lib.folder)
    return {record.path.rpartition("/")[2][:-4]: index.get(record.video_id).features.vectors for record in index.scan()}


def id_in(layout, video):
    return FIELD_IDS.get(video, video) if layout == "field" else video


def without_split(labels):
    return [{key: value for key, value in label.items() if key != "split"} for label in labels]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_exported_frames_are_bit_equal_to_stored_vectors(layout, lib, encoder, captions, tmp_path):
    encoded = encoder.num_encoded
    written = lib.export_features(tmp_path / "out", layout=layout, captions=captions())
    assert encoder.num_encoded == encoded, "nothing is decoded again"
    frames, expected = open_frames(Layout.at(tmp_path / "out", "mine")), stored_frames(lib)
    assert written.num_videos == len(expected) == 4
    for video, vectors in expected.items():
        assert vectors.dtype == np.float16
        np.testing.assert_array_equal(frames.read(id_in(layout, video)), vectors)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_exported_words_are_those_of_the_encoder(layout, lib, encoder, captions, tmp_path):
    lib.export_features(tmp_path / "out", layout=layout, captions=captions())
    words = open_words(Layout.at(tmp_path / "out", "mine"))
    for split in ("train", "val", "test"):
        dataset = load_dataset("mine", tmp_path / "out", split)
        for caption_id, text in zip(dataset.caption_ids, dataset.texts, strict=True):
            np.testing.assert_array_equal(words.read(caption_id), encoder.encode_texts([text])[0].words)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_exported_data_set_loads_with_splits_moments_and_lengths(layout, lib, encoder, captions, tmp_path):
    written = lib.export_features(tmp_path / "out", layout=layout, captions=captions())
    assert written.captions == {"train": 3, "val": 1, "test": 1}
    assert (written.frame_dim, written.word_dim, written.left_out) == (4, 5, ())
    train, val, test = (load_dataset("mine", tmp_path / "out", split) for split in ("train", "val", "test"))
    assert train.video_ids == ("flag", id_in(layout, "sea # 1"))
    assert (val.video_ids, test.video_ids) == (("sun",), ("wood",))
    assert train.texts == ("it is red", "white and green", "blue")
    assert train.video_index.tolist() == [0, 0, 1]
    assert train.moments[0] == ((0.0, 2.0),)
    np.testing.assert_allclose(train.moments[1], [(2.0, 6.0)], atol=0.11)  # cut where the video ends
    assert train.moments[2] == ()
    np.testing.assert_allclose(val.durations_s, [4.0], atol=0.11)
    assert (train.video_dim, train.query_dim) == (4, 5)
    expected = stored_frames(lib)["flag"].astype(np.float32)
    clips, frames = prepare_video(expected, num_clips=32, max_frames=128)
    got = train.features.videos(np.array([0]))
    np.testing.assert_array_equal(got.clips[0], clips)
    np.testing.assert_array_equal(got.frames[0][got.frame_mask[0]], frames)
    words = train.features.words(np.array([2]))
    np.testing.assert_array_equal(words.rows[0], prepare_words(encoder.encode_texts(["blue"])[0].words, max_words=30))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_exported_data_set_passes_the_check(layout, lib, captions, tmp_path):
    lib.export_features(tmp_path / "out", layout=layout, captions=captions())
    assert check_dataset("mine", tmp_path / "out") == []


def test_without_splits_each_video_is_in_one_split_and_no_split_is_empty(lib, captions, tmp_path):
    written = lib.export_features(tmp_path / "out", captions=captions(without_split(LABELS)))
    assert sum(written.captions.values()) == len(LABELS)
    assert min(written.captions.values()) >= 1
    places = {split: load_dataset("mine", tmp_path / "out", split).video_ids for split in written.captions}
    assert sorted(video for ids in places.values() for video in ids) == sorted(stored_frames(lib))


def test_the_split_of_a_video_depends_only_on_the_names():
    names = [f"video {number}" for number in range(40)]
    dealt = assign_splits(names)
    assert dealt == assign_splits(reversed(names))
    assert [list(dealt.values()).count(split) for split in ("train", "val", "test")] == [32, 4, 4]
    for count, expected in {12: [6, 3, 3], 7: [3, 2, 2], 3: [1, 1, 1]}.items():
        dealt = list(assign_splits(names[:count]).values())
        assert [dealt.count(split) for split in ("train", "val", "test")] == expected
    with refused(FeatureError, "lake.jsonl", "2", "3"):
        assign_splits(names[:2], "lake.jsonl")


def test_frames_can_be_exported_without_captions(lib, tmp_path):
    written = lib.export_features(tmp_path / "out")
    assert sum(written.captions.values()) == 0
    assert sorted(path.stem for path in (written.folder / "frames").iterdir()) == sorted(stored_frames(lib))
    assert not (written.folder / "words.h5").exists()
    problems = check_dataset("mine", tmp_path / "out")  # captions and words are missing, frames are not
    assert [problem.partition(":")[0] for problem in problems] == [
        str(written.folder / "captions.jsonl"),
        str(written.folder),
    ]
    assert "untrimmed features --captions" in problems[0]
    assert "words.h5" in problems[1]


def test_too_few_videos_with_captions_are_refused(lib, captions, tmp_path):
    file = captions(without_split(LABELS)[:1])
    with pytest.raises(FeatureError, match=f"^{re.escape(str(file))}: 1 videos, expected at least 3"):
        lib.export_features(tmp_path / "out", captions=file)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_only_videos_within_a_folder_or_file_are_exported(lib, videos, tmp_path):
    written = lib.export_features(tmp_path / "out", within=[videos / "sun.mp4", videos / "flag.mp4"])
    assert sorted(path.stem for path in (written.folder / "frames").iterdir()) == ["flag", "sun"]
    with pytest.raises(FeatureError):
        lib.export_features(tmp_path / "none", within=[tmp_path])


def test_files_with_the_same_name_are_distinguished_by_their_folders(encoder, videos, tmp_path):
    for folder, source in (("a", "sun.mp4"), ("b", "flag.mp4")):
        (tmp_path / "videos" / folder).mkdir(parents=True)
        shutil.copy(videos / source, tmp_path / "videos" / folder / "one.mp4")
    lib = untrimmed.open(tmp_path / "library")
    lib.index(tmp_path / "videos")
    lib.export_features(tmp_path / "out")
    np.testing.assert_array_equal(
        np.load(tmp_path / "out" / "mine" / "frames" / "a" / "one.mp4.npy"),
        VideoIndex(lib.folder).get(lib.videos()[0].video_id).features.vectors,
    )
    (tmp_path / "c.jsonl").write_text('{"video": "one.mp4", "caption": "red"}\n')
    with refused(UnknownNameError, "'one.mp4'", "2"):
        lib.export_features(tmp_path / "more", captions=tmp_path / "c.jsonl")


def test_captions_of_unknown_videos_are_left_out_and_listed(lib, captions, tmp_path):
    unknown = {"video": "gone", "caption": "red", "split": "train"}
    written = lib.export_features(tmp_path / "out", captions=captions([*LABELS, unknown]))
    assert [(label.video, label.place) for label in written.left_out] == [
        ("gone", f"{tmp_path / 'captions.jsonl'}, line 6")
    ]
    assert sum(written.captions.values()) == len(LABELS)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([{"video": "gone", "caption": "red"}], ("line 1", "'gone'", "4")),
        ([LABELS[0], {**LABELS[2], "caption": " "}], ("line 2", "caption")),
        ([LABELS[0], '{"video": "flag", "cap'], ("line 2", "JSON")),
        ([LABELS[0], "[1]"], ("line 2",)),
        ([{"caption": "red"}], ("line 1", "video")),
        ([{**LABELS[0], "split": "dev"}], ("line 1", "'dev'", "train", "val", "test")),
        ([LABELS[0], without_split(LABELS)[1]], ("1", "2")),
        ([{**LABELS[0], "end_s": None}], ("line 1", "end_s")),
        ([{**LABELS[0], "start_s": 3, "end_s": 1}], ("line 1", "3")),
        ([{**LABELS[0], "start_s": 60, "end_s": 70}], ("line 1", "60", "70", "'flag'")),
        ([], ("captions.jsonl",)),
        (without_split(LABELS[:3]), ("captions.jsonl", "2", "3")),
    ],
)
def test_invalid_captions_are_refused_in_one_line_and_nothing_is_written(labels, message, lib, captions, tmp_path):
    with refused(FeatureError, *message) as caught:
        lib.export_features(tmp_path / "out", captions=captions(labels))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists() or list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_failed_export_leaves_no_files(layout, lib, encoder, captions, tmp_path, monkeypatch):
    def full(self, *_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(h5py.Group, "__setitem__", full)
    with refused(FeatureError, "No space left", "(out)"):
        lib.export_features(tmp_path / "out", layout=layout, captions=captions())
    assert not (tmp_path / "out").exists()


# -- a run records the encoder of its features


@pytest.fixture
def train_on(lib, captions, tmp_path):
    """A function that exports the library and trains on it for one epoch; it returns the run."""

    def train():
        lib.export_features(tmp_path / "out", captions=captions())
        settings = {"model.dim": 8, "model.max_frames": 12, "train.epochs": 1, "train.batch_size": 2}
        return untrimmed.train("ms_sl", data="mine", root=tmp_path / "out", out=tmp_path / "run", **settings)

    return train


def test_a_run_works_for_the_library_whose_features_it_was_trained_on(train_on, lib, encoder):
    run = train_on()
    assert run.config.data.encoder_identity == encoder.identity
    lib.use(run.folder)
    assert lib.settings().model.startswith("ms_sl:")


def test_a_run_on_features_of_another_encoder_is_refused_even_if_widths_match(
    train_on, videos, encoder, tmp_path, monkeypatch
):
    run = train_on()
    other_encoder = WideWordEncoder("toy:2")
    use_encoder(monkeypatch, other_encoder)
    theirs = untrimmed.open(tmp_path / "theirs")
    theirs.index(videos / "sun.mp4")
    settings = theirs.settings()
    with refused(IndexMismatchError, "toy:1", "toy:2") as caught:
        theirs.use(run.folder)
    assert "\n" not in str(caught.value)
    assert theirs.settings() == settings


def test_features_without_an_origin_note_are_checked_by_width_only(train_on, lib, tmp_path, monkeypatch):
    folder = train_on().folder
    (tmp_path / "out" / "mine" / "features.json").unlink()
    settings = {"model.dim": 8, "model.max_frames": 12, "train.epochs": 1, "train.batch_size": 2}
    run = untrimmed.train("ms_sl", data="mine", root=tmp_path / "out", out=folder.with_name("unknown"), **settings)
    assert run.config.data.encoder_identity is None
    lib.use(run.folder)
    assert lib.settings().model_folder == str(run.folder)


def test_a_damaged_origin_note_is_refused(train_on, tmp_path):
    train_on()
    (tmp_path / "out" / "mine" / "features.json").write_text("{")
    with refused(FeatureError, "features.json", "JSON"):
        untrimmed.train("ms_sl", data="mine", root=tmp_path / "out", out=tmp_path / "again")
