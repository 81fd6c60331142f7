import pytest
import torch

from untrimmed.losses.triplet import (
    negative_queries,
    negative_videos,
    num_foreign_queries,
    triplet_of_pairs,
    triplet_of_queries,
    triplet_of_videos,
)

SCORES = torch.tensor([[0.5, 0.9, 0.1], [0.2, 0.3, 0.8], [0.6, 0.4, 0.7]])
INDEX = torch.tensor([0, 0, 2])  # video 1 has no query


def test_ranks_choose_negatives_below_a_positive_kept_at_rank_zero():
    # row 0 has its positive 0.5 at rank 0, then 0.9 (video 1), then 0.1 (video 2)
    assert negative_videos(SCORES, INDEX, torch.tensor([1, 1, 2])).tolist() == [1, 2, 1]


def test_foreign_queries_are_ordered_by_score_with_the_best_at_rank_zero():
    # video 0: only query 2 is foreign; video 1: all, 0.9 first; video 2: queries 1 (0.8) then 0
    assert negative_queries(SCORES, INDEX, torch.tensor([0, 0, 1])).tolist() == [2, 0, 0]


def test_the_papers_video_side_takes_one_query_at_a_time():
    # video 0 with query 0: 0.2 + 0.6 - 0.5, with query 1: 0.2 + 0.6 - 0.2; video 2 with query 2: 0.2 + 0.1 - 0.7 < 0
    value = triplet_of_pairs(SCORES, INDEX, torch.tensor([0, 0, 1]), margin=0.2)
    assert value.item() == pytest.approx((0.3 + 0.6 + 0.0) / 3)


def test_gradients_reach_the_chosen_scores_only():
    scores = SCORES.clone().requires_grad_()
    triplet_of_queries(scores, INDEX, torch.tensor([1, 1, 1]), margin=0.2).backward()
    assert (scores.grad != 0).tolist() == [[True, True, False], [True, False, True], [True, False, True]]


def test_a_batch_of_one_video_costs_nothing():
    scores = torch.tensor([[0.1], [0.4]], requires_grad=True)
    index = torch.tensor([0, 0])
    assert num_foreign_queries(index, 1).tolist() == [0]
    loss = triplet_of_queries(scores, index, torch.zeros(2, dtype=torch.long), margin=0.2)
    loss = loss + triplet_of_videos(scores, index, torch.zeros(1, dtype=torch.long), margin=0.2)
    loss = loss + triplet_of_pairs(scores, index, torch.zeros(2, dtype=torch.long), margin=0.2)
    loss.backward()
    assert loss.item() == 0
    assert scores.grad.abs().sum() == 0
