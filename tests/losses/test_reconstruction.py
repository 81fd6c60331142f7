import math

import pytest
import torch

from untrimmed.losses.reconstruction import frame_reconstruction, masked_word_nce, masked_words


@pytest.mark.parametrize(("num_words", "hidden"), [(1, 1), (2, 1), (4, 1), (5, 2), (7, 2), (8, 3), (30, 10)])
def test_a_third_of_the_words_is_hidden_rounded_but_at_least_one(num_words, hidden):
    mask = torch.arange(30)[None] < num_words
    chosen = masked_words(mask, torch.rand(1, 30), share=1 / 3)
    assert chosen.sum() == hidden
    assert not (chosen & ~mask).any()


def test_a_query_without_words_hides_none():
    assert not masked_words(torch.zeros(1, 3, dtype=torch.bool), torch.rand(1, 3), share=0.5).any()


def test_infonce_equals_a_loop_over_words():
    torch.manual_seed(0)
    decoded, target, query = torch.randn(5, 4), torch.randn(5, 4), torch.tensor([0, 0, 0, 2, 2])
    cosine = lambda a, b: (a @ b / a.norm() / b.norm()).item()  # noqa: E731
    losses = {0: [], 2: []}
    for i in range(5):
        own = math.exp(cosine(decoded[i], target[i]) / 0.5)
        others = sum(math.exp(cosine(decoded[i], target[j]) / 0.5) for j in range(5))
        losses[query[i].item()].append(-math.log(own / others))
    expected = sum(sum(values) / len(values) for values in losses.values()) / 2
    assert masked_word_nce(decoded, target, query, temperature=0.5).item() == pytest.approx(expected, abs=1e-6)


def test_no_hidden_word_costs_nothing():
    none = torch.zeros(0, 4)
    assert masked_word_nce(none, none, torch.zeros(0, dtype=torch.long), temperature=1.0) == 0


def test_frames_are_averaged_within_a_video_first():
    # Video 1: distances 1 and 3 -> 2; video 2: one real frame, distance 6; mean 4.
    frames = torch.tensor([[[1.0, 0.0], [1.0, 2.0**0.5]], [[2.0, 2.0**0.5], [9.0, 9.0]]])
    mask = torch.tensor([[True, True], [True, False]])
    assert frame_reconstruction(torch.zeros_like(frames), frames, mask).item() == pytest.approx(4, abs=1e-6)
    assert frame_reconstruction(frames, frames, mask) == 0
