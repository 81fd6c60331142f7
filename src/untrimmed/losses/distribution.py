"""Align the Gaussian distributions that represent videos and their texts (RAL, section 3.2)."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from untrimmed.losses.nce import positive_pairs

Form = Literal["released", "paper"]


def proxy_matching(
    video: Float[Tensor, "V K D"],
    text: Float[Tensor, "N K D"],
    video_index: Int[Tensor, " N"],
    *,
    form: Form = "released",
    temperature: float = 1.0,
) -> Float[Tensor, ""]:
    """Return InfoNCE between samples of videos and samples of texts. `video_index` is the index of each text's video.

    - `released`: logits are dot products. The loss is the mean of `proxies_of_videos` and `proxies_of_texts`.
    - `paper` (Eq. 10): logits are cosines divided by a temperature. The probabilities of all positives are added before
      the logarithm is taken. The loss has only the direction from texts to videos.
    """
    if form == "released":
        return (proxies_of_videos(video, text, video_index) + proxies_of_texts(video, text, video_index)) / 2
    unit_text = F.normalize(text, dim=-1)
    unit_video = F.normalize(video, dim=-1)
    logits = torch.einsum("nkd,vjd->nkvj", unit_text, unit_video).flatten(2) / temperature
    is_positive = positive_pairs(video_index, len(video)).repeat_interleave(video.shape[1], dim=1)
    positive = logits.masked_fill(~is_positive[:, None], -torch.inf).logsumexp(dim=-1)
    return (logits.logsumexp(dim=-1) - positive).mean()


def proxies_of_videos(
    video: Float[Tensor, "V K D"], text: Float[Tensor, "N K D"], video_index: Int[Tensor, " N"]
) -> Float[Tensor, ""]:
    """Return the mean negative log-probability of a video's texts among all texts. Videos without texts are excluded.

    >>> proxies_of_videos(torch.zeros(2, 1, 3), torch.ones(2, 1, 3), torch.tensor([0, 1]))
    tensor(0.6931)
    """
    logits = torch.einsum("vkd,njd->vknj", video, text)
    log_share = logits.flatten(2).log_softmax(dim=-1).unflatten(2, (len(text), -1)).mean(dim=(1, 3))
    is_positive = positive_pairs(video_index, len(video)).T
    num_texts = is_positive.sum(dim=1)
    per_video = (log_share * is_positive).sum(dim=1) / num_texts.clamp_min(1)
    return -per_video[num_texts > 0].mean()


def proxies_of_texts(
    video: Float[Tensor, "V K D"], text: Float[Tensor, "N K D"], video_index: Int[Tensor, " N"]
) -> Float[Tensor, ""]:
    """Return the mean negative log-probability of a text's video among all videos."""
    logits = torch.einsum("nkd,vjd->nkvj", text, video)
    log_share = logits.flatten(2).log_softmax(dim=-1).unflatten(2, (len(video), -1)).mean(dim=(1, 3))
    return -log_share.gather(1, video_index[:, None]).mean()


def kl_to_normal(
    mean: Float[Tensor, "N D"], log_scale: Float[Tensor, "N D"], *, form: Form = "released"
) -> Float[Tensor, ""]:
    """Return the mean KL divergence of Gaussians from the standard normal distribution.

    With `released`, `log_scale` is used as the logarithm of the variance, although all other functions use it as the
    logarithm of sigma. With `paper`, it is the logarithm of sigma (Eq. 8).
    """
    log_variance = log_scale if form == "released" else 2 * log_scale
    return -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(dim=-1).mean()


def kl_between(
    mean: Float[Tensor, "N D"],
    log_sigma: Float[Tensor, "N D"],
    target_mean: Float[Tensor, "N D"],
    target_log_sigma: Float[Tensor, "N D"],
) -> Float[Tensor, ""]:
    """Return the mean KL divergence of Gaussians from the target Gaussians.

    >>> kl_between(torch.ones(1, 2), torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2))
    tensor(1.)
    """
    squares = (2 * log_sigma).exp() + (mean - target_mean) ** 2
    terms = target_log_sigma - log_sigma + squares / (2 * (2 * target_log_sigma).exp()) - 0.5
    return terms.sum(dim=-1).mean()
