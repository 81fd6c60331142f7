"""Videos below a folder: those that `Path` finds there, also for odd names and links."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.toy import stored_video
from untrimmed.errors import UnknownNameError
from untrimmed.search.store.records import Records, absolute
from untrimmed.types import FrameFeatures

NAMES = [
    "a", "A", "a b", "it's", 'say "hi"', "100%", "a_b", "aXb", "a.b", "a-", "a0", "ü", "視", "\U0001f600", "~", "*",
]  # fmt: skip
PARTS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3)
ROOTS = st.sampled_from(["/", "/", "/", "//"])
PATHS = st.builds(lambda root, parts: str(Path(root + "/".join(parts))), ROOTS, PARTS)
PLACES = PATHS | st.sampled_from(["/", "//"])


def records_at(paths):
    features = FrameFeatures(np.ones((1, 4), np.float16), np.zeros(1), 1.0)
    return Records(stored_video(f"v{i}", features, path=path).record for i, path in enumerate(paths))


@settings(deadline=None, derandomize=True, database=None, max_examples=150)
@given(paths=st.lists(PATHS, max_size=12), place=PLACES, ending=st.sampled_from(["", "/", "/.", "//", "/x/.."]))
def test_below_returns_the_videos_that_pathlib_finds_below_a_folder(paths, place, ending):
    records, folder = records_at(paths), absolute(place + ending)
    expected = sorted(path for path in paths if Path(path).is_relative_to(folder))
    assert [record.path for record in records.below(folder)] == expected
    record = records.at(folder)
    assert (record.path if record else None) == (str(folder) if str(folder) in paths else None)


def test_records_are_sorted_by_path_and_can_be_looked_up_by_id():
    records = records_at(["/b.mp4", "/a/z.mp4", "/a.mp4"])
    assert [record.path for record in records] == ["/a.mp4", "/a/z.mp4", "/b.mp4"]
    assert [record.path for record in records[1:]] == ["/a/z.mp4", "/b.mp4"]
    assert records.of("v0").path == "/b.mp4"
    assert not Records()


@pytest.fixture
def odd(lib, videos, tmp_path):
    """The library with copies of three clips in folders with odd names, one also through a link."""
    root = tmp_path / "odd"
    for name, folder in (("flag.mp4", "it's 100%"), ("sun.mp4", "it's 100%_"), ("wood.mp4", "itXs")):
        (root / folder).mkdir(parents=True)
        shutil.copyfile(videos / name, root / folder / name)
    os.symlink(root / "itXs", root / "link")
    lib.index([root, root / "link" / "wood.mp4"])
    return root


def names_within(lib, place):
    return {hit.video.name for hit in lib.search("green", within=place)}


def test_searches_can_be_limited_to_folders_with_odd_names(lib, odd, monkeypatch):
    assert names_within(lib, odd / "it's 100%") == {"flag.mp4"}
    assert names_within(lib, f"{odd}/it's 100%/") == {"flag.mp4"}
    assert names_within(lib, odd / "it's 100%_" / "sun.mp4") == {"sun.mp4"}
    assert names_within(lib, odd) == {"flag.mp4", "sun.mp4", "wood.mp4"}
    monkeypatch.chdir(odd)
    assert names_within(lib, "itXs") == {"wood.mp4"}
    with pytest.raises(UnknownNameError):
        lib.search("green", within=odd / "it_s")
    with pytest.raises(UnknownNameError):
        lib.search("green", within=odd / "it's 10")


def test_a_linked_folder_and_its_target_are_different_places(lib, odd):
    (through,) = lib.search("green", within=odd / "link")
    (straight,) = lib.search("green", within=odd / "itXs")
    assert (through.video, straight.video) == (odd / "link" / "wood.mp4", odd / "itXs" / "wood.mp4")
    assert through.video_id != straight.video_id
