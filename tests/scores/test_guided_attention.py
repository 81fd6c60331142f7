import pytest
import torch
import torch.nn.functional as F

from untrimmed.scores.guided_attention import GuidedAttention

GENERATOR = torch.Generator().manual_seed(1)
FRAMES = torch.randn(3, 6, 4, generator=GENERATOR)
MASK = torch.tensor([[True] * 6, [True] * 2 + [False] * 4, [True] + [False] * 5])
CLIPS = torch.randn(3, 5, 4, generator=GENERATOR)


@pytest.fixture
def attention() -> GuidedAttention:
    torch.manual_seed(0)
    return GuidedAttention(4)


@pytest.mark.parametrize("num_queries", [1, 4, 12])
def test_few_and_many_queries_give_the_same_scores_as_pair_by_pair(attention, num_queries):
    query = torch.randn(num_queries, 4)
    key_clip = torch.randint(0, 5, (num_queries, 3))
    score = attention.score(query, FRAMES, MASK, CLIPS, key_clip)
    for q in range(num_queries):
        for v in range(3):
            seen = attention(FRAMES[v : v + 1], MASK[v : v + 1], CLIPS[v : v + 1, key_clip[q, v]][:, None])[0, 0]
            assert score.value[q, v].item() == pytest.approx(
                F.cosine_similarity(query[q], seen, dim=0).item(), abs=1e-6
            )
    assert torch.equal(score.best, key_clip)


def test_positive_pairs_agree_with_all_pairs(attention):
    index, key_clip = torch.tensor([2, 0, 1, 1]), torch.randint(0, 5, (4, 3))
    own_key = key_clip.gather(1, index[:, None])[:, 0]
    positives = attention.of_positives(FRAMES, MASK, CLIPS, own_key, index)
    pairs = attention.of_all_pairs(FRAMES, MASK, CLIPS, key_clip)
    assert torch.allclose(positives, pairs[index, torch.arange(4)], atol=1e-6)


def test_padded_frames_change_nothing(attention):
    altered = FRAMES.clone()
    altered[1, 2:] = 100.0
    assert torch.equal(attention(altered, MASK, CLIPS), attention(FRAMES, MASK, CLIPS))


def test_pooling_a_single_frame_returns_it_for_every_clip(attention):
    seen = attention(FRAMES[2:, :1], None, CLIPS[2:])
    assert torch.allclose(seen, attention.value(FRAMES[2:, :1]).expand(1, 5, 4), atol=1e-6)


def test_mapping_the_guides_equals_mapping_the_frames(attention):
    guides = torch.cat([CLIPS, CLIPS], dim=1)
    many = attention(FRAMES, MASK, guides)  # more guides than frames
    few = torch.cat([attention(FRAMES, MASK, guides[:, i : i + 1]) for i in range(guides.shape[1])], dim=1)
    logits = guides @ attention.key(FRAMES).transpose(1, 2)
    expected = logits.masked_fill(~MASK[:, None], -1e9).softmax(dim=-1) @ attention.value(FRAMES)
    assert torch.allclose(many, expected, atol=1e-6)
    assert torch.allclose(few, expected, atol=1e-6)
