"""Damaged bytes of a library are detected, reported, repaired if possible, and never part of a result."""

import os
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.refusals import refused
from tests.search.cache.test_block_cache import all_hits, blocks_of, flip
from tests.search.corpora.test_updates import LIBRARY, features_of
from tests.toy import stored_video
from untrimmed.errors import IndexBusyError, IndexMismatchError, UntrimmedError
from untrimmed.search.cache.block_cache import FOLDER
from untrimmed.search.corpora.engine import Engine, cache_library
from untrimmed.search.library import Library
from untrimmed.search.store import table as table_module
from untrimmed.search.store.lance import lance, pa
from untrimmed.search.store.manifests import manifests
from untrimmed.search.store.table import VideoIndex

SEEDS = range(5)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "library"
    with VideoIndex(folder, create=True) as index:
        index.write_settings(LIBRARY)
        for seed in SEEDS:  # one commit each, so that each file has one video
            index.put(stored_video(f"v{seed}", features_of(seed), b"encoded"))
        index.relocate(index.scan()[0], path=Path("/moved/v0.mp4"), size=7, mtime_ns=8)
    cache_library(folder)
    return folder


def change(folder, old, new):
    """Replace bytes in the data files of the table."""
    for file in sorted(folder.glob("videos.lance/data/*.lance"), key=lambda file: file.stat().st_mtime_ns):
        content = file.read_bytes()
        if old in content:
            file.write_bytes(content.replace(old, new))


def remove_derived(folder):
    shutil.rmtree(folder / FOLDER)
    (folder / "records.json").unlink()


def test_repair_does_not_change_an_intact_library(folder):
    previous = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    repaired = Library(folder).repair()
    assert repaired.files == repaired.videos == ()
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == previous


def test_damaged_cache_files_are_built_again(folder):
    expected, rng = all_hits(Engine(folder)), random.Random(0)
    damaged = [folder / "records.json", *blocks_of(folder)]
    contents = {file: flip(file, rng) for file in damaged}
    assert Library(folder).repair().files == tuple(damaged)
    assert {file: file.read_bytes() for file in damaged} == contents
    assert all_hits(Engine(folder)) == expected


def test_damaged_vectors_are_not_searched_and_repair_removes_their_video(folder):
    frames = features_of(2).vectors.tobytes()
    change(folder, frames, frames[:9] + bytes([frames[9] ^ 1]) + frames[10:])
    remove_derived(folder)
    with refused(UntrimmedError, "v2.mp4"):
        all_hits(Engine(folder))
    assert [record.video_id for record in Library(folder).repair().videos] == ["v2"]
    assert {hit.video_id for hit in all_hits(Engine(folder))} == {"v0", "v1", "v3", "v4"}
    assert Library(folder).repair().videos == ()


def test_a_damaged_record_is_not_listed_and_repair_removes_it(folder):
    change(folder, b"/moved/v0.mp4", b"/moved/w0.mp4")
    remove_derived(folder)
    with refused(UntrimmedError, "1", "doctor --repair"):
        VideoIndex(folder).scan()
    assert [record.video_id for record in Library(folder).repair().videos] == ["v0"]
    assert len(VideoIndex(folder).scan()) == len(SEEDS) - 1


def flip_often(folder, flips):
    """Flip bits in the files of the table: the result is unchanged, or an error."""
    expected, rng = all_hits(Engine(folder)), random.Random(1)
    for _ in range(flips):
        remove_derived(folder)
        file = rng.choice(sorted(file for file in folder.glob("videos.lance/*/*") if file.is_file()))
        content = flip(file, rng)
        try:
            actual = all_hits(Engine(folder))
        except UntrimmedError:
            actual = expected
        assert actual == expected, file
        file.write_bytes(content)
        VideoIndex(folder).scan()
        cache_library(folder)


@pytest.mark.check
def test_a_flipped_bit_of_the_table_is_detected_or_has_no_effect(folder):
    flip_often(folder, 25)


@pytest.mark.slow
def test_two_thousand_flipped_bits_of_the_table_are_detected_or_have_no_effect(folder):
    flip_often(folder, 2000)


def test_repair_refuses_a_library_with_damaged_or_missing_settings(folder):
    settings = folder / "library.json"
    content = settings.read_bytes()
    settings.write_bytes(content.replace(b"fps", b"fqs"))
    with refused(UntrimmedError, "library.json"):
        Library(folder).repair()
    settings.unlink()
    with refused(UntrimmedError, "library.json"):
        Library(folder).repair()


def test_a_table_with_missing_values_is_refused_and_keeps_its_rows(folder):
    """A flipped bit in the description of a column has this effect."""
    table = lance.dataset(folder / "videos.lance").to_table()
    place = table.schema.get_field_index("size")
    lance.write_dataset(
        table.set_column(place, "size", pa.nulls(len(table), pa.int64())), folder / "videos.lance", mode="overwrite"
    )
    remove_derived(folder)
    for read in (lambda folder: Library(folder).repair(), lambda folder: VideoIndex(folder).scan()):
        with refused(UntrimmedError, "--library"):
            read(folder)
    assert len(VideoIndex(folder)) == len(SEEDS)


def test_repair_goes_back_to_the_commit_before_a_damaged_one(folder, capfd):
    *_, first = manifests(folder / "videos.lance" / "_versions")
    newest = manifests(folder / "videos.lance" / "_versions")[0]
    content = newest.read_bytes()
    for damaged in (b"", content[:1], content[: len(content) // 2], content[:-1], content + b"\0", content * 2):
        newest.write_bytes(damaged)
        remove_derived(folder)
        for _ in range(2):
            with refused(IndexMismatchError, "doctor --repair"):
                VideoIndex(folder).scan()
            with refused(IndexMismatchError, "doctor --repair"):  # a search opens the version of the last commit
                Engine(folder).view()
        repaired = Library(folder).repair()
        assert repaired.commits == (newest.with_suffix(".damaged"),)
        assert len(VideoIndex(folder).scan()) == len(SEEDS), "the last commit only merged files"
        repaired.commits[0].rename(newest)
    for manifest in manifests(first.parent):
        manifest.write_bytes(b"")
    with refused(IndexMismatchError, "doctor --repair"):
        Library(folder).repair()
    assert manifests(first.parent)[-1] == first, "nothing is renamed if no commit can be read"
    assert "panicked" not in capfd.readouterr().err


def test_no_text_of_a_bug_is_printed_while_several_threads_read(folder, capfd, monkeypatch):
    index = VideoIndex(folder)
    ids = [record.video_id for record in index.scan()]
    original = table_module._stored

    def failing(batch):
        os.write(2, b"thread 'lance' panicked at read.rs:1:1: called `unwrap` on None\n")
        yield from original(batch)
        raise type("PanicException", (BaseException,), {})("unwrap")

    monkeypatch.setattr(table_module, "_stored", failing)

    def read(_):
        with refused(UntrimmedError, "damaged"):
            list(VideoIndex(folder).read(ids))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(read, range(8)))
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n", "stderr works again"


def test_other_text_on_stderr_is_printed_after_a_read(folder, capfd, monkeypatch):
    original = table_module._stored

    def verbose(batch):
        os.write(2, b"a warning\n")
        return original(batch)

    monkeypatch.setattr(table_module, "_stored", verbose)
    index = VideoIndex(folder)
    assert len(list(index.read([record.video_id for record in index.scan()]))) == len(SEEDS)
    assert "a warning\n" in capfd.readouterr().err


def test_a_bug_of_the_table_s_library_is_one_line_without_its_own_text(folder, capfd):
    newest = manifests(folder / "videos.lance" / "_versions")[0]
    newest.write_bytes(newest.read_bytes().replace(b"large_list", b"large]list"))
    with refused(UntrimmedError, "damaged") as caught:
        VideoIndex(folder).scan()
    assert "unwrap" not in str(caught.value)
    assert capfd.readouterr().err == ""
    assert Library(folder).repair().commits == (newest.with_suffix(".damaged"),)


def test_repair_removes_nothing_while_another_process_writes(folder):
    damaged = [folder / "records.json", *blocks_of(folder)]
    for file in damaged:
        flip(file, random.Random(0))
    with VideoIndex(folder), pytest.raises(IndexBusyError):
        Library(folder).repair()
    assert all(file.is_file() for file in damaged)
