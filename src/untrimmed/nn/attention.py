"""Multi-head attention: K self-attentions side by side, cross-attention of single tokens, pooling by attention."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from untrimmed.nn import lean, narrow
from untrimmed.nn.dropout import Dropout, rate, runs_here
from untrimmed.nn.packing import Packing

# The releases add this to the logits of masked keys; exp(-10000) is exactly 0 in float32.
MASKED_LOGIT = -10000.0


class StackedSelfAttention(nn.Module):
    """K multi-head self-attentions with separate weights over one input, heads joined, without an output map.

    The queries, keys and values of all blocks come from one matrix product when the blocks share their input.
    """

    stacked_dims: ClassVar[dict[str, int]] = {"weight": 2, "bias": 2}

    def __init__(self, count: int, dim: int, num_heads: int, dropout: float):
        super().__init__()
        self.num_heads = num_heads
        self.weight = nn.Parameter(torch.empty(3, count, dim, dim))  # queries, keys, values
        self.bias = nn.Parameter(torch.empty(3, count, dim))
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "*K N T D"],
        windows: Float[Tensor, "B T T"] | None = None,
        mask: Bool[Tensor, "N T"] | None = None,
        beside: Float[Tensor, "*K N R D"] | None = None,
    ) -> Float[Tensor, "B N T D"]:
        """The output of every block; `x` is one input for all [N, T, D] or one for each [K, N, T, D].

        `windows` multiply the logits before masking; masked keys get no weight. Rows that stand `beside` are read like
        those of x, always and with window 1, and read nothing themselves.
        """
        query, key, value = (self._split_heads(part) for part in self._project(x))
        if beside is not None:
            _, other_key, other_value = (self._split_heads(part) for part in self._project(beside))
            key = torch.cat([key, other_key], dim=-2)
            value = torch.cat([value, other_value], dim=-2)
            mask = None if mask is None else F.pad(mask, (0, beside.shape[-2]), value=True)
            windows = None if windows is None else F.pad(windows, (0, beside.shape[-2]), value=1.0)
        if windows is None and isinstance(self.dropout, nn.Dropout) and not runs_here(x):
            read = in_one_kernel(query, key, value, mask, rate(self.dropout))
            return read.transpose(-2, -3).flatten(-2)
        logits = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        if windows is not None:
            logits = logits * windows[:, None, None]
        if mask is not None:
            logits = logits.masked_fill(~mask[:, None, None, :], MASKED_LOGIT)
        weights = self.dropout(logits.softmax(dim=-1))
        return (weights @ value).transpose(-2, -3).flatten(-2)

    def packed(
        self, x: Float[Tensor, "M D"], windows: Float[Tensor, "B T T"] | None, packing: Packing
    ) -> Float[Tensor, "B M D"]:
        """The same for sequences without padding, which share their input; `windows` are of the padded length."""
        _, count, dim, _ = self.weight.shape
        linear = narrow.linear if narrow.applies(x) else F.linear
        joint = linear(x, self.weight.flatten(0, 2), self.bias.flatten())
        heads = joint.view(len(x), 3, count, self.num_heads, dim // self.num_heads)
        return lean.self_attention(heads, windows, packing.groups, rate(self.dropout))

    def _project(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values [K, N, T, D] each."""
        count = self.weight.shape[1]
        dim = self.weight.shape[-1]
        if x.ndim == 3:
            joint = F.linear(x, self.weight.flatten(0, 2), self.bias.flatten())
            return tuple(joint.unflatten(-1, (3, count, dim)).permute(2, 3, 0, 1, 4))
        rows = x.flatten(1, 2)
        weight = self.weight.transpose(-1, -2)
        bias = self.bias[:, :, None]
        return tuple(torch.baddbmm(bias[i], rows, weight[i]).unflatten(1, x.shape[1:3]) for i in range(3))

    def _split_heads(self, x: Tensor) -> Tensor:
        """[K, N, T, D] -> [K, N, H, T, D / H]."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(-2, -3)


def in_one_kernel(
    query: Float[Tensor, "K N H T E"],
    key: Float[Tensor, "K N H S E"],
    value: Float[Tensor, "K N H S E"],
    mask: Bool[Tensor, "N S"] | None,
    dropout: float,
) -> Float[Tensor, "K N H T E"]:
    """softmax(Q K^T / sqrt(E)) V without the logits ever in memory, where the device has a kernel that does so.

    Masked keys get no weight. Blocks count as further heads: one mask then fits all of them. Windows multiply logits,
    and no mask, which is added to them, can do that.
    """
    count = len(query)
    query, key, value = (x.transpose(0, 1).flatten(1, 2) for x in (query, key, value))
    bias = None
    if mask is not None:  # added, not excluded: of a sequence without any row come numbers, which nothing reads
        bias = query.new_zeros(mask.shape).masked_fill(~mask, MASKED_LOGIT)[:, None, None]
    read = F.scaled_dot_product_attention(query, key, value, bias, dropout)
    return read.unflatten(1, (count, -1)).transpose(0, 1)


class TokenAttention(nn.Module):
    """Multi-head cross-attention of one token per sequence, heads joined, without an output map."""

    def __init__(self, dim: int, num_heads: int, dropout: float):
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        token: Float[Tensor, "*M D"],
        x: Float[Tensor, "*B N T D"],
        mask: Bool[Tensor, "N T"] | None = None,
    ) -> Float[Tensor, "*B N D"]:
        """What the token, one for all or one for each of N, reads from each sequence; masked positions are not read."""
        # What is one row a sequence or less is in float64: GMMFormer v2 divides by a temperature behind this, which
        # enlarges rounding elevenfold on TVR.
        query = self.query(token).unflatten(-1, (self.num_heads, -1)).double()
        # One query a sequence: fold it into the key map, so that the keys themselves are never formed.
        weight = self.key.weight.unflatten(0, (self.num_heads, -1)).double()
        rows = x.to(lean.product_dtype(x))  # once for both products
        reader = torch.einsum("...he,hed->...hd", query, weight).to(rows.dtype)
        constant = (query * self.key.bias.unflatten(0, (self.num_heads, -1))).sum(-1, keepdim=True).to(x.dtype)
        logits = (rows @ reader.mT + constant.mT) / math.sqrt(query.shape[-1])  # [..., N, T, H]
        if mask is not None:
            logits = logits.masked_fill(~mask[..., None], MASKED_LOGIT)
        weights = self.dropout(logits.softmax(dim=-2))
        # The value map is linear, so reading first and mapping once per head gives the same with far less work; its
        # bias counts with the weights' sum, which dropout makes differ from 1.
        read = torch.einsum("...th,...td->...hd", weights, rows).double()
        value = self.value.weight.unflatten(0, (self.num_heads, -1)).double()
        bias = self.value.bias.unflatten(0, (self.num_heads, -1)) * weights.sum(dim=-2)[..., None]
        return (torch.einsum("...hd,hed->...he", read, value) + bias).flatten(-2).to(x.dtype)


class AttentionPooling(nn.Module):
    """One vector a sequence: rows weighted by the softmax of a learned linear score (GMMFormer Eq. 2)."""

    def __init__(self, dim: int):
        super().__init__()
        self.score = nn.Linear(dim, 1, bias=False)

    def forward(self, x: Float[Tensor, "N T D"], mask: Bool[Tensor, "N T"] | None = None) -> Float[Tensor, "N D"]:
        """The weighted mean over the rows that the mask allows, or over all."""
        logits = self.score(x)
        if mask is not None:
            logits = logits.masked_fill(~mask[..., None], -1e10)
        return (logits.softmax(dim=1) * x).sum(dim=1)


def stacked_dims(module: nn.Module, parameter: str) -> int:
    """How many leading axes of a parameter count separate tensors (blocks, or queries, keys and values).

    The releases keep these tensors apart; whatever works per tensor (gradient clipping) must do so too.
    """
    declared: dict[str, Any] = getattr(module, "stacked_dims", {})
    return int(declared.get(parameter, 0))


class _Reading(Function):
    """softmax(Q K^T) V and the softmax, with keys and values laid out for each product; one is kept, not the logits."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor, excluded: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits = query @ keys
        if excluded is not None:
            logits.masked_fill_(excluded, -torch.inf)
        weights = logits.softmax(dim=-1, dtype=torch.promote_types(query.dtype, torch.float32)).to(value.dtype)
        ctx.save_for_backward(query, key, values, weights)
        ctx.set_materialize_grads(False)
        return weights @ value, weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_read: Tensor | None, of_weights: Tensor | None) -> tuple[Tensor | None, ...]:
        query, key, values, weights = ctx.saved_tensors
        of_read = weights.new_zeros(*query.shape[:-1], values.shape[-2]) if of_read is None else of_read
        d_weights = of_read @ values if of_weights is None else of_read @ values + of_weights
        d_logits = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)
        d_key = d_logits.transpose(-1, -2) @ query
        d_value = weights.transpose(-1, -2) @ of_read
        return d_logits @ key, d_key, d_value, None, None, None


@dataclass(frozen=True)
class Source:
    """Keys and values that are read several times, and the same transposed: some products are three times as fast."""

    key: Float[Tensor, "V H L E"]
    value: Float[Tensor, "V H L E"]
    keys: Float[Tensor, "V H E L"]
    values: Float[Tensor, "V H E L"]
    excluded: Bool[Tensor, "V 1 1 L"] | None

    @classmethod
    def of(
        cls, key: Float[Tensor, "V H L E"], value: Float[Tensor, "V H L E"], mask: Bool[Tensor, "V L"] | None
    ) -> "Source":
        """Rows that the mask leaves out are not read."""
        keys, values = (x.detach().transpose(-1, -2).contiguous() for x in (key, value))
        return cls(key, value, keys, values, None if mask is None else ~mask[:, None, None])

    def read(self, query: Float[Tensor, "V H K E"]) -> tuple[Float[Tensor, "V H K E"], Float[Tensor, "V H K L"]]:
        """What queries, scaled as they should be, read by attention, and the attention."""
        with torch.autocast(query.device.type, enabled=False):
            read, weights = _Reading.apply(query, self.key, self.value, self.keys, self.values, self.excluded)
        return read, weights
