import math

import pytest
import torch

from untrimmed.losses.nce import nce
from untrimmed.losses.soft_nce import soft_nce, soft_nce_parts

INDEX = torch.tensor([0, 0, 1, 2])


@pytest.fixture
def scores():
    torch.manual_seed(3)
    return torch.randn(4, 3)


def loop_version(scores, guide, index, hard_share, label_share):
    """The soft InfoNCE of DL-DKD++ as released, written caption by caption and video by video.

    Rows from `hard_share` of the batch on have labels mixed from the guide's softmax and the truth; a video's labels
    enter as logarithms beside the scores, plus 1e-12.
    """
    num_queries, num_videos = scores.shape
    true = [[float(index[q] == v) for v in range(num_videos)] for q in range(num_queries)]
    hq, hv = math.floor(hard_share * num_queries), math.floor(hard_share * num_videos)
    e, d = [], []
    for q in range(num_queries):
        proposed = guide[q].softmax(0).tolist()
        total = scores[q].logsumexp(0).item()
        labels = [
            true[q][v] if q < hq else (1 - label_share) * proposed[v] + label_share * true[q][v]
            for v in range(num_videos)
        ]
        e.append(sum(labels[v] * (total - scores[q, v].item()) for v in range(num_videos)))
    for v in range(num_videos):
        proposed = guide[:, v].softmax(0).tolist()
        inner = 0.0
        for q in range(num_queries):
            label = true[q][v] if v < hv else (1 - label_share) * proposed[q] + label_share * true[q][v]
            inner += (label + 1e-12) * math.exp(scores[q, v].item())
        d.append(scores[:, v].logsumexp(0).item() - math.log(inner))
    mean = lambda values: sum(values) / len(values)  # noqa: E731
    hard = mean(e[:hq]) + mean(d[:hv]) if hq and hv else 0.0
    soft = mean(e[hq:]) + mean(d[hv:]) if e[hq:] and d[hv:] else 0.0
    return hard_share * hard + (1 - hard_share) * soft


@pytest.mark.parametrize(("hard_share", "label_share"), [(0.8, 0.8), (0.5, 0.5), (0.2, 0.0), (0.0, 0.7), (1.0, 0.3)])
def test_it_equals_a_loop_over_captions_and_videos(scores, hard_share, label_share):
    guide = torch.randn(4, 3)
    value = soft_nce(scores, guide, INDEX, hard_share=hard_share, label_share=label_share)
    assert value.item() == pytest.approx(loop_version(scores, guide, INDEX, hard_share, label_share), abs=1e-5)


def test_with_hard_labels_only_it_is_infonce(scores):
    value = soft_nce(scores, -scores, INDEX, hard_share=1.0, label_share=0.2)
    assert value.item() == pytest.approx(nce(scores, INDEX).item(), abs=1e-5)


def test_a_part_without_videos_counts_nothing_even_if_it_has_queries(scores):
    parts = soft_nce_parts(scores, scores, INDEX, hard_share=0.3, label_share=0.5)  # 1 of 4 queries, 0 of 3 videos
    assert parts.hard_queries == parts.hard_videos == 0
    assert parts.soft_queries > 0


def test_gradients_reach_the_guide(scores):
    guide = torch.randn(4, 3, requires_grad=True)
    soft_nce(scores, guide, INDEX, hard_share=0.5, label_share=0.5).backward()
    assert guide.grad.abs().sum() > 0
