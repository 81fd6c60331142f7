import itertools

import pytest
import torch
import torch.nn.functional as F

from untrimmed.losses.matching import matched_pairs, optimal_matching


def test_the_assignment_is_the_best_of_all():
    generator = torch.Generator().manual_seed(3)
    query, clips = torch.randn(3, 6, generator=generator), torch.randn(1, 4, 6, generator=generator)
    cosine = F.normalize(query, dim=-1) @ F.normalize(clips[0], dim=-1).T
    best = max(sum(cosine[q, c] for q, c in enumerate(choice)) for choice in itertools.permutations(range(4), 3))
    pairs = matched_pairs(query, clips, torch.zeros(3, dtype=torch.long))
    assert sum(cosine[q, c] for _, q, c in pairs.tolist()).item() == pytest.approx(best.item())


def test_two_queries_with_the_same_best_clip_get_different_clips():
    query = torch.tensor([[1.0, 0.0], [0.9, 0.1]])
    clips = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    assert matched_pairs(query, clips, torch.tensor([0, 0])).tolist() == [[0, 0, 0], [0, 1, 1]]


def test_more_queries_than_clips_leave_some_unmatched():
    pairs = matched_pairs(torch.randn(5, 3), torch.randn(1, 2, 3), torch.zeros(5, dtype=torch.long))
    assert len(pairs) == 2


def test_videos_with_one_query_are_skipped_and_without_pairs_the_loss_is_zero():
    query, clips = torch.randn(2, 3, requires_grad=True), torch.randn(2, 4, 3, requires_grad=True)
    loss = optimal_matching(query, clips, torch.tensor([0, 1]))
    loss.backward()
    assert loss.item() == 0
    assert query.grad.abs().sum() == 0


def test_only_the_papers_form_matches_videos_with_one_query():
    query = torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]])
    clips = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 2.0]]])
    index = torch.tensor([0, 0, 1])
    # video 0: distances 0, 0; video 1: the better of cosines 0.6 and 0.8
    assert optimal_matching(query, clips, index).item() == pytest.approx(0, abs=1e-6)
    assert optimal_matching(query, clips, index, reduction="paper").item() == pytest.approx(0.2 / 2, abs=1e-6)


def test_padding_is_never_matched():
    clips = torch.tensor([[[0.0, 1.0], [0.1, 1.0], [1.0, 0.0]]])
    mask = torch.tensor([[True, True, False]])
    pairs = matched_pairs(torch.tensor([[1.0, 0.0], [1.0, 0.1]]), clips, torch.tensor([0, 0]), mask)
    assert set(pairs[:, 2].tolist()) == {0, 1}


def test_released_and_paper_averages_differ_when_videos_have_different_numbers_of_pairs():
    query = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    clips = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, -1.0], [0.0, 1.0]]])
    index = torch.tensor([0, 0, 1, 1, 1])
    # video 0: distances 0, 0; video 1: 1, 1, 1
    assert optimal_matching(query, clips, index).item() == pytest.approx(3 / 5)
    assert optimal_matching(query, clips, index, reduction="paper").item() == pytest.approx(0.5)


def test_queries_of_a_video_need_not_be_consecutive():
    query, clips = torch.randn(4, 3), torch.randn(2, 5, 3)
    index, order = torch.tensor([1, 0, 1, 0]), torch.tensor([1, 3, 0, 2])
    mixed = optimal_matching(query, clips, index)
    assert mixed.item() == pytest.approx(optimal_matching(query[order], clips, index[order]).item())
