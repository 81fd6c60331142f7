"""Translate between the authors' parameter names and ours.

A method lists the authors' names in `list_released_names`. The functions below return names of layers that several
released programs share. A released tensor is often a single entry of our parameter, because we stack parallel layers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from untrimmed.errors import CheckpointError, named


@dataclass(frozen=True)
class Slot:
    """The place of a released tensor in our model: the name of a parameter, and indices into its first axes.

    The released tensor has `unit_axes` additional leading axes of length 1.
    """

    parameter: str
    index: tuple[int, ...] = ()
    unit_axes: int = 0

    def export(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Return the released tensor. `tensors` has our parameter names as keys."""
        ours = tensors[self.parameter][self.index]
        return ours[(None,) * self.unit_axes] if self.unit_axes else ours


UNUSED = Slot("")  # marks a tensor that the released program stores but never uses; our models do not have it
Names = dict[str, Slot]


def pair(ours: str, theirs: str, index: tuple[int, ...] = ()) -> Names:
    """Return the names of the weight and bias of one linear map or layer norm."""
    return {f"{theirs}.{part}": Slot(f"{ours}.{part}", index) for part in ("weight", "bias")}


def input_layer(ours: str, theirs: str) -> Names:
    """Return the names of the layer norm and the linear map of an input layer."""
    return pair(f"{ours}.norm", f"{theirs}.LayerNorm") | pair(f"{ours}.linear", f"{theirs}.net.1")


def positions(ours: str, theirs: str) -> Names:
    """Return the names of a position table and its layer norm."""
    table = {f"{theirs}.position_embeddings.weight": Slot(f"{ours}.table.weight")}
    return table | pair(f"{ours}.norm", f"{theirs}.LayerNorm")


def embedding(tower: str, theirs: str) -> Names:
    """Return the names of a tower's input layer and position table. `theirs` is `query`, `clip` or `frame`."""
    return input_layer(f"{tower}.input", f"{theirs}_input_proj") | positions(
        f"{tower}.positions", f"{theirs}_pos_embed"
    )


def self_attention(ours: str, theirs: str, block: int) -> Names:
    """Return the names of the query, key and value maps of layer `block` of a stack."""
    return {
        f"{theirs}.{name}.{part}": Slot(f"{ours}.{part}", (i, block))
        for i, name in enumerate(("query", "key", "value"))
        for part in ("weight", "bias")
    }


def attention_layer(ours: str, theirs: str, block: int) -> Names:
    """Return the names of layer `block` of a stack with an output map and no feed-forward part.

    MS-SL, GMMFormer, JSG and DL-DKD have such layers.
    """
    return (
        self_attention(f"{ours}.attention", f"{theirs}.self", block)
        | pair(f"{ours}.output", f"{theirs}.output.dense", (block,))
        | pair(f"{ours}.norm1", f"{theirs}.output.LayerNorm", (block,))
    )


def ffn_layer(ours: str, theirs: str, block: int) -> Names:
    """Return the names of layer `block` of a stack with a feed-forward part and no output map (GMMFormer v2, RAL)."""
    return self_attention(f"{ours}.attention", f"{theirs}.self", block) | after_attention(ours, theirs, block)


def after_attention(ours: str, theirs: str, block: int) -> Names:
    """Return the names of `ffn_layer` after the attention: the feed-forward part and the norms."""
    return (
        pair(f"{ours}.ffn.layer1", f"{theirs}.output.layer1", (block,))
        | pair(f"{ours}.ffn.layer2", f"{theirs}.output.layer2", (block,))
        | pair(f"{ours}.norm1", f"{theirs}.norm1", (block,))
        | pair(f"{ours}.norm2", f"{theirs}.norm2", (block,))
    )


def lorentz_layer(ours: str, theirs: str, block: int) -> Names:
    """Return the same names as `ffn_layer`, but for a layer with Lorentz attention (HLFormer).

    Each released layer also stores the curvature of the manifold, the constant 1, under five names.
    """
    attention = f"{ours}.attention"
    heads = f"{theirs}.self.lorentz_multiattention"
    names = {f"{theirs}.self.scale_alpha": Slot(f"{attention}.log_scale", (block,))}
    for side in ("input", "output"):
        names |= pair(f"{attention}.{side}_norm", f"{theirs}.self.{side}_proj.LayerNorm", (block,))
        names |= pair(f"{attention}.{side}", f"{theirs}.self.{side}_proj.net.1", (block,))
    names[f"{heads}.scale"] = Slot(f"{attention}.temperature", (block,), unit_axes=1)
    names[f"{heads}.bias"] = Slot(f"{attention}.bias", (block,))
    curved = [f"{theirs}.self", heads]
    for i, part in enumerate(("query", "keys", "values")):
        names[f"{heads}.linear_{part}.scale"] = Slot(f"{attention}.linear.log_scale", (block, i))
        names[f"{heads}.linear_{part}.weight.weight"] = Slot(f"{attention}.linear.weight", (block, i))
        curved.append(f"{heads}.linear_{part}")
    names |= {f"{name}.manifold.k": UNUSED for name in curved}
    return names | after_attention(ours, theirs, block)


def token_layer(ours: str, theirs: str) -> Names:
    """Return the names of the layer in which a token attends to a sequence (GMMFormer v2, RAL)."""
    names: Names = {}
    for part in ("query", "key", "value"):
        names |= pair(f"{ours}.attention.{part}", f"{theirs}.self.{part}")
    for part in ("layer1", "layer2"):
        names |= pair(f"{ours}.{part}", f"{theirs}.output.{part}")
    return names | pair(f"{ours}.norm1", f"{theirs}.norm1") | pair(f"{ours}.norm2", f"{theirs}.norm2")


def consolidation(ours: str, theirs: str) -> Names:
    """Return the names of a block's temporal consolidation: the token's attention layer, then two linear maps."""
    names = token_layer(f"{ours}.reader", f"{theirs}.ca") | pair(f"{ours}.hidden", f"{theirs}.layer1")
    return names | pair(f"{ours}.weights", f"{theirs}.layer2")


def distribution_head(ours: str, mean: str, spread: str) -> Names:
    """Return the names of a head that predicts mean and spread with separate poolings (RAL, DreamPRVR)."""
    names: Names = {}
    for part, theirs in (("mean", mean), ("scale", spread)):
        names[f"{theirs}.attention.w_1.weight"] = Slot(f"{ours}.{part}_pooling.hidden.weight")
        names[f"{theirs}.attention.w_2.weight"] = Slot(f"{ours}.{part}_pooling.score.weight")
        names |= pair(f"{ours}.{part}_map", f"{theirs}.fc")
    return names | pair(f"{ours}.mean_norm", f"{mean}.layer_norm") | pair(f"{ours}.scale_global", f"{spread}.fc2")


def require_released(model: nn.Module, names: Names, released: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Check the authors' tensors, and return them without the prefix `module.`.

    `names` are the `released_names` of the model. The model may be on the device "meta", which needs no memory.

    Raises: CheckpointError if a tensor is missing or unknown, or has the wrong shape or values that are not finite.
    """
    released = without_prefix(released)
    needed = [name for name, slot in names.items() if slot is not UNUSED]
    if missing := sorted(set(needed) - released.keys()):
        raise CheckpointError(f"released checkpoint has no {named(missing)}; is it of another method or truncated?")
    if unknown := sorted(released.keys() - names.keys()):
        raise CheckpointError(f"released checkpoint has unknown tensors {named(unknown)}; is it of another method?")
    state = model.state_dict()
    if uncovered := sorted(state.keys() - {slot.parameter for slot in names.values()}):
        raise CheckpointError(
            f"the released method has no {named(uncovered)}; create the model with the method's default settings and "
            "without other attachments"
        )
    for name in needed:
        expected = tuple(names[name].export(state).shape)
        if expected != tuple(released[name].shape):
            raise CheckpointError(
                f"released tensor {name} has shape {tuple(released[name].shape)}, this model expects {expected}; "
                "set the model's sizes to those of the checkpoint"
            )
        if not bool(released[name].isfinite().all()):
            raise CheckpointError(f"released tensor {name} has values that are not finite; use another checkpoint")
    return {name: released[name] for name in needed}


def without_prefix(released: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors without the prefix `module.`, which PyTorch adds to names in training on several GPUs."""
    return {name.removeprefix("module."): tensor for name, tensor in released.items()}


def import_released(model: nn.Module, names: Names, released: Mapping[str, Tensor]) -> None:
    """Load the authors' tensors into the model in place. `names` are the model's `released_names`.

    Raises: the errors of `require_released`. After an error, the model is unchanged.
    """
    tensors = require_released(model, names, released)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for name, tensor in tensors.items():
        names[name].export(state).copy_(tensor)
    model.load_state_dict(state)


def export_released(names: Names, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors (such as a state dict or gradients) with the authors' names as keys."""
    return {name: slot.export(tensors) for name, slot in names.items() if slot.parameter in tensors}


def as_tensors(arrays: Mapping[str, object]) -> dict[str, Tensor]:
    """Return named numpy arrays as tensors."""
    return {name: torch.as_tensor(array) for name, array in arrays.items()}
