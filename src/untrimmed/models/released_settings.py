"""Translate settings in authors' checkpoints into the dotted keys of our presets (`model.dim`, `weights.clip_nce`).

Most keys of the authors have the same meaning in all released programs. In lists such as `loss_factor`, the order of
the entries depends on the method.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from untrimmed.errors import shown_value
from untrimmed.models.naming import ModelName

Rule = Callable[[Any], dict[str, Any]]
"""A function that translates the value of one released setting into {dotted key: value} of our settings.

Raises: TypeError or ValueError for an unexpected value.
"""

WITHOUT_EFFECT = frozenset({"wd", "initializer_range", "pot_prompt_ratio", "collection", "visual_feature", "device"})
"""Released settings that have no effect here: constants, initial weights, file names."""

_MAX_COUNT = 10_000  # larger than in any release; without this limit, a damaged file could request too much memory


@dataclass(frozen=True)
class TranslatedSettings:
    """The result of a translation.

    `values` contains our settings. `keys` contains the names of these settings in the released program. `unknown`
    contains released settings that could not be translated.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)


def translate_settings(method: ModelName, config: Mapping[str, Any]) -> TranslatedSettings:
    """Return the settings `config` of a checkpoint, translated into our settings."""
    rules = {**_SHARED, **_METHODS.get(method.method, {})}
    if "ral" in method.attachments:
        rules |= _RAL
    values: dict[str, Any] = {}
    keys: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for key, value in config.items():
        if key in WITHOUT_EFFECT:
            continue
        try:
            translated = rules[key](value)
        except (KeyError, TypeError, ValueError, OverflowError):
            unknown[key if key.isprintable() else repr(key)] = shown_value(value)
            continue
        values |= translated
        keys |= dict.fromkeys(translated, key)
    return TranslatedSettings(values, keys, unknown)


def _number(*names: str) -> Rule:
    """Return a rule that copies a number to one or several of our settings."""

    def rule(value: Any) -> dict[str, Any]:
        if isinstance(value, str):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise TypeError
        return dict.fromkeys(names, value)

    return rule


def _count(*names: str) -> Rule:
    """Return a rule that copies a whole number to one or several of our settings."""

    def rule(value: Any) -> dict[str, Any]:
        if isinstance(value, bool) or int(value) != float(value) or abs(int(value)) > _MAX_COUNT:
            raise TypeError
        return dict.fromkeys(names, int(value))

    return rule


def _numbers(*names: str) -> Rule:
    """Return a rule that assigns the numbers of a list to our settings in order. Further numbers must be 0."""

    def rule(value: Any) -> dict[str, Any]:
        numbers = [_number("item")(item)["item"] for item in value]
        if len(numbers) < len(names) or any(numbers[len(names) :]):
            raise ValueError
        return dict(zip(names, numbers, strict=False))

    return rule


def _choice(name: str, choices: Mapping[Any, Any]) -> Rule:
    """Return a rule that translates a setting with a fixed set of values."""
    return lambda value: {name: choices[str(value).lower()]}


def _widths(first_power: int, share: int, *names: str) -> Rule:
    """Return a rule that computes window widths from the number of layers.

    One layer has no window. The other layers have the widths 2 ** `first_power`, 2 ** (`first_power` + 1), ...
    """

    def rule(value: Any) -> dict[str, Any]:
        num_layers = _count("layers")(value)["layers"] // share
        widths = (math.inf, *(2.0 ** (first_power + k) for k in range(num_layers - 1)))
        return dict.fromkeys(names, widths)

    return rule


_SHARED: Mapping[str, Rule] = {
    "hidden_size": _count("model.dim"),
    "n_heads": _count("model.num_heads"),
    "map_size": _count("model.num_clips"),
    "max_ctx_l": _count("model.max_frames"),
    "max_desc_l": _count("model.max_words"),
    "q_feat_size": _count("model.query_dim"),
    "input_drop": _number("model.input_dropout"),
    "drop": _number("model.dropout"),
    "margin": _number("model.margin"),
    "lr": _number("train.learning_rate"),
    "lr_warmup_proportion": _number("train.warmup_share"),
    "n_epoch": _count("train.epochs"),
    "batchsize": _count("train.batch_size"),
    "hard_negative_start_epoch": _count("train.hard_negatives_from_epoch"),
    "hard_pool_size": _count("train.hard_pool"),
    "eval_context_bsz": _count("train.eval_video_batch"),
    "eval_query_bsz": _count("train.eval_query_batch"),
    "seed": _count("train.seed"),
}
_BRANCHES = ("weights.clip_nce", "weights.frame_nce")
_FUSION: Mapping[str, Rule] = {
    "clip_scale_w": _number("model.clip_weight"),
    "frame_scale_w": _number("model.frame_weight"),
}
_DIVERSITY = "losses.query_diversity"
_CONSOLIDATED: Mapping[str, Rule] = {
    **_FUSION,
    "sft_factor": _number("model.temperature"),
    "neg_factor": _numbers(f"{_DIVERSITY}.margin", f"{_DIVERSITY}.scale", f"{_DIVERSITY}.focus"),
}


def _factors(*terms: str) -> Rule:
    return _numbers(*_BRANCHES, *(f"weights.{term}" for term in terms))


_METHODS: Mapping[str, Mapping[str, Rule]] = {
    "ms_sl": _FUSION,
    "gmmformer": {
        **_FUSION,
        "neg_factor": _numbers("losses.query_diversity_v1.margin", "losses.query_diversity_v1.scale"),
        "loss_factor": _factors("query_diversity_v1"),
    },
    "gmmformer_v2": {**_CONSOLIDATED, "loss_factor": _factors("query_diversity", "optimal_matching")},
    "hlformer": {
        **_CONSOLIDATED,
        "loss_factor": _factors("query_diversity", "partial_order"),
        "attention_num": _widths(1, 2, "model.gaussian_widths", "model.lorentz_widths"),
        "lorentz_dim": _count("model.lorentz_dim"),
        "curv_init": _number("losses.partial_order.curvature"),
    },
    "holmes": {
        **_CONSOLIDATED,
        "loss_factor": _factors("query_diversity", "transport", "evidence"),
        "edl_tau": _number("losses.evidence.temperature"),
        "division_beta": _number("losses.evidence.division_bound"),
        "smooth_beta": _number("losses.evidence.smoothing"),
        "edl_intra_video_tau": _number("losses.transport.temperature"),
        "pot_scale": _number("losses.transport.regularisation"),
        "warmup_epoch": _count("losses.evidence.warmup_epoch", "losses.transport.warmup_epoch"),
    },
    "dreamprvr": {
        **_CONSOLIDATED,
        "loss_factor": _factors("query_diversity", "query_similarity", "register_kl", "register_diffusion"),
        "attention_num": _widths(-2, 1, "model.gaussian_widths"),
        "deterministic_tau": _number("losses.query_similarity.temperature"),
        "num_registers": _count("model.registers.num_registers"),
        "timesteps": _count("model.registers.num_steps"),
        "num_diffusion_layers": _count("model.registers.num_layers"),
        "perturbation_scale": _number("model.registers.perturbation"),
    },
    "dl_dkd": {
        "double_branch": _choice("model.two_branches", {"true": True, "false": False}),
        "label_style": _choice("model.labels", {"hard": "hard", "soft": "soft"}),
        "alpha": _number("model.hard_share"),
        "belta": _number("model.label_share"),
    },
    "jsg": {
        "clip_scale_w": _number("model.glance_weight"),
        "frame_scale_w": _number("model.gaze_weight"),
        "num_gauss_center": _count("model.num_centers"),
        "num_gauss_width": _count("model.num_widths"),
        "width_lower_bound": _number("model.min_width"),
        "width_upper_bound": _number("model.max_width"),
        "window_size_inc": _count("model.sliding_step"),
        "num_props": _count("model.num_focus_widths"),
        "pooling_ksize": _count("model.pool_size"),
        "pooling_stride": _count("model.pool_stride"),
        "conv_ksize": _count("model.conv_size"),
        "conv_stride": _count("model.conv_stride"),
        "intra_margin": _number("model.intra_margin"),
        "npev": _count("model.moments_per_video"),
        "global_sample": _choice("model.glance_input", {"true": "coarse", "false": "clips"}),
        "shared_trans": _choice("model.shared_encoder", {"true": True, "false": False}),
    },
}
_RAL: Mapping[str, Rule] = {
    "n_samples": _count("model.ral.num_proxies"),
    "support_set_multiplier": _count("model.ral.support_captions"),
    "proxy_matching_weight": _number("weights.proxy_matching"),
    "distribution_alignment_weight": _number("weights.distribution_alignment"),
}
