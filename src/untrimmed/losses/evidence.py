"""Evidence: how sure a query is of its video, and which queries fit others too (Holmes, arXiv 2605.06083).

Cosines of a query with K videos become evidence e > 0 for each, the counts of a Dirichlet distribution with parameters
e + 1: its mean says which video, its total how sure. As in the released program throughout.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

PRECISE = 0  # this and the next two are the groups of a `Division`
POLYSEMOUS = 1
UNDERDETERMINED = 2


def evidence(similarity: Float[Tensor, "*N K"], *, temperature: float) -> Float[Tensor, "*N K"]:
    """Evidence for each of K classes from similarities in [-1, 1], at least in float32: it goes up to 1e9.

    >>> evidence(torch.tensor([0.0, 1.0]), temperature=0.5)
    tensor([1.0000, 4.5868])
    """
    wide = similarity.to(torch.promote_types(similarity.dtype, torch.float32))
    return (wide.tanh() / temperature).exp()


def joined(first: Float[Tensor, "*N K"], second: Float[Tensor, "*N K"]) -> Float[Tensor, "*N K"]:
    """What two sources of evidence say together by Dempster's rule, in closed form.

    Written out, belief and uncertainty are divided by one minus the conflict, which cancels: near full conflict that
    would be 0 / 0.

    >>> joined(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
    tensor([ 5.5000, 10.0000])
    """
    return first + second + first * second / first.shape[-1]


def dirichlet_error(target: Float[Tensor, "*N K"], found: Float[Tensor, "*N K"]) -> Float[Tensor, "*N"]:
    """Expected squared distance from the target of what a Dirichlet distribution with that evidence draws.

    >>> dirichlet_error(torch.tensor([1.0, 0.0]), torch.tensor([3.0, 1.0]))  # mean 2/3, 1/3; total 6: 2/9 + 4/9 / 7
    tensor(0.2857)
    """
    alpha = found + 1
    total = alpha.sum(dim=-1, keepdim=True)
    mean = alpha / total
    return ((target - mean).square() + mean * (1 - mean) / (total + 1)).sum(dim=-1)


@dataclass(frozen=True)
class Division:
    """Which group each query of a batch is in, the three numbers that decide it, and what each is compared with.

    `consensus` is the similarity with its own video, `entropy` the expected entropy of what the distribution draws.
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
    similarity: Float[Tensor, "Q V"], found: Float[Tensor, "Q V"], video_index: Int[Tensor, " Q"], *, bound: float
) -> Division:
    """Queries that say too little (under-determined), that fit several videos (polysemous), and precise ones.

    The limits are the worst uncertainty and consensus among queries whose best video is their own, an uncertainty of at
    most 1 - bound and a consensus of at least it, and the (lower) median of the entropies.
    """
    alpha = found + 1
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
    """Queries that are polysemous in some branch of a score and under-determined in none."""
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
    """One-hot rows; those of ambiguous queries give a share to the videos by the softmax of the branches' cosines."""
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
    """The evidential loss on the cosines of one branch of a score, or of several and of what they say together.

    Each is held against the videos of the queries, with `divides` those of ambiguous ones smoothed.
    """
    found = [evidence(cosine, temperature=temperature) for cosine in branches]
    parts = [divide(cosine, e, video_index, bound=bound) for cosine, e in zip(branches, found, strict=True)]
    is_ambiguous = ambiguous(parts) & divides
    target = smoothed_labels(branches, video_index, is_ambiguous, smoothing=smoothing)
    together = [reduce(joined, found)] if len(found) > 1 else []
    return torch.stack([dirichlet_error(target, e).mean() for e in (*found, *together)]).sum()
