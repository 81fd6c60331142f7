"""Proxy matching and divergences: against loops, torch's own, and by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Independent, Normal, kl_divergence

from untrimmed.losses.distribution import kl_between, kl_to_normal, proxies_of_texts, proxies_of_videos, proxy_matching


def samples(videos: int = 3, texts: int = 3, proxies: int = 2):
    generator = torch.Generator().manual_seed(2)
    normal = lambda n: torch.randn(n, proxies, 4, generator=generator)  # noqa: E731
    return normal(videos), normal(texts)


def test_a_video_without_texts_is_only_a_negative():
    video, text = samples(videos=3, texts=2)
    index = torch.tensor([0, 2])
    kept = proxies_of_videos(video[[0, 2]], text, torch.tensor([0, 1]))
    assert proxies_of_videos(video, text, index).item() == pytest.approx(kept.item(), rel=1e-6)
    assert proxies_of_texts(video, text, index) > proxies_of_texts(video[[0, 2]], text, torch.tensor([0, 1]))


def test_proxy_matching_of_the_paper_sums_positives_of_cosines_over_a_temperature():
    video, text = samples()
    total = 0.0
    for n in range(3):
        for k in range(2):
            cosine = F.cosine_similarity(text[n, k], video, dim=-1) / 0.1
            total -= (cosine[n].logsumexp(0) - cosine.flatten().logsumexp(0)).item() / 6
    ours = proxy_matching(video, text, torch.arange(3), form="paper", temperature=0.1)
    assert ours.item() == pytest.approx(total, rel=1e-5)


def test_divergences_are_those_of_torch_where_the_paper_and_it_agree():
    generator = torch.Generator().manual_seed(4)
    m1, s1, m2, s2 = (torch.randn(3, 5, generator=generator) for _ in range(4))
    one, two = (Independent(Normal(m, s.exp()), 1) for m, s in ((m1, s1), (m2, s2)))
    standard = Independent(Normal(torch.zeros(3, 5), torch.ones(3, 5)), 1)
    assert kl_between(m1, s1, m2, s2).item() == pytest.approx(kl_divergence(one, two).mean().item(), rel=1e-5)
    assert kl_to_normal(m1, s1, form="paper").item() == pytest.approx(
        kl_divergence(one, standard).mean().item(), rel=1e-5
    )
