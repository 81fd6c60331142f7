"""Bytes of a library that have changed: found, named, made anew where they can be, and never part of an answer."""

import random
import shutil
from pathlib import Path

import pytest

from tests.refusals import refused
from tests.search.cache.test_block_cache import all_hits, blocks_of, flip
from tests.search.corpora.test_updates import LIBRARY, features_of
from tests.toy import stored_video
from untrimmed.errors import IndexBusyError, UntrimmedError
from untrimmed.search.cache.block_cache import FOLDER
from untrimmed.search.corpora.engine import Engine, cache_library
from untrimmed.search.library import Library
from untrimmed.search.store.lance import lance, pa
from untrimmed.search.store.table import VideoIndex

SEEDS = range(5)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "library"
    with VideoIndex(folder, create=True) as index:
        index.write_settings(LIBRARY)
        for seed in SEEDS:  # apart, so that files have no more than a video
            index.put(stored_video(f"v{seed}", features_of(seed), b"encoded"))
        index.relocate(index.scan()[0], path=Path("/moved/v0.mp4"), size=7, mtime_ns=8)
    cache_library(folder)
    return folder


def change(folder, old, new):
    """Bytes of the table's data, in whichever file they are; gives that file."""
    for file in sorted(folder.glob("videos.lance/data/*.lance"), key=lambda file: file.stat().st_mtime_ns):
        content = file.read_bytes()
        if old in content:
            file.write_bytes(content.replace(old, new))


def forget_derived(folder):
    shutil.rmtree(folder / FOLDER)
    (folder / "records.json").unlink()


def test_a_whole_library_is_left_as_it_is(folder):
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    repaired = Library(folder).repair()
    assert repaired.files == repaired.videos == ()
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before


def test_derived_files_are_made_anew(folder):
    expected, rng = all_hits(Engine(folder)), random.Random(0)
    damaged = [folder / "records.json", *blocks_of(folder)]
    contents = {file: flip(file, rng) for file in damaged}
    assert Library(folder).repair().files == tuple(damaged)
    assert {file: file.read_bytes() for file in damaged} == contents
    assert all_hits(Engine(folder)) == expected


def test_vectors_that_have_changed_are_never_searched_and_their_video_is_named(folder):
    frames = features_of(2).vectors.tobytes()
    change(folder, frames, frames[:9] + bytes([frames[9] ^ 1]) + frames[10:])
    forget_derived(folder)
    with refused(UntrimmedError, "v2.mp4"):
        all_hits(Engine(folder))
    assert [record.video_id for record in Library(folder).repair().videos] == ["v2"]
    assert {hit.video_id for hit in all_hits(Engine(folder))} == {"v0", "v1", "v3", "v4"}
    assert Library(folder).repair().videos == ()


def test_a_record_that_has_changed_is_never_shown(folder):
    change(folder, b"/moved/v0.mp4", b"/moved/w0.mp4")
    forget_derived(folder)
    with refused(UntrimmedError, "1", "doctor --repair"):
        VideoIndex(folder).scan()
    assert [record.video_id for record in Library(folder).repair().videos] == ["v0"]
    assert len(VideoIndex(folder).scan()) == len(SEEDS) - 1


def flip_often(folder, flips):
    """Bits of the table's own files: the answer is what it was, or there is none."""
    expected, rng = all_hits(Engine(folder)), random.Random(1)
    for _ in range(flips):
        forget_derived(folder)
        file = rng.choice(sorted(file for file in folder.glob("videos.lance/*/*") if file.is_file()))
        content = flip(file, rng)
        try:
            found = all_hits(Engine(folder))
        except UntrimmedError:
            found = expected
        assert found == expected, file
        file.write_bytes(content)
        VideoIndex(folder).scan()
        cache_library(folder)


@pytest.mark.check
def test_bits_of_the_table_that_change_are_found_or_do_not_matter(folder):
    flip_often(folder, 25)


@pytest.mark.slow
def test_two_thousand_bits_of_the_table_that_change_are_found_or_do_not_matter(folder):
    flip_often(folder, 2000)


def test_a_library_whose_settings_are_damaged_or_gone_is_not_called_whole(folder):
    settings = folder / "library.json"
    content = settings.read_bytes()
    settings.write_bytes(content.replace(b"fps", b"fqs"))
    with refused(UntrimmedError, "library.json"):
        Library(folder).repair()
    settings.unlink()
    with refused(UntrimmedError, "library.json"):
        Library(folder).repair()


def test_a_table_that_lacks_columns_is_refused_and_nothing_of_it_removed(folder):
    """As one does of whose description a bit has changed."""
    table = lance.dataset(folder / "videos.lance").to_table()
    place = table.schema.get_field_index("size")
    lance.write_dataset(
        table.set_column(place, "size", pa.nulls(len(table), pa.int64())), folder / "videos.lance", mode="overwrite"
    )
    forget_derived(folder)
    for look in (lambda folder: Library(folder).repair(), lambda folder: VideoIndex(folder).scan()):
        with refused(UntrimmedError, "--library"):
            look(folder)
    assert len(VideoIndex(folder)) == len(SEEDS)


def test_nothing_is_removed_while_another_process_writes(folder):
    damaged = [folder / "records.json", *blocks_of(folder)]
    for file in damaged:
        flip(file, random.Random(0))
    with VideoIndex(folder), pytest.raises(IndexBusyError):
        Library(folder).repair()
    assert all(file.is_file() for file in damaged)
