"""HLFormer (ICCV 2025, arXiv 2507.17402): attention in Lorentz space beside Euclidean attention, videos above captions.

Released code: lijun2005/ICCV25-HLFormer, built on GMMFormer v2, whose encoder it shares (`models/consolidated.py`): a
block has layers of either kind, which the mean of their outputs reads in place of a learned token. That mean counts
padding too, so frames are always padded to `max_frames`. The loss on the hierarchy is `models/partial_order.py`.
Nothing hyperbolic outside the layers takes part in retrieval, so moments and curves are those of cosines. Of the paper
only abstract, introduction and overview could be read; we follow the release.
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
    """Eight layers a block, half of them in Lorentz space; clips and frames both score by their best row."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ConsolidatedConfig):
        """`lorentz_widths`: one Lorentz layer a width, as `gaussian_widths` for the others; `lorentz_dim`: the width of
        their tangent space, one less than that of all heads' points.
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
                    f"lorentz_widths is {list(self.lorentz_widths)}, wanted at least one number above 0 (.inf: no "
                    "window); for none at all take gmmformer_v2 with model.fusion_token=mean"
                )
            if (self.lorentz_dim + 1) % self.num_heads or self.lorentz_dim + 1 < 2 * self.num_heads:
                raise ConfigError(
                    f"lorentz_dim is {self.lorentz_dim}, wanted one less than a multiple of num_heads "
                    f"{self.num_heads}, with two numbers a head or more"
                )

    config: Config
    has_layers: ClassVar[bool] = False  # those in Lorentz space read points of their own alone
    released_layer: ClassVar[str] = "e_attns."

    def block_layers(self, length: int) -> ParallelLayers | LayersOfTwoKinds:
        """Euclidean layers, then Lorentz layers."""
        c = self.config
        attention = LorentzAttention(len(c.lorentz_widths), c.dim, c.lorentz_dim, c.num_heads, c.dropout)
        return LayersOfTwoKinds(
            self.new_layers(length, output_map=False, ffn_ratio=FFN_RATIO, skip_padding=not c.reads_padding),
            self.new_layers(
                length, output_map=False, ffn_ratio=FFN_RATIO, widths=c.lorentz_widths, attention=attention
            ),
        )

    def list_released_names(self) -> released.Names:
        """The parameter names in checkpoints of lijun2005/ICCV25-HLFormer, and where each tensor lives here."""
        names = super().list_released_names()
        del names["weight_token"]  # the one difference from GMMFormer v2 outside the blocks
        loss = "attachments.partial_order"
        of_loss = {
            "curv": f"{loss}.log_curvature",
            "textual_alpha": f"{loss}.log_text_scale",
            "video_alpha": f"{loss}.log_video_scale",
            "modular_vector_mapping_2.weight": f"{loss}.frame_pooling.score.weight",
            "modular_vector_mapping_3.weight": f"{loss}.clip_pooling.score.weight",
        }
        ours = self.state_dict().keys()  # without the loss where it is off
        names |= {name: released.Slot(place) if place in ours else released.UNUSED for name, place in of_loss.items()}
        return names | {"manifold.k": released.UNUSED}

    def released_layers(self, ours: str, theirs: str) -> released.Names:
        """Those of Euclidean and of Lorentz layers."""
        names = super().released_layers(f"{ours}.first", theirs)
        for k in range(len(self.config.lorentz_widths)):
            names |= released.lorentz_layer(f"{ours}.second", f"{theirs}.h_attns.{k}", block=k)
        return names
