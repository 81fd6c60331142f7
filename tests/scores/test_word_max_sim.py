"""Scores of words and frames: computed by hand, compared with a dense computation, with padding, and with gradients."""

import pytest
import torch
import torch.nn.functional as F

from untrimmed.scores import max_sim
from untrimmed.scores.max_sim import best_rows
from untrimmed.scores.word_max_sim import WordMaxSim


def world(dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    words = torch.randn(4, 3, 6, generator=generator, dtype=dtype)
    word_mask = torch.arange(3) < torch.tensor([3, 1, 2, 2])[:, None]
    frames = torch.randn(2, 5, 6, generator=generator, dtype=dtype)
    frame_mask = torch.arange(5) < torch.tensor([5, 2])[:, None]
    return words, word_mask, frames, frame_mask


def scorer(dim: int = 6) -> WordMaxSim:
    torch.manual_seed(0)
    return WordMaxSim(dim)


def dense(words, frames, mask):
    sim = torch.einsum("nd,vtd->nvt", F.normalize(words, dim=-1), F.normalize(frames, dim=-1))
    return sim.masked_fill(~mask, -torch.inf).amax(dim=-1)


def test_padding_of_words_and_frames_changes_nothing():
    words, word_mask, frames, frame_mask = world()
    model = scorer()
    clean = model(words, word_mask, frames, frame_mask).value
    noisy_words = torch.where(word_mask[..., None], words, 50.0)
    noisy_frames = torch.where(frame_mask[..., None], frames, 50.0)
    assert torch.equal(model(noisy_words, word_mask, noisy_frames, frame_mask).value, clean)


def test_padding_beats_a_negative_similarity_only_with_a_zero_floor():
    model, one = scorer(2), torch.ones(1, 1, dtype=torch.bool)
    words, frames = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[-1.0, 0.0], [0.0, 0.0]]])
    mask = torch.tensor([[True, False]])
    assert model(words, one, frames, mask).value.item() == pytest.approx(-1)
    assert model(words, one, frames, mask, zero_floor=torch.tensor([True])).value.item() == 0


def test_scores_do_not_depend_on_other_videos(monkeypatch):
    words, word_mask, frames, frame_mask = world()
    model = scorer()
    whole = model(words, word_mask, frames, frame_mask)
    monkeypatch.setattr(max_sim, "SIMILARITIES_AT_A_TIME", 1)
    parts = model(words, word_mask, frames, frame_mask)
    assert torch.allclose(parts.value, whole.value, atol=1e-6)
    assert torch.equal(parts.best, whole.best)


def test_gradients_are_those_of_the_dense_similarities():
    words, word_mask, frames, frame_mask = world(torch.float64)
    rows = words[word_mask]
    weights = torch.randn(len(rows), 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    gradients = []
    for maxima in (lambda w, f: best_rows(w, f, frame_mask)[0], lambda w, f: dense(w, f, frame_mask)):
        leaves = rows.clone().requires_grad_(), frames.clone().requires_grad_()
        (maxima(*leaves) * weights).sum().backward()
        gradients.append([leaf.grad for leaf in leaves])
    for ours, theirs in zip(*gradients, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)


def test_best_is_the_best_frame_of_the_most_confident_word():
    words, word_mask, frames, frame_mask = world()
    model = scorer()
    best = model(words, word_mask, frames, frame_mask).best
    top = model.weights(words, word_mask).argmax(dim=1)
    for q in range(4):
        cosines = F.cosine_similarity(words[q, top[q]], frames, dim=-1).masked_fill(~frame_mask, -2)
        assert best[q].tolist() == cosines.argmax(dim=1).tolist()


def test_dot_products_read_confidences_from_raw_words():
    words, word_mask, _, _ = world()
    model = scorer()
    assert torch.allclose(model.weights(3 * words, word_mask), model.weights(words, word_mask), atol=1e-6)
    assert not torch.allclose(model.weights(3 * words, word_mask, "dot"), model.weights(words, word_mask, "dot"))


def test_the_papers_confidences_are_the_perceptrons_output():
    model = WordMaxSim(2, "paper")
    with torch.no_grad():
        model.hidden.weight.copy_(torch.eye(2))
        model.hidden.bias.zero_()
        model.confidence.weight.copy_(torch.tensor([[2.0, -3.0]]))
        model.confidence.bias.fill_(0.5)
    words, mask = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [9.0, 9.0]]]), torch.tensor([[True, True, False]])
    for similarity in ("cosine", "dot"):
        assert model.weights(words, mask, similarity).tolist() == [[2.5, -5.5, 0.0]]  # 2 * 1 + 0.5 and -3 * 2 + 0.5
    frames = torch.tensor([[[3.0, 0.0], [3.0, 4.0], [0.0, -1.0]]])
    score = model(words, mask, frames, torch.ones(1, 3, dtype=torch.bool))
    assert score.value.item() == pytest.approx(2.5 * 1 - 5.5 * 0.8)


def test_even_confidences_are_the_mean_over_real_words():
    words, mask, _, _ = world()
    weights = WordMaxSim(6, "even").weights(words, mask)
    expected = [[1 / 3, 1 / 3, 1 / 3], [1, 0, 0], [0.5, 0.5, 0], [0.5, 0.5, 0]]
    assert torch.allclose(weights, torch.tensor(expected))
