"""DreamPRVR (CVPR 2026, arXiv 2604.03653): attention layers read extra vectors (registers) for a video's topic.

Released code: lijun2005/CVPR26-DreamPRVR. The encoder is that of GMMFormer v2 (`models/consolidated.py`) with two
differences: other attention windows, and the mean of the layers' outputs instead of a learned token. There is no loss
that matches captions to clips. The registers and their losses are in `models/registers.py` and can be attached to other
methods.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from untrimmed.models import released
from untrimmed.models.attached_losses import QueryDiversity, QuerySimilarity
from untrimmed.models.consolidated import ConsolidatedConfig, ConsolidatedModel, FusionToken
from untrimmed.models.registers import Registers
from untrimmed.models.registry import register
from untrimmed.models.settings import AttachmentConfig, Losses

RELEASED_LOSSES = {
    "query_diversity": QueryDiversity.Config(margin=0.15),
    "query_similarity": QuerySimilarity.Config(),
}


@register("dreamprvr")
class DreamPRVR(ConsolidatedModel):
    """Blocks of eight layers that read registers together with clips or frames.

    The score of a video combines its best clip and its best frame.
    """

    released_layer: ClassVar[str] = "e_attns."

    @dataclass(frozen=True, kw_only=True)
    class Config(ConsolidatedConfig):
        """The released widths and branch weights, the registers, and the attached losses."""

        gaussian_widths: tuple[float, ...] = (math.inf, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
        fusion_token: FusionToken = "mean"
        clip_weight: float = 0.5
        frame_weight: float = 0.5
        losses: Losses = field(default_factory=lambda: dict(RELEASED_LOSSES))
        parts: Mapping[str, AttachmentConfig] = field(default_factory=lambda: {"registers": Registers.Config()})

    config: Config

    def list_released_names(self) -> released.Names:
        """Return the parameter names in checkpoints of lijun2005/CVPR26-DreamPRVR, each with its tensor's `Slot`."""
        names = super().list_released_names()
        del names["weight_token"]
        return {name.replace("frame_encoder_1.", "frame_encoder."): slot for name, slot in names.items()}
