"""HLFormer (ICCV 2025, arXiv 2507.17402): Euclidean and Lorentz attention; a loss puts videos above captions.

Released code: lijun2005/ICCV25-HLFormer. The encoder is that of GMMFormer v2 (`models/consolidated.py`) with two
differences:

- A block has Euclidean layers and Lorentz layers.
- The token that fuses the layers is the mean of their outputs instead of a learned vector. The mean includes padding,
  so frames must always be padded to `max_frames`.

The loss in `models/partial_order.py` puts videos above their captions in a hierarchy. Only the Lorentz layers and this
loss use hyperbolic space. Scores, moments and relevance curves use cosines. We follow the release, because only the
abstract, introduction and overview of the paper were available to us.
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar

from untrimmed.errors import ConfigError
from untrimmed.models import released
from untrimmed.models.attached_losses import QueryDiversity
from untrimmed.models.consolidated import FFN_RATIO, ConsolidatedConfig, ConsolidatedModel, FusionToken
from untrimmed.models.partial_order import PartialOrder
from untrimmed.models.registry import register
from untrimmed.models.settings import Losses
from untrimmed.nn.blocks import LayersOfTwoKinds, ParallelLayers
from untrimmed.nn.lorentz import LorentzAttention

RELEASED_LOSSES = {"query_diversity": QueryDiversity.Config(margin=0.15), "partial_order": PartialOrder.Config()}


@register("hlformer")
class HLFormer(ConsolidatedModel):
    """Blocks of four Euclidean and four Lorentz layers. The score combines a video's best clip and best frame."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ConsolidatedConfig):
        """Settings of the method.

        - `lorentz_widths`: one Lorentz layer per width, like `gaussian_widths` for Euclidean layers.
        - `lorentz_dim`: the width of the tangent space of a Lorentz layer, summed over heads. Each point has one more
          component.
        """

        gaussian_widths: tuple[float, ...] = (math.inf, 2.0, 4.0, 8.0)
        lorentz_widths: tuple[float, ...] = (math.inf, 2.0, 4.0, 8.0)
        lorentz_dim: int = 127
        fusion_token: FusionToken = "mean"
        losses: Losses = field(default_factory=lambda: dict(RELEASED_LOSSES))

        def __post_init__(self) -> None:
            super().__post_init__()
            if not self.lorentz_widths or not all(width > 0 for width in self.lorentz_widths):
                raise ConfigError(
                    f"lorentz_widths is {list(self.lorentz_widths)}, expected at least one number above 0 (.inf: no "
                    "window); without Lorentz layers, use gmmformer_v2 with model.fusion_token=mean"
                )
            if (self.lorentz_dim + 1) % self.num_heads or self.lorentz_dim + 1 < 2 * self.num_heads:
                raise ConfigError(
                    f"lorentz_dim is {self.lorentz_dim}, expected one less than a multiple of num_heads "
                    f"{self.num_heads}, with at least two numbers per head"
                )

    config: Config
    has_layers: ClassVar[bool] = False  # Lorentz layers cannot read extra rows
    released_layer: ClassVar[str] = "e_attns."

    def block_layers(self, length: int) -> ParallelLayers | LayersOfTwoKinds:
        """Return the Euclidean layers, then the Lorentz layers."""
        c = self.config
        attention = LorentzAttention(len(c.lorentz_widths), c.dim, c.lorentz_dim, c.num_heads, c.dropout)
        return LayersOfTwoKinds(
            self.new_layers(length, output_map=False, ffn_ratio=FFN_RATIO, skip_padding=not c.reads_padding),
            self.new_layers(
                length, output_map=False, ffn_ratio=FFN_RATIO, widths=c.lorentz_widths, attention=attention
            ),
        )

    def list_released_names(self) -> released.Names:
        """Return the parameter names in checkpoints of lijun2005/ICCV25-HLFormer, each with its tensor's `Slot`."""
        names = super().list_released_names()
        del names["weight_token"]  # the only difference from GMMFormer v2 outside the blocks
        loss = "attachments.partial_order"
        of_loss = {
            "curv": f"{loss}.log_curvature",
            "textual_alpha": f"{loss}.log_text_scale",
            "video_alpha": f"{loss}.log_video_scale",
            "modular_vector_mapping_2.weight": f"{loss}.frame_pooling.score.weight",
            "modular_vector_mapping_3.weight": f"{loss}.clip_pooling.score.weight",
        }
        ours = self.state_dict().keys()  # the settings may leave out the attached loss
        names |= {name: released.Slot(place) if place in ours else released.UNUSED for name, place in of_loss.items()}
        return names | {"manifold.k": released.UNUSED}

    def released_layers(self, ours: str, theirs: str) -> released.Names:
        """Return the authors' names of Euclidean and of Lorentz layers."""
        names = super().released_layers(f"{ours}.first", theirs)
        for k in range(len(self.config.lorentz_widths)):
            names |= released.lorentz_layer(f"{ours}.second", f"{theirs}.h_attns.{k}", block=k)
        return names
