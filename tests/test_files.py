"""Files and folders are written completely or not at all."""

import pytest

from untrimmed.files import whole_file, whole_folder, write_whole


def write_half(path):
    with whole_file(path) as temporary:
        temporary.write_text("half")
        raise OSError("disk full")


def test_an_error_leaves_the_old_file_unchanged(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(OSError, match="disk full"):
        write_half(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_appears_when_the_block_ends_with_default_permissions(tmp_path):
    path = tmp_path / "new" / "a.txt"
    with whole_file(path) as temporary:
        temporary.write_text("all")
        assert not path.exists()
    assert path.read_text() == "all"
    other = tmp_path / "other"
    other.touch()
    assert path.stat().st_mode == other.stat().st_mode


def test_the_first_of_two_writers_of_a_folder_wins(tmp_path):
    path = tmp_path / "cache"
    with whole_folder(path) as late:
        (late / "a").write_text("late")
        with whole_folder(path) as early:
            (early / "a").write_text("early")
    assert (path / "a").read_text() == "early"
    assert list(tmp_path.iterdir()) == [path]


def test_a_private_temporary_file_gets_default_permissions(tmp_path):
    with whole_file(tmp_path / "a.txt") as temporary:
        temporary.write_text("all")
        temporary.chmod(0o600)
    (tmp_path / "other").touch()
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("writer", [whole_file, whole_folder])
def test_an_error_deletes_the_folders_that_were_created(tmp_path, writer):
    kept = tmp_path / "kept"
    kept.mkdir()
    with pytest.raises(OSError, match="disk full"), writer(kept / "new" / "newer" / "a"):
        raise OSError("disk full")
    assert list(tmp_path.rglob("*")) == [kept]


@pytest.mark.parametrize("writer", [whole_file, whole_folder])
def test_an_error_names_the_file_instead_of_the_temporary_one(tmp_path, writer):
    path = tmp_path / ("a" * 256)  # longer than names may be
    with pytest.raises(OSError, match="too long") as raised, writer(path):
        pass
    assert raised.value.filename == str(path)


def test_the_longest_name_can_be_written(tmp_path):
    write_whole(tmp_path / ("a" * 255), "all")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["all"]


def test_without_replace_a_file_created_in_the_meantime_stays(tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(FileExistsError), whole_file(path, replace=False):
        path.write_text("early")
    assert path.read_text() == "early"
    assert list(tmp_path.iterdir()) == [path]


def test_the_only_writer_deletes_the_temporary_file_of_a_killed_process(tmp_path):
    with whole_file(tmp_path / "a.txt", is_only_writer=True) as temporary:
        left = temporary
    left.write_text("half, and more than all")
    left.chmod(0o600)
    write_whole(tmp_path / "a.txt", "all", is_only_writer=True)
    assert {path: path.read_text() for path in tmp_path.iterdir()} == {tmp_path / "a.txt": "all"}
