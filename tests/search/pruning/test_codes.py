"""Quantized codes: their bounds hold, are close, and give the same ranking as exact scores."""

import dataclasses
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.search.corpora.test_trained import COMPOSED, SENTENCES, save_run
from untrimmed.models.registry import list_models
from untrimmed.search.cache.block_cache import BlockCache
from untrimmed.search.cache.blocks import Block, Selection
from untrimmed.search.corpora import exact_scores, trained_query
from untrimmed.search.corpora.encoded_block import rows_by_branch
from untrimmed.search.corpora.engine import update_cache
from untrimmed.search.corpora.trained import TrainedCorpus, TrainedModel
from untrimmed.search.corpora.trained_query import rank_together
from untrimmed.search.pruning import coder, kernels, threads
from untrimmed.search.pruning import codes as codes_module
from untrimmed.search.pruning.codes import CODED, Axes, CodedBlocks, CodedVideos
from untrimmed.search.pruning.ranking import BoundStages
from untrimmed.search.store.records import Records, VideoRecord
from untrimmed.search.store.table import StoredVideo
from untrimmed.types import FrameFeatures, TextFeatures


def unit(x):
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


def random_rows(dim, counts, seed=0):
    """Return rows, and a query, that vary more in some directions than in others, like learned vectors."""
    rng = np.random.default_rng(seed)
    spectrum = (1.0 + np.arange(dim)) ** -0.5
    return unit(rng.standard_normal((sum(counts), dim)) * spectrum), unit(rng.standard_normal(dim) * spectrum)


def best_rows(rows, counts, query):
    ends = np.cumsum(counts)
    return np.array([(rows[end - count : end] @ query).max() for end, count in zip(ends, counts, strict=True)])


def selected(videos):
    """Select videos of one block."""
    return Selection.of([(Block({"ids": np.array([], dtype=str)}), videos)])


def by_codes(coded, probe, videos):
    blocks = CodedBlocks([coded])
    return blocks.bounds_by_codes(probe, selected(videos), 0, len(videos), blocks.empty_products(0))


def by_rows(coded, probe, videos, needed=-np.inf):
    """Return the bounds, which are the same with and without the products that a scan of the codes has kept."""
    blocks, chosen, needed = CodedBlocks([coded]), selected(videos), np.full(len(videos), needed)
    kept = blocks.empty_products(len(coded.rows))
    blocks.bounds_by_codes(probe, chosen, 0, len(videos), kept)
    found = [blocks.bounds_by_rows(probe, chosen, products, needed) for products in (kept, blocks.empty_products(0))]
    np.testing.assert_array_equal(*found)
    return found[0]


def may_be_best(coded, *probes_and_counts):
    """Return a mask of the rows that may be the best of their video, for all videos in order."""
    *probes, counts = probes_and_counts
    mask = CodedBlocks([coded]).possible_best_rows(probes, selected(np.arange(len(counts))))
    return mask[np.arange(mask.shape[1]) < counts[:, None]]


def test_compiled_loops_have_the_length_of_codes():
    assert 2 * kernels.HALF == CODED


@pytest.mark.parametrize("dim", [4, 33, 128, 320, 384])
def test_a_product_by_codes_is_the_product_of_the_unpacked_numbers(dim):
    """NumPy unpacks the two halves of each byte."""
    rows, query = random_rows(dim, [48])
    axes = Axes.of(rows)
    coded = CodedVideos.of(axes, rows, np.ones(48, int))
    numbers = np.concatenate([coded.codes & 15, coded.codes >> 4], axis=1).astype(int) - 8
    probe = axes.probe(query)
    query_numbers, query_unit = probe.numbers
    expected = np.float64(query_unit) * coded.code_unit * (numbers @ query_numbers[:CODED].astype(int))
    assert by_codes(coded, probe, np.arange(48))[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("dim", [4, 33, 128, 320, 384])
def test_bounds_by_codes_and_rows_hold_and_are_close(dim):
    counts = np.array([1, 3, 16, 17, 40, 128] * 20)
    rows, query = random_rows(dim, counts)
    codes, probe = CodedVideos.of(axes := Axes.of(rows), rows, counts), axes.probe(query)
    assert axes.probe(query).length == pytest.approx(1.0, abs=1e-5)
    expected, videos = best_rows(rows, counts, query), np.arange(len(counts))
    best, upper = by_codes(codes, probe, videos)
    assert (upper >= expected).all()
    assert np.abs(best - expected).max() < 0.08
    assert (upper - best).max() < 0.35, "the bound is close"
    read = by_rows(codes, probe, videos)
    assert (read >= expected).all()
    assert (read - expected).max() < (rounding := 0.15 / dim**0.5)
    subset = np.array([5, 0, 77])
    assert np.array_equal(by_codes(codes, probe, subset), by_codes(codes, probe, videos)[:, subset])
    assert np.array_equal(by_rows(codes, probe, subset), read[subset])
    needed = float(np.median(expected))
    actual = by_rows(codes, probe, videos, needed)
    assert np.array_equal(actual[expected >= needed], read[expected >= needed])
    assert (actual[expected < needed] < needed + rounding).all()
    assert np.isneginf(actual).any(), "rows below the needed score are not read"


def test_few_rows_of_a_video_may_be_the_best():
    counts = np.array([1, 40, 128] * 20)
    rows, query = random_rows(384, counts)
    codes, probe, opposite = CodedVideos.of(axes := Axes.of(rows), rows, counts), axes.probe(query), axes.probe(-query)
    best = np.repeat(best_rows(rows, counts, query), counts) == rows @ query
    mask = may_be_best(codes, probe, counts)
    assert mask[best].all()
    assert mask.sum() < 3 * len(counts)
    assert np.array_equal(may_be_best(codes, probe, opposite, counts), mask | may_be_best(codes, opposite, counts))
    unfinished = dataclasses.replace(codes, unbounded=np.arange(len(counts)) == 2)
    assert may_be_best(unfinished, probe, counts)[41:169].all(), "all rows of an unbounded video may be the best"


def test_bounds_for_several_query_vectors_hold_and_leave_few_candidates():
    counts = np.full(4000, 2)
    rows, _ = random_rows(160, counts)
    vectors = [random_rows(160, [1], seed)[1] for seed in range(1, 7)]
    axes = Axes.of(rows)
    blocks = {"clip": CodedBlocks([CodedVideos.of(axes, rows, counts)])}
    probes = [("clip", axes.probe(vector)) for vector in vectors]
    by_codes, by_rows = BoundStages(blocks, probes, margin=0.0).stages
    places = np.arange(len(counts))
    selection = selected(places)
    actual, bound = by_codes(selection, places, -np.inf)
    expected = sum(best_rows(rows, counts, vector) for vector in vectors)
    assert (expected <= bound + 1e-5).all()
    assert (bound >= actual).all()
    read, upper = by_rows(selection, places, -np.inf)
    assert (read >= expected - 1e-5).all()
    assert (read - expected).max() < len(vectors) * 0.15 / 160**0.5, "the rounding error of 8-bit rows"
    assert (upper >= expected).all()
    needed = float(np.sort(expected)[-9])
    pruned = by_rows(selection, places, needed)[1]
    assert (pruned[expected >= needed] >= expected[expected >= needed]).all()
    assert (pruned >= needed).sum() < 20


@settings(max_examples=60, deadline=None)
@given(
    rows=arrays(np.float32, st.tuples(st.integers(1, 40), st.integers(2, 70)), elements=st.floats(-1, 1, width=16)),
    cut=st.floats(0, 1),
    seed=st.integers(0, 9),
)
def test_bounds_hold_for_any_rows(rows, cut, seed):
    """Rows include zeros, single numbers and repetitions, which are not like random directions."""
    first = min(len(rows) - 1, int(cut * len(rows)))
    counts = np.array([first, len(rows) - first] if first else [len(rows)])
    query = unit(np.random.default_rng(seed).standard_normal(rows.shape[1]))
    for vector in (query, rows[-1], np.zeros_like(query)):
        axes = Axes.of(rows)
        codes, probe = CodedVideos.of(axes, rows, counts), axes.probe(vector)
        videos, expected = np.arange(len(counts)), best_rows(rows, counts, vector)
        assert (by_codes(codes, probe, videos)[1] >= expected - 1e-5).all()
        assert (by_rows(codes, probe, videos) >= expected - 1e-5).all()
        assert (CodedBlocks([codes]).bounds_of_many([probe, probe]) >= expected - 1e-5).all()
        assert not (rows @ vector >= np.repeat(expected, counts))[~may_be_best(codes, probe, counts)].any()


@pytest.fixture
def small_pieces(monkeypatch):
    """Small pieces, so that threads share work on a few videos, too."""
    for module, sizes in (
        (codes_module, {"_SCANNED_AT_A_TIME": 64, "_READ_AT_A_TIME": 3, "_MULTIPLIED_AT_A_TIME": 40}),
        (exact_scores, {"_VIDEOS_PER_PIECE": 5, "_PIECES_TOGETHER": 2, "_UNITS_AT_A_TIME": 12}),
    ):
        for name, size in sizes.items():
            monkeypatch.setattr(module, name, size)


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch, small_pieces):
    counts = np.full(700, 5)
    rows, query = random_rows(48, counts)
    codes = CodedVideos.of(axes := Axes.of(rows), rows, counts)
    probe, videos = axes.probe(query), np.arange(700)

    def everything():
        coded = {"only": CodedBlocks([codes])}
        bounds = BoundStages(coded, [("only", probe)], margin=0).stages
        values = [number for bound in bounds for number in bound(selected(videos), videos, -np.inf)]
        together = coded["only"].bounds_of_many([probe, probe])
        return [*values, coded["only"].possible_best_rows([probe], selected(videos)), together]

    answers = []
    for cores in (1, 2, 7):
        monkeypatch.setattr(threads, "cores", lambda cores=cores: cores)
        answers.append(everything())
    monkeypatch.undo()  # now all rows are one piece
    answers.append(everything())
    assert all(np.array_equal(a, b) for answer in answers for a, b in zip(answer, answers[0], strict=True))


@pytest.fixture
def new_video(tmp_path, monkeypatch, small_pieces):
    """A function that creates stored videos for a trained model; codes are built for 20 videos or more."""
    monkeypatch.setattr(TrainedCorpus, "min_size_for_codes", 20)
    monkeypatch.setattr(coder, "LEAST_SEARCHES", 1)

    def stored(model, number, seed=0):
        rng = np.random.default_rng([seed, number])
        frames = rng.standard_normal((int(rng.integers(1, 30)), 4)).astype(np.float16)
        record = VideoRecord(
            f"{number:016x}", f"/{number}.mp4", str(seed), 1, 1, 9.0, 1, 1, len(frames), "2 fps", "e:1", "-", 0.0
        )  # fmt: skip
        features = FrameFeatures(frames, np.arange(len(frames)) / 2.0, 9.0)
        return StoredVideo(record, features)

    return stored


def query_of(text):
    rng = np.random.default_rng(sum(map(ord, text)))
    words = rng.standard_normal((2, 6)).astype(np.float32)
    return TextFeatures(text, np.zeros(4, np.float32), words, ("a", "b"))


@pytest.mark.check
@pytest.mark.parametrize("method", [*list_models(), *COMPOSED])
def test_every_method_ranks_with_codes_as_without(method, new_video, tmp_path, monkeypatch):
    model = TrainedModel(save_run(tmp_path / "run", method, query_dim=6, dim=96))
    corpus = model.corpus().update([new_video(model, number) for number in range(60)])
    changed = corpus.update(
        [new_video(model, number, seed=1) for number in (3, 70)], [f"{number:016x}" for number in (5, 6)]
    )
    scans, scored = [], []
    by_codes, exact = CodedBlocks.bounds_by_codes, trained_query.score_exactly
    monkeypatch.setattr(CodedBlocks, "bounds_by_codes", lambda *args: scans.append(1) or by_codes(*args))
    monkeypatch.setattr(
        trained_query,
        "score_exactly",
        lambda requests: scored.extend(row for _, videos in requests for row in videos.row_index) or exact(requests),
    )
    for version in (corpus, changed):
        for _ in range(2):
            version.prepare(query_of("first")).rank(limit=1)
            version.coder.wait()
        for text in SENTENCES:
            for among in (None, {f"{number:016x}" for number in range(0, 60, 2)}):
                prepared = version.prepare(query_of(text))
                monkeypatch.setattr(TrainedCorpus, "min_size_for_codes", 1000)
                expected, without = prepared.rank(limit=5, among=among), len(scans)
                monkeypatch.setattr(TrainedCorpus, "min_size_for_codes", 20)
                scored.clear()
                assert prepared.rank(limit=5, among=among) == expected
                assert len(scans) > without
                assert len(scored) <= len(among or version)
        subset = {f"{number:016x}" for number in range(4, 59)}
        expected_of_all = [version.prepare(query_of(text)).rank(limit=5) for text in SENTENCES]
        of_some = [version.prepare(query_of(text)).rank(limit=5, among=subset) for text in SENTENCES]
        monkeypatch.setattr(CodedBlocks, "bounds_by_codes", lambda *_: pytest.fail("one query at a time"))
        assert version.rank_all([query_of(text) for text in SENTENCES], limit=5)[0] == expected_of_all
        assert version.rank_all([query_of(text) for text in SENTENCES], limit=5, among=subset)[0] == of_some
        monkeypatch.setattr(CodedBlocks, "bounds_by_codes", lambda *args: scans.append(1) or by_codes(*args))
    assert {branch for codes in corpus.coder._codes.values() for branch in codes} == set(prepared.vectors)


def test_queries_without_finite_vectors_do_not_affect_others_in_the_batch(new_video, tmp_path):
    model = TrainedModel(save_run(tmp_path / "run", query_dim=6, dim=96))
    corpus = model.corpus().update([new_video(model, number) for number in range(60)])
    for _ in range(2):
        corpus.prepare(query_of("first")).rank(limit=1)
        corpus.coder.wait()
    queries = [corpus.prepare(query_of(text)) for text in [*SENTENCES, *SENTENCES]]
    expected = [query.rank(limit=5) for query in queries]
    for number, value in ((1, 0.0), (2, np.nan)):
        vectors = queries[number].vectors
        queries[number].vectors = {branch: rows[:0] if not value else rows * value for branch, rows in vectors.items()}
    actual = rank_together(queries, limit=5)
    assert [actual[number] for number in (0, 3)] == [expected[number] for number in (0, 3)]
    assert all(query.shared_bounds is None for query in queries)
    assert rank_together([], limit=5) == []
    nothing = model.corpus()
    assert nothing.rank_all([query_of(text) for text in SENTENCES], limit=5)[0] == [[]] * len(SENTENCES)
    assert nothing.prepare(query_of("first")).rank(limit=5, among={str(number) for number in range(30)}) == []


def test_codes_are_built_once_by_another_thread_after_some_searches(new_video, tmp_path, monkeypatch):
    monkeypatch.setattr(coder, "LEAST_SEARCHES", 2)
    model = TrainedModel(save_run(tmp_path / "run", query_dim=6))
    corpus = model.corpus().update([new_video(model, number) for number in range(30)])
    builders = []
    of = CodedVideos.of
    monkeypatch.setattr(CodedVideos, "of", lambda *args: builders.append(threading.current_thread()) or of(*args))
    counts = []
    for text in (*SENTENCES, *SENTENCES):
        corpus.prepare(query_of(text)).rank(limit=3)
        corpus.coder.wait()
        counts.append(len(builders))
    assert counts == [0, 0, 2, 2, 2, 2], "once for each of two branches"
    assert threading.current_thread() not in builders
    updated = corpus.update([new_video(model, 99)])
    updated.prepare(query_of("x")).rank(limit=3)
    updated.coder.wait()
    assert len(builders) == 4, "for the new block"


@pytest.mark.parametrize("method", ["ms_sl", "gmmformer_v2", "jsg"])
def test_a_cached_corpus_uses_codes_from_the_first_search_on(method, new_video, tmp_path, monkeypatch):
    """The codes stay valid while the longest video is as long as before, because some scores read padding."""
    model = TrainedModel(save_run(tmp_path / "run", method, query_dim=6))
    videos = [new_video(model, number) for number in range(30)]
    library, records = tmp_path / "library", Records(video.record for video in videos)
    update_cache(
        library, model.corpus(), records, lambda ids: [v for v in videos if v.record.video_id in ids], codes=True
    )
    cache = BlockCache(library, model.corpus().block_format)
    assert (len(cache.paths()), len(cache.paths(".codes"))) == (1, 1)
    expected, scans, by_codes = model.corpus().update(videos), [], CodedBlocks.bounds_by_codes
    monkeypatch.setattr(CodedBlocks, "bounds_by_codes", lambda *args: scans.append(1) or by_codes(*args))
    monkeypatch.setattr(CodedVideos, "of", lambda *_: pytest.fail("codes were built"))
    monkeypatch.setattr(coder, "LEAST_SEARCHES", 99)
    monkeypatch.setattr(TrainedCorpus, "min_size_for_codes_at_once", 1)
    corpus = model.corpus().from_cache(cache.read(records))
    for text in SENTENCES:
        assert corpus.prepare(query_of(text)).rank(limit=3) == expected.prepare(query_of(text)).rank(limit=3)
    assert scans
    scans.clear()
    longest = corpus.shard_summary().tolist()
    shorter = [video for video in videos if len(video.features.times_s) < 8]
    monkeypatch.setattr(TrainedCorpus, "min_size_for_codes", len(shorter))
    corpus = model.corpus().from_cache(cache.read(Records(video.record for video in shorter)))
    expected = model.corpus().update(shorter)
    for text in SENTENCES:
        assert corpus.prepare(query_of(text)).rank(limit=1) == expected.prepare(query_of(text)).rank(limit=1)
    assert bool(scans) == (corpus.shard_summary().tolist() == longest), "JSG encodes all videos to one length"


def test_a_video_that_is_not_finite_does_not_hide_others(new_video, tmp_path):
    model = TrainedModel(save_run(tmp_path / "run", query_dim=6))
    corpus = model.corpus().update([new_video(model, number) for number in range(40)])
    broken = corpus.blocks.parts[0].block
    with torch.inference_mode():
        broken.arrays["videos.clips"][7] = np.nan
    expected = corpus.prepare(query_of("green")).rank(limit=4)
    assert f"{7:016x}" not in {video.video_id for video in expected}
    for _ in range(3):
        corpus.prepare(query_of("green")).rank(limit=4)
        corpus.coder.wait()
    assert corpus.coder.request([broken], lambda block: ())
    assert corpus.prepare(query_of("green")).rank(limit=4) == expected


def test_codes_built_in_batches_equal_codes_built_at_once(monkeypatch):
    counts = np.array([2, 17, 1, 5, 40])
    rows, query = random_rows(130, counts)
    axes, ends = Axes.of(rows), np.cumsum(counts)
    at_once = CodedVideos.of(axes, rows, counts)
    parts = [CodedVideos.of(axes, rows[: ends[1]], counts[:2]), CodedVideos.of(axes, rows[ends[1] :], counts[2:])]
    joined, videos, probe = CodedVideos.joined(parts), np.arange(5), axes.probe(query)
    assert np.allclose(by_codes(joined, probe, videos), by_codes(at_once, probe, videos), atol=1e-6)
    assert np.allclose(by_rows(joined, probe, videos), by_rows(at_once, probe, videos), atol=1e-6)
    single = CodedVideos.joined([CodedVideos.of(axes, rows[:1], np.array([1]))])
    assert by_rows(single, probe, np.array([0]))[0] == pytest.approx(rows[0] @ query, abs=0.15 / 130**0.5)


def test_a_process_can_end_while_codes_are_built():
    script = """
import time, numpy as np, torch
from untrimmed.search.pruning import coder as coders
class Block: pass
blocks, coder, begun = [Block() for _ in range(99)], coders.Coder(), []
def make(block):
    with torch.inference_mode():
        for _ in range(200):
            begun.append(len(torch.randn(600, 600) @ torch.randn(600, 600)))
            coder.axes("clip", np.eye(8, dtype=np.float32))
    return {}
for _ in range(coders.LEAST_SEARCHES + 1):
    coder.request(blocks, make)
while not begun:
    time.sleep(0.1)
time.sleep(0.3)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=120)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_searches_with_its_own_threads():
    script = """
import os, numpy as np
from untrimmed.search.cache import blocks
from untrimmed.search.pruning import codes, threads
threads.cores = lambda: 2
rows = np.random.default_rng(0).standard_normal((4000, 32)).astype("float32")
axes = codes.Axes.of(rows)
made = codes.CodedBlocks([codes.CodedVideos.of(axes, rows, np.full(1000, 4))])
asked = blocks.Selection((None,), np.zeros(1000, int), np.arange(1000))

def search():
    return made.bounds_by_rows(axes.probe(rows[0]), asked, made.empty_products(0), np.full(1000, -np.inf))

before = search()
child = os.fork()
if not child:
    os._exit(0 if np.array_equal(search(), before) else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=120)


def test_loops_are_compiled_without_a_writable_cache(monkeypatch):
    def refuse(function, **options):
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(function, **options)

    njit = kernels.numba.njit
    monkeypatch.setattr(kernels.numba, "njit", lambda **options: lambda function: refuse(function, **options))
    assert kernels.compiled()(lambda x: x + 1)(2) == 3


def test_loops_give_the_same_results_on_a_generic_processor(tmp_path):
    rows, query = random_rows(96, counts := np.full(300, 20))
    np.savez(tmp_path / "given.npz", rows=rows, counts=counts, query=query)
    script = f"""
import numpy as np
from untrimmed.search.cache import blocks
from untrimmed.search.pruning import codes
given = np.load({str(tmp_path / "given.npz")!r})
axes = codes.Axes.of(given["rows"])
coded = codes.CodedBlocks([codes.CodedVideos.of(axes, given["rows"], given["counts"])])
asked = blocks.Selection((None,), np.zeros(300, int), np.arange(300))
bounds = coded.bounds_by_codes(axes.probe(given["query"]), asked, 0, 300, coded.empty_products(0))
np.save({str(tmp_path / "found.npy")!r}, bounds)
"""
    plain = os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=300, env=plain)
    axes = Axes.of(rows)
    expected = by_codes(CodedVideos.of(axes, rows, counts), axes.probe(query), np.arange(300))
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), expected, atol=1e-6)


def test_equal_rows_at_the_end_of_a_video_get_one_code():
    rows = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [1.0, 2.0]], [[5.0, 6.0]] * 4])
    flat, counts = rows_by_branch({"clip": rows})["clip"]
    assert (flat.tolist(), counts.tolist()) == ([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [5.0, 6.0]], [3, 1])


@pytest.mark.parametrize("method", ["gmmformer_v2", "gmmformer_v2+ral", "dl_dkd", "hlformer"])
def test_padding_of_frames_has_no_codes(method, new_video, tmp_path):
    """In addition to its frames, a video may have one row of padding, and one that keeps scores at zero."""
    model = TrainedModel(save_run(tmp_path / "run", method, query_dim=6))
    videos = [new_video(model, number) for number in range(30)]
    corpus = model.corpus().update(videos)
    for _ in range(2):
        corpus.prepare(query_of("first")).rank(limit=1)
        corpus.coder.wait()
    (part,) = corpus.blocks.parts
    for codes in corpus.coder._codes[part.block].values():
        counts = np.diff(codes.first_row)
        if len(set(counts)) > 1:
            lengths = [min(12, len(video.features.times_s)) for video in videos]
            assert (counts <= np.array(lengths) + 2).all()
