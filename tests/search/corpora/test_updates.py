"""A corpus that follows the changes of a library answers like one that is built from scratch."""

import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.retrieval_world import SIZES
from tests.toy import stored_video
from untrimmed.models.registry import create_model
from untrimmed.models.storage import save_model
from untrimmed.search.cache import block_cache as block_cache_module
from untrimmed.search.cache.block_cache import CodeFiles
from untrimmed.search.cache.mapped import MappedArrays, write_arrays
from untrimmed.search.corpora import best_vector as best_vector_module
from untrimmed.search.corpora import trained as trained_module
from untrimmed.search.corpora.best_vector import BestVectorCorpus
from untrimmed.search.corpora.corpus import CachedBlock
from untrimmed.search.corpora.engine import Engine, cache_library
from untrimmed.search.corpora.frames import FrameCorpus
from untrimmed.search.corpora.tf_prvr import TFPRVRModel
from untrimmed.search.corpora.trained import TrainedModel
from untrimmed.search.query.find import find
from untrimmed.search.query.query import Cutoff
from untrimmed.search.store.records import Records, Settings
from untrimmed.search.store.table import VideoIndex
from untrimmed.types import FrameFeatures, TextFeatures

DIM, WORD_DIM = SIZES["video_dim"], SIZES["query_dim"]
LIBRARY = Settings("toy", "toy:1", DIM, WORD_DIM, 2.0, False)
IDS = [f"v{number}" for number in range(7)]
QUICK = settings(deadline=None, derandomize=True, database=None, max_examples=20)
# Steps of a library: the added videos with their seeds, and the removed videos.
STEPS = st.lists(
    st.tuples(st.dictionaries(st.sampled_from(IDS), st.integers(0, 9), max_size=3), st.sets(st.sampled_from(IDS))),
    min_size=1,
    max_size=8,
)


def features_of(seed):
    """Return some seconds of frames at one of three rates; seed 5 has uneven times, seeds 8 and 9 are equal."""
    rng = np.random.default_rng(min(seed, 8))
    times_s = np.arange(rng.integers(1, 12)) / (1.0, 2.0, 3.0)[seed % 3 if seed < 8 else 0]
    if seed == 5:
        times_s = np.sort(rng.random(9)) * 6
    vectors = rng.standard_normal((len(times_s), DIM))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return FrameFeatures(vectors.astype(np.float16), times_s, float(times_s[-1]) + 0.5)


def sentence(seed=0):
    rng = np.random.default_rng(100 + seed)
    vector = rng.standard_normal(DIM).astype(np.float32)
    words = rng.standard_normal((3, WORD_DIM)).astype(np.float32)
    return TextFeatures("a dog jumps", vector / np.linalg.norm(vector), words, ("a", "dog", "jumps"))


def answers(corpus, seed_of, query, among=None):
    """Return all results of a prepared query, with ties in order of ids."""
    prepared = corpus.prepare(query)
    ranked = {limit: prepared.rank(limit=limit, among=among) for limit in (1, 3, 10)}
    return (
        {limit: sorted((-video.score, video.video_id) for video in videos) for limit, videos in ranked.items()},
        {video_id: prepared.moments(video_id, limit=3) for video_id in seed_of},
        {video_id: [part.tolist() for part in prepared.relevance(video_id)] for video_id in seed_of},
    )


@pytest.fixture(scope="module")
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best_vector_module, "_VECTORS_OF_BLOCK", 24)
        patch.setattr(BestVectorCorpus, "min_size_for_codes", 30)
        patch.setattr(BestVectorCorpus, "min_size_for_codes_at_once", 30)
        patch.setattr(trained_module, "_VIDEOS_AT_A_TIME", 3)
        yield


@pytest.fixture(scope="module", params=["frames", "tf_prvr", "gmmformer_v2", "ms_sl", "jsg", "dl_dkd"])
def empty(request, small_blocks, tmp_path_factory):
    """A corpus without videos. JSG's score reads the padding of videos."""
    if request.param == "frames":
        return FrameCorpus()
    if request.param == "tf_prvr":
        return TFPRVRModel().corpus()
    option = {"frame_sampling": "padded"} if request.param == "jsg" else {}
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("run")
    save_model(create_model(request.param, **SIZES, init_std=0.3, **option).eval(), folder)
    return TrainedModel(folder).corpus()


def videos_of(corpus, seeds):
    for video_id, seed in seeds.items():
        features = features_of(seed)
        encoded = corpus.model.encode_video(features) if hasattr(corpus, "model") else b""
        # Every other video is not yet encoded by this model, as after an interrupted change of model.
        model = corpus.model.identity if encoded and seed % 2 else "other"
        yield stored_video(video_id, features, encoded if seed % 2 else b"", model=model)


@pytest.mark.check
def test_an_updated_corpus_answers_like_a_new_one(empty):
    @QUICK
    @given(steps=STEPS, among=st.none() | st.sets(st.sampled_from(IDS)))
    def follow(steps, among):
        corpus, seed_of, query = empty, {}, sentence()
        for added, removed in steps:
            corpus = corpus.update(videos_of(empty, added), removed - added.keys())
            seed_of = {video_id: seed for video_id, seed in seed_of.items() if video_id not in removed} | added
            assert len(corpus) == len(seed_of)
        fresh = empty.update(videos_of(empty, dict(sorted(seed_of.items()))))
        assert answers(corpus, seed_of, query, among) == answers(fresh, seed_of, query, among)

    follow()


def test_a_corpus_of_cached_blocks_answers_like_a_new_one(empty, tmp_path):
    """This also holds if some cached videos are no longer valid, and after videos are added."""
    seeds = {video_id: number for number, video_id in enumerate(IDS)}
    corpus = empty.update(videos_of(empty, seeds))
    remaining = []
    for number, part in enumerate(corpus.blocks.parts):
        write_arrays(tmp_path / f"{number}", part.block.arrays)
        mapped = MappedArrays(tmp_path / f"{number}")
        remaining.append(CachedBlock(mapped, ~np.isin(mapped["ids"], ["v1", "v4"]), CodeFiles()))
    restored = empty.from_cache(remaining)
    remaining = {video_id: seed for video_id, seed in seeds.items() if video_id not in ("v1", "v4")}
    fresh = empty.update(videos_of(empty, remaining))
    assert answers(restored, remaining, sentence()) == answers(fresh, remaining, sentence())
    updated = dict(remaining, v1=9, v2=8)
    restored, fresh = (some.update(videos_of(empty, {"v1": 9, "v2": 8})) for some in (restored, fresh))
    assert answers(restored, updated, sentence()) == answers(fresh, updated, sentence())


def test_a_prepared_query_is_not_affected_by_updates(empty):
    first = {"v0": 1, "v1": 2, "v2": 3}
    corpus = empty.update(videos_of(empty, first))
    prepared = corpus.prepare(sentence())
    previous = answers(corpus, first, sentence())
    updated = corpus.update(videos_of(empty, {"v1": 7, "v3": 4}), ["v0"])
    assert len(updated) == 3
    assert answers(corpus, first, sentence()) == previous
    assert {video.video_id for video in prepared.rank(limit=9)} == set(first)


def best_frame_by_hand(features, query):
    """Return the cosine of the best frame."""
    return float((features.vectors.astype(np.float64) @ query.sentence.astype(np.float64)).max())


class _KilledError(Exception):
    """Raised instead of a signal."""


class LibraryAndModel:
    """A library on disk with an engine, and a dictionary of the videos that should be in it."""

    def __init__(self, folder):
        self.index = VideoIndex(folder, create=True)
        self.index.write_settings(LIBRARY)
        self.engine = Engine(folder)
        self.known = {}  # id -> stored video
        self.commits = 0

    def put(self, video_id, seed):
        self.commits += 1
        previous = self.known.get(video_id)
        path = previous.record.path if previous else f"/v/{self.commits % 3}/{video_id}.mp4"
        self.known[video_id] = stored_video(video_id, features_of(seed), path=path, indexed_at=float(self.commits))
        self.index.put(self.known[video_id])

    def remove(self, video_id, _):
        self.index.remove([video_id])
        self.known.pop(video_id, None)

    def move(self, video_id, number):
        if (video := self.known.get(video_id)) is not None:
            path = Path(f"/moved/{number % 3}/{video_id}.mp4")
            record = self.index.relocate(video.record, path=path, size=number, mtime_ns=number)
            self.known[video_id] = replace(video, record=record)

    def reopen(self, *_):
        self.engine = Engine(self.index.folder)

    def compact(self, *_):
        self.index.compact()

    def cache(self, *_):
        cache_library(self.index.folder)

    def kill(self, _, number):
        """Kill a process that writes the cache: some files are written, one is incomplete, no old file is removed."""
        files, real = iter(range(number % 3)), block_cache_module.write_arrays

        def write_some(path, arrays):
            if next(files, None) is None:
                path.with_name(f".{path.name}.0a1b2c3d").write_bytes(b"half")
                raise _KilledError
            real(path, arrays)

        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(_KilledError):
            patch.setattr(block_cache_module, "write_arrays", write_some)
            cache_library(self.index.folder)
        self.index = VideoIndex(self.index.folder)
        self.reopen()

    def damage(self, video_id, number):
        """Change a byte of the cache."""
        files = [file for file in sorted(self.index.folder.glob("cache/*/*")) if file.stat().st_size]
        if files:
            file = files[number % len(files)]
            content = file.read_bytes()
            place = (int(video_id[1:]) * 7919 + number * 104_729) % len(content)
            file.unlink()
            file.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])

    def search_results(self, query, within=None, limit=4):
        def ask(view):
            among = None if within is None else view.below(within)
            return find(view, view.corpus().prepare(query), Cutoff(limit=limit, moments=1), among=among)

        return [(str(hit.video), hit.score) for hit in self.engine.answer(ask)]

    def expected(self, query, within=None):
        """Return the hits computed in plain Python; ties are broken by path."""
        scored = [
            (video.record.path, best_frame_by_hand(video.features, query))
            for video in self.known.values()
            if within is None or Path(video.record.path).is_relative_to(within)
        ]
        return sorted(scored, key=lambda actual: (-round(actual[1], 6), actual[0]))[:4]


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put"] * 4 + ["cache"] * 2 + ["remove", "move", "reopen", "compact", "kill", "damage"]),
        st.sampled_from(IDS),
        st.integers(0, 9),
    ),
    min_size=10,
    max_size=10,
)


def follow_a_library(operations):
    with tempfile.TemporaryDirectory() as folder:
        world, query = LibraryAndModel(Path(folder)), sentence(1)
        for operation, video_id, seed in operations:
            getattr(world, operation)(video_id, seed)
            if not world.known:
                continue
            places = [None, *(place for place in ("/v/1", "/moved/2") if world.expected(query, place))]
            for place in places:
                actual, expected = world.search_results(query, place), world.expected(query, place)
                assert world.search_results(query, place, limit=1) == actual[:1], "a limit of 1 can use codes"
                assert [path for path, _ in actual] == [path for path, _ in expected]
                assert [score for _, score in actual] == pytest.approx([score for _, score in expected], abs=2e-6)


@pytest.mark.check
@settings(QUICK, max_examples=30)
@given(operations=OPERATIONS)
def test_three_hundred_states_of_a_library_are_searched_like_in_plain_python(small_blocks, operations):
    follow_a_library(operations)


@pytest.mark.slow
@settings(deadline=None, derandomize=True, database=None, max_examples=500)
@given(operations=OPERATIONS)
def test_five_thousand_states_of_a_library_are_searched_like_in_plain_python(small_blocks, operations):
    follow_a_library(operations)


@pytest.fixture
def read(monkeypatch):
    """The ids of videos that were read with their vectors."""
    ids, real = [], VideoIndex.read
    monkeypatch.setattr(VideoIndex, "read", lambda index, expected: ids.extend(expected) or real(index, expected))
    return ids


def test_only_changed_videos_are_read(tmp_path, read):
    world = LibraryAndModel(tmp_path)
    for number, video_id in enumerate(IDS):
        world.put(video_id, number)
    world.search_results(sentence())
    assert sorted(read) == IDS
    for change, expected in (
        (lambda: world.move("v2", 5), []),  # another path, the same content
        (lambda: world.remove("v0", 0), []),
        (lambda: world.put("v3", 9), ["v3"]),
        (lambda: world.put("v0", 9), ["v0"]),
        (lambda: world.compact(), []),
        (lambda: None, []),
    ):
        read.clear()
        change()
        world.search_results(sentence())
        assert read == expected


def test_only_changes_of_vectors_count_as_changes():
    previous = [stored_video(video_id, features_of(1)).record for video_id in "abcdef"]
    a, b, c, d, e, _ = previous
    after = [
        replace(a, path="/elsewhere.mp4", size=7, mtime_ns=8),
        replace(b, model="ms_sl:1234"),
        replace(c, content_hash="another"),
        replace(d, sampling="key frames"),
        replace(e, indexed_at=2.0),
        stored_video("g", features_of(2)).record,
    ]
    changes = Records(after).changes_since(Records(previous))
    assert (sorted(changes.added), changes.removed) == (["c", "d", "e", "g"], ["f"])
    back = Records(previous).changes_since(Records(after))
    assert (sorted(back.added), back.removed) == (["c", "d", "e", "f"], ["g"])
    assert Records(after).changes_since(Records(after)) == ([], [])
