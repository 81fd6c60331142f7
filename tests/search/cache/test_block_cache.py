"""The cache on disk: new processes use it at once, and answers are those of the table whatever happens to its files."""

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
    """What is found, and the curve of each video among it."""

    def ask(view):
        found = [
            list(find(view, view.corpus().prepare(sentence(seed)), Cutoff(limit=5, moments=2), among=among))
            for seed in (0, 1)
            for among in (None, view.below("/v"))
        ]
        prepared = view.corpus().prepare(sentence(2))
        return found, [[part.tolist() for part in prepared.relevance(hit.video_id)] for hit in found[0]]

    return engine.answer(ask)


def best_hits(engine):
    """So few that codes are worth it."""
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
    """The same library with codes, which are used from the first search on and never made by searches."""
    monkeypatch.setattr(BestVectorCorpus, "min_size_for_codes", 1)
    monkeypatch.setattr(BestVectorCorpus, "min_size_for_codes_at_once", 1)
    monkeypatch.setattr(coder, "LEAST_SEARCHES", 10**9)
    cache_library(folder)
    assert len(codes_of(folder)) == len(blocks_of(folder))
    return folder


@pytest.fixture
def scanned(monkeypatch):
    """How often codes of blocks were scanned."""
    asked, real = [], CodedBlocks.bounds_by_codes
    monkeypatch.setattr(CodedBlocks, "bounds_by_codes", lambda *args: asked.append(1) or real(*args))
    return asked


@pytest.fixture
def read(monkeypatch):
    """Which videos were read with their vectors."""
    ids, real = [], VideoIndex.read
    monkeypatch.setattr(VideoIndex, "read", lambda index, wanted: ids.extend(wanted) or real(index, wanted))
    return ids


def test_a_new_process_reads_nothing_of_the_table(folder, read, monkeypatch):
    monkeypatch.setattr(VideoIndex, "_open_table", lambda _: pytest.fail("opened"))
    found = hits(Engine(folder))
    monkeypatch.undo()
    assert read == []
    assert found == without_disk(folder, monkeypatch)


def test_only_what_has_changed_is_read_and_kept(folder, read, monkeypatch):
    before = set(blocks_of(folder))
    with VideoIndex(folder) as index:
        index.put(stored_video(IDS[3], features_of(9), indexed_at=2.0))
        index.put(stored_video("new", features_of(8)))
        index.remove([IDS[4]])
    read.clear()
    found = hits(Engine(folder))
    assert sorted(read) == ["new", IDS[3]]
    cache_library(folder)
    assert before & set(blocks_of(folder))
    read.clear()
    assert hits(Engine(folder)) == found
    assert read == []
    assert found == without_disk(folder, monkeypatch)


def test_what_no_video_needs_is_cleared_away(folder):
    before = sum(file.stat().st_size for file in blocks_of(folder))
    with VideoIndex(folder) as index:
        index.remove(IDS[:-1])
    blocks_of(folder)[0].with_name(".killed.block.0a1b2c3d").write_text("half")
    cache_library(folder)
    assert sum(file.stat().st_size for file in blocks_of(folder)) < before / 3
    assert not list((folder / FOLDER).glob("*/.killed*"))
    assert len(Engine(folder).view().corpus()) == 1


def test_a_folder_that_goes_away_between_two_searches_is_not_missed(folder, monkeypatch):
    expected, engine = without_disk(folder, monkeypatch), Engine(folder)
    view = engine.view()
    view.corpus()
    shutil.rmtree(folder / FOLDER)
    assert hits(engine) == expected
    assert hits(Engine(folder)) == expected


def test_searches_that_read_the_table_can_cache_what_they_read(folder, read):
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
def test_a_folder_that_cannot_be_written_to_does_no_harm(folder, monkeypatch, obstacle):
    expected = without_disk(folder, monkeypatch)
    for file in blocks_of(folder)[1:]:
        file.unlink()
    left = blocks_of(folder)
    with contextlib.ExitStack() as stack:
        if obstacle == "full":

            def no_space(*_, **__):
                raise OSError(28, "No space left on device")

            stack.enter_context(pytest.MonkeyPatch.context()).setattr(block_cache_module, "write_arrays", no_space)
        elif obstacle == "locked":
            stack.enter_context(FileLock(left[0].with_name("lock")))
        elif obstacle == "read-only":

            def refuse(*_, **__):
                raise PermissionError(13, "Permission denied")

            stack.enter_context(pytest.MonkeyPatch.context()).setattr(Path, "mkdir", refuse)
        else:
            shutil.rmtree(folder / FOLDER)
            (folder / FOLDER).write_text("")
            left = []
        cache_library(folder)
        assert blocks_of(folder) == left
        assert hits(Engine(folder)) == expected
    if obstacle != "a file":
        cache_library(folder)
        assert len(blocks_of(folder)) > 2


def flip(file, rng):
    """Change one bit of a file, and give what it held."""
    content = file.read_bytes()
    place = rng.randrange(len(content))
    changed = bytearray(content)
    changed[place] ^= 1 << rng.randrange(8)
    os.remove(file)  # who has mapped it keeps what it was
    file.write_bytes(changed)
    return content


def all_hits(engine):
    """What reads all of each video."""
    return engine.answer(
        lambda view: list(find(view, view.corpus().prepare(sentence()), Cutoff(limit=99, moments=1), among=None))
    )


@pytest.fixture
def trained(folder, tmp_path, monkeypatch):
    """The same videos for a trained model, with codes."""
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
    """Of blocks, their codes and axes, the copy of the records: found when they are read, or by whoever reads all."""
    rng = random.Random(0)
    cached = [file for file in (folder / FOLDER).glob("*/*") if file.stat().st_size]
    for _ in range(flips):
        files = [rng.choice([folder / "records.json", *cached]) for _ in range(rng.choice((1, 1, 2)))]
        contents = {file: flip(file, rng) for file in dict.fromkeys(files)}
        assert ask(Engine(folder)) == expected, list(contents)
        left = {file for file in contents if file in cached and file.exists()}
        assert left <= set(remove_damaged(folder)), left
        for file, content in contents.items():
            file.write_bytes(content)


@pytest.mark.check
@pytest.mark.parametrize(("library", "ask"), LIBRARIES)
def test_bits_that_change_are_found_and_no_answer_is_wrong(library, ask, request, monkeypatch):
    folder = request.getfixturevalue(library)
    flip_often(folder, without_disk(folder, monkeypatch, ask), 100 // len(LIBRARIES), ask)


@pytest.mark.slow
@pytest.mark.parametrize(("library", "ask"), LIBRARIES)
def test_two_thousand_bits_that_change_are_all_found_and_no_answer_is_wrong(library, ask, request, monkeypatch):
    folder = request.getfixturevalue(library)
    flip_often(folder, without_disk(folder, monkeypatch, ask), 2000 // len(LIBRARIES), ask)


@pytest.mark.check
@pytest.mark.parametrize(("library", "ask"), LIBRARIES)
def test_files_that_are_cut_under_a_process_give_no_wrong_answer_to_the_next(library, ask, request, monkeypatch):
    """Who has mapped the part that is gone may be ended by the system; it is not asked again here."""
    folder, rng = request.getfixturevalue(library), random.Random(2)
    expected, others = without_disk(folder, monkeypatch, ask), []
    for file in sorted(file for file in (folder / FOLDER).glob("*/*") if file.stat().st_size):
        content = file.read_bytes()
        others.append(Engine(folder))
        assert ask(others[-1]) == expected
        os.truncate(file, rng.randrange(len(content)))
        assert ask(Engine(folder)) == expected, file
        file.unlink(missing_ok=True)
        file.write_bytes(content)
    assert ask(Engine(folder)) == expected


def test_a_block_that_is_damaged_while_it_is_mapped_is_read_from_the_table(folder, monkeypatch, read):
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


def test_a_block_that_is_written_anew_says_of_old_vectors_that_they_are_old(folder, monkeypatch):
    with VideoIndex(folder) as index:
        index.put(stored_video(IDS[3], features_of(9), indexed_at=2.0))
    expected, real = without_disk(folder, monkeypatch), VideoIndex.read

    def reading(index, wanted):
        found = list(real(index, wanted))
        for file in blocks_of(folder):  # another process clears them away
            file.unlink()
        return iter(found)

    with monkeypatch.context() as patch:
        patch.setattr(VideoIndex, "read", reading)
        cache_library(folder)
    assert blocks_of(folder)
    assert hits(Engine(folder)) == expected


def test_a_new_process_searches_by_codes_that_are_kept(coded, scanned, monkeypatch):
    expected = without_disk(coded, monkeypatch, best_hits)
    scanned.clear()
    monkeypatch.setattr(CodedVideos, "of", lambda *_: pytest.fail("made"))
    assert best_hits(Engine(coded)) == expected
    assert len(scanned) == 4


def test_only_new_blocks_are_coded(coded, scanned, monkeypatch):
    before = {file: file.stat().st_mtime_ns for file in codes_of(coded)}
    with VideoIndex(coded) as index:
        index.put(stored_video("new", features_of(8)))
    cache_library(coded)
    kept = before.keys() & set(codes_of(coded))
    assert kept
    assert {file: file.stat().st_mtime_ns for file in kept} == {file: before[file] for file in kept}
    assert len(codes_of(coded)) == len(blocks_of(coded)), "those of joined blocks are gone"
    expected = without_disk(coded, monkeypatch, best_hits)
    scanned.clear()
    assert best_hits(Engine(coded)) == expected
    assert scanned


def test_codes_of_another_program_are_made_anew(coded, scanned, monkeypatch):
    before = codes_of(coded)
    monkeypatch.setattr(coder, "_FORMAT", 99)
    best_hits(Engine(coded))
    assert not scanned
    cache_library(coded)
    assert len(codes_of(coded)) == len(before)
    assert not set(before) & set(codes_of(coded))
    assert len(list((coded / FOLDER).glob("*/*.axes"))) == 1
    best_hits(Engine(coded))
    assert scanned


@pytest.mark.parametrize("kind", ["codes", "axes"])
def test_codes_that_are_damaged_are_removed_and_made_anew(coded, scanned, kind):
    file = min((coded / FOLDER).glob(f"*/*.{kind}"))
    flip(file, random.Random(1))
    assert remove_damaged(coded) == [file]
    cache_library(coded)
    assert len(codes_of(coded)) == len(blocks_of(coded))
    best_hits(Engine(coded))
    assert scanned


def test_few_frames_are_searched_before_codes_on_disk_are_read(coded, scanned, monkeypatch):
    monkeypatch.setattr(BestVectorCorpus, "min_size_for_codes_at_once", 10**9)
    monkeypatch.setattr(coder, "LEAST_SEARCHES", 4)
    engine = Engine(coded)
    best_hits(engine)
    assert not scanned
    best_hits(engine)
    assert scanned
