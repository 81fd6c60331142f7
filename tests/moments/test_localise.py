from functools import partial

import pytest
import torch
import torch.nn.functional as F

from tests.refusals import refused
from untrimmed.errors import ConfigError, FeatureError
from untrimmed.moments import localise
from untrimmed.moments.gaussian_proposals import Proposals, centered_proposals, pool
from untrimmed.moments.localise import LocateSettings, rank_windows, window_similarities
from untrimmed.moments.ranked_moments import suppress_ranked
from untrimmed.scores.max_sim import cosines

PROPOSALS = centered_proposals(16, 10, min_width=0.05, max_width=1.0)


def random_units(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def rank(query, units, mask, duration_s, **settings):
    similarities = window_similarities(partial(cosines, query), units, mask, PROPOSALS)
    return rank_windows(similarities, len(query), PROPOSALS, duration_s, LocateSettings(**settings))


def test_a_planted_moment_is_found_in_its_video_and_in_seconds():
    query, background = F.normalize(random_units(2, 16, seed=1), dim=-1)
    units = background + 0.1 * random_units(5, 40, 16)
    units[3, 20:30] += query
    located = suppress_ranked(rank(query[None], units, None, torch.full((5,), 80.0)))
    start_s, end_s = located.span_s[0, 0].tolist()
    assert located.video_index[0, 0] == 3
    assert 40 <= start_s < end_s <= 60  # frames 20 to 29 of 40 in 80 seconds


def test_a_window_reads_the_rows_that_it_covers():
    """From 1/4 to 2/4 of a video of four rows it is row 1; rows at i / 3 would put it between rows 1 and 2."""
    proposals = Proposals(torch.tensor([0.375, 0.625]), torch.tensor([0.25, 0.25]))
    similarities = window_similarities(partial(cosines, torch.eye(4)), torch.eye(4)[None], None, proposals)
    assert torch.allclose(similarities(slice(0, 1))[:, 0], torch.eye(4)[:, 1:3], atol=1e-3)


def test_spans_are_clipped_to_the_duration_of_their_own_video():
    durations = torch.tensor([3.0, 50.0])
    located = rank(random_units(4, 6), random_units(2, 9, 6), None, durations)
    assert located.span_s.min() >= 0
    assert (located.span_s[..., 1] <= durations.numpy()[located.video_index]).all()
    assert (located.span_s[..., 1] > located.span_s[..., 0]).all()


def test_windows_span_the_real_units_whatever_the_padding_holds():
    units, mask = random_units(2, 7, 3), torch.arange(7) < torch.tensor([4, 7])[:, None]
    units[0, 4:] = torch.nan
    padded = pool(units, PROPOSALS, "gaussian", mask)
    assert torch.allclose(padded[0], pool(units[:1, :4], PROPOSALS, "gaussian")[0], atol=1e-5)
    assert torch.allclose(padded[1], pool(units[1:], PROPOSALS, "gaussian")[0], atol=1e-5)


@pytest.mark.parametrize("row_times", ["released", "middle"])
@pytest.mark.parametrize("pooling", ["gaussian", "density", "mean"])
def test_every_pooling_leaves_out_padding(pooling, row_times):
    units, mask = random_units(1, 7, 3), torch.arange(7)[None] < 4
    padded = pool(units, PROPOSALS, pooling, mask, row_times)
    assert torch.allclose(padded, pool(units[:, :4], PROPOSALS, pooling, None, row_times), atol=1e-4)


def test_one_unit_is_a_video_too():
    located = rank(random_units(1, 6), random_units(1, 1, 6), torch.tensor([[True]]), torch.tensor([5.0]))
    assert located.count.tolist() == [10]


def test_videos_in_chunks_give_what_they_give_at_once(monkeypatch):
    query, units, durations = random_units(3, 6), random_units(11, 9, 6), torch.arange(1.0, 12.0)
    whole = rank(query, units, None, durations, before_suppression=25)
    monkeypatch.setattr(localise, "NUMBERS_AT_A_TIME", 2 * 512 * 160)  # two videos
    parts = rank(query, units, None, durations, before_suppression=25)
    assert whole.video_index.tolist() == parts.video_index.tolist()
    assert whole.score == pytest.approx(parts.score, abs=1e-6)
    assert whole.score.shape == (3, 25)


def test_the_score_of_a_video_lifts_its_moments():
    query, units = random_units(1, 6), random_units(4, 9, 6)
    similarities = window_similarities(partial(cosines, query), units, None, PROPOSALS)
    lift = torch.tensor([[0.0, 0.0, 5.0, 0.0]])
    lifted = rank_windows(similarities, 1, PROPOSALS, torch.ones(4), LocateSettings(per_video=3), lift)
    assert lifted.video_index[0, :3].tolist() == [2, 2, 2]
    assert lifted.score[0, 0] > 4


def test_a_video_without_duration_is_refused():
    with refused(FeatureError, "1", "nan"):
        rank(random_units(1, 6), random_units(2, 9, 6), None, torch.tensor([4.0, torch.nan]))


@pytest.mark.parametrize("wrong", [{"per_video": 0}, {"limit": 0}, {"max_overlap": 1.5}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        LocateSettings(**wrong)
