"""Gaussians of texts and videos (RAL, section 3.2). Mean and spread are predicted from words or frames."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from untrimmed.losses.nce import positive_pairs
from untrimmed.nn.norm import LayerNorm

Aggregation = Literal["both", "global", "local"]


@dataclass(frozen=True)
class Gaussian:
    """Diagonal normal distributions. `log_scale` is the logarithm of the standard deviation."""

    mean: Float[Tensor, "N D"]
    log_scale: Float[Tensor, "N D"]

    def samples(self, noise: Float[Tensor, "N K D"]) -> Float[Tensor, "N K D"]:
        """Return samples of the distributions from standard normal noise (Eq. 9)."""
        return self.mean[:, None] + self.log_scale.exp()[:, None] * noise

    @property
    def sigma(self) -> Float[Tensor, " N"]:
        """The geometric mean of the standard deviations over the width (Fig. 3)."""
        return self.log_scale.mean(dim=-1).exp()


@dataclass(frozen=True)
class Rows:
    """Rows of N sequences, which form G groups. A group consists of the captions of one video, or of a single sequence.

    `counted` is True for rows that are pooled. As in the authors' program, padding is also pooled: each group has
    `num_zeros` further rows of zeros with logit 0, which are not stored.
    """

    rows: Float[Tensor, "N R D"]
    group: Int[Tensor, " N"]
    counted: Bool[Tensor, "N R"]
    num_zeros: Float[Tensor, " G"]

    @property
    def members(self) -> Float[Tensor, "G N"]:
        """A matrix with 1 where a sequence (column) belongs to a group (row), and 0 elsewhere."""
        return positive_pairs(self.group, len(self.num_zeros)).T.to(self.rows.dtype)

    def pooled(self, logits: Float[Tensor, "N R"]) -> Float[Tensor, "G D"]:
        """Return the mean of each group's rows, weighted by the softmax of their logits."""
        # under autocast, logits may be in bfloat16
        logits = logits.to(self.num_zeros.dtype).masked_fill(~self.counted, -torch.inf)
        peak = self._peak(logits.detach())
        share = (logits - peak[self.group][:, None]).exp()
        total = self.members @ share.sum(dim=1) + self.num_zeros * (-peak).exp()
        return self.members @ torch.einsum("nr,nrd->nd", share, self.rows) / total[:, None]

    def _peak(self, logits: Float[Tensor, "N R"]) -> Float[Tensor, " G"]:
        """Return the largest logit of each group, which is subtracted from all logits to avoid overflow."""
        zero = torch.zeros_like(self.num_zeros)
        start = zero.masked_fill(self.num_zeros == 0, -torch.inf)
        peak = start.scatter_reduce(0, self.group, logits.amax(dim=1), "amax")
        return torch.where(peak.isfinite(), peak, zero)


class GatedPooling(nn.Module):
    """Pools each group into one vector by attention over its rows (the local part of Eq. 6)."""

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.hidden = nn.Linear(dim, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)

    def forward(self, rows: Rows) -> Float[Tensor, "G D"]:
        """Return the weighted mean of each group."""
        return rows.pooled(self.score(self.hidden(rows.rows).tanh())[..., 0])


class DistributionHead(nn.Module, ABC):
    """Predicts mean and spread of groups of rows, from attention pooling (local) and from the plain mean (global)."""

    @abstractmethod
    def forward(self, rows: Rows, pooled: Float[Tensor, "G D"]) -> Gaussian:
        """Return one distribution per group. `pooled` is the plain mean of each group."""

    @abstractmethod
    def log_scale(self, rows: Rows, pooled: Float[Tensor, "G D"]) -> Float[Tensor, "G D"]:
        """Return only the logarithm of the standard deviation."""


class SeparateHead(DistributionHead):
    """Predicts mean and spread from separate attention poolings, as in the authors' program. Mean vectors have norm 1.

    With `both`, the mean of the distribution is the sum of a local part and the plain mean of the rows. With `global`
    (Eq. 6, but not in the authors' program), the mean of the distribution is a linear map of the plain mean.
    """

    def __init__(self, dim: int, aggregation: Aggregation):
        super().__init__()
        is_local = aggregation != "global"
        self.is_global = aggregation != "local"
        self.mean_pooling = GatedPooling(dim, dim // 2) if is_local else None
        self.mean_map = nn.Linear(dim, dim)
        self.mean_norm = LayerNorm(dim, decay_gain=True)
        self.scale_pooling = GatedPooling(dim, dim // 2) if is_local else None
        self.scale_map = nn.Linear(dim, dim) if is_local else None
        self.scale_global = nn.Linear(dim, dim) if self.is_global else None

    def forward(self, rows: Rows, pooled: Float[Tensor, "G D"]) -> Gaussian:
        """Return one distribution for each group."""
        return Gaussian(self.mean(rows, pooled), self.log_scale(rows, pooled))

    def mean(self, rows: Rows, pooled: Float[Tensor, "G D"]) -> Float[Tensor, "G D"]:
        """Return mean vectors of norm 1."""
        if self.mean_pooling is None:
            mean = self.mean_map(pooled)
        else:
            mean = self.mean_map(self.mean_pooling(rows)).sigmoid()
            mean = pooled + mean if self.is_global else mean
        return F.normalize(self.mean_norm(mean), dim=-1)

    def log_scale(self, rows: Rows, pooled: Float[Tensor, "G D"]) -> Float[Tensor, "G D"]:
        """Return the sum of linear maps of both pooled vectors."""
        parts = []
        if self.scale_pooling is not None and self.scale_map is not None:
            parts.append(self.scale_map(self.scale_pooling(rows)))
        if self.scale_global is not None:
            parts.append(self.scale_global(pooled))
        return sum(parts[1:], start=parts[0])


class SharedHead(DistributionHead):
    """Predicts mean and spread from one pooled vector with two linear maps, as printed (Eq. 3, 6 and 7).

    The mean vector may have any norm. In the paper, the second map predicts sigma, which could be negative. Here it
    predicts the logarithm of sigma, as in the release.
    """

    def __init__(self, dim: int, aggregation: Aggregation):
        super().__init__()
        self.pooling = GatedPooling(dim, dim) if aggregation != "global" else None
        self.global_map = nn.Linear(dim, dim) if aggregation != "local" else None
        self.norm = LayerNorm(dim, decay_gain=True)
        self.mean_map = nn.Linear(dim, dim)
        self.scale_map = nn.Linear(dim, dim)

    def aggregated(self, rows: Rows, pooled: Float[Tensor, "G D"]) -> Float[Tensor, "G D"]:
        """Return the normalised sum of both pooled vectors (Eq. 7)."""
        parts = [] if self.global_map is None else [self.global_map(pooled)]
        if self.pooling is not None:
            parts.append(self.pooling(rows))
        return self.norm(sum(parts[1:], start=parts[0]))

    def forward(self, rows: Rows, pooled: Float[Tensor, "G D"]) -> Gaussian:
        """Return one distribution for each group."""
        both = self.aggregated(rows, pooled)
        return Gaussian(self.mean_map(both), self.scale_map(both))

    def log_scale(self, rows: Rows, pooled: Float[Tensor, "G D"]) -> Float[Tensor, "G D"]:
        """Return a linear map of `aggregated`."""
        return self.scale_map(self.aggregated(rows, pooled))


def pooled_rows(rows: Rows, mask: Bool[Tensor, "N R"]) -> Float[Tensor, "G D"]:
    """Return the mean of the real rows of each group: the released form for words, and Eq. 6 for frames."""
    weights = mask.to(rows.rows.dtype)
    total = rows.members @ torch.einsum("nr,nrd->nd", weights, rows.rows)
    return total / (rows.members @ weights.sum(dim=1))[:, None].clamp_min(1)


def pooled_videos(frames: Float[Tensor, "V T D"], mask: Bool[Tensor, "V T"]) -> Float[Tensor, "V D"]:
    """Return the normalised mean of the normalised real frames.

    This is the released form. Eq. 6 treats text and video in the same way (`pooled_rows`).
    """
    unit = F.normalize(frames, dim=-1) * mask[..., None]
    return F.normalize(unit.sum(dim=1) / mask.sum(dim=1).clamp_min(1)[:, None], dim=-1)
