"""Distillation (DL-DKD): for each query, the student learns the teacher's distribution over the frames of the video."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

MASKED_LOGIT = -1e10  # finite, so that a probability of 0 times its logarithm is 0 and not NaN


def own_frame_cosines(
    query: Float[Tensor, "Q D"], frames: Float[Tensor, "V T D"], video_index: Int[Tensor, " Q"]
) -> Float[Tensor, "Q T"]:
    """Return the cosine of each query with each frame of its own video."""
    return torch.einsum("qd,qtd->qt", F.normalize(query, dim=-1), F.normalize(frames, dim=-1)[video_index])


def distillation_per_query(
    student: Float[Tensor, "Q T"], teacher: Float[Tensor, "Q T"], mask: Bool[Tensor, "Q T"], *, temperature: float
) -> Float[Tensor, " Q"]:
    """Return KL(teacher || student) per query. The distributions are softmaxes of cosines over real frames.

    No gradient flows to the teacher.

    >>> cosine = torch.tensor([[0.3]])
    >>> distillation_per_query(cosine, -cosine, torch.tensor([[True]]), temperature=0.2)
    tensor([0.])
    """
    log_student = (student / temperature).masked_fill(~mask, MASKED_LOGIT).log_softmax(dim=-1)
    log_teacher = (teacher.detach() / temperature).masked_fill(~mask, MASKED_LOGIT).log_softmax(dim=-1)
    return (log_teacher.exp() * (log_teacher - log_student)).sum(dim=-1)


def distillation(
    student: Float[Tensor, "Q T"], teacher: Float[Tensor, "Q T"], mask: Bool[Tensor, "Q T"], *, temperature: float
) -> Float[Tensor, ""]:
    """Return the sum of `distillation_per_query` over a batch. The authors' program does not average either."""
    return distillation_per_query(student, teacher, mask, temperature=temperature).sum()
