"""The copy of the records that listing reads equals those of the table, or is not used."""

import json
import os
import shutil

import pytest

from tests.refusals import refused
from tests.search.store.test_table import SETTINGS, stored
from untrimmed.errors import IndexMismatchError, UntrimmedError
from untrimmed.search.store.lance import lance
from untrimmed.search.store.listing import read_records
from untrimmed.search.store.records import newest_commit, read_records_copy
from untrimmed.search.store.table import VideoIndex

COPY = "records.json"


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "library"
    with VideoIndex(folder, create=True) as index:
        index.write_settings(SETTINGS)
        for number in range(3):
            index.put(stored(f"/v/{number}.mp4", seed=number))
    return folder


@pytest.fixture
def opened(monkeypatch):
    """A list with an entry per opening of the table."""
    calls = []
    real = lance.dataset
    monkeypatch.setattr(lance, "dataset", lambda *args, **options: calls.append(args) or real(*args, **options))
    return calls


def test_a_writer_leaves_a_copy_so_that_readers_need_not_open_the_table(folder, opened):
    records = read_records(folder)
    assert opened == []
    assert records == VideoIndex(folder).scan()
    assert [record.path for record in records] == ["/v/0.mp4", "/v/1.mp4", "/v/2.mp4"]


def test_after_a_commit_the_first_reader_writes_a_new_copy(folder, opened):
    index = VideoIndex(folder)
    index.put(stored("/v/3.mp4"))  # without `with`, so it leaves no copy, like a killed process
    opened.clear()
    assert len(read_records(folder)) == 4
    assert len(opened) == 1
    assert len(read_records(folder)) == 4
    assert len(opened) == 1


def test_an_identical_copy_is_not_written_again(folder):
    previous = (folder / COPY).stat()
    assert len(VideoIndex(folder).scan()) == 3
    after = (folder / COPY).stat()
    assert (after.st_ino, after.st_mtime_ns) == (previous.st_ino, previous.st_mtime_ns)


def test_the_next_writer_removes_incomplete_copies_of_killed_readers(folder):
    for name in (".records.json.0a1b2c3d", ".last_search.json.0a1b2c3d"):
        (folder / name).write_text("[")
    VideoIndex(folder).scan()
    assert len(list(folder.glob(".*.json.*"))) == 2
    with VideoIndex(folder):
        assert list(folder.glob(".*.json.*")) == []
    assert {COPY, "library.json"} <= {file.name for file in folder.iterdir()}


def test_settings_of_an_earlier_version_are_refused(folder):
    settings = json.loads((folder / "library.json").read_text())
    del settings["products"], settings["checksum"]
    (folder / "library.json").write_text(json.dumps(settings))
    with pytest.raises(IndexMismatchError, match="made by an earlier development version of untrimmed; index again"):
        _ = VideoIndex(folder).settings


def test_a_copy_belongs_to_the_version_whose_rows_were_read(folder, monkeypatch):
    """Another thread can switch the reader's table to a newer version while rows are read."""
    reader = VideoIndex(folder)
    table = reader._open_table()

    class SwitchingTable:
        version, schema = property(lambda self: table.version), table.schema

        def to_table(self, **columns):
            rows = table.to_table(**columns)
            VideoIndex(folder).put(stored("/v/3.mp4"))
            table.checkout_latest()
            return rows

    monkeypatch.setattr(reader, "_open_table", SwitchingTable)
    assert len(reader.scan()) == 3
    monkeypatch.undo()
    assert len(read_records(folder)) == 4


def test_a_reader_of_an_older_version_writes_no_copy(folder):
    reader = VideoIndex(folder, follow=False)
    assert len(reader) == 3
    VideoIndex(folder).put(stored("/v/3.mp4"))
    assert len(reader.scan()) == 3
    assert len(read_records(folder)) == 4


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"records": []}', "null"])
def test_a_damaged_copy_is_written_again(folder, damage):
    (folder / COPY).write_text(damage)
    assert len(read_records(folder)) == 3
    assert len(json.loads((folder / COPY).read_text().partition("\n")[2])["records"]) == 3


def test_a_copy_with_a_flipped_bit_is_not_used(folder):
    records, content = read_records(folder), (folder / COPY).read_bytes()
    commit = newest_commit(folder)
    assert read_records_copy(folder, commit) == records
    for place in range(0, len(content), 7):
        (folder / COPY).write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        assert read_records_copy(folder, commit) is None


def test_a_copied_library_lists_the_same_records(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "other", copy_function=shutil.copyfile)  # other times
    assert read_records(tmp_path / "other") == read_records(folder)


def test_a_read_only_library_is_listed_without_a_copy(folder, monkeypatch):
    (folder / COPY).unlink()

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("untrimmed.search.store.records.write_whole", refuse)
    assert len(read_records(folder)) == 3
    assert not (folder / COPY).exists()


def test_a_folder_with_only_a_copy_of_records_is_refused(folder):
    os.remove(folder / "library.json")
    with refused(UntrimmedError, "library.json"):
        read_records(folder)
