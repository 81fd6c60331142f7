"""ProtoPRVR's prototypes (arXiv 2504.13035) in place of another method's clips, so that a video has fewer vectors.

A fixed number of prototypes attend to the clips of a method (528 in MS-SL, 32 in GMMFormer and GMMFormer v2). The
prototypes replace the clips in all scores and losses. The orthogonal loss keeps prototypes different. Decoders and
joined videos exist only in the method `proto`. `models/proto.py` explains our choices for details that the paper leaves
open.
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
from untrimmed.nn.prototypes import Builder, PrototypeBuilder, prototype_timeline


@dataclass(frozen=True, kw_only=True)
class PrototypeShares(Record):
    """For each prototype, the attention weights over the M units of the video. They sum to 1."""

    unit_attention: Float[Tensor, "V M K"]


@dataclass(frozen=True, kw_only=True)
class PrototypeSettings:
    """Settings of prototypes, for this attachment and for the method `proto`.

    The default of `iterations` is for the builder `cross_attention`. The paper uses this default with CLIP's features.
    The papers of the other builders in Table 6 use more iterations: 8 for Perceiver (arXiv 2103.03206, ImageNet) and 3
    for slot attention (arXiv 2006.15055).
    """

    num_prototypes: int = 30  # number of prototypes of each branch (Table 5)
    iterations: int = 1  # K in the paper
    builder: Builder = "cross_attention"  # see Table 6
    prototype_sharpness: float = 4.0  # standard deviation of the attention logits at the start
    orthogonal_norm: OrthogonalNorm = "absolute"

    def require_range(self, owner: str = "") -> None:
        """Raise a ConfigError for values out of range."""
        for name in ("num_prototypes", "iterations"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{owner}{name} is {getattr(self, name)}, expected at least 1")
        if not self.prototype_sharpness > 0:
            raise ConfigError(f"{owner}prototype_sharpness is {self.prototype_sharpness}, expected more than 0")

    def new_builder(self, dim: int, num_heads: int) -> PrototypeBuilder:
        """Return the module that computes prototypes."""
        return PrototypeBuilder(
            self.num_prototypes,
            dim,
            num_heads,
            iterations=self.iterations,
            builder=self.builder,
            sharpness=self.prototype_sharpness,
        )


@dataclass(frozen=True, kw_only=True)
class PrototypeConfig(PrototypeSettings, AttachmentConfig):
    """The settings of prototypes as an attachment."""

    replaces_clips: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.require_range("prototypes: ")


@register("prototypes")
class PrototypeClips(Attachment):
    """Prototypes of ProtoPRVR that replace the method's clips."""

    Config = PrototypeConfig
    draws_maps: ClassVar[bool] = True

    config: PrototypeConfig

    def __init__(self, config: PrototypeConfig, model: Carrier):
        super().__init__(config, model)
        self.builder = config.new_builder(model.config.dim, model.config.num_heads)

    def encode_videos(self, model: Carrier, videos: VideoBatch, encoded: EncodedVideos) -> EncodedVideos:
        """Return the encoded videos with prototypes instead of clips, and with the prototypes' attention to units."""
        clips = clips_of(encoded)
        prototypes = self.builder(clips)
        # clips are either the units or all runs of consecutive units
        num_units = videos.clips.shape[1]
        attention = prototypes.attention
        if clips.shape[1] != num_units:
            attention = unit_shares(attention, num_units)
        shares = PrototypeShares(unit_attention=attention.transpose(1, 2))
        return dataclasses.replace(encoded, clips=prototypes.vectors).attach(self.name, shares)

    def losses(self, model: Carrier, step: TrainingStep) -> dict[str, Float[Tensor, ""]]:
        """Return the orthogonal loss (Eq. 8)."""
        return {"orthogonal": orthogonal(clips_of(step.videos), norm=self.config.orthogonal_norm)}

    def timeline(self, videos: EncodedVideos) -> tuple[Float[Tensor, "V M D"], None]:
        """Return one vector per unit: a weighted mean of the prototypes that attend to the unit."""
        return prototype_timeline(clips_of(videos), PrototypeShares.of(videos.attached[self.name]).unit_attention), None
