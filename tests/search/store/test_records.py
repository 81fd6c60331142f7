"""The copy of the records that listing reads: the same as the table's, or not used."""

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
    """How often the table was opened."""
    calls = []
    real = lance.dataset
    monkeypatch.setattr(lance, "dataset", lambda *args, **named: calls.append(args) or real(*args, **named))
    return calls


def test_a_writer_leaves_a_copy_that_saves_opening_the_table(folder, opened):
    records = read_records(folder)
    assert opened == []
    assert records == VideoIndex(folder).scan()
    assert [record.path for record in records] == ["/v/0.mp4", "/v/1.mp4", "/v/2.mp4"]


def test_after_a_commit_the_copy_does_not_count_and_the_first_reader_leaves_another(folder, opened):
    index = VideoIndex(folder)
    index.put(stored("/v/3.mp4"))  # no context: as if its process was killed before it left a copy
    opened.clear()
    assert len(read_records(folder)) == 4
    assert len(opened) == 1
    assert len(read_records(folder)) == 4
    assert len(opened) == 1


def test_reading_what_the_copy_says_already_leaves_it_alone(folder):
    before = (folder / COPY).stat()
    assert len(VideoIndex(folder).scan()) == 3
    after = (folder / COPY).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_the_next_writer_clears_away_what_killed_readers_left(folder):
    for name in (".records.json.0a1b2c3d", ".last_search.json.0a1b2c3d"):
        (folder / name).write_text("[")
    VideoIndex(folder).scan()
    assert len(list(folder.glob(".*.json.*"))) == 2
    with VideoIndex(folder):
        assert list(folder.glob(".*.json.*")) == []
    assert {COPY, "library.json"} <= {file.name for file in folder.iterdir()}


def test_settings_of_an_earlier_version_are_refused(folder):
    settings = json.loads((folder / "library.json").read_text())
    del settings["products"]
    (folder / "library.json").write_text(json.dumps(settings))
    with pytest.raises(IndexMismatchError, match="made by an earlier development version of untrimmed; index again"):
        _ = VideoIndex(folder).settings


def test_a_copy_is_of_the_version_whose_rows_were_read(folder, monkeypatch):
    """Another thread of the same reader may move its table on while the rows are read."""
    reader = VideoIndex(folder)
    table = reader._open_table()

    class MovesOn:
        version, schema = property(lambda self: table.version), table.schema

        def to_table(self, **columns):
            rows = table.to_table(**columns)
            VideoIndex(folder).put(stored("/v/3.mp4"))
            table.checkout_latest()
            return rows

    monkeypatch.setattr(reader, "_open_table", MovesOn)
    assert len(reader.scan()) == 3
    monkeypatch.undo()
    assert len(read_records(folder)) == 4


def test_a_reader_of_an_older_version_leaves_no_copy(folder):
    reader = VideoIndex(folder, follow=False)
    assert len(reader) == 3
    VideoIndex(folder).put(stored("/v/3.mp4"))
    assert len(reader.scan()) == 3
    assert len(read_records(folder)) == 4


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"records": []}', "null"])
def test_a_damaged_copy_is_made_anew(folder, damage):
    (folder / COPY).write_text(damage)
    assert len(read_records(folder)) == 3
    assert len(json.loads((folder / COPY).read_text().partition("\n")[2])["records"]) == 3


def test_a_copy_of_which_a_bit_has_changed_does_not_count(folder):
    records, content = read_records(folder), (folder / COPY).read_bytes()
    commit = newest_commit(folder)
    assert read_records_copy(folder, commit) == records
    for place in range(0, len(content), 7):
        (folder / COPY).write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        assert read_records_copy(folder, commit) is None


def test_a_copied_library_lists_the_same(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "other", copy_function=shutil.copyfile)  # the manifest gets another time
    assert read_records(tmp_path / "other") == read_records(folder)


def test_a_library_that_cannot_be_written_to_is_listed_without_a_copy(folder, monkeypatch):
    (folder / COPY).unlink()

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("untrimmed.search.store.records.write_whole", refuse)
    assert len(read_records(folder)) == 3
    assert not (folder / COPY).exists()


def test_a_folder_without_a_library_is_refused_even_if_a_copy_lies_there(folder):
    os.remove(folder / "library.json")
    with refused(UntrimmedError, "library.json"):
        read_records(folder)
