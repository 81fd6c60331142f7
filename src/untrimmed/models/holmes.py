"""Holmes (ICML 2026, arXiv 2605.06083): losses that estimate how certain it is which video and clip match a query.

Released code: lijun2005/ICML26-Holmes. The encoder is that of GMMFormer v2 (`models/consolidated.py`) with two
differences: other attention windows, and the mean of the layers' outputs instead of a learned token. Checkpoints
contain a learned token that is never used. The losses are in `models/evidential_losses.py`.

The released program with a second query branch is `holmes+ral` without RAL's Gaussians (`ral.msra: false`), as in the
preset of `holmes+ral` for TVR.
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar

from untrimmed.models.attached_losses import QueryDiversity
from untrimmed.models.consolidated import ConsolidatedConfig, ConsolidatedModel, FusionToken
from untrimmed.models.evidential_losses import EvidenceLoss, TransportLoss
from untrimmed.models.registry import register
from untrimmed.models.settings import Losses

RELEASED_LOSSES = {
    "query_diversity": QueryDiversity.Config(margin=0.15),
    "evidence": EvidenceLoss.Config(),
    "transport": TransportLoss.Config(),
}


@register("holmes")
class Holmes(ConsolidatedModel):
    """Each block has eight layers, whose outputs are fused by attention.

    The query of this attention is the mean of the outputs. The score of a video combines its best clip and its best
    frame.
    """

    released_layer: ClassVar[str] = "e_attns."

    @dataclass(frozen=True, kw_only=True)
    class Config(ConsolidatedConfig):
        """The released widths and branch weights, and the attached losses."""

        gaussian_widths: tuple[float, ...] = (math.inf, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
        fusion_token: FusionToken = "mean"
        clip_weight: float = 0.6
        frame_weight: float = 0.4
        losses: Losses = field(default_factory=lambda: dict(RELEASED_LOSSES))

    config: Config
