import pytest
import torch

from untrimmed.scores import max_sim as tiles
from untrimmed.scores.max_sim import best_rows_in_bfloat16, cosines, max_sim, products, vector_sim, zero_floor
from untrimmed.scores.score import Score, Scores

QUERY = torch.tensor([[1.0, 0.0]])
NEGATIVE = torch.tensor([[[-1.0, 0.0], [-3.0, 4.0], [0.0, 0.0]]])  # cosines -1, -0.6 and a padded row
MASK = torch.tensor([[True, True, False]])


def test_padding_never_beats_a_negative_similarity():
    score = max_sim(QUERY, NEGATIVE, MASK)
    assert score.value.item() == pytest.approx(-0.6)
    assert score.best.item() == 1


def test_with_the_released_zero_floor_padding_wins_but_the_best_frame_stays_real():
    score = max_sim(QUERY, NEGATIVE, MASK, zero_floor=zero_floor(MASK.sum(dim=1), 4, "zero"))
    assert score.value.item() == 0
    assert score.best.item() == 1


def test_a_video_of_full_length_has_no_zero_floor():
    mask = torch.ones(1, 3, dtype=torch.bool)
    assert zero_floor(mask.sum(dim=1), 3, "zero").tolist() == [False]
    assert zero_floor(mask.sum(dim=1), 4, "zero").tolist() == [True]
    assert zero_floor(mask.sum(dim=1), 4, "excluded") is None


def test_no_gradient_flows_through_a_floored_score():
    clips = NEGATIVE.clone().requires_grad_()
    max_sim(QUERY, clips, MASK, zero_floor=torch.tensor([True])).value.sum().backward()
    assert clips.grad.abs().sum() == 0


def test_the_best_row_by_dot_product_can_differ_from_that_by_cosine():
    clips = torch.tensor([[[1.0, 0.0], [2.0, 9.0]]])
    assert max_sim(QUERY, clips).best.item() == 0
    assert max_sim(QUERY, clips, similarity="dot").best.item() == 1


def test_scores_are_queries_by_videos():
    score = max_sim(torch.randn(3, 5), torch.randn(4, 2, 5))
    assert score.value.shape == score.best.shape == (3, 4)


def test_a_video_of_one_vector_has_no_best_clip():
    score = vector_sim(QUERY, torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
    assert score.value.tolist() == [[1.0, 0.0]]
    assert score.best is None


def test_only_weighted_branches_are_fused():
    scores = Scores({"a": Score(torch.tensor([[1.0]])), "b": Score(torch.tensor([[9.0]]))}, {"a": 0.5})
    assert scores.fused.item() == 0.5
    assert scores["b"].value.item() == 9


def test_cosines_are_the_same_for_few_queries_for_many_and_for_those_that_are_trained():
    rows = torch.randn(4, 3, 5, dtype=torch.float64)
    rows[1, 2] = 0
    queries = torch.randn(7, 5, dtype=torch.float64)
    many, few = cosines(queries, rows), cosines(queries[:2], rows)
    wanted = torch.nn.functional.cosine_similarity(queries[:, None, None], rows, dim=-1)
    assert torch.allclose(many, wanted, atol=1e-12)
    assert torch.allclose(few, wanted[:2], atol=1e-12)
    assert (few[:, 1, 2] == 0).all()
    trained = cosines(queries[:2].requires_grad_(), rows)
    assert trained.requires_grad
    assert torch.allclose(trained, few, atol=1e-12)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("sizes", [(512, 16), (3, 2)])
def test_best_rows_in_bfloat16_are_those_of_float32_and_values_lose_little(similarity, sizes, monkeypatch):
    for name, size in zip(("TILE_QUERIES", "TILE_VIDEOS"), sizes, strict=True):
        monkeypatch.setattr(tiles, name, size)
    torch.manual_seed(0)
    common = torch.randn(5, 1, 32)
    query, rows = torch.randn(7, 32) - common[0], common + 0.3 * torch.randn(5, 9, 32)
    mask = torch.rand(5, 9) < 0.6
    mask[1], mask[2, 0], mask[3] = True, False, False  # a full video, one whose first row is padding, one of padding
    rows[~mask] = 100 * torch.randn(32)  # means nothing
    score = max_sim(query, rows, mask, similarity=similarity)
    with best_rows_in_bfloat16(True):
        narrow = max_sim(query, rows, mask, similarity=similarity)
    assert (narrow.value[:, 3] == -torch.inf).all()
    some = [0, 1, 2, 4]
    near = 2e-3 * score.value[:, some].abs().max()
    assert 0 < (narrow.value - score.value)[:, some].abs().max() < near
    every = cosines(query, rows) if similarity == "cosine" else products(query, rows)
    chosen = every.masked_fill(~mask, -torch.inf).gather(2, narrow.best[..., None])[..., 0]
    assert ((score.value - chosen)[:, some] < near).all()
