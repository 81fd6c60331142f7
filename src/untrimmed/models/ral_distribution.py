"""Gaussians of texts and videos (RAL, section 3.2): rows of words or frames -> mean and spread."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from untrimmed.losses.nce import own_queries
from untrimmed.nn.norm import LayerNorm

Aggregation = Literal["both", "global", "local"]


@dataclass(frozen=True)
class Gaussian:
    """Diagonal normal distributions; `log_scale` is the logarithm of the standard deviation."""

    mean: Float[Tensor, "N D"]
    log_scale: Float[Tensor, "N D"]

    def samples(self, noise: Float[Tensor, "N K D"]) -> Float[Tensor, "N K D"]:
        """Points of the distributions from standard normal noise (Eq. 9)."""
        return self.mean[:, None] + self.log_scale.exp()[:, None] * noise

    @property
    def sigma(self) -> Float[Tensor, " N"]:
        """The geometric mean of the standard deviations over the width (Fig. 3)."""
        return self.log_scale.mean(dim=-1).exp()


@dataclass(frozen=True)
class Rows:
    """Sequences [N, R] that form G groups: the captions of a video, or each sequence by itself.

    `counted` says which rows a pooling reads; `num_zeros` rows of zeros are read beside them in each group, without
    being stored: the releases pool over padded buffers without a mask, and a zero row has logit 0.
    """

    rows: Float[Tensor, "N R D"]
    group: Int[Tensor, " N"]
    counted: Bool[Tensor, "N R"]
    num_zeros: Float[Tensor, " G"]

    @property
    def members(self) -> Float[Tensor, "G N"]:
        """1 where a sequence belongs to a group."""
        return own_queries(self.group, len(self.num_zeros)).T.to(self.rows.dtype)

    def pooled(self, logits: Float[Tensor, "N R"]) -> Float[Tensor, "G D"]:
        """The rows of each group weighted by the softmax of their logits."""
        logits = logits.to(self.num_zeros.dtype).masked_fill(~self.counted, -torch.inf)  # narrow under autocast
        peak = self._peak(logits.detach())
        share = (logits - peak[self.group][:, None]).exp()
        total = self.members @ share.sum(dim=1) + self.num_zeros * (-peak).exp()
        return self.members @ torch.einsum("nr,nrd->nd", share, self.rows) / total[:, None]

    def _peak(self, logits: Float[Tensor, "N R"]) -> Float[Tensor, " G"]:
        """The largest logit of each group, to subtract before the exponential."""
        zero = torch.zeros_like(self.num_zeros)
        start = zero.masked_fill(self.num_zeros == 0, -torch.inf)
        peak = start.scatter_reduce(0, self.group, logits.amax(dim=1), "amax")
        return torch.where(peak.isfinite(), peak, zero)


class GatedPooling(nn.Module):
    """One vector a group of rows, by attention over rows (the local part of Eq. 6); `hidden` is the width behind W1."""

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.hidden = nn.Linear(dim, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)

    def forward(self, rows: Rows) -> Float[Tensor, "G D"]:
        """The weighted mean of each group."""
        return rows.pooled(self.score(self.hidden(rows.rows).tanh())[..., 0])


class DistributionHead(nn.Module, ABC):
    """Mean and spread of groups of rows, from their attention pooling (local) and their plain mean (global)."""

    @abstractmethod
    def forward(self, rows: Rows, pooled: Float[Tensor, "G D"]) -> Gaussian:
        """One distribution a group; `pooled` is its plain mean."""

    @abstractmethod
    def log_scale(self, rows: Rows, pooled: Float[Tensor, "G D"]) -> Float[Tensor, "G D"]:
        """The logarithm of the standard deviation alone."""


class SeparateHead(DistributionHead):
    """As released: a pooling for the mean and one for the spread; means have length 1, and W1 halves the width.

    The plain mean goes into the mean as it is, unless it is all there is (`global`, which was not released): then it
    passes a linear map, as Eq. 6 has it.
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
        """One distribution a group."""
        return Gaussian(self.mean(rows, pooled), self.log_scale(rows, pooled))

    def mean(self, rows: Rows, pooled: Float[Tensor, "G D"]) -> Float[Tensor, "G D"]:
        """Unit vectors."""
        if self.mean_pooling is None:
            made = self.mean_map(pooled)
        else:
            made = self.mean_map(self.mean_pooling(rows)).sigmoid()
            made = pooled + made if self.is_global else made
        return F.normalize(self.mean_norm(made), dim=-1)

    def log_scale(self, rows: Rows, pooled: Float[Tensor, "G D"]) -> Float[Tensor, "G D"]:
        """The sum of a map of each pooling."""
        parts = []
        if self.scale_pooling is not None and self.scale_map is not None:
            parts.append(self.scale_map(self.scale_pooling(rows)))
        if self.scale_global is not None:
            parts.append(self.scale_global(pooled))
        return sum(parts[1:], start=parts[0])


class SharedHead(DistributionHead):
    """As printed (Eq. 3, 6 and 7): one aggregator, and a linear map of it for the mean and one for the spread.

    The mean may have any length. The spread is printed as sigma itself, which a linear map can make negative; here the
    map gives its logarithm, as in the release.
    """

    def __init__(self, dim: int, aggregation: Aggregation):
        super().__init__()
        self.pooling = GatedPooling(dim, dim) if aggregation != "global" else None
        self.global_map = nn.Linear(dim, dim) if aggregation != "local" else None
        self.norm = LayerNorm(dim, decay_gain=True)
        self.mean_map = nn.Linear(dim, dim)
        self.scale_map = nn.Linear(dim, dim)

    def aggregated(self, rows: Rows, pooled: Float[Tensor, "G D"]) -> Float[Tensor, "G D"]:
        """Both poolings in one vector (Eq. 7)."""
        parts = [] if self.global_map is None else [self.global_map(pooled)]
        if self.pooling is not None:
            parts.append(self.pooling(rows))
        return self.norm(sum(parts[1:], start=parts[0]))

    def forward(self, rows: Rows, pooled: Float[Tensor, "G D"]) -> Gaussian:
        """One distribution a group."""
        both = self.aggregated(rows, pooled)
        return Gaussian(self.mean_map(both), self.scale_map(both))

    def log_scale(self, rows: Rows, pooled: Float[Tensor, "G D"]) -> Float[Tensor, "G D"]:
        """A linear map of the aggregate."""
        return self.scale_map(self.aggregated(rows, pooled))


def pooled_rows(rows: Rows, mask: Bool[Tensor, "N R"]) -> Float[Tensor, "G D"]:
    """The mean of the real rows of each group: words as released, frames in Eq. 6 alone."""
    weights = mask.to(rows.rows.dtype)
    total = rows.members @ torch.einsum("nr,nrd->nd", weights, rows.rows)
    return total / (rows.members @ weights.sum(dim=1))[:, None].clamp_min(1)


def pooled_videos(frames: Float[Tensor, "V T D"], mask: Bool[Tensor, "V T"]) -> Float[Tensor, "V D"]:
    """Unit frames averaged over the real ones and brought to length 1 again.

    As released; Eq. 6 treats both sides alike (`pooled_rows`).
    """
    unit = F.normalize(frames, dim=-1) * mask[..., None]
    return F.normalize(unit.sum(dim=1) / mask.sum(dim=1).clamp_min(1)[:, None], dim=-1)
