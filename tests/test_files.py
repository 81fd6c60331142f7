"""Whole or not at all."""

import pytest

from untrimmed.files import whole_file, whole_folder, write_whole


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


def test_a_writer_that_makes_its_file_private_cannot_keep_it_so(tmp_path):
    with whole_file(tmp_path / "a.txt") as temporary:
        temporary.write_text("all")
        temporary.chmod(0o600)
    (tmp_path / "other").touch()
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("writer", [whole_file, whole_folder])
def test_an_error_leaves_no_folder_that_was_made_for_it(tmp_path, writer):
    kept = tmp_path / "kept"
    kept.mkdir()
    with pytest.raises(OSError, match="disk full"), writer(kept / "new" / "newer" / "a"):
        raise OSError("disk full")
    assert list(tmp_path.rglob("*")) == [kept]


@pytest.mark.parametrize("writer", [whole_file, whole_folder])
def test_an_error_names_what_was_to_be_written_not_what_stands_for_it(tmp_path, writer):
    path = tmp_path / ("a" * 256)  # longer than names can be
    with pytest.raises(OSError, match="too long") as raised, writer(path):
        pass
    assert raised.value.filename == str(path)


def test_the_longest_name_can_be_written(tmp_path):
    write_whole(tmp_path / ("a" * 255), "all")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["all"]


def test_without_replacing_a_file_that_has_come_up_meanwhile_stays(tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(FileExistsError), whole_file(path, replace=False):
        path.write_text("early")
    assert path.read_text() == "early"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_kill_has_left_is_cleared_away_by_the_only_writer(tmp_path):
    with whole_file(tmp_path / "a.txt", is_only_writer=True) as temporary:
        left = temporary
    left.write_text("half, and more than all")
    left.chmod(0o600)
    write_whole(tmp_path / "a.txt", "all", is_only_writer=True)
    assert {path: path.read_text() for path in tmp_path.iterdir()} == {tmp_path / "a.txt": "all"}
