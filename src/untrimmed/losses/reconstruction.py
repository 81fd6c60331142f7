"""Losses of ProtoPRVR's decoders, which reconstruct hidden words of a query and frames of a video."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor


def masked_words(mask: Bool[Tensor, "Q W"], noise: Float[Tensor, "Q W"], *, share: float) -> Bool[Tensor, "Q W"]:
    """Return a mask of the words to hide: a fraction `share` of each query's words, but at least one word per query.

    The words with the smallest noise are hidden.

    >>> masked_words(torch.tensor([[True, True, False]]), torch.tensor([[0.7, 0.4, 0.1]]), share=0.5)
    tensor([[False,  True, False]])
    """
    num_words = mask.sum(dim=1, keepdim=True)
    count = (num_words * share + 0.5).floor().clamp_min(1)
    rank = noise.masked_fill(~mask, torch.inf).argsort(dim=1).argsort(dim=1)
    return (rank < count) & mask


def masked_word_nce(
    decoded: Float[Tensor, "N E"], target: Float[Tensor, "N E"], query_index: Int[Tensor, " N"], *, temperature: float
) -> Float[Tensor, ""]:
    """Return InfoNCE of each decoded word against all hidden words of the batch, by cosine (Eq. 4).

    Row n of `decoded` and of `target` belongs to query `query_index[n]`. The loss is averaged over the hidden words of
    each query, and then over queries. Without hidden words, the loss is 0.
    """
    if len(decoded) == 0:
        return decoded.sum()
    logits = F.normalize(decoded, dim=-1) @ F.normalize(target, dim=-1).T / temperature
    per_word = logits.logsumexp(dim=1) - logits.diagonal()
    words_of_query = torch.bincount(query_index)
    num_queries = (words_of_query > 0).sum()
    return (per_word / words_of_query[query_index]).sum() / num_queries


def frame_reconstruction(
    decoded: Float[Tensor, "V T C"], frames: Float[Tensor, "V T C"], mask: Bool[Tensor, "V T"]
) -> Float[Tensor, ""]:
    """Return the squared distance between decoded and true frames (Eq. 5), averaged over real frames, then over videos.

    >>> frames, mask = torch.tensor([[[3.0, 4.0], [9.0, 9.0]]]), torch.tensor([[True, False]])
    >>> frame_reconstruction(torch.zeros(1, 2, 2), frames, mask)
    tensor(25.)
    """
    distance = (decoded - frames).square().sum(dim=-1) * mask
    return (distance.sum(dim=1) / mask.sum(dim=1)).mean()
