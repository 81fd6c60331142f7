"""Evidential losses, which model how certain a query's match is, as in the authors' program (Holmes, arXiv 2605.06083).

The cosines of a query with K videos are converted to evidence e > 0 for each video. In a Dirichlet distribution with
parameters e + 1, the mean predicts the video, and the sum of the parameters measures the certainty.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

# the groups of a `Division`
PRECISE = 0
POLYSEMOUS = 1
UNDERDETERMINED = 2


def evidence(similarity: Float[Tensor, "*N K"], *, temperature: float) -> Float[Tensor, "*N K"]:
    """Return the evidence for each of K classes, computed from similarities in [-1, 1].

    The result is float32 or wider, because evidence can reach 1e9.

    >>> evidence(torch.tensor([0.0, 1.0]), temperature=0.5)
    tensor([1.0000, 4.5868])
    """
    wide = similarity.to(torch.promote_types(similarity.dtype, torch.float32))
    return (wide.tanh() / temperature).exp()


def combine(first: Float[Tensor, "*N K"], second: Float[Tensor, "*N K"]) -> Float[Tensor, "*N K"]:
    """Return the combination of two sources of evidence by Dempster's rule.

    Dempster's rule divides by one minus the conflict, which can be 0. We use a closed form, in which this divisor
    cancels.

    >>> combine(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
    tensor([ 5.5000, 10.0000])
    """
    return first + second + first * second / first.shape[-1]


def dirichlet_error(target: Float[Tensor, "*N K"], counts: Float[Tensor, "*N K"]) -> Float[Tensor, "*N"]:
    """Return the expected squared distance between the target and a sample of the Dirichlet distribution of `counts`.

    >>> dirichlet_error(torch.tensor([1.0, 0.0]), torch.tensor([3.0, 1.0]))  # mean 2/3, 1/3; total 6: 2/9 + 4/9 / 7
    tensor(0.2857)
    """
    alpha = counts + 1
    total = alpha.sum(dim=-1, keepdim=True)
    mean = alpha / total
    return ((target - mean).square() + mean * (1 - mean) / (total + 1)).sum(dim=-1)


@dataclass(frozen=True)
class Division:
    """The group of each query in a batch, and the three values and three limits that determine the group.

    `consensus` is the similarity of a query with its own video. `entropy` is the expected entropy of a distribution
    drawn from the query's Dirichlet distribution.
    """

    group: Int[Tensor, " Q"]
    uncertainty: Float[Tensor, " Q"]
    consensus: Float[Tensor, " Q"]
    entropy: Float[Tensor, " Q"]
    uncertainty_limit: Float[Tensor, ""]
    consensus_limit: Float[Tensor, ""]
    entropy_limit: Float[Tensor, ""]


@torch.no_grad()
def divide(
    similarity: Float[Tensor, "Q V"], counts: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"], *, bound: float
) -> Division:
    """Divide queries into under-determined (too vague), polysemous (several videos match) and precise queries.

    Uncertainty, consensus and entropy have one limit each. A query is under-determined if its uncertainty is above the
    limit. A query that is not under-determined is polysemous if its consensus is below the limit, or if its entropy is
    above the limit. Two of the limits depend on the queries that rank their own video first:

    - The limit of uncertainty is the largest uncertainty of these queries, but at most 1 - `bound`.
    - The limit of consensus is the smallest consensus of these queries, but at least `bound`.

    The limit of entropy is the (lower) median of the entropy of all queries.
    """
    alpha = counts + 1
    total = alpha.sum(dim=1)
    uncertainty = alpha.shape[1] / total
    consensus = similarity.gather(1, video_index[:, None])[:, 0]
    spread = torch.digamma(total[:, None] + 1) - torch.digamma(alpha + 1)
    entropy = (alpha / total[:, None] * spread).sum(dim=1)
    correct = similarity.argmax(dim=1) == video_index
    uncertainty_limit = uncertainty.where(correct, -torch.inf).max().clamp_max(1 - bound)
    consensus_limit = consensus.where(correct, torch.inf).min().clamp_min(bound)
    if not correct.any():
        uncertainty_limit, consensus_limit = (torch.full_like(uncertainty_limit, x) for x in (1 - bound, bound))
    entropy_limit = entropy.median()
    is_polysemous = (consensus < consensus_limit) | (entropy > entropy_limit)
    group = torch.where(is_polysemous, POLYSEMOUS, PRECISE)
    group = group.masked_fill(uncertainty > uncertainty_limit, UNDERDETERMINED)
    return Division(group, uncertainty, consensus, entropy, uncertainty_limit, consensus_limit, entropy_limit)


def ambiguous(divisions: Sequence[Division]) -> Bool[Tensor, " Q"]:
    """Return which queries are polysemous in at least one branch and not under-determined in any branch."""
    groups = torch.stack([division.group for division in divisions])
    return (groups == POLYSEMOUS).any(dim=0) & (groups != UNDERDETERMINED).all(dim=0)


@torch.no_grad()
def smoothed_labels(
    branches: Sequence[Float[Tensor, "Q V"]],
    video_index: Int[Tensor, " Q"],
    is_ambiguous: Bool[Tensor, " Q"],
    *,
    smoothing: float,
) -> Float[Tensor, "Q V"]:
    """Return one-hot labels. For ambiguous queries, labels are mixed with a softmax of cosines (mean over branches)."""
    hard = F.one_hot(video_index, branches[0].shape[1]).to(branches[0].dtype)
    soft = torch.stack([cosine.softmax(dim=1) for cosine in branches]).mean(dim=0)
    return torch.where(is_ambiguous[:, None], (1 - smoothing) * hard + smoothing * soft, hard)


def between_videos(
    branches: Sequence[Float[Tensor, "Q V"]],
    video_index: Int[Tensor, " Q"],
    *,
    temperature: float,
    bound: float,
    smoothing: float,
    divides: bool,
) -> Float[Tensor, ""]:
    """Return the sum of the evidential losses of all branches. Several branches add the loss of their combination.

    `branches` are cosines. The target of a query is its video. With `divides`, the targets of ambiguous queries are
    smoothed.
    """
    counts = [evidence(cosine, temperature=temperature) for cosine in branches]
    divisions = [divide(cosine, e, video_index, bound=bound) for cosine, e in zip(branches, counts, strict=True)]
    is_ambiguous = ambiguous(divisions) & divides
    target = smoothed_labels(branches, video_index, is_ambiguous, smoothing=smoothing)
    combined = [reduce(combine, counts)] if len(counts) > 1 else []
    return torch.stack([dirichlet_error(target, e).mean() for e in (*counts, *combined)]).sum()
