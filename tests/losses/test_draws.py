import torch

from untrimmed.losses.draws import Draws


def seeded(hard_pool: int | None = None) -> Draws:
    return Draws(hard_pool, torch.Generator().manual_seed(0))


def test_easy_negatives_are_drawn_evenly_from_all_others():
    ranks = seeded().candidate_ranks("clip", 12_000, 5)
    counts = torch.bincount(ranks, minlength=5)
    assert counts[0] == 0
    assert (counts[1:] - 3000).abs().max() < 200


def test_hard_negatives_stay_within_the_pool():
    assert set(seeded(3).candidate_ranks("clip", 500, 100).tolist()) == {1, 2, 3}


def test_a_pool_larger_than_the_batch_is_cut_to_it():
    assert set(seeded(20).candidate_ranks("clip", 500, 3).tolist()) == {1, 2}


def test_the_hardest_foreign_query_is_taken_in_hard_mode():
    assert seeded(5).foreign_ranks("clip", torch.tensor([4, 9])).tolist() == [0, 0]


def test_easy_foreign_queries_are_drawn_evenly_and_in_range():
    ranks = seeded().foreign_ranks("clip", torch.full((9_000,), 3))
    assert (torch.bincount(ranks) - 3000).abs().max() < 200
    assert seeded().foreign_ranks("clip", torch.tensor([0])).tolist() == [0]


def test_a_single_candidate_has_no_negative():
    assert seeded().candidate_ranks("clip", 2, 1).tolist() == [0, 0]


def test_terms_draw_independently():
    draws = seeded()
    first, second = draws.candidate_ranks("clip", 50, 100), draws.candidate_ranks("frame", 50, 100)
    assert not torch.equal(first, second)
