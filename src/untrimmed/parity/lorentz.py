"""Compute HLFormer's golden cases without a network: hyperbolic formulas, and an attention block in Lorentz space."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from untrimmed.losses.partial_order import aperture, exterior_angle, lifted
from untrimmed.models.released import as_tensors, export_released, import_released, lorentz_layer
from untrimmed.nn.blocks import ParallelLayers
from untrimmed.nn.lorentz import LorentzAttention, centroid, exponential_map, logarithmic_map, negated_time, points_of
from untrimmed.parity.case import Case
from untrimmed.parity.retrieval import replace_dropout


def hyperbolic_maps(case: Case) -> dict[str, Tensor]:
    """Return results and gradients of the formulas for maps, attention heads, centroids and cones in Lorentz space."""
    inputs = {name: torch.from_numpy(array).clone() for name, array in case.batch.items()}
    leaves = {name: x.requires_grad_() for name, x in inputs.items() if x.is_floating_point()}
    arrays = {
        "expmap0_point": exponential_map(leaves["expmap0_tangent"]),
        "logmap0_tangent": F.pad(logarithmic_map(leaves["logmap0_vector"]), (1, 0)),
    }
    rows = F.linear(leaves["linear_input"], leaves["linear_weight"]).unflatten(-1, (2, -1))
    arrays["linear_output"] = points_of(rows, leaves["linear_scale"].exp()[None, None, None, None])
    for name, gradient in (
        ("expmap0_point", "expmap0_grad_out"),
        ("logmap0_tangent", "logmap0_grad_out"),
        ("linear_output", "linear_grad_out"),
    ):
        arrays[name].backward(inputs[gradient])
    for part in ("expmap0_tangent", "logmap0_vector", "linear_input", "linear_weight", "linear_scale"):
        arrays[part.replace("_", "_grad_", 1)] = gradient_of(leaves[part])
    points = inputs["midpoint_points"]
    arrays["midpoint"] = centroid(inputs["midpoint_weights"] @ points)
    arrays["inner_products"] = negated_time(points) @ points.mT
    for curvature in case.setting("curvatures"):
        arrays |= {f"c{curvature}.{name}": x for name, x in _cones(inputs, curvature).items()}
    return arrays


def _cones(inputs: dict[str, Tensor], curvature: float) -> dict[str, Tensor]:
    """Return points, angles and cone apertures for pairs of a caption and a video, and the loss with its gradients.

    The loss is summed over the selected pairs. The loss of a pair is positive if the caption is outside its video's
    cone.
    """
    text, video = (inputs[f"tangent_{side}"].detach().clone().requires_grad_() for side in ("text", "video"))
    c = torch.tensor(curvature, requires_grad=True)
    text_point = lifted(text, c)
    video_point = lifted(video, c)
    angle = exterior_angle(video_point, text_point, c)
    opening = aperture(video_point, c, radius=0.1)
    loss = ((angle - opening).clamp_min(0) * inputs["loss_rows"]).sum()
    loss.backward()
    return {
        "text_point": text_point,
        "video_point": video_point,
        "angle": angle,
        "aperture": opening,
        "loss": loss,
        "grad_text": gradient_of(text),
        "grad_video": gradient_of(video),
        "grad_curvature": gradient_of(c),
    }


def gradient_of(leaf: Tensor) -> Tensor:
    """Return the gradient of an input after the backward pass."""
    assert leaf.grad is not None
    return leaf.grad


class Pattern(nn.Module):
    """Replaces a dropout layer and multiplies every second number by a factor.

    The comparison then fails if a dropout layer is at another position than in the released program.
    """

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """Return the input. Numbers at odd indices of the last axis are multiplied by the factor."""
        odd = torch.arange(x.shape[-1], device=x.device) % 2 == 1
        return x * torch.where(odd, self.factor, 1.0).to(x.dtype)


def lorentz_attention(case: Case) -> dict[str, Tensor]:
    """Return the intermediate results of one block for each window width, and the gradients of its parameters."""
    arrays: dict[str, Tensor] = {}
    tensors = {name: x.to(case.precision) for name, x in as_tensors(case.weights).items()}
    for width in case.setting("widths"):
        prefix = f"w{width}"
        of_width = {name: x for name, x in tensors.items() if name.startswith(f"{prefix}.")}
        layers = _block(case, math.inf if width == "none" else float(width))
        names = lorentz_layer("layers", prefix, 0)
        import_released(nn.ModuleDict({"layers": layers}), names, of_width)
        steps = _steps(case, layers)
        gradients = {f"layers.{name}": p.grad for name, p in layers.named_parameters() if p.grad is not None}
        exported = export_released(names, gradients)
        steps |= {f"grad.{name.removeprefix(f'{prefix}.')}": x for name, x in exported.items()}
        arrays |= {f"{prefix}.{name}": x for name, x in steps.items()}
    return arrays


def _block(case: Case, width: float) -> ParallelLayers:
    dim = case.setting("hidden_size")
    heads = case.setting("n_heads")
    attention = LorentzAttention(1, dim, case.setting("lorentz_dim"), heads, dropout=0.0)
    layers = ParallelLayers(dim, heads, 0.0, widths=(width,), output_map=False, ffn_ratio=4, attention=attention)
    return layers.to(case.precision)


def _steps(case: Case, layers: ParallelLayers) -> dict[str, Tensor]:
    """Return the intermediate results and the output of the block, and the gradient of the input."""
    x = torch.from_numpy(case.batch["input"]).to(case.precision).requires_grad_()
    mask = torch.from_numpy(case.batch["mask"]) > 0
    attention = layers.attention
    windows = layers.windows(x.shape[1], x.device)
    assert isinstance(attention, LorentzAttention)
    with torch.no_grad():
        tangent = attention.tangent(x)
        scale = attention.scale()
        points = exponential_map(scale * tangent)
        query, key, value = attention.linear(points)
        logits = attention.logits(query, key, windows, mask)
        context = attention.read(logits.softmax(dim=-1), value)
        steps = {"tangent_in": tangent, "points": points, "context": context}
        steps |= {"tangent_out": logarithmic_map(context) / scale, "logits": logits}
        steps |= {"probabilities": logits.softmax(dim=-1), "attention_output": attention(x, windows, mask)}
        heads = {"query": query, "key": key, "value": value}
        steps |= {name: rows.transpose(2, 3) for name, rows in heads.items()}
    steps["output"] = layers(x, mask)
    steps["output"].backward(torch.from_numpy(case.batch["output_gradient"]).to(x.dtype)[None])
    replace_dropout(layers, lambda _: Pattern(1 - case.setting("pattern_dropout_p")))
    steps["output_pattern_dropout"] = layers(x, mask)
    return {name: step[0] for name, step in steps.items()} | {"grad.input": gradient_of(x)}
