"""The cache on disk: new processes start from it, and results are those of the table even if files are damaged."""

import contextlib
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

from tests.search.corpora.test_trained import save_run
from tests.search.corpora.test_updates import DIM, LIBRARY, WORD_DIM, features_of, sentence
from tests.toy import stored_video
from untrimmed.search.cache import block_cache as block_cache_module
from untrimmed.search.cache.block_cache import FOLDER, remove_damaged
from untrimmed.search.cache.mapped import MappedArrays
from untrimmed.search.corpora import best_vector as best_vector_module
from untrimmed.search.corpora import engine as engine_module
from untrimmed.search.corpora import trained as trained_module
from untrimmed.search.corpora.best_vector import BestVectorCorpus
from untrimmed.search.corpora.engine import Engine, cache_library
from untrimmed.search.corpora.trained import TrainedCorpus, TrainedModel
from untrimmed.search.pruning import coder
from untrimmed.search.pruning.codes import CodedBlocks, CodedVideos
from untrimmed.search.query.find import find
from untrimmed.search.query.query import Cutoff
from untrimmed.search.store.table import VideoIndex

IDS = [f"v{number:02d}" for number in range(12)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(best_vector_module, "_VECTORS_OF_BLOCK", 40)
    monkeypatch.setattr(engine_module, "_FRAMES_AT_A_TIME", 60)


@pytest.fixture
def folder(tmp_path):
    """A library whose frames are cached in several blocks."""
    folder = tmp_path / "library"
    with VideoIndex(folder, create=True) as index:
        index.write_settings(LIBRARY)
        index.put_all([stored_video(video_id, features_of(number % 8)) for number, video_id in enumerate(IDS)])
    cache_library(folder)
    assert len(blocks_of(folder)) > 2
    return folder


def blocks_of(folder):
    return sorted((folder / FOLDER).glob("*/*.block"))


def codes_of(folder):
    return sorted((folder / FOLDER).glob("*/*.codes"))


def hits(engine):
    """Return the hits of several searches, and relevance curves of some hits."""

    def ask(view):
        actual = [
            list(find(view, view.corpus().prepare(sentence(seed)), Cutoff(limit=5, moments=2), among=among))
            for seed in (0, 1)
            for among in (None, view.below("/v"))
        ]
        prepared = view.corpus().prepare(sentence(2))
        return actual, [[part.tolist() for part in prepared.relevance(hit.video_id)] for hit in actual[0]]

    return engine.answer(ask)


def best_hits(engine):
    """Return the hits of searches with a low limit, which use codes."""
    return engine.answer(
        lambda view: [
            list(find(view, view.corpus().prepare(sentence(seed)), Cutoff(limit=2, moments=1), among=None))
            for seed in range(4)
        ]
    )


def without_disk(folder, monkeypatch, ask=hits):
    with monkeypatch.context() as patch:
        patch.setattr(block_cache_module.BlockCache, "paths", lambda *_: set())
        return ask(Engine(folder))


@pytest.fixture
def coded(folder, monkeypatch):
    """The same library with cached codes, which the first search uses and searches never build."""
    monkeypatch.setattr(BestVectorCorpus, "min_size_for_codes", 1)
    monkeypatch.setattr(BestVectorCorpus, "min_size_for_codes_at_once", 1)
    monkeypatch.setattr(coder, "LEAST_SEARCHES", 10**9)
    cache_library(folder)
    assert len(codes_of(folder)) == len(blocks_of(folder))
    return folder


@pytest.fixture
def scanned(monkeypatch):
    """A list with an entry per scan of codes."""
    scans, real = [], CodedBlocks.bounds_by_codes
    monkeypatch.setattr(CodedBlocks, "bounds_by_codes", lambda *args: scans.append(1) or real(*args))
    return scans


@pytest.fixture
def read(monkeypatch):
    """The ids of videos that were read with their vectors."""
    ids, real = [], VideoIndex.read
    monkeypatch.setattr(VideoIndex, "read", lambda index, expected: ids.extend(expected) or real(index, expected))
    return ids


def test_a_new_process_searches_without_reading_the_table(folder, read, monkeypatch):
    monkeypatch.setattr(VideoIndex, "_open_table", lambda _: pytest.fail("the table was opened"))
    actual = hits(Engine(folder))
    monkeypatch.undo()
    assert read == []
    assert actual == without_disk(folder, monkeypatch)


def test_only_changed_videos_are_read_and_cached(folder, read, monkeypatch):
    previous = set(blocks_of(folder))
    with VideoIndex(folder) as index:
        index.put(stored_video(IDS[3], features_of(9), indexed_at=2.0))
        index.put(stored_video("new", features_of(8)))
        index.remove([IDS[4]])
    read.clear()
    actual = hits(Engine(folder))
    assert sorted(read) == ["new", IDS[3]]
    cache_library(folder)
    assert previous & set(blocks_of(folder))
    read.clear()
    assert hits(Engine(folder)) == actual
    assert read == []
    assert actual == without_disk(folder, monkeypatch)


def test_files_that_no_video_needs_are_removed(folder):
    previous = sum(file.stat().st_size for file in blocks_of(folder))
    with VideoIndex(folder) as index:
        index.remove(IDS[:-1])
    blocks_of(folder)[0].with_name(".killed.block.0a1b2c3d").write_text("half")
    cache_library(folder)
    assert sum(file.stat().st_size for file in blocks_of(folder)) < previous / 3
    assert not list((folder / FOLDER).glob("*/.killed*"))
    assert len(Engine(folder).view().corpus()) == 1


def test_searches_continue_after_the_cache_folder_is_removed(folder, monkeypatch):
    expected, engine = without_disk(folder, monkeypatch), Engine(folder)
    view = engine.view()
    view.corpus()
    shutil.rmtree(folder / FOLDER)
    assert hits(engine) == expected
    assert hits(Engine(folder)) == expected


def test_videos_that_searches_read_from_the_table_can_be_cached(folder, read):
    shutil.rmtree(folder / FOLDER)
    engine = Engine(folder)
    expected = hits(engine)
    assert sorted(read) == IDS
    engine.update_cache()
    assert len(blocks_of(folder)) > 2
    read.clear()
    assert hits(Engine(folder)) == expected
    engine.update_cache()
    assert read == []


@pytest.mark.parametrize("obstacle", ["full", "locked", "read-only", "a file"])
def test_searches_work_without_a_writable_cache(folder, monkeypatch, obstacle):
    expected = without_disk(folder, monkeypatch)
    for file in blocks_of(folder)[1:]:
        file.unlink()
    remaining = blocks_of(folder)
    with contextlib.ExitStack() as stack:
        if obstacle == "full":

            def no_space(*_, **__):
                raise OSError(28, "No space left on device")

            stack.enter_context(pytest.MonkeyPatch.context()).setattr(block_cache_module, "write_arrays", no_space)
        elif obstacle == "locked":
            stack.enter_context(FileLock(remaining[0].with_name("lock")))
        elif obstacle == "read-only":

            def refuse(*_, **__):
                raise PermissionError(13, "Permission denied")

            stack.enter_context(pytest.MonkeyPatch.context()).setattr(Path, "mkdir", refuse)
        else:
            shutil.rmtree(folder / FOLDER)
            (folder / FOLDER).write_text("")
            remaining = []
        cache_library(folder)
        assert blocks_of(folder) == remaining
        assert hits(Engine(folder)) == expected
    if obstacle != "a file":
        cache_library(folder)
        assert len(blocks_of(folder)) > 2


def flip(file, rng):
    """Flip one bit of a file; return its previous content."""
    content = file.read_bytes()
    place = rng.randrange(len(content))
    changed = bytearray(content)
    changed[place] ^= 1 << rng.randrange(8)
    os.remove(file)  # processes that have mapped it keep the old content
    file.write_bytes(changed)
    return content


def all_hits(engine):
    """Return the hits of a search that reads all vectors."""
    return engine.answer(
        lambda view: list(find(view, view.corpus().prepare(sentence()), Cutoff(limit=99, moments=1), among=None))
    )


@pytest.fixture
def trained(folder, tmp_path, monkeypatch):
    """The same videos for a trained model, with cached codes."""
    monkeypatch.setattr(TrainedCorpus, "min_size_for_codes", 1)
    monkeypatch.setattr(trained_module, "_VIDEOS_OF_BLOCK", 3)
    monkeypatch.setattr(trained_module, "_VIDEOS_AT_A_TIME", 3)
    model = TrainedModel(save_run(tmp_path / "run", query_dim=WORD_DIM, video_dim=DIM, dim=96))
    with VideoIndex(folder) as index:
        index.write_settings(replace(LIBRARY, model=model.identity, model_folder=str(model.folder)))
        for number, video_id in enumerate(IDS):
            features = features_of(number % 8)
            encoded = model.encode_video(features)
            index.put(stored_video(video_id, features, encoded, model=model.identity, indexed_at=2.0))
    shutil.rmtree(folder / FOLDER)
    cache_library(folder)
    assert len(codes_of(folder)) == len(blocks_of(folder)) > 1
    assert {file.parent.name for file in blocks_of(folder)} == {"trained"}
    return folder


LIBRARIES = [("folder", all_hits), ("coded", best_hits), ("trained", all_hits), ("trained", best_hits)]


def flip_often(folder, expected, flips, ask):
    """Flip bits of blocks, codes, axes and the copy of the records: searches or `remove_damaged` detect each."""
    rng = random.Random(0)
    cached = [file for file in (folder / FOLDER).glob("*/*") if file.stat().st_size]
    for _ in range(flips):
        files = [rng.choice([folder / "records.json", *cached]) for _ in range(rng.choice((1, 1, 2)))]
        contents = {file: flip(file, rng) for file in dict.fromkeys(files)}
        assert ask(Engine(folder)) == expected, list(contents)
        remaining = {file for file in contents if file in cached and file.exists()}
        assert remaining <= set(remove_damaged(folder)), remaining
        for file, content in contents.items():
            file.write_bytes(content)


@pytest.mark.check
@pytest.mark.parametrize(("library", "ask"), LIBRARIES)
def test_flipped_bits_of_the_cache_do_not_change_results(library, ask, request, monkeypatch):
    folder = request.getfixturevalue(library)
    flip_often(folder, without_disk(folder, monkeypatch, ask), 100 // len(LIBRARIES), ask)


@pytest.mark.slow
@pytest.mark.parametrize(("library", "ask"), LIBRARIES)
def test_two_thousand_flipped_bits_of_the_cache_do_not_change_results(library, ask, request, monkeypatch):
    folder = request.getfixturevalue(library)
    flip_often(folder, without_disk(folder, monkeypatch, ask), 2000 // len(LIBRARIES), ask)


@pytest.mark.check
@pytest.mark.parametrize(("library", "ask"), LIBRARIES)
def test_a_new_process_detects_files_that_were_truncated_while_mapped(library, ask, request, monkeypatch):
    """The process that mapped the file could be killed by the system, so only new engines search afterwards."""
    folder, rng = request.getfixturevalue(library), random.Random(2)
    expected, engines = without_disk(folder, monkeypatch, ask), []
    for file in sorted(file for file in (folder / FOLDER).glob("*/*") if file.stat().st_size):
        content = file.read_bytes()
        engines.append(Engine(folder))
        assert ask(engines[-1]) == expected
        os.truncate(file, rng.randrange(len(content)))
        assert ask(Engine(folder)) == expected, file
        file.unlink(missing_ok=True)
        file.write_bytes(content)
    assert ask(Engine(folder)) == expected


def test_videos_of_a_block_damaged_while_mapped_are_read_from_the_table(folder, monkeypatch, read):
    expected, engine = without_disk(folder, monkeypatch), Engine(folder)
    read.clear()
    engine.view().corpus()
    for file in blocks_of(folder):
        vectors = MappedArrays(file)["vectors"].tobytes()
        with file.open("r+b") as opened:  # in place
            opened.seek(opened.read().index(vectors))
            opened.write(bytes(64))
    assert hits(engine) == expected
    assert read
    engine.update_cache()
    read.clear()
    assert hits(Engine(folder)) == expected
    assert read == []


def test_a_block_that_is_written_again_keeps_the_stamps_of_its_vectors(folder, monkeypatch):
    with VideoIndex(folder) as index:
        index.put(stored_video(IDS[3], features_of(9), indexed_at=2.0))
    expected, real = without_disk(folder, monkeypatch), VideoIndex.read

    def read_and_remove(index, ids):
        videos = list(real(index, ids))
        for file in blocks_of(folder):  # another process removes them
            file.unlink()
        return iter(videos)

    with monkeypatch.context() as patch:
        patch.setattr(VideoIndex, "read", read_and_remove)
        cache_library(folder)
    assert blocks_of(folder)
    assert hits(Engine(folder)) == expected


def test_a_new_process_uses_cached_codes(coded, scanned, monkeypatch):
    expected = without_disk(coded, monkeypatch, best_hits)
    scanned.clear()
    monkeypatch.setattr(CodedVideos, "of", lambda *_: pytest.fail("codes were built"))
    assert best_hits(Engine(coded)) == expected
    assert len(scanned) == 4


def test_codes_are_built_for_new_blocks_only(coded, scanned, monkeypatch):
    previous = {file: file.stat().st_mtime_ns for file in codes_of(coded)}
    with VideoIndex(coded) as index:
        index.put(stored_video("new", features_of(8)))
    cache_library(coded)
    remaining = previous.keys() & set(codes_of(coded))
    assert remaining
    assert {file: file.stat().st_mtime_ns for file in remaining} == {file: previous[file] for file in remaining}
    assert len(codes_of(coded)) == len(blocks_of(coded)), "codes of joined blocks are removed"
    expected = without_disk(coded, monkeypatch, best_hits)
    scanned.clear()
    assert best_hits(Engine(coded)) == expected
    assert scanned


def test_codes_of_another_format_are_built_again(coded, scanned, monkeypatch):
    previous = codes_of(coded)
    monkeypatch.setattr(coder, "_FORMAT", 99)
    best_hits(Engine(coded))
    assert not scanned
    cache_library(coded)
    assert len(codes_of(coded)) == len(previous)
    assert not set(previous) & set(codes_of(coded))
    assert len(list((coded / FOLDER).glob("*/*.axes"))) == 1
    best_hits(Engine(coded))
    assert scanned


@pytest.mark.parametrize("kind", ["codes", "axes"])
def test_damaged_codes_are_removed_and_built_again(coded, scanned, kind):
    file = min((coded / FOLDER).glob(f"*/*.{kind}"))
    flip(file, random.Random(1))
    assert remove_damaged(coded) == [file]
    cache_library(coded)
    assert len(codes_of(coded)) == len(blocks_of(coded))
    best_hits(Engine(coded))
    assert scanned


def test_the_first_searches_of_few_frames_do_not_read_cached_codes(coded, scanned, monkeypatch):
    monkeypatch.setattr(BestVectorCorpus, "min_size_for_codes_at_once", 10**9)
    monkeypatch.setattr(coder, "LEAST_SEARCHES", 4)
    engine = Engine(coded)
    best_hits(engine)
    assert not scanned
    best_hits(engine)
    assert scanned
