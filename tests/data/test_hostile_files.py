"""Files of features and captions that loop, lead elsewhere or declare far more than they contain."""

import gzip
import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.bounded_memory import run_bounded
from tests.refusals import refused, require_named
from untrimmed.data.dataset import load_dataset
from untrimmed.data.hdf5 import Hdf5Vectors
from untrimmed.data.sources import FolderVectors
from untrimmed.errors import CheckpointError, FeatureError
from untrimmed.models.storage import load_model

FRAMES = np.eye(3, 4, dtype=np.float32)


def a_group_that_contains_itself(file, folder):
    file.create_group("a")["b"] = file["/"]
    file["a"]["c"] = file["a"]


def deep_groups(file, folder):
    group = file
    for _ in range(1_500):
        group = group.create_group("a")


def a_link_to_itself(file, folder):
    file["lake"] = h5py.SoftLink("/lake")


def links_in_a_circle(file, folder):
    file["lake"] = h5py.SoftLink("/sea")
    file["sea"] = h5py.SoftLink("lake")


def other_file(folder):
    with h5py.File(folder / "other.h5", "w") as other:
        other["lake"] = FRAMES
    return str(folder / "other.h5")


def a_link_to_another_file(file, folder):
    file["first"] = FRAMES
    file["lake"] = h5py.ExternalLink(other_file(folder), "/lake")


def a_link_through_another_file(file, folder):
    file["first"] = FRAMES
    file["elsewhere"] = h5py.ExternalLink(other_file(folder), "/")
    file["lake"] = h5py.SoftLink("/elsewhere/lake")


def values_in_another_file(file, folder):
    (folder / "raw").write_bytes(FRAMES.tobytes())
    file.create_dataset("lake", shape=FRAMES.shape, dtype="f4", external=[(str(folder / "raw"), 0, FRAMES.nbytes)])


def a_view_of_another_file(file, folder):
    view = h5py.VirtualLayout(shape=FRAMES.shape, dtype="f4")
    view[:] = h5py.VirtualSource(other_file(folder), "lake", shape=FRAMES.shape)
    file.create_virtual_dataset("lake", view)


def two_terabytes(file, folder):
    file.create_dataset("lake", shape=(2**28, 2048), chunks=(1, 2048), dtype="f4")


def many_compressed_zeros(file, folder):
    table = file.create_dataset("lake", shape=(2**20, 2048), chunks=(2**12, 2048), dtype="f4", compression="gzip")
    table[: 2**12] = 0


HOSTILE = (
    a_group_that_contains_itself,
    deep_groups,
    a_link_to_itself,
    links_in_a_circle,
    a_link_to_another_file,
    a_link_through_another_file,
    values_in_another_file,
    a_view_of_another_file,
    two_terabytes,
    many_compressed_zeros,
)


def test_hostile_hdf5_files_end_in_one_line_with_little_memory(tmp_path):
    for write in HOSTILE:
        folder = tmp_path / write.__name__
        folder.mkdir()
        (folder / "captions.jsonl").write_text('{"video": "lake", "caption": "a dog", "split": "train"}\n')
        with h5py.File(folder / "words.h5", "w") as file:
            file["lake#0"] = FRAMES
        with h5py.File(folder / "frames.h5", "w") as file:
            write(file, folder)
    names = [write.__name__ for write in HOSTILE]
    calls = [[name, tmp_path, "train"] for name in names]
    for name, outcome in zip(names, run_bounded("untrimmed.data.dataset:load_dataset", calls), strict=True):
        assert outcome["outcome"] == "FeatureError", (name, outcome)
        require_named(outcome["message"], str(tmp_path / name / "frames.h5"))
        assert "damaged" not in outcome["message"], outcome
        assert outcome["growth"] < 50 * 2**20, (name, outcome)


def broken_npz(path):
    np.savez(path, frames=FRAMES)
    path.write_bytes(path.read_bytes()[:100])


def npz_of_two_arrays(path):
    np.savez(path, first=FRAMES, second=FRAMES)


def broken_hdf5(path):
    path.write_bytes(b"no HDF5")


def hdf5_without_data(path):
    h5py.File(path, "w").close()


def hdf5_with_a_link_to_another_file(path):
    with h5py.File(path, "w") as file:
        file["lake"] = h5py.ExternalLink(other_file(path.parent), "/lake")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are listed in /proc")
@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("frames/lake.npz", broken_npz),
        ("frames/lake.npz", npz_of_two_arrays),
        ("frames.h5", broken_hdf5),
        ("frames.h5", hdf5_without_data),
        ("frames.h5", hdf5_with_a_link_to_another_file),
    ],
)
def test_refused_files_are_closed(name, write, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    write(path)
    with pytest.raises(FeatureError) as refusal:  # it keeps the frames of functions, and so any open file in them
        FolderVectors(path.parent) if path.suffix == ".npz" else Hdf5Vectors(path)
    open_files = [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]
    assert str(path) not in open_files
    require_named(str(refusal.value), str(path))


def test_links_inside_a_file_are_followed(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "captions.jsonl").write_text('{"video": "trip/lake", "caption": "a dog", "split": "train"}\n')
    with h5py.File(folder / "words.h5", "w") as file:
        file["trip/lake#0"] = FRAMES
    with h5py.File(folder / "frames.h5", "w") as file:
        file["stored/table"] = FRAMES
        file["lakes/lake"] = h5py.SoftLink("/stored/table")
        file["trip"] = h5py.SoftLink("lakes")
    assert load_dataset("mine", tmp_path, "train").features.frames.lengths.tolist() == [3]


def test_deep_and_huge_json_ends_in_one_line_with_little_memory(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 500_000)
    (tmp_path / "number.json").write_text("9" * 50_000)
    with gzip.open(tmp_path / "line.json.gz", "wb", compresslevel=1) as file:
        for _ in range(80):
            file.write(b"a" * 2**20)
    with gzip.open(tmp_path / "lines.json.gz", "wb", compresslevel=1) as file:
        for _ in range(80):
            file.write(b"[]," * 2**18 + b"\n")
    paths = sorted(tmp_path.iterdir())
    for path, outcome in zip(paths, run_bounded("untrimmed.data.fields:read_json", [[p] for p in paths]), strict=True):
        assert outcome["outcome"] == "FeatureError", (path, outcome)
        require_named(outcome["message"], str(path))
        assert outcome["growth"] < 400 * 2**20, (path, outcome)


def test_a_deep_line_of_captions_is_named(tmp_path):
    (tmp_path / "mine").mkdir()
    deep = '{"video": "lake", "caption": ' + "[" * 200_000
    (tmp_path / "mine" / "captions.jsonl").write_text(json.dumps({"video": "a", "caption": "b"}) + "\n" + deep)
    with refused(FeatureError, "captions.jsonl", "2"):
        load_dataset("mine", tmp_path, "train")


def test_deep_settings_of_a_model_are_refused(tmp_path):
    (tmp_path / "config.json").write_text("[" * 200_000)
    with pytest.raises(CheckpointError):
        load_model(tmp_path)
