"""Registers (DreamPRVR, CVPR 2026, arXiv 2604.03653), an attachment: extra vectors that the layers attend to.

Released code: lijun2005/CVPR26-DreamPRVR, which has registers in one network (`models/dreamprvr.py`). One layer over
the embedded clips computes a mean vector of the video and K conditions. A short diffusion generates K registers from
this vector and the conditions. The registers are appended to the keys and values of every layer of both branches.
Masks and windows never hide the registers. In training, the diffusion learns to generate the mean of a video's captions
plus noise.

We extended registers to other methods with the layers of GMMFormer v2. We follow the release, because only the abstract
and overview of the paper were available to us. The release uses the mean of a video's distribution and does not sample
from it.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from untrimmed.batches import Record
from untrimmed.errors import ConfigError
from untrimmed.losses.distribution import kl_to_normal
from untrimmed.losses.draws import Draws
from untrimmed.losses.perturbation import mean_queries, perturbed
from untrimmed.models import released
from untrimmed.models.attachment import Attachment, AttachmentConfig, Carrier, ExtraRows, TrainingStep
from untrimmed.models.ral_distribution import Gaussian, Rows, SeparateHead
from untrimmed.models.registry import register
from untrimmed.nn.aggregation import TokenLayer
from untrimmed.nn.blocks import TransformerLayer
from untrimmed.nn.diffusion import Diffusion
from untrimmed.nn.order_pooling import OrderPooling
from untrimmed.nn.tower import InputLayer

FFN_RATIO = 4


@dataclass(frozen=True, kw_only=True)
class RegistersConfig(AttachmentConfig):
    """Settings. `perturbation` is the noise on the mean caption, in standard deviations of the caption's components."""

    num_registers: int = 8
    num_steps: int = 10
    num_layers: int = 2  # number of layers of the network that predicts the noise
    perturbation: float = 0.1

    def __post_init__(self) -> None:
        for name in ("num_registers", "num_steps", "num_layers"):
            if getattr(self, name) < 1:
                raise ConfigError(f"registers.{name} is {getattr(self, name)}, expected at least 1")
        if not self.perturbation >= 0:
            raise ConfigError(f"registers.perturbation is {self.perturbation}, expected at least 0")


@dataclass(frozen=True, kw_only=True)
class RegisterVideos(Record):
    """The inputs of the diffusion, stored for the losses: the distribution of the video, and the conditions."""

    mean: Float[Tensor, "V D"]
    log_variance: Float[Tensor, "V D"]
    condition: Float[Tensor, "V K D"]


@register("registers")
class Registers(Attachment):
    """The generator of registers, and an input layer for them in each branch."""

    Config = RegistersConfig
    draws_maps: ClassVar[bool] = True
    joins_layers: ClassVar[bool] = True
    second_pass: ClassVar[bool] = True
    released_on: ClassVar[frozenset[str]] = frozenset({"dreamprvr"})

    config: RegistersConfig

    def __init__(self, config: RegistersConfig, model: Carrier):
        super().__init__(config, model)
        c = model.config
        self.context = TransformerLayer(c.dim, c.num_heads, c.dropout, output_map=False, ffn_ratio=FFN_RATIO)
        self.tokens = nn.Parameter(torch.randn(config.num_registers, c.dim))
        self.reader = TokenLayer(c.dim, c.num_heads, c.dropout)
        self.pooling = OrderPooling()
        self.head = SeparateHead(c.dim, "both")
        self.diffusion = Diffusion(c.dim, config.num_steps, config.num_layers, c.init_std)
        self.clip_input = InputLayer(c.dim, c.dim, c.dropout)
        self.frame_input = InputLayer(c.dim, c.dim, c.dropout)

    def extra_rows(self, model: Carrier, clips: Float[Tensor, "V L D"]) -> ExtraRows:
        """Return the registers for both branches and, in training, the inputs of the losses."""
        context = self.context(clips)
        gaussian = self.distribution(context)
        condition = self.condition(context)
        registers = self.diffusion.trajectory(gaussian.mean, condition)[-1]
        record = RegisterVideos(mean=gaussian.mean, log_variance=gaussian.log_scale, condition=condition)
        # only in training, because at inference an index would store these vectors without using them
        records = {self.name: record} if self.training or torch.is_grad_enabled() else {}
        return ExtraRows(self.clip_input(registers), self.frame_input(registers), records)

    def condition(self, context: Float[Tensor, "V L D"]) -> Float[Tensor, "V K D"]:
        """Return the outputs of K learned tokens that attend to a video."""
        read = self.reader(self.tokens[:, None], context.expand(len(self.tokens), *context.shape))
        return read.transpose(0, 1)

    def distribution(self, context: Float[Tensor, "V L D"]) -> Gaussian:
        """Return the distribution of the video's vector. The mean has length 1, and `log_scale` is the log variance."""
        every = torch.ones(context.shape[:2], dtype=torch.bool, device=context.device)
        rows = Rows(context, torch.arange(len(context), device=context.device), every, context.new_zeros(len(context)))
        return self.head(rows, self.pooling(context))

    def losses(self, model: Carrier, step: TrainingStep) -> dict[str, Float[Tensor, ""]]:
        """Return two terms: the divergence of the videos' distributions, and the error of the predicted noise."""
        record = RegisterVideos.of(step.videos.attached[self.name])
        queries = mean_queries(step.queries.sentence, step.batch.video_index, len(record.mean))
        described = step.batch.video_index.unique()
        noised = self.diffusion.noised(self.captions(queries, step.draws), record.mean)
        error = record.mean[:, None] - self.diffusion.predicted_noise(noised, record.condition)
        return {
            "register_kl": kl_to_normal(record.mean, record.log_variance),
            "register_diffusion": error[:, described].square().mean(),
        }

    def captions(self, queries: Float[Tensor, "V D"], draws: Draws) -> Float[Tensor, "V K D"]:
        """Return the mean caption of each video, with different noise for each register."""
        shape = (len(queries), self.config.num_registers, queries.shape[1])
        scale, shift = (draws.normal(f"register_{kind}", *shape).to(queries) for kind in ("scale", "shift"))
        return perturbed(queries, scale, shift, strength=self.config.perturbation)

    def released_names(self, prefix: str) -> released.Names:
        """Return the parameter names in checkpoints of lijun2005/CVPR26-DreamPRVR; ours begin with `prefix`."""
        names = released.ffn_layer(f"{prefix}.context.layers", "mean_clip_encoder", block=0)
        names["video_qformer.query_tokens"] = released.Slot(f"{prefix}.tokens", unit_axes=1)
        names |= released.token_layer(f"{prefix}.reader", "video_qformer.cross_attention")
        for branch in ("clip", "frame"):
            names |= released.input_layer(f"{prefix}.{branch}_input", f"{branch}_encoder.noise_input_layer")
        sampler = "video_probabilistic_variational_sampler"
        gru = f"{prefix}.pooling.gru"
        for direction in ("l0", "l0_reverse"):
            for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                names[f"{sampler}.gpo.gru.{part}_{direction}"] = released.Slot(f"{gru}.{part}_{direction}")
        names[f"{sampler}.gpo.linear.weight"] = released.Slot(f"{prefix}.pooling.score.weight")
        names |= released.distribution_head(
            f"{prefix}.head", f"{sampler}.pie_net_video", f"{sampler}.uncertain_net_video"
        )
        return names | _denoiser_names(f"{prefix}.diffusion.denoiser", "diffusion_mlp", self.config.num_layers)


def _denoiser_names(ours: str, theirs: str, num_layers: int) -> released.Names:
    time = f"{theirs}.time_embedding.timembedding"
    names = {f"{time}.0.weight": released.Slot(f"{ours}.steps")}
    names |= released.pair(f"{ours}.time1", f"{time}.1") | released.pair(f"{ours}.time2", f"{time}.3")
    names |= released.pair(f"{ours}.norm", f"{theirs}.cond_embedding.0")
    names |= released.pair(f"{ours}.condition", f"{theirs}.cond_embedding.2")
    parts = {"norm1": "blcok_in.0", "layer1": "blcok_in.2", "norm2": "blcok_out.0", "layer2": "blcok_out.3"}
    parts |= {"shortcut": "short_cut", "time": "temb_proj.1", "condition": "cond_proj.1"}
    for j in range(num_layers):
        for part, their_part in parts.items():
            names |= released.pair(f"{ours}.layers.{j}.{part}", f"{theirs}.layers.{j}.{their_part}")
    return names | released.pair(f"{ours}.output", f"{theirs}.short_cut")
