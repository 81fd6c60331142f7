"""Every kind of damage is reported with a fix, and an intact data set has no problems."""

from functools import partial

import h5py
import numpy as np
import pytest

from tests.refusals import require_named
from untrimmed.data.check import check_dataset
from untrimmed.data.simulation.simulate import simulate
from untrimmed.data.simulation.world import SimulationSettings

SMALL = SimulationSettings(query_dim=6, video_dim=5, teacher_dim=4, frames_per_second=0.5)


@pytest.fixture
def root(tmp_path):
    simulate("toy", tmp_path, num_videos=10, teacher=True, settings=SMALL)
    return tmp_path


def text_data(root, name):
    return root / "toy" / "TextData" / name


def frame_data(root, name):
    return root / "toy" / "FeatureData" / "simulated" / name


def first_caption(root):
    return text_data(root, "toytrain.caption.txt").read_text().split(" ")[0]


def remove_words(root):
    with h5py.File(text_data(root, "roberta_toy_query_feat.hdf5"), "r+") as file:
        del file[first_caption(root)]


def widen_words(root):
    remove_words(root)
    with h5py.File(text_data(root, "roberta_toy_query_feat.hdf5"), "r+") as file:
        file[first_caption(root)] = np.zeros((3, 7), np.float32)


def poison_a_frame(root):
    values = np.fromfile(frame_data(root, "feature.bin"), dtype="<f4")
    values[2] = np.nan
    values.tofile(frame_data(root, "feature.bin"))


def rewrite_frames(root, change):
    """Apply `change(frames, number)` to each video, where `number` is its position in order of names."""
    table = eval(frame_data(root, "video2frames.txt").read_text())
    rows = {name: row for row, name in enumerate(frame_data(root, "id.txt").read_text().split())}
    values = np.fromfile(frame_data(root, "feature.bin"), dtype="<f4").reshape(len(rows), -1)
    for number, name in enumerate(sorted(table)):
        index = [rows[frame] for frame in table[name]]
        values[index] = change(values[index], number)
    values.tofile(frame_data(root, "feature.bin"))


def rewrite_words(root, change):
    with h5py.File(text_data(root, "roberta_toy_query_feat.hdf5"), "r+") as file:
        for number, name in enumerate(file):
            file[name][...] = change(file[name][...], number)


def blank_first(rows, number):
    return rows if number else 0 * rows


def freeze_first(rows, number):
    return rows if number else rows[:1]


def cut_features(root):
    content = frame_data(root, "feature.bin").read_bytes()
    frame_data(root, "feature.bin").write_bytes(content[:-4])


def forget_a_video(root):
    path = frame_data(root, "video2frames.txt")
    path.write_text(path.read_text().replace("'video00000':", "'other':"))


def empty_a_video(root):
    path = frame_data(root, "video2frames.txt")
    table = {name: [] if name == "video00000" else frames for name, frames in eval(path.read_text()).items()}
    path.write_text(repr(table))


def forget_a_frame(root):
    path = frame_data(root, "video2frames.txt")
    path.write_text(path.read_text().replace("'video00000_3'", "'elsewhere_3'"))


def repeat_a_caption(root):
    path = text_data(root, "toytrain.caption.txt")
    path.write_text(path.read_text() + path.read_text().splitlines()[0] + "\n")


def empty_a_caption(root):
    path = text_data(root, "toytrain.caption.txt")
    path.write_text(path.read_text() + f"{first_caption(root)}9\n")


def train_on_the_test(root):
    text_data(root, "toytest.caption.txt").write_text(text_data(root, "toytrain.caption.txt").read_text())


def spoil_the_words(root):
    text_data(root, "roberta_toy_query_feat.hdf5").write_bytes(b"not hdf5")


def drop_a_split(root):
    text_data(root, "toyval.caption.txt").unlink()
    text_data(root, "prvr_vcmr_val.jsonl").unlink()


def drop_the_frames(root):
    frame_data(root, "shape.txt").unlink()


def drop_half_the_teacher(root):
    text_data(root, "clip_ViT_B_32_toy_query_feat.hdf5").unlink()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (remove_words, ("roberta_toy_query_feat.hdf5", "'video00003#enc#0'")),
        (widen_words, ("'video00003#enc#0'", "7", "'video00000#enc#0'", "6")),
        (poison_a_frame, ("'video00003'", "1", "42", "0")),
        (partial(rewrite_frames, change=blank_first), ("'video00000'",)),
        (partial(rewrite_words, change=blank_first), ("'video00000#enc#0'",)),
        (partial(rewrite_frames, change=lambda rows, _: 0 * rows), ("simulated",)),
        (partial(rewrite_frames, change=lambda rows, _: 0 * rows + 1), ("simulated",)),
        (partial(rewrite_words, change=lambda rows, _: 0 * rows + 1), ("roberta_toy_query_feat.hdf5",)),
        (cut_features, ("feature.bin", "shape.txt")),
        (forget_a_video, ("'video00000'",)),
        (empty_a_video, ("'video00000'",)),
        (forget_a_frame, ("'elsewhere_3'", "'video00000'", "video2frames.txt", "id.txt")),
        (repeat_a_caption, ("train", "'video00003#enc#0'")),
        (empty_a_caption, ("toytrain.caption.txt:28", "'video00003#enc#09'")),
        (train_on_the_test, ("train", "test", "'video00003'")),
        (spoil_the_words, ("roberta_toy_query_feat.hdf5", "HDF5")),
        (drop_a_split, ("val",)),
        (drop_the_frames, ("toy", "shape.txt", "(root)")),
        (drop_half_the_teacher, ("clip_ViT_B_32_toy_query_feat.hdf5", "dl_dkd")),
    ],
)
def test_each_damage_is_reported_in_one_line_with_its_file(root, damage, words):
    assert check_dataset("toy", root) == []
    damage(root)
    (problem,) = check_dataset("toy", root)
    require_named(problem, str(root), *words)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (partial(rewrite_frames, change=freeze_first), "'video00000'"),
        (partial(rewrite_words, change=freeze_first), "'video00000#enc#0'"),
    ],
)
def test_an_entry_with_equal_rows_is_only_a_warning(root, damage, words, caplog):
    damage(root)
    assert check_dataset("toy", root) == []
    assert words in caplog.text


def test_a_missing_folder_is_one_problem(tmp_path):
    (problem,) = check_dataset("toy", tmp_path)
    assert str(tmp_path) in problem


def test_a_quick_check_does_not_read_values(root):
    poison_a_frame(root)
    assert check_dataset("toy", root, values=False) == []


def test_only_ten_unusable_entries_are_listed_and_the_rest_counted(root):
    values = np.fromfile(frame_data(root, "feature.bin"), dtype="<f4")
    np.full_like(values, np.inf).tofile(frame_data(root, "feature.bin"))
    with h5py.File(text_data(root, "roberta_toy_query_feat.hdf5"), "r+") as file:
        for name in list(file):
            file[name][...] = np.nan
    problems = check_dataset("toy", root)
    assert len(problems) == 10 + 10 + 1


def test_progress_reaches_every_video_and_caption(root):
    calls = []
    check_dataset("toy", root, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1][0] == calls[-1][1] == len(calls)
