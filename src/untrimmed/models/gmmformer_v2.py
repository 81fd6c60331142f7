"""GMMFormer v2 (arXiv 2405.13824): clips at several scales, fused at each time point; a loss matches queries to clips.

Released code: huangmozhi9527/GMMFormer_v2. If release and paper differ, we follow the release, and an option selects
the paper's version. Towers and blocks come from `models/consolidated.py`.

- The release normalises after each residual. Eq. 14-15 normalise before it (`norm: pre`).
- The released windows use relative positions (`window`).
- The released frame score includes padding as zero vectors. The frame score of a video with fewer than `max_frames`
  frames is therefore never below 0 (`padding_scores`).
"""

import math
from dataclasses import dataclass, field

from untrimmed.models.attached_losses import OptimalMatching, QueryDiversity
from untrimmed.models.consolidated import ConsolidatedConfig, ConsolidatedModel
from untrimmed.models.registry import register
from untrimmed.models.settings import Losses

RELEASED_LOSSES = {"query_diversity": QueryDiversity.Config(margin=0.15), "optimal_matching": OptimalMatching.Config()}


@register("gmmformer_v2")
class GMMFormerV2(ConsolidatedModel):
    """Blocks of eight layers, fused by one learned token. The score combines a video's best clip and best frame."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ConsolidatedConfig):
        """The released widths and the attached losses."""

        gaussian_widths: tuple[float, ...] = (math.inf, 0.5, 1.0, 5.0, 10.0, 3.0, 0.1, 8.0)
        losses: Losses = field(default_factory=lambda: dict(RELEASED_LOSSES))

    config: Config
