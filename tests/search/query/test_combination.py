"""Combined queries, compared with their definitions in plain Python."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from untrimmed.search.corpora.corpus import PreparedQuery, RankedVideo
from untrimmed.search.query.combination import CombinedQuery, Exclusion, Term, best_earlier_times
from untrimmed.types import Moment

STEP_S = 2.0


class Curves(PreparedQuery):
    """A prepared query with given curves. With `lift`, the score of a video is above the maximum of its curve."""

    def __init__(self, curves, lift=0.0, starts_s=None):
        self.curves, self.lift, self.starts_s = curves, lift, starts_s

    def score(self, video_id):
        return float(self.curves[video_id].max()) + self.lift * len(video_id)

    def rank(self, *, limit, among=None):
        ids = [v for v in self.curves if among is None or v in set(among)]
        ranked = sorted((RankedVideo(v, self.score(v)) for v in ids), key=lambda video: -video.score)
        return [video for video in ranked if video.score >= ranked[min(limit, len(ranked)) - 1].score]

    def moments(self, video_id, *, limit):
        raise AssertionError("moments follow from the curves")

    def relevance(self, video_id):
        curve = self.curves[video_id]
        return STEP_S * np.arange(len(curve), dtype=np.float64), curve

    def shot_starts_s(self, video_id):
        return self.starts_s

    def by_hand(self, video_id):
        return self.curves[video_id] - self.curves[video_id].max() + self.score(video_id)


def duration_s(curves):
    return lambda video_id: STEP_S * len(curves.curves[video_id])


numbers = st.integers(-50, 50).map(lambda n: n / 10)


@st.composite
def worlds(draw, parts):
    """Draw the curves of several parts for the same videos."""
    lengths = draw(st.lists(st.integers(1, 7), min_size=1, max_size=60))
    ids = ["v" * (1 + n % 3) + str(n) for n in range(len(lengths))]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    drawn = [{v: rng.integers(-9, 9, n) / 8 for v, n in zip(ids, lengths, strict=True)} for _ in range(parts)]
    return [Curves(curves, lift=draw(st.sampled_from([0.0, 0.0625]))) for curves in drawn]


def check_ranking(combined, expected, limit, among=None):
    """`expected` has the score of each video that has one."""
    chosen = {v: s for v, s in expected.items() if among is None or v in among}
    last = sorted(chosen.values(), reverse=True)[:limit][-1:] or [math.inf]
    ranked = combined.rank(limit=limit, among=among)
    assert {v.video_id for v in ranked} == {v for v, s in chosen.items() if s >= last[0]}  # exact: multiples of 1/8
    assert all(video.score == pytest.approx(chosen[video.video_id], abs=1e-9) for video in ranked)
    assert [v.score for v in ranked] == sorted((v.score for v in ranked), reverse=True)


@settings(deadline=None)
@given(worlds(2), st.sampled_from([2.0, 3.0, 6.0]), st.sampled_from([0.25, 0.5]), st.integers(1, 5))
def test_the_best_pair_is_in_order_and_within_the_maximum_distance(world, within_s, share, limit):
    first, then = world
    expected = {}
    for v in first.curves:
        one, other = first.by_hand(v), then.by_hand(v)
        pairs = [
            (1 - share) * one[i] + share * other[j]
            for j in range(len(one))
            for i in range(j)
            if STEP_S * (j - i) <= within_s
        ]
        if pairs:
            expected[v] = max(pairs)
    combined = CombinedQuery([Term(first)], then=Term(then, share), within_s=within_s, duration_s=duration_s(first))
    assert isinstance(combined, PreparedQuery)
    check_ranking(combined, expected, limit)
    check_ranking(combined, expected, limit, among=set(list(first.curves)[::2]))
    for v, score in expected.items():
        pairs = combined.pairs(v, limit=3)
        assert combined.pair_score(*pairs[0]) == pytest.approx(score)
        for one, other in pairs:
            assert 0 <= one.start_s < one.end_s <= other.start_s < other.end_s <= duration_s(first)(v)
        firsts = sorted((one.start_s, one.end_s) for one, _ in pairs)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(firsts))


@settings(deadline=None)
@given(worlds(3), st.sampled_from([0.5, 2.0]), st.sampled_from([-0.5, 0.0, 0.25]), st.integers(1, 5))
def test_an_exclusion_subtracts_its_excess_over_the_usual_score(world, without, usual, limit):
    term, *exclusions = world
    expected = {
        v: max(
            w - without * max(0.0, *(u - usual for u in excluded))
            for w, *excluded in zip(term.by_hand(v), *(part.by_hand(v) for part in exclusions), strict=True)
        )
        for v in term.curves
    }
    parts = [Exclusion(part, usual) for part in exclusions]
    combined = CombinedQuery([Term(term)], exclusions=parts, without=without, duration_s=duration_s(term))
    check_ranking(combined, expected, limit)
    for v, score in expected.items():
        assert combined.moments(v, limit=1)[0].score == pytest.approx(score)


@pytest.mark.parametrize(
    ("nowhere", "expected"),
    [
        # The excess in the first shot, from 0 to 5 s, is 0.5 - 0.25; in the second it is 0.
        (False, [0.5, 0.25, 0.25, 0.25, 0.5]),
        (True, [0.5, 0.25, 0.25, 0.0, 0.25]),
    ],
)
def test_an_exclusion_counts_in_its_whole_shot_or_video(nowhere, expected):
    term = Curves({"v": np.array([0.75, 0.5, 0.5, 0.25, 0.5])})
    unwanted = Curves({"v": np.array([0.0, 0.5, 0.0, 0.0, 0.25])}, starts_s=np.array([0.0, 5.0]))
    combined = CombinedQuery(
        [Term(term)], exclusions=[Exclusion(unwanted, 0.25)], duration_s=duration_s(term), nowhere=nowhere
    )
    assert combined.relevance("v")[1].tolist() == expected
    assert combined.rank(limit=1) == [RankedVideo("v", 0.5)]


@settings(deadline=None)
@given(worlds(2), st.sampled_from([1.0, 3.0]), st.integers(1, 5))
def test_terms_are_averaged_by_their_weights(world, weight, limit):
    first, second = world
    expected = {
        v: max(a + weight * b for a, b in zip(first.by_hand(v), second.by_hand(v), strict=True)) / (1 + weight)
        for v in first.curves
    }
    check_ranking(CombinedQuery([Term(first), Term(second, weight)], duration_s=duration_s(first)), expected, limit)


@settings(deadline=None)
@given(st.lists(numbers, min_size=1, max_size=40), st.integers(1, 9))
def test_best_earlier_times_equals_a_search_through_all_times(values, within):
    place, value = best_earlier_times(np.array(values), np.arange(len(values), dtype=float), float(within))
    for j in range(len(values)):
        previous = values[max(0, j - within) : j]
        assert value[j] == (max(previous) if previous else -math.inf)
        assert not previous or place[j] == max(0, j - within) + previous.index(max(previous))


def test_a_moment_extends_to_half_of_its_peak_and_slopes_are_not_moments():
    # The mean is 2.5, so the threshold is 5.25 for the peak 8 and 4.25 for the value 6.
    curves = Curves({"v": np.array([0.0, 6.0, 8.0, 0.0, 0.0, 5.0, 1.0, 0.0])})
    actual = CombinedQuery([Term(curves)], duration_s=lambda _: 16.0).moments("v", limit=2)
    assert actual == [Moment(1.0, 5.0, 8.0), Moment(9.0, 11.0, 5.0)]
    more = CombinedQuery([Term(curves)], duration_s=lambda _: 16.0).moments("v", limit=9)
    assert more[2:] == [], "the slopes of a moment are not moments"


def test_the_peak_of_a_moment_is_its_best_time():
    curves = Curves({"v": np.array([0.0, 6.0, 8.0, 0.0, 0.0, 5.0, 1.0, 0.0])})
    moments = CombinedQuery([Term(curves)], duration_s=lambda _: 16.0).moments("v", limit=2)
    assert [moment.peak_s for moment in moments] == [4.0, 10.0]


@settings(deadline=None)
@given(worlds(2), st.sampled_from([2.0, 3.0, 5.0]))
def test_spans_are_at_least_as_long_as_requested_except_the_best_pair_of_a_short_video(world, min_s):
    first, then = world
    combined = CombinedQuery([Term(first)], then=Term(then, 0.5), within_s=6.0, duration_s=duration_s(first))
    for v in first.curves:
        pairs = combined.pairs(v, limit=4, min_s=min_s)
        assert len(pairs) >= min(1, len(combined.pairs(v, limit=1)))
        for one, other in pairs:
            assert 0 <= one.start_s <= one.peak_s <= one.end_s <= other.start_s < other.end_s <= duration_s(first)(v)
            assert other.start_s <= other.peak_s <= other.end_s
        assert all(m.end_s - m.start_s >= min_s - 1e-6 for pair in pairs[1:] for m in pair)
        firsts = sorted((one.start_s, one.end_s) for one, _ in pairs)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(firsts))


def test_without_a_limit_all_peaks_are_moments_that_are_half_as_high_as_the_best():
    # The mean is 2, so a peak must be at least (8 + 2) / 2 = 5.
    curves = Curves({"v": np.array([0.0, 8.0, 0.0, 5.0, 0.0, 4.0, 0.0, 1.0, 0.0])})
    moments = CombinedQuery([Term(curves)], duration_s=lambda _: 18.0).moments("v", limit=None)
    assert [moment.peak_s for moment in moments] == [2.0, 6.0]


def test_a_short_moment_is_widened_evenly():
    curves = Curves({"v": np.array([0.0, 0.0, 0.0, 8.0, 0.0, 0.0, 0.0, 0.0])})
    (moment,) = CombinedQuery([Term(curves)], duration_s=lambda _: 16.0).moments("v", limit=1, min_s=3.0)
    assert moment == Moment(4.5, 7.5, 8.0)


def test_few_videos_are_combined_if_others_cannot_be_among_the_best():
    ids = [str(n) for n in range(1000)]
    first = Curves({v: np.array([1.0 - int(v) / 1000] * 3) for v in ids})
    then = Curves({v: np.array([1.0 - int(v) / 1000] * 3) for v in ids})
    combined = CombinedQuery([Term(first)], then=Term(then, 0.5), duration_s=lambda _: 6.0)
    assert [video.video_id for video in combined.rank(limit=3)] == ["0", "1", "2"]
    assert len(combined._curves_of) < 50
