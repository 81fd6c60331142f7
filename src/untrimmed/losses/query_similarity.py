"""Keep queries of the same video closer to each other than to queries of other videos."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from untrimmed.losses.query_diversity import cosines_of_siblings


def query_similarity(
    query: Float[Tensor, "Q D"], video_index: Int[Tensor, " Q"], *, temperature: float
) -> Float[Tensor, ""]:
    """Return InfoNCE between queries. Positives are the other queries of the same video (DreamPRVR, arXiv 2604.03653).

    The loss is averaged over the positives of each query, and then over queries that have positives. If no query has
    positives, the loss is 0.

    >>> query_similarity(torch.eye(3), torch.tensor([0, 0, 1]), temperature=1.0)
    tensor(0.6931)
    """
    cosine, siblings = cosines_of_siblings(query, video_index)
    with_siblings = siblings.any(dim=1)
    is_positive = siblings[with_siblings]
    itself = torch.eye(len(query), dtype=torch.bool, device=query.device)[with_siblings]
    logits = (cosine[with_siblings] / temperature).masked_fill(itself, -torch.inf)
    log_share = (logits - logits.logsumexp(dim=1, keepdim=True)).masked_fill(~is_positive, 0)
    return -(log_share.sum(dim=1) / is_positive.sum(dim=1)).sum() / max(len(is_positive), 1)
