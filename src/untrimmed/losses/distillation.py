"""Learn from a teacher how a query spreads over the frames of its own video (DL-DKD)."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

MASKED_LOGIT = -1e10  # finite, so that a share of exactly 0 times its logarithm is 0 and not NaN


def own_frame_cosines(
    query: Float[Tensor, "Q D"], frames: Float[Tensor, "V T D"], video_index: Int[Tensor, " Q"]
) -> Float[Tensor, "Q T"]:
    """Cosine of each query with each frame of its own video."""
    return torch.einsum("qd,qtd->qt", F.normalize(query, dim=-1), F.normalize(frames, dim=-1)[video_index])


def distillation_per_query(
    student: Float[Tensor, "Q T"], teacher: Float[Tensor, "Q T"], mask: Bool[Tensor, "Q T"], *, temperature: float
) -> Float[Tensor, " Q"]:
    """Divergence of the student's distribution over real frames from the teacher's, which is a constant.

    >>> one = torch.tensor([[0.3]])
    >>> distillation_per_query(one, -one, torch.tensor([[True]]), temperature=0.2)
    tensor([0.])
    """
    own = (student / temperature).masked_fill(~mask, MASKED_LOGIT).log_softmax(dim=-1)
    taught = (teacher.detach() / temperature).masked_fill(~mask, MASKED_LOGIT).log_softmax(dim=-1)
    return (taught.exp() * (taught - own)).sum(dim=-1)


def distillation(
    student: Float[Tensor, "Q T"], teacher: Float[Tensor, "Q T"], mask: Bool[Tensor, "Q T"], *, temperature: float
) -> Float[Tensor, ""]:
    """The divergences of all queries of a batch, added: as released it is no mean, over queries or over frames."""
    return distillation_per_query(student, teacher, mask, temperature=temperature).sum()
