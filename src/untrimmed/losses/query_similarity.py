"""Keep the queries of one video recognisable as its own among those of others."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from untrimmed.losses.query_diversity import cosines_of_siblings


def query_similarity(
    query: Float[Tensor, "Q D"], video_index: Int[Tensor, " Q"], *, temperature: float
) -> Float[Tensor, ""]:
    """InfoNCE of each query with the others of its video among all others (DreamPRVR, arXiv 2604.03653).

    The mean over the siblings of a query, then over the queries that have any; 0 where none has.

    >>> query_similarity(torch.eye(3), torch.tensor([0, 0, 1]), temperature=1.0)
    tensor(0.6931)
    """
    cosine, siblings = cosines_of_siblings(query, video_index)
    with_siblings = siblings.any(dim=1)
    own = siblings[with_siblings]
    itself = torch.eye(len(query), dtype=torch.bool, device=query.device)[with_siblings]
    logits = (cosine[with_siblings] / temperature).masked_fill(itself, -torch.inf)
    log_share = (logits - logits.logsumexp(dim=1, keepdim=True)).masked_fill(~own, 0)
    return -(log_share.sum(dim=1) / own.sum(dim=1)).sum() / max(len(own), 1)
