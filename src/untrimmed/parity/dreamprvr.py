"""Compare DreamPRVR with its released program (golden cases): the whole network, and the register generator alone."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from untrimmed.batches import EncodedQueries, EncodedVideos
from untrimmed.losses.draws import Draws
from untrimmed.losses.perturbation import mean_queries
from untrimmed.models.registers import Registers, RegisterVideos
from untrimmed.models.registry import create_model
from untrimmed.models.released import as_tensors, export_released, import_released
from untrimmed.models.two_branches import TwoBranchModel
from untrimmed.nn.aggregation import mean_of
from untrimmed.nn.diffusion import NoiseSchedule
from untrimmed.parity.case import Arrays, Case
from untrimmed.parity.compare import Rules, Tolerance
from untrimmed.parity.draws import NoisyDraws
from untrimmed.parity.gmmformer import GMMFormerParity, GMMFormerV2Parity
from untrimmed.parity.registry import parity_of
from untrimmed.parity.retrieval import Tap

NOISE = {"register_scale": "noise_alpha", "register_shift": "noise_beta"}
BLOCKS = {"clip_encoder": "clip", "frame_encoder": "frame"}

# The first denoising step multiplies rounding errors by 204. According to the README of the golden data, two
# implementations of the same equations differ by 1.5e-5. The README allows differences of at most 5e-5. For gradients,
# it allows at most a thousandth of the largest entry.
LIMITS: Rules = (
    (r"expected/(registers|register_trajectory|predicted_noise|mid\.)", Tolerance(5e-5)),
    (r"expected/schedule_", Tolerance(1e-12, 1e-12)),
    (r"expected/grad_", Tolerance(1e-8, 1e-3)),
    (r"expected/(query_similarity|video_kl|register_diffusion)", Tolerance(5e-6, 1e-6)),
    (r"grads/", Tolerance(1e-8, 1e-3)),
)


@parity_of("dreamprvr")
class DreamPRVRParity(GMMFormerV2Parity):
    """The golden cases of DreamPRVR.

    The network is GMMFormer v2 with other attention windows and with registers (vectors that describe the topic of a
    video). The token that determines the weights of the parallel layers is the mean of the layers' outputs.
    """

    model_name = "dreamprvr"
    unused = frozenset({"expected/text_to_text_metrics"})
    terms = ("clip_nce", "frame_nce", "query_diversity", "query_similarity", "register_kl", "register_diffusion")

    def own_kinds(self) -> dict[str, Callable[[Case], Mapping[str, Any]]]:
        """Return the function for cases of the register generator."""
        return {"registers": self._registers}

    def rules(self, case: Case) -> Rules:
        """Return the tolerances of the register generator, followed by the common tolerances."""
        return [*LIMITS, *super().rules(case)]

    def settings(self, case: Case) -> dict[str, Any]:
        """Return window widths, the temperature of temporal consolidation, and settings of registers and losses."""
        widths = (math.inf, *(2.0 ** (k - 2) for k in range(case.setting("attention_num") - 1)))
        margin, scale, focus = case.setting("neg_factor")
        losses = {
            "query_diversity": {"margin": margin, "scale": scale, "focus": focus},
            "query_similarity": {"temperature": case.setting("deterministic_tau")},
        }
        values = {"gaussian_widths": widths, "temperature": case.setting("sft_factor"), "losses": losses}
        return values | {"registers": _register_settings(case)}

    def draws(self, case: Case) -> Draws:
        """Return draws that replay the recorded negatives and noise."""
        return NoisyDraws(case, self.recorded_ranks, NOISE)

    def taps(self, model: TwoBranchModel) -> list[Tap]:
        """List the modules whose outputs are compared: GMMFormer v2's modules, the inputs of registers, and tokens."""
        part = "attachments.registers"
        taps = [
            replace(tap, theirs=tap.theirs.replace("frame_encoder_1", "frame_encoder")) for tap in super().taps(model)
        ]
        taps += [Tap("mean_clip_encoder", f"{part}.context"), Tap("video_pooled", f"{part}.pooling")]
        for theirs, ours in BLOCKS.items():
            taps.append(Tap(f"{theirs}.noise_input_layer", f"{part}.{ours}_input"))
            taps.append(
                Tap(f"{theirs}.weight_token", f"{ours}_block.layers", lambda outputs: mean_of(outputs)[:, None])
            )
        return taps

    def encodings(self, model: TwoBranchModel, queries: EncodedQueries, videos: EncodedVideos) -> dict[str, Tensor]:
        """Return query vectors, clips, frames and registers.

        The registers are computed again, because encoded videos only contain the inputs of the registers.
        """
        encoded = super().encodings(model, queries, videos)
        if "registers" not in videos.attached:
            return encoded
        record = RegisterVideos.of(videos.attached["registers"])
        part = _registers_of(model)
        trajectory = part.diffusion.trajectory(record.mean, record.condition)
        return encoded | {
            "mid.position_weights": part.pooling.weights(model.config.num_clips),
            "video_mean": record.mean,
            "video_logvar": record.log_variance,
            "register_condition": record.condition,
            "register_trajectory": trajectory,
            "registers": trajectory[-1],
        }

    def loss_arrays(
        self, case: Case, model: TwoBranchModel, scores: dict[str, Tensor], terms: dict[str, Tensor], draws: Draws
    ) -> dict[str, Tensor]:
        """Return the losses of both branches, the attached losses, and intermediate values of the diffusion loss."""
        arrays = GMMFormerParity.loss_arrays(self, case, model, scores, terms, draws)
        index = case.training_batch().video_index
        queries = mean_queries(scores["query_vectors"], index, len(scores["video_mean"]))
        diffusion = _diffusion_arrays(
            _registers_of(model), queries, scores["video_mean"], scores["register_condition"], self.draws(case)
        )
        return (
            arrays
            | diffusion
            | {
                "query_similarity": terms["query_similarity"],
                "video_kl": terms["register_kl"],
                "register_diffusion": terms["register_diffusion"],
                "mean_queries": queries,
            }
        )

    def _registers(self, case: Case) -> dict[str, Any]:
        """Return the registers, intermediate values, gradients, and noise schedules.

        The input is the recorded output of the generator's first layer for the clips.
        """
        sizes = {"dim": case.setting("hidden_size"), "num_heads": case.setting("n_heads")}
        model = create_model(self.model_name, query_dim=1, video_dim=1, **sizes, registers=_register_settings(case))
        names = model.released_names()
        weights = as_tensors(case.weights)
        import_released(model, names, export_released(names, model.state_dict()) | weights)
        part = _registers_of(model.to(case.precision).eval())  # type: ignore[arg-type]
        context, condition, queries = (
            torch.from_numpy(case.batch[name]).to(case.precision).requires_grad_()
            for name in ("encoded_clips", "register_condition", "mean_queries")
        )
        gaussian = part.distribution(context)
        trajectory = part.diffusion.trajectory(gaussian.mean, condition)
        tensors = {
            "position_weights": part.pooling.weights(case.setting("map_size")),
            "video_pooled": part.pooling(context),
            "video_mean": gaussian.mean,
            "video_logvar": gaussian.log_scale,
            "register_trajectory": trajectory,
            "registers": trajectory[-1],
        }
        draws = self.draws(replace(case, config=case.config | {"use_hard_negative": False}))
        tensors |= _diffusion_arrays(part, queries, gaussian.mean, condition, draws)
        probed = (trajectory[-1] * torch.from_numpy(case.batch["probe"]).to(case.precision)).sum()
        places = {"encoded_clips": context, "condition": condition, "mean_queries": queries}
        for name, total in (("registers", probed), ("diffusion", tensors["register_diffusion"])):
            gradients = torch.autograd.grad(total, list(places.values()), retain_graph=True, allow_unused=True)
            tensors |= {f"grad_{name}_{of}": g for of, g in zip(places, gradients, strict=True) if g is not None}
        arrays: dict[str, Any] = dict(tensors)
        for num_steps in (4, case.setting("timesteps")):
            arrays |= {f"schedule_T{num_steps}_{name}": array for name, array in schedule_arrays(num_steps).items()}
        return arrays

    def _row_mask(self, case: Case, name: str) -> np.ndarray | None:
        """Return the mask of the rows to compare, or None for all rows.

        Padding of frames is also compared, because it is 0 in both programs.
        """
        return None if name.startswith("expected/mid.frame") else super()._row_mask(case, name)


def _register_settings(case: Case) -> dict[str, Any]:
    return {
        "num_registers": case.setting("num_registers"),
        "num_steps": case.setting("timesteps"),
        "num_layers": case.setting("num_diffusion_layers"),
        "perturbation": case.setting("perturbation_scale"),
    }


def _registers_of(model: TwoBranchModel) -> Registers:
    part = model.attachments["registers"]
    assert isinstance(part, Registers)
    return part


def _diffusion_arrays(
    part: Registers, queries: Tensor, mean: Tensor, condition: Tensor, draws: Draws
) -> dict[str, Tensor]:
    """Return captions with noise, the predicted noise, and the error of the prediction, by recorded name."""
    captions = part.captions(queries, draws)
    noised = part.diffusion.noised(captions, mean)
    guessed = part.diffusion.predicted_noise(noised, condition)
    missed = F.mse_loss(guessed, mean[:, None].expand_as(guessed), reduction="none").mean(dim=(1, 2, 3))
    return {
        "perturbed_queries": captions,
        "noised_queries": noised,
        "predicted_noise": guessed,
        "register_diffusion_per_step": missed,
        "register_diffusion": missed.mean(),
    }


def schedule_arrays(num_steps: int) -> Arrays:
    """Return the arrays of a noise schedule with `num_steps` steps, by recorded name.

    The first variance is 0 and has no logarithm. The released program uses the logarithm of the second variance
    instead.
    """
    schedule = NoiseSchedule.cosine(num_steps)
    alpha_bars = np.array(schedule.alpha_bars)
    of_clean, of_present, variance = np.array(schedule.posterior).T
    return {
        "betas": np.array(schedule.betas),
        "alphas_cumprod": alpha_bars,
        "sqrt_recip_alphas_cumprod": np.sqrt(1 / alpha_bars),
        "sqrt_recipm1_alphas_cumprod": np.sqrt(1 / alpha_bars - 1),
        "posterior_mean_coef1": of_clean,
        "posterior_mean_coef2": of_present,
        "posterior_variance": variance,
        "posterior_log_variance_clipped": np.log(np.append(variance[1], variance[1:])),
    }
