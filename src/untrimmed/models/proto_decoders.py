"""ProtoPRVR's decoders, which are used only in training.

The decoders predict the words of a query from one prototype, and the frames of a video from all prototypes.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from untrimmed.nn.blocks import TransformerLayer
from untrimmed.nn.norm import LayerNorm
from untrimmed.nn.tower import Positions

FrameReading = Literal["broadcast", "mixture"]


class WordDecoder(nn.Module):
    """Predicts masked words from the other words and the query's best prototype (Eq. 3, Fig. 3a).

    In the paper, words attend to the prototype. Attention to a single vector always has weight 1. We therefore add a
    linear map of the prototype to every word.
    """

    def __init__(self, word_dim: int, dim: int, num_heads: int, max_words: int, init_std: float):
        super().__init__()
        self.mask_token = nn.Parameter(init_std * torch.randn(word_dim))
        self.word_map = nn.Linear(word_dim, dim)
        self.positions = Positions(max_words, dim, dropout=0.0)
        self.prototype_map = nn.Linear(dim, dim)
        self.norm = LayerNorm(dim)
        self.layer = TransformerLayer(dim, num_heads, dropout=0.0, output_map=True, skip_padding=True)
        self.output = nn.Linear(dim, word_dim)

    def forward(
        self,
        words: Float[Tensor, "Q W E"],
        mask: Bool[Tensor, "Q W"],
        hidden: Bool[Tensor, "Q W"],
        prototype: Float[Tensor, "Q D"],
    ) -> Float[Tensor, "N E"]:
        """Return the predicted words at the masked positions `hidden`, ordered by query."""
        # The same token replaces all masked words. It also replaces padding, but the layer skips padding.
        seen = (mask & ~hidden).flatten().nonzero()[:, 0]
        tokens = self.word_map(self.mask_token).expand(mask.numel(), -1)
        mapped = self.word_map(words.flatten(0, 1).index_select(0, seen)).to(tokens.dtype)
        x = tokens.index_copy(0, seen, mapped).unflatten(0, mask.shape)
        x = self.norm(self.positions(x) + self.prototype_map(prototype)[:, None])
        return self.output(self.layer(x, mask)[hidden])


class FrameDecoder(nn.Module):
    """Predicts one row per time point from the prototypes of a video (Eq. 5, Fig. 3b).

    - `broadcast` is the decoder of Slot Attention. An MLP maps the sum of a prototype and a learned position to a row
      and a logit. The row of a time point is the mean over prototypes, weighted by the softmax of the logits.
    - With `mixture`, the MLP maps only prototypes (V * K rows instead of V * T * K). The position only determines their
      weights.
    """

    def __init__(self, dim: int, video_dim: int, max_frames: int, reading: FrameReading):
        super().__init__()
        self.reading = reading
        self.positions = nn.Embedding(max_frames, dim)
        self.layer1 = nn.Linear(dim, dim)
        self.layer2 = nn.Linear(dim, dim)
        self.logit = nn.Linear(dim, 1) if reading == "broadcast" else None
        self.output = nn.Linear(dim, video_dim)

    def forward(self, prototypes: Float[Tensor, "V K D"], length: int) -> Float[Tensor, "V T C"]:
        """Return rows for the first `length` time points."""
        position = self.positions.weight[:length]
        if self.logit is None:
            decoded = self.layer2(self.layer1(prototypes).relu()).relu()
            weights = torch.einsum("vkd,td->vtk", decoded, position).softmax(dim=-1)
            return self.output(weights @ decoded)
        # the first layer is linear, so that prototype and position can be mapped separately
        both = self.layer1(prototypes)[:, None] + (position @ self.layer1.weight.T)[:, None]
        decoded = self.layer2(both.relu()).relu()
        weights = self.logit(decoded).softmax(dim=2)
        # averaging before the output map gives the same result and is faster: the map is linear, the weights sum to 1
        return self.output((weights * decoded).sum(dim=2))
