"""Whole or not at all."""

import pytest

from untrimmed.data.atomic import whole_file, whole_folder


def write_half(path):
    with whole_file(path) as temporary:
        temporary.write_text("half")
        raise OSError("disk full")


def test_an_error_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(OSError, match="disk full"):
        write_half(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_appears_when_the_block_ends_with_ordinary_rights(tmp_path):
    path = tmp_path / "new" / "a.txt"
    with whole_file(path) as temporary:
        temporary.write_text("all")
        assert not path.exists()
    assert path.read_text() == "all"
    other = tmp_path / "other"
    other.touch()
    assert path.stat().st_mode == other.stat().st_mode


def test_of_two_writers_of_a_folder_the_first_to_finish_stays(tmp_path):
    path = tmp_path / "cache"
    with whole_folder(path) as late:
        (late / "a").write_text("late")
        with whole_folder(path) as early:
            (early / "a").write_text("early")
    assert (path / "a").read_text() == "early"
    assert list(tmp_path.iterdir()) == [path]
