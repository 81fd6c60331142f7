import numpy as np
import pytest

from untrimmed.moments.ranked_moments import RankedMoments, suppress_ranked


def ranked(*moments):
    """One query; moments as (video, start, end, score)."""
    video, start, end, score = (np.array(column)[None] for column in zip(*moments, strict=True))
    spans = np.stack([start, end], axis=-1).astype(np.float32)
    return RankedMoments(video, spans, score.astype(np.float32))


def rows(moments, query=0):
    count = moments.count[query]
    return [
        (int(video), *span.tolist(), pytest.approx(float(score)))
        for video, span, score in zip(
            moments.video_index[query, :count], moments.span_s[query, :count], moments.score[query, :count], strict=True
        )
    ]


def one_by_one(moments, max_overlap, limit_per_video, limit):
    """Suppression for one query, moment by moment."""
    kept = []
    for video, span, score in zip(moments.video_index[0], moments.span_s[0], moments.score[0], strict=True):
        own = [other for v, other, _ in kept if v == video]
        overlaps = [(min(span[1], o[1]) - max(span[0], o[0])) / (max(span[1], o[1]) - min(span[0], o[0])) for o in own]
        if video >= 0 and len(own) < limit_per_video and not any(overlap > max_overlap for overlap in overlaps):
            kept.append((int(video), span, score))
    return [(v, *s.tolist(), pytest.approx(float(c))) for v, s, c in kept[:limit]]


def test_a_moment_inside_a_better_one_goes_and_that_of_another_video_stays():
    moments = ranked((3, 0, 10, 0.9), (3, 1, 9, 0.8), (5, 1, 9, 0.7), (3, 20, 30, 0.6))
    assert rows(suppress_ranked(moments)) == [(3, 0, 10, 0.9), (5, 1, 9, 0.7), (3, 20, 30, 0.6)]


def test_overlap_of_exactly_the_limit_stays():
    moments = ranked((0, 0, 10, 0.9), (0, 0, 5, 0.8))
    assert len(rows(suppress_ranked(moments, max_overlap=0.5))) == 2
    assert len(rows(suppress_ranked(moments, max_overlap=0.49))) == 1


def test_what_was_suppressed_suppresses_nothing():
    moments = ranked((0, 0, 10, 0.9), (0, 3, 13, 0.8), (0, 6, 16, 0.7))  # neighbours 7 / 13, the outer two 4 / 16
    assert rows(suppress_ranked(moments)) == [(0, 0, 10, 0.9), (0, 6, 16, 0.7)]


def test_both_limits_hold():
    moments = ranked(*[(video, 10 * i, 10 * i + 5, 0.9 - 0.1 * i - 0.01 * video) for i in range(4) for video in (0, 1)])
    assert rows(suppress_ranked(moments, limit_per_video=1)) == [(0, 0, 5, 0.9), (1, 0, 5, 0.89)]
    assert suppress_ranked(moments, limit=3).count.tolist() == [3]


def test_equal_scores_follow_the_best_rank_of_their_videos():
    moments = ranked((7, 0, 1, 0.9), (2, 0, 1, 0.8), (2, 5, 6, 0.5), (7, 5, 6, 0.5))
    assert rows(suppress_ranked(moments))[2:] == [(7, 5, 6, 0.5), (2, 5, 6, 0.5)]


def test_many_queries_at_once_give_what_each_gives_alone():
    rng = np.random.default_rng(0)
    num_queries, num_moments = 150, 60  # more than one block
    start = rng.uniform(0, 20, (num_queries, num_moments))
    span_s = np.stack([start, start + rng.uniform(1, 15, start.shape)], axis=-1).astype(np.float32)
    video = rng.integers(0, 9, start.shape)
    video[np.arange(num_moments) >= rng.integers(0, num_moments, num_queries)[:, None]] = -1
    score = np.sort(rng.uniform(0, 1, start.shape).astype(np.float32), axis=1)[:, ::-1]
    everything = suppress_ranked(RankedMoments(video, span_s, score), limit_per_video=4, limit=17)
    for q in range(num_queries):
        alone = RankedMoments(video[q : q + 1], span_s[q : q + 1], score[q : q + 1])
        assert rows(everything, q) == one_by_one(alone, 0.5, 4, 17)


def test_no_query_and_no_moment_give_nothing():
    assert suppress_ranked(RankedMoments.empty(0)).video_index.shape == (0, 0)
    assert suppress_ranked(RankedMoments.empty(3)).count.tolist() == [0, 0, 0]


def test_the_best_of_parts_are_ordered_as_in_one_list():
    first, second = ranked((0, 0, 1, 0.9), (0, 2, 3, 0.5)), ranked((0, 0, 1, 0.7), (1, 0, 1, 0.5)).shifted(4)
    best = RankedMoments.best([first, second], 3)
    assert rows(best) == [(0, 0, 1, 0.9), (4, 0, 1, 0.7), (0, 2, 3, 0.5)]


def test_padding_never_beats_a_negative_score():
    part, other = ranked((0, 0, 1, -0.5), (-1, 0, 0, 0.0)), ranked((1, 0, 1, -0.9), (-1, 0, 0, 0.0))
    assert RankedMoments.best([part, other], 4).video_index.tolist() == [[0, 1, -1, -1]]
