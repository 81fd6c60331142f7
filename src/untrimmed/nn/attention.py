"""Multi-head attention: parallel self-attentions, attention from one token to a sequence, and attention pooling."""

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
from untrimmed.nn.dropout import Dropout, is_eager_cpu, rate
from untrimmed.nn.packing import Packing

# The released programs add this number to the logits of masked keys. In float32, exp(-10000) is exactly 0.
MASKED_LOGIT = -10000.0


class StackedSelfAttention(nn.Module):
    """K multi-head self-attentions with separate weights. Heads are concatenated, without an output map.

    If all attentions have the same input, one matrix product computes their queries, keys and values.
    """

    stacked_dims: ClassVar[dict[str, int]] = {"weight": 2, "bias": 2}

    def __init__(self, count: int, dim: int, num_heads: int, dropout: float):
        super().__init__()
        self.num_heads = num_heads
        self.weight = nn.Parameter(torch.empty(3, count, dim, dim))  # maps for queries, keys and values
        self.bias = nn.Parameter(torch.empty(3, count, dim))
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "*K N T D"],
        windows: Float[Tensor, "B T T"] | None = None,
        mask: Bool[Tensor, "N T"] | None = None,
        extra_rows: Float[Tensor, "*K N R D"] | None = None,
    ) -> Float[Tensor, "B N T D"]:
        """Return the output of each attention.

        - `x`: one input for all attentions, [N, T, D], or one input for each attention, [K, N, T, D].
        - `windows`: factors of the logits.
        - `mask`: masked keys get no weight.
        - `extra_rows`: further keys and values without queries. These rows are not masked, and windows do not change
          their logits.
        """
        query, key, value = (self._split_heads(part) for part in self._project(x))
        if extra_rows is not None:
            _, extra_key, extra_value = (self._split_heads(part) for part in self._project(extra_rows))
            key = torch.cat([key, extra_key], dim=-2)
            value = torch.cat([value, extra_value], dim=-2)
            mask = None if mask is None else F.pad(mask, (0, extra_rows.shape[-2]), value=True)
            windows = None if windows is None else F.pad(windows, (0, extra_rows.shape[-2]), value=1.0)
        if windows is None and isinstance(self.dropout, nn.Dropout) and not is_eager_cpu(x):
            heads = fused_attention(query, key, value, mask, rate(self.dropout))
            return heads.transpose(-2, -3).flatten(-2)
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
        """Return the output of `forward` for one input of all attentions, with rows packed without padding.

        `windows` has the shape [B, T, T], where T is the length of the longest sequence.
        """
        _, count, dim, _ = self.weight.shape
        linear = narrow.linear if narrow.applies(x) else F.linear
        joint = linear(x, self.weight.flatten(0, 2), self.bias.flatten())
        heads = joint.view(len(x), 3, count, self.num_heads, dim // self.num_heads)
        return lean.self_attention(heads, windows, packing.groups, rate(self.dropout))

    def _project(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return queries, keys and values, each [K, N, T, D]."""
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
        """Split the last axis into heads: [K, N, T, D] -> [K, N, H, T, D / H]."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(-2, -3)


def fused_attention(
    query: Float[Tensor, "K N H T E"],
    key: Float[Tensor, "K N H S E"],
    value: Float[Tensor, "K N H S E"],
    mask: Bool[Tensor, "N S"] | None,
    dropout: float,
) -> Float[Tensor, "K N H T E"]:
    """Return softmax(Q K^T / sqrt(E)) V. Where possible, PyTorch's fused kernel avoids storing the logits.

    Masked keys get no weight. The K attentions are additional heads for the kernel, so that they share one mask. The
    kernel can only add numbers to logits. Windows are not supported, because they multiply logits.
    """
    count = len(query)
    query, key, value = (x.transpose(0, 1).flatten(1, 2) for x in (query, key, value))
    bias = None
    if mask is not None:  # use a finite bias, because a boolean mask would give NaN for a sequence without real rows
        bias = query.new_zeros(mask.shape).masked_fill(~mask, MASKED_LOGIT)[:, None, None]
    heads = F.scaled_dot_product_attention(query, key, value, bias, dropout)
    return heads.unflatten(1, (count, -1)).transpose(0, 1)


class TokenAttention(nn.Module):
    """Multi-head attention from one token to each sequence. Heads are concatenated, without an output map."""

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
        """Return the attention output for each sequence. `token` is one row for all sequences or one row per sequence.

        Masked positions get no weight.
        """
        # Tensors with at most one row per sequence are in float64, because GMMFormer v2 divides the result by a
        # temperature. On TVR, this division multiplies rounding errors by eleven.
        query = self.query(token).unflatten(-1, (self.num_heads, -1)).double()
        # Each sequence has only one query. It is cheaper to multiply this query by the key map than to compute all
        # keys.
        weight = self.key.weight.unflatten(0, (self.num_heads, -1)).double()
        rows = x.to(lean.product_dtype(x))
        mapped_query = torch.einsum("...he,hed->...hd", query, weight).to(rows.dtype)
        constant = (query * self.key.bias.unflatten(0, (self.num_heads, -1))).sum(-1, keepdim=True).to(x.dtype)
        logits = (rows @ mapped_query.mT + constant.mT) / math.sqrt(query.shape[-1])  # [..., N, T, H]
        if mask is not None:
            logits = logits.masked_fill(~mask[..., None], MASKED_LOGIT)
        weights = self.dropout(logits.softmax(dim=-2))
        # The value map is linear. It is applied after the weighted sum, to one row per head instead of all rows. The
        # map's bias is multiplied by the sum of the weights, which is not 1 after dropout.
        pooled = torch.einsum("...th,...td->...hd", weights, rows).double()
        value = self.value.weight.unflatten(0, (self.num_heads, -1)).double()
        bias = self.value.bias.unflatten(0, (self.num_heads, -1)) * weights.sum(dim=-2)[..., None]
        return (torch.einsum("...hd,hed->...he", pooled, value) + bias).flatten(-2).to(x.dtype)


class AttentionPooling(nn.Module):
    """Pools a sequence into one vector. The weights of the rows are the softmax of a linear map (GMMFormer Eq. 2)."""

    def __init__(self, dim: int):
        super().__init__()
        self.score = nn.Linear(dim, 1, bias=False)

    def forward(self, x: Float[Tensor, "N T D"], mask: Bool[Tensor, "N T"] | None = None) -> Float[Tensor, "N D"]:
        """Return the weighted mean of the unmasked rows of each sequence."""
        logits = self.score(x)
        if mask is not None:
            logits = logits.masked_fill(~mask[..., None], -1e10)
        return (logits.softmax(dim=1) * x).sum(dim=1)


def stacked_dims(module: nn.Module, parameter: str) -> int:
    """Return the number of leading axes along which a parameter stacks tensors of the released programs.

    For example, a weight [3, K, D, D] stacks the maps to queries, keys and values of K attentions. The released
    programs store these 3 K maps as separate tensors, so the result is 2. Gradient clipping must treat the stacked
    tensors separately.
    """
    declared: dict[str, Any] = getattr(module, "stacked_dims", {})
    return int(declared.get(parameter, 0))


class _SharedKeyAttention(Function):
    """Computes softmax(Q K^T) V and softmax(Q K^T). Logits are not saved for the backward pass."""

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
    def backward(ctx: Any, d_output: Tensor | None, d_weights: Tensor | None) -> tuple[Tensor | None, ...]:
        query, key, values, weights = ctx.saved_tensors
        d_output = weights.new_zeros(*query.shape[:-1], values.shape[-2]) if d_output is None else d_output
        d_weights = d_output @ values if d_weights is None else d_output @ values + d_weights
        d_logits = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)
        d_key = d_logits.transpose(-1, -2) @ query
        d_value = weights.transpose(-1, -2) @ d_output
        return d_logits @ key, d_key, d_value, None, None, None


@dataclass(frozen=True)
class KeyValueCache:
    """Keys and values for several attention steps. The transposed copies make some products three times as fast."""

    key: Float[Tensor, "V H L E"]
    value: Float[Tensor, "V H L E"]
    keys: Float[Tensor, "V H E L"]
    values: Float[Tensor, "V H E L"]
    excluded: Bool[Tensor, "V 1 1 L"] | None

    @classmethod
    def of(
        cls, key: Float[Tensor, "V H L E"], value: Float[Tensor, "V H L E"], mask: Bool[Tensor, "V L"] | None
    ) -> "KeyValueCache":
        """Return a cache of keys and values, in which masked rows get no attention."""
        keys, values = (x.detach().transpose(-1, -2).contiguous() for x in (key, value))
        return cls(key, value, keys, values, None if mask is None else ~mask[:, None, None])

    def attend(self, query: Float[Tensor, "V H K E"]) -> tuple[Float[Tensor, "V H K E"], Float[Tensor, "V H K L"]]:
        """Return the attention output and the attention weights. Queries must already be scaled."""
        with torch.autocast(query.device.type, enabled=False):
            return _SharedKeyAttention.apply(query, self.key, self.value, self.keys, self.values, self.excluded)
