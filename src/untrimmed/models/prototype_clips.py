"""Prototypes of ProtoPRVR (arXiv 2504.13035) in place of another method's clips: fewer vectors for the same contexts.

The clips of a method (MS-SL's 528, the 32 of GMMFormer and its successor) are read into a fixed number of prototypes,
which its scores, losses and attached losses then meet as its clips; prototypes are kept apart by the orthogonal loss.
What the paper leaves open about them stands in `models/proto.py`; its decoders and mixed videos are its method's only.
"""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from untrimmed.batches import EncodedVideos, Record, VideoBatch, clips_of
from untrimmed.errors import ConfigError
from untrimmed.losses.orthogonal import OrthogonalNorm, orthogonal
from untrimmed.models.attachment import Attachment, AttachmentConfig, Carrier, TrainingStep
from untrimmed.models.registry import register
from untrimmed.moments.proposals import unit_shares
from untrimmed.nn.prototypes import Builder, NormPlace, PrototypeBuilder, Residual, prototype_timeline


@dataclass(frozen=True, kw_only=True)
class PrototypeShares(Record):
    """Which share of each prototype comes from which of the video's M units."""

    unit_attention: Float[Tensor, "V M K"]


@dataclass(frozen=True, kw_only=True)
class PrototypeSettings:
    """What prototypes are, here and in the method `proto`; one reading is what the paper takes with CLIP's features.

    `iterations` is a number of ProtoPRVR's own builder: the rivals of Table 6 read 8 times in the paper of Perceiver
    (arXiv 2103.03206, ImageNet) and 3 times in that of slot attention (arXiv 2006.15055).
    """

    num_prototypes: int = 30  # of each branch (Table 5)
    iterations: int = 1  # the paper's K
    builder: Builder = "cross_attention"  # Table 6
    prototype_residual: Residual = "anchored"
    prototype_norm: NormPlace = "before"  # after: what a reading gives is normalised too
    prototype_scale: float = 2.0  # of the learned ones at the start, times what a row gives them; with `all`
    orthogonal_norm: OrthogonalNorm = "absolute"

    def require_range(self, owner: str = "") -> None:
        """Raise a ConfigError for what cannot be."""
        for name in ("num_prototypes", "iterations"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{owner}{name} is {getattr(self, name)}, wanted at least 1")
        if not self.prototype_scale > 0:
            raise ConfigError(f"{owner}prototype_scale is {self.prototype_scale}, wanted more than 0")

    def new_builder(self, dim: int, num_heads: int) -> PrototypeBuilder:
        """What reads the prototypes."""
        return PrototypeBuilder(
            self.num_prototypes,
            dim,
            num_heads,
            iterations=self.iterations,
            builder=self.builder,
            residual=self.prototype_residual,
            scale=self.prototype_scale,
            norm=self.prototype_norm,
        )


@dataclass(frozen=True, kw_only=True)
class PrototypeConfig(PrototypeSettings, AttachmentConfig):
    """Those of the prototypes alone."""

    replaces_clips: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.require_range("prototypes: ")


@register("prototypes")
class PrototypeClips(Attachment):
    """Prototypes of ProtoPRVR that stand for the method's clips."""

    Config = PrototypeConfig
    draws_maps: ClassVar[bool] = True

    config: PrototypeConfig

    def __init__(self, config: PrototypeConfig, model: Carrier):
        super().__init__(config, model)
        self.builder = config.new_builder(model.config.dim, model.config.num_heads)

    def encode_videos(self, model: Carrier, videos: VideoBatch, encoded: EncodedVideos) -> EncodedVideos:
        """The prototypes as clips, and what share of each comes from each unit."""
        clips = clips_of(encoded)
        made = self.builder(clips)
        # Clips are the units themselves, or all windows of them.
        num_units = videos.clips.shape[1]
        attention = made.attention if clips.shape[1] == num_units else unit_shares(made.attention, num_units)
        shares = PrototypeShares(unit_attention=attention.transpose(1, 2))
        return dataclasses.replace(encoded, clips=made.vectors).attach(self.name, shares)

    def losses(self, model: Carrier, step: TrainingStep) -> dict[str, Float[Tensor, ""]]:
        """Eq. 8."""
        return {"orthogonal": orthogonal(clips_of(step.videos), norm=self.config.orthogonal_norm)}

    def timeline(self, videos: EncodedVideos) -> tuple[Float[Tensor, "V M D"], None]:
        """A vector for each unit from the prototypes that read it."""
        return prototype_timeline(clips_of(videos), PrototypeShares.of(videos.attached[self.name]).unit_attention), None
