from itertools import pairwise

import numpy as np
import pytest

from tests.toy import stored_video
from untrimmed.moments.overlap import iou, spans_of
from untrimmed.search.corpora.best_vector import BestVectorCorpus
from untrimmed.search.corpora.corpus import RankedVideo
from untrimmed.search.corpora.frames import FrameCorpus
from untrimmed.search.pruning import coder
from untrimmed.search.pruning.codes import CodedBlocks
from untrimmed.search.pruning.products import products
from untrimmed.types import FrameFeatures, TextFeatures

DIM = 8


def corpus_of(videos):
    """Return a corpus; the ids are the indices of the videos."""
    return FrameCorpus().update(stored_video(str(number), video) for number, video in enumerate(videos))


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def video_with_moment(rng, query, *, duration_s=60.0, span_s=None, fps=2.0, strength=1.0):
    """Return random frames; those inside `span_s` are closer to the query."""
    times_s = np.arange(0, duration_s, 1 / fps)
    vectors = rng.standard_normal((len(times_s), DIM)) * 0.3
    vectors -= (vectors @ query.sentence)[:, None] * query.sentence
    vectors += rng.standard_normal((len(times_s), 1)) * 0.02 * query.sentence
    if span_s is not None:
        vectors[(times_s >= span_s[0]) & (times_s < span_s[1])] += strength * query.sentence
    return FrameFeatures(unit(vectors).astype(np.float16), times_s, duration_s)


@pytest.fixture
def query():
    sentence = unit(np.random.default_rng(0).standard_normal(DIM)).astype(np.float32)
    return TextFeatures("a sentence", sentence, sentence[None], ("sentence",))


@pytest.mark.parametrize("span_s", [(10.0, 14.0), (20.0, 40.0), (0.0, 6.0), (50.0, 60.0), (0.0, 60.0)])
def test_the_span_that_fits_the_query_is_found(query, span_s):
    rng = np.random.default_rng(1)
    unrelated = [video_with_moment(rng, query) for _ in range(5)]
    corpus = corpus_of([*unrelated, video_with_moment(rng, query, span_s=span_s)])
    prepared = corpus.prepare(query)
    assert prepared.rank(limit=1) == [RankedVideo("5", pytest.approx(prepared.relevance("5")[1].max()))]
    best = prepared.moments("5", limit=1)[0]
    assert iou(spans_of([best]), np.array([span_s])) > 0.6


def test_times_do_not_drift_at_three_frames_per_second(query):
    video = video_with_moment(np.random.default_rng(4), query, duration_s=3600.0, span_s=(3300.0, 3304.0), fps=3.0)
    corpus = corpus_of([video])
    assert np.allclose(corpus.prepare(query).relevance("0")[0], video.times_s, atol=1e-6)
    best = corpus.prepare(query).moments("0", limit=1)[0]
    assert best.start_s == pytest.approx(3300.0, abs=0.7)
    assert best.end_s == pytest.approx(3304.0, abs=0.7)


def test_relevance_is_as_exact_as_in_float32():
    rng = np.random.default_rng(7)
    sentence, frame = (unit(rng.standard_normal(397)).astype(np.float32) for _ in range(2))
    still = FrameFeatures(np.tile(frame.astype(np.float16), (9, 1)), np.arange(9) / 2.0, 4.5)
    relevance = corpus_of([still]).prepare(TextFeatures("", sentence, sentence[None], ("a",))).relevance("0")[1]
    exact = frame.astype(np.float16).astype(np.float64) @ sentence.astype(np.float64)
    assert np.allclose(relevance, exact, atol=3e-7, rtol=0)


@pytest.mark.parametrize("num_frames", [1, 999, 70_000])
def test_products_do_not_depend_on_threads(num_frames, monkeypatch):
    frames, queries = (np.random.default_rng(8).standard_normal((n, 32)).astype(np.float16) for n in (num_frames, 2))
    actual = []
    for threads in (1, 2, 16):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, threads=threads: range(threads), raising=False)
        actual.append(products(frames, queries))
    assert np.array_equal(actual[0], actual[1])
    assert np.array_equal(actual[0], actual[2])


def test_a_video_is_as_relevant_as_its_best_frame(query):
    rng = np.random.default_rng(2)
    videos = [
        video_with_moment(rng, query, duration_s=float(rng.integers(3, 40)), span_s=(1.0, 1.0 + rng.random() * 6))
        for _ in range(300)
    ]
    corpus = corpus_of(videos)
    prepared = corpus.prepare(query)
    everything = [float((video.vectors.astype(np.float64) @ query.sentence).max()) for video in videos]
    expected = np.argsort(-np.array(everything), kind="stable")[:10]
    assert [int(video.video_id) for video in prepared.rank(limit=10)] == expected.tolist()


@pytest.fixture
def coded(monkeypatch):
    """Use codes for few frames, after the first search; return a list with an entry per scan of codes."""
    scans = []
    by_codes = CodedBlocks.bounds_by_codes
    monkeypatch.setattr(BestVectorCorpus, "min_size_for_codes", 1)
    monkeypatch.setattr(coder, "LEAST_SEARCHES", 0)
    monkeypatch.setattr(CodedBlocks, "bounds_by_codes", lambda *args: scans.append(1) or by_codes(*args))
    return scans


def test_ranking_with_codes_equals_ranking_without(query, coded):
    """Videos have several frame rates; some are replaced, some are removed."""
    rng = np.random.default_rng(5)

    def random_videos(number):
        for name in range(number):
            length_s, fps = float(rng.integers(1, 40)), float(rng.choice([0.5, 2.0, 3.0]))
            video = video_with_moment(rng, query, duration_s=max(length_s, 2 / fps), span_s=(0.0, 4.0), fps=fps)
            yield stored_video(str(name), video)

    corpus = FrameCorpus().update(random_videos(200))
    for version in (corpus, corpus.update(random_videos(9), ["20", "30"])):
        expected = version.prepare(query).rank(limit=5)
        expected_among = version.prepare(query).rank(limit=5, among=["3", "50", "60"])
        version.coder.wait()
        previous = len(coded)
        assert version.prepare(query).rank(limit=5) == expected
        assert len(coded) > previous
        assert version.prepare(query).rank(limit=5, among=["3", "50", "60"]) == expected_among
        assert version.prepare(query).rank(limit=1, among=[*map(str, range(100))])[0].score <= expected[0].score


def test_a_frame_that_is_not_finite_does_not_hide_videos(query, coded):
    rng = np.random.default_rng(6)
    corpus = corpus_of([video_with_moment(rng, query, span_s=(5.0, 5.0 + i)) for i in range(1, 31)])
    corpus.video("7").vectors[3] = np.nan
    expected = corpus.prepare(query).rank(limit=3)
    corpus.coder.wait()
    assert corpus.prepare(query).rank(limit=3) == expected
    assert coded


def test_the_order_of_the_corpus_changes_no_score(query):
    rng = np.random.default_rng(3)
    videos = [video_with_moment(rng, query, span_s=(5.0, 5.0 + i)) for i in range(1, 6)]
    forwards = corpus_of(videos).prepare(query).rank(limit=5)
    backwards = corpus_of(videos[::-1]).prepare(query).rank(limit=5)
    assert [int(video.video_id) for video in forwards] == [4 - int(video.video_id) for video in backwards]
    assert [video.score for video in forwards] == [video.score for video in backwards]


@pytest.mark.parametrize("seed", range(5))
def test_moments_are_inside_the_video_and_do_not_overlap(query, seed):
    rng = np.random.default_rng(seed)
    video = video_with_moment(rng, query, duration_s=60.0, span_s=(50.0, 60.0))
    video.vectors[20:32] += 0.5 * query.sentence.astype(np.float16)  # a second moment, from 10 to 16 s
    corpus = corpus_of([video])
    moments = corpus.prepare(query).moments("0", limit=20)
    assert len(moments) > 1
    assert all(0 <= moment.start_s < moment.end_s <= 60.0 for moment in moments)
    in_order = sorted(moments)
    assert all(first.end_s <= second.start_s for first, second in pairwise(in_order))
    assert corpus.prepare(query).moments("0", limit=1) == moments[:1]
    assert corpus.prepare(query).moments("0", limit=20) == moments


def test_the_peak_of_a_moment_is_its_most_relevant_frame(query):
    video = video_with_moment(np.random.default_rng(3), query, span_s=(20.0, 30.0))
    video.vectors[47] = query.sentence
    (moment,) = corpus_of([video]).prepare(query).moments("0", limit=1)
    assert moment.peak_s == moment.picture_s == 23.5


def one_take(query, bump_s):
    """Return a video of 40 s without cuts that fits the query, and fits it better in the middle of `bump_s`."""
    times_s = np.arange(0, 40, 0.5)
    unlike = unit(np.roll(query.sentence, 1) - (np.roll(query.sentence, 1) @ query.sentence) * query.sentence)
    middle_s = (bump_s[0] + bump_s[1]) / 2
    cosines = 0.5 + 0.2 * np.exp(-((times_s - middle_s) ** 2) / (2 * ((bump_s[1] - bump_s[0]) / 3) ** 2))
    vectors = cosines[:, None] * query.sentence + np.sqrt(1 - cosines**2)[:, None] * unlike
    return FrameFeatures(vectors.astype(np.float16), times_s, 40.0)


def test_a_long_take_is_followed_by_the_span_around_its_peak(query):
    prepared = corpus_of([one_take(query, (20.0, 26.0))]).prepare(query)
    whole, around, *others = prepared.moments("0", limit=5, nested=True)
    assert (whole.start_s, whole.end_s) == (0.0, 40.0)
    assert iou(spans_of([around]), np.array([(20.5, 25.5)])) > 0.8
    assert whole.peak_s == around.peak_s == 23.0
    assert around.score > whole.score
    assert not others
    assert prepared.moments("0", limit=5) == [whole], "only if nested spans are requested"
    assert prepared.moments("0", limit=1, nested=True) == [whole]


def test_a_take_that_fits_equally_well_throughout_has_no_span_around_a_peak(query):
    video = one_take(query, (20.0, 26.0))
    video.vectors[:] = video.vectors[0]
    video.vectors[7] += np.float16(1e-3)  # noise
    assert len(corpus_of([video]).prepare(query).moments("0", limit=5, nested=True)) == 1


def test_the_span_around_a_peak_is_as_long_as_requested_and_inside_its_moment(query):
    video = one_take(query, (38.0, 40.0))
    _, around = corpus_of([video]).prepare(query).moments("0", limit=5, min_s=12.0, nested=True)
    assert (around.start_s, around.end_s) == (28.0, 40.0)


@pytest.mark.parametrize(("min_s", "expected"), [(0.0, (10.25, 11.25)), (1.0, (10.25, 11.25)), (1.5, (0.0, 11.25))])
def test_scenes_shorter_than_the_minimum_are_no_moments(query, min_s, expected):
    unlike = unit(np.roll(query.sentence, 1) - (np.roll(query.sentence, 1) @ query.sentence) * query.sentence)
    times_s = np.arange(0, 60, 0.5)
    vectors = np.where((times_s < 10.5) | (times_s > 11.0), 1.0, 0.0)[:, None] * unlike
    vectors[(times_s >= 10.5) & (times_s <= 11.0)] = query.sentence
    corpus = corpus_of([FrameFeatures(vectors.astype(np.float16), times_s, 60.0)])
    moment = corpus.prepare(query).moments("0", limit=1, min_s=min_s)[0]
    assert (moment.start_s, moment.end_s) == expected
    assert moment.peak_s in (10.5, 11.0)


def test_without_a_limit_all_moments_above_the_background_are_returned(query):
    video = video_with_moment(np.random.default_rng(5), query, duration_s=120.0)
    for start in range(20, 220, 40):
        video.vectors[start : start + 8] = unit(video.vectors[start : start + 8].astype(np.float64) + query.sentence)
    prepared = corpus_of([video]).prepare(query)
    moments = prepared.moments("0", limit=None, min_s=1.0)
    for start_s in (10.0, 30.0, 50.0, 70.0, 90.0):
        assert iou(spans_of(moments), np.array([start_s, start_s + 4.0])).max() > 0.4
    assert all(moment.score > prepared.relevance("0")[1].mean() for moment in moments)
    assert prepared.moments("0", limit=2, min_s=1.0) == moments[:2]


def test_shots_begin_half_way_between_frames_that_differ(query):
    unlike = unit(np.roll(query.sentence, 1) - (np.roll(query.sentence, 1) @ query.sentence) * query.sentence)
    times_s = np.arange(0, 10, 0.5)
    vectors = np.where(((times_s >= 4) & (times_s < 7))[:, None], query.sentence, unlike).astype(np.float16)
    prepared = corpus_of([FrameFeatures(vectors, times_s, 10.0)]).prepare(query)
    assert prepared.shot_starts_s("0").tolist() == [0.0, 3.75, 6.75]


def test_a_sentence_that_fits_the_whole_video_has_one_moment(query):
    rng = np.random.default_rng(6)
    everywhere = video_with_moment(rng, query, duration_s=30.0, span_s=(0.0, 30.0))
    corpus = corpus_of([everywhere, *(video_with_moment(rng, query) for _ in range(5))])
    assert [(m.start_s, m.end_s) for m in corpus.prepare(query).moments("0", limit=5)] == [(0.0, 30.0)]


def test_a_moment_ends_half_way_between_two_frames(query):
    unlike = unit(np.roll(query.sentence, 1) - (np.roll(query.sentence, 1) @ query.sentence) * query.sentence)
    times_s = np.arange(0, 10, 0.5)
    vectors = np.where(((times_s >= 4) & (times_s < 7))[:, None], query.sentence, unlike).astype(np.float16)
    (moment,) = corpus_of([FrameFeatures(vectors, times_s, 10.0)]).prepare(query).moments("0", limit=3)
    assert (moment.start_s, moment.end_s) == (3.75, 6.75)  # frames at 3.5 | 4.0 ... 6.5 | 7.0 s
    assert moment.score == pytest.approx(1.0, abs=2e-3)


def test_a_video_of_length_zero_has_one_moment(query):
    corpus = corpus_of([FrameFeatures(query.sentence[None].astype(np.float16), np.zeros(1), 0.0)])
    assert [(m.start_s, m.end_s) for m in corpus.prepare(query).moments("0", limit=3)] == [(0.0, 0.0)]


@pytest.mark.parametrize("num_frames", [1, 2, 3])
def test_a_video_with_up_to_three_frames_has_one_moment(query, num_frames):
    features = FrameFeatures(
        np.tile(query.sentence, (num_frames, 1)).astype(np.float16), np.arange(num_frames) / 2.0, 1.5
    )
    unlike = FrameFeatures(-features.vectors, features.times_s, 1.5)
    corpus = corpus_of([features, unlike])
    assert corpus.prepare(query).rank(limit=3)[0].score == pytest.approx(1.0, abs=2e-3)  # float16 rounding
    best = corpus.prepare(query).moments("0", limit=1)[0]
    assert (best.start_s, best.end_s) == (0.0, 1.5)


def test_a_video_of_one_short_frame_has_one_moment(query):
    corpus = corpus_of([FrameFeatures(query.sentence[None].astype(np.float16), np.zeros(1), 0.04)])
    (moment,) = corpus.prepare(query).moments("0", limit=3)
    assert (moment.start_s, moment.end_s) == (0.0, 0.04)
    assert moment.score == pytest.approx(1.0, abs=2e-3)  # float16 rounding


def test_unevenly_spaced_frames_are_weighted_by_time(query):
    unlike = np.roll(query.sentence, 1)
    unlike = unit(unlike - (unlike @ query.sentence) * query.sentence)
    times_s = np.concatenate([np.arange(0, 10, 0.1), np.arange(10, 40, 2.0)])  # dense first, sparse later
    vectors = np.where((times_s >= 20)[:, None], query.sentence, unlike).astype(np.float16)
    best = corpus_of([FrameFeatures(vectors, times_s, 40.0)]).prepare(query).moments("0", limit=1)[0]
    assert best.start_s > 14
    assert best.end_s > 34


def test_bursts_of_frames_hours_apart_are_found(query):
    unlike = np.roll(query.sentence, 1)
    unlike = unit(unlike - (unlike @ query.sentence) * query.sentence)
    times_s = np.concatenate([hour * 3300.0 + np.arange(8) / 2 for hour in range(51)])
    is_sought = (times_s >= 9900) & (times_s < 9902)  # the first four frames of the fourth burst
    vectors = np.where(is_sought[:, None], query.sentence, unlike).astype(np.float16)
    corpus = corpus_of([FrameFeatures(vectors, times_s, float(times_s[-1]) + 1)])
    assert corpus.blocks.parts[0].block.sizes.sum() == len(times_s)
    assert corpus.prepare(query).rank(limit=1)[0].score > 0.6
    found_s, relevance = corpus.prepare(query).relevance("0")
    assert 9899 < found_s[relevance.argmax()] < 9903
    best = corpus.prepare(query).moments("0", limit=1)[0]
    assert best.start_s < 9900.5
    assert 9901 < best.end_s < 9903


@pytest.mark.parametrize(
    "times_s", [[3.0, 3.0, 3.0], [0.0, 0.0, 0.0, 5.0], [0.0, 1.0, 1.0, 1.0, 2.5], [0.0, 1e-9, 9.0]]
)
def test_repeated_times_are_accepted(query, times_s):
    frames = np.tile(query.sentence, (len(times_s), 1)).astype(np.float16)
    corpus = corpus_of([FrameFeatures(frames, np.array(times_s), 10.0)])
    assert corpus.prepare(query).rank(limit=1)[0].score == pytest.approx(1.0, abs=2e-3)
    assert [(m.start_s, m.end_s) for m in corpus.prepare(query).moments("0", limit=3)] == [(0.0, 10.0)]


def test_only_requested_videos_are_ranked(query):
    rng = np.random.default_rng(5)
    corpus = corpus_of([video_with_moment(rng, query, span_s=(1.0, 9.0)) for _ in range(4)])
    prepared = corpus.prepare(query)
    assert {video.video_id for video in prepared.rank(limit=4, among={"1", "3", "elsewhere"})} == {"1", "3"}
    assert prepared.rank(limit=4, among={"elsewhere"}) == prepared.rank(limit=4, among=()) == []


def test_all_ties_with_the_last_video_are_returned(query):
    rng = np.random.default_rng(9)
    once, twice = (video_with_moment(rng, query, span_s=span_s) for span_s in ((1.0, 2.0), (1.0, 9.0)))
    prepared = corpus_of([once, twice, once, twice, once]).prepare(query)
    assert {video.video_id for video in prepared.rank(limit=1)} == {"1", "3"}
    assert [video.video_id in "13" for video in prepared.rank(limit=3)] == [True, True, False, False, False]
    assert len({video.score for video in prepared.rank(limit=5)}) == 2


def test_an_empty_corpus_ranks_no_videos(query):
    assert FrameCorpus().prepare(query).rank(limit=3) == []
