"""Shorten a sequence of frames for JSG's glance branch."""

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn


class DownSampling(nn.Module):
    """Shortens a sequence by max-pooling over time, followed by one convolution (JSG Eq. 2).

    As in the authors' program, the convolution has one channel, so all feature dimensions share the same few weights.
    The convolution's bias has no effect, because the next layer norm removes it.
    """

    SHARE_REAL = 0.2  # an output row counts as real if at least this share of its input rows is real

    def __init__(self, pool_size: int, pool_stride: int, conv_size: int, conv_stride: int):
        super().__init__()
        self.pool_size = pool_size
        self.pool_stride = pool_stride
        self.conv = nn.Conv1d(1, 1, conv_size, stride=conv_stride)
        self.min_rows = (conv_size - 1) * pool_stride + pool_size

    def pooled(
        self, x: Float[Tensor, "V T C"], mask: Bool[Tensor, "V T"]
    ) -> tuple[Float[Tensor, "V N C"], Bool[Tensor, "V N"]]:
        """Return the maximum of every group of rows and the mask of real groups. Groups may include padding.

        Short sequences are extended with zeros.
        """
        missing = max(0, self.min_rows - x.shape[1])
        x = F.pad(x, (0, 0, 0, missing))
        mask = F.pad(mask, (0, missing))
        pooled = F.max_pool1d(x.transpose(1, 2), self.pool_size, self.pool_stride).transpose(1, 2)
        return pooled, self._shortened(mask, self.pool_size, self.pool_stride)

    def forward(
        self, x: Float[Tensor, "V T C"], mask: Bool[Tensor, "V T"]
    ) -> tuple[Float[Tensor, "V L C"], Bool[Tensor, "V L"]]:
        """Return the shortened sequence and the mask of its real rows."""
        pooled, mask = self.pooled(x, mask)
        size = self.conv.weight.shape[-1]
        stride = self.conv.stride[0]
        # one matrix-vector product is used instead of a convolution for each feature dimension
        windows = pooled.unfold(1, size, stride)
        return F.linear(windows, self.conv.weight[0], self.conv.bias)[..., 0], self._shortened(mask, size, stride)

    def _shortened(self, mask: Bool[Tensor, "V N"], size: int, stride: int) -> Bool[Tensor, "V M"]:
        return F.avg_pool1d(mask.float()[:, None], size, stride)[:, 0] >= self.SHARE_REAL
