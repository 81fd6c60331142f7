"""Read a network's weights from a file, a folder or the hub, without running code, and check their SHA-256."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from untrimmed.encoders.features.kinds import CLIP, KINDS, ROBERTA, NetworkSpec
from untrimmed.encoders.hub.weights import DIGEST_LENGTH, PROCESSOR, TOKENIZER, locate, weight_files, weights_sha256
from untrimmed.errors import EncoderError, one_line

State = dict[str, Tensor]
# Keys under which checkpoints store the state dict.
_WRAPPERS = ("state_dict", "model_state", "model")
_ADVICE = "use a state dict (.pt, .pth, .pyth) that torch loads with weights_only=True, or a safetensors file"
# The files that must be in a model folder in addition to its weights.
_NEEDS = {CLIP: (PROCESSOR, TOKENIZER), ROBERTA: (TOKENIZER,)}
_WHERE = {
    "i3d": "use a file with the RGB weights of Inception-v1 I3D in PyTorch, such as rgb_imagenet.pt of pytorch-i3d",
    "slowfast": "use a file with the weights of SlowFast 8x8 R50, such as SLOWFAST_8x8_R50.pyth of PyTorchVideo",
}


@dataclass(frozen=True)
class WeightFiles:
    """The weights of a network: the name from which they are loaded, their files, and the SHA-256 of the files."""

    name: str
    files: tuple[Path, ...]
    sha256: str

    @property
    def digest(self) -> str:
        """The first `DIGEST_LENGTH` digits of the SHA-256, as in the identity of a hub encoder."""
        return self.sha256[:DIGEST_LENGTH]


def find_weights(part: NetworkSpec, *, timeout_s: float = 5.0) -> WeightFiles:
    """Find the weights of a network: a named file, or the safetensors files of a folder or hub id.

    Raises:
        EncoderError: There are no weights, this kind of network has no default, or the SHA-256 is not the required one.
    """
    source = part.weights or KINDS[part.kind].weights
    if source is None:
        raise EncoderError(f"{part.kind}: has no default weights; {_WHERE[part.kind]}: {part.kind}=FILE")
    path = Path(source).expanduser()
    if path.is_file() and part.kind not in _NEEDS:
        name = str(path.resolve())
        files = [path.resolve()]
    else:
        folder = locate(source, timeout_s=timeout_s, needs=_NEEDS.get(part.kind, ()))
        name = str(folder) if path.is_dir() else source
        files = weight_files(folder)
    digest = weights_sha256(files)
    if part.sha256 not in (None, digest):
        raise EncoderError(
            f"{name}: its SHA-256 is {digest}, expected {part.sha256}; fetch it again, or correct #sha256="
        )
    return WeightFiles(name, tuple(files), digest)


def read_state(weights: WeightFiles) -> State:
    """Return the tensors of weight files by name. A mapping under a key such as "state_dict" is unwrapped.

    Raises:
        EncoderError: A file cannot be read, or contains something other than tensors, numbers and text.
    """
    state: State = {}
    for path in weights.files:
        try:
            state |= _tensors(_load(path))
        # do not show torch's message, which suggests loading the file anyway
        except pickle.UnpicklingError as error:
            problem = "contains more than tensors, numbers and text, which could run code, or is damaged"
            raise EncoderError(f"{path}: {problem}; {_ADVICE}") from error
        except Exception as error:  # torch and safetensors raise many kinds of exceptions for other files
            raise EncoderError(f"{path}: cannot be read as weights ({one_line(error)}); {_ADVICE}") from error
    if not state:
        raise EncoderError(f"{weights.name}: contains no tensors; use the weights of the network")
    return state


def _load(path: Path) -> Any:
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)


def _tensors(content: Any) -> State:
    while isinstance(content, Mapping) and (inner := [content[name] for name in _WRAPPERS if name in content]):
        content = inner[0]
    if not isinstance(content, Mapping):
        raise ValueError(f"a {type(content).__name__}, expected a state dict")
    prefix = "module."  # the prefix that torch's DataParallel adds to names
    return {str(name).removeprefix(prefix): value for name, value in content.items() if isinstance(value, Tensor)}


def map_shape(state: Mapping[str, Tensor], key: str, rank: int) -> tuple[int, ...]:
    """Return the shape of a weight. For a convolution, it consists of outputs, inputs and kernel sizes.

    Raises KeyError if the weight is missing, and ValueError if its rank is not `rank` or an axis is empty. Both texts
    complete the message "the file lacks ...".
    """
    if key not in state:
        raise KeyError(key)
    shape = tuple(state[key].shape)
    if len(shape) != rank or 0 in shape:
        raise ValueError(f"{key} with {rank} axes (its shape is {list(shape)})")
    return shape


def load_into(network: nn.Module, state: Mapping[str, Tensor], *, name: str, unused: Iterable[str]) -> None:
    """Load weights into a network.

    `unused` are regular expressions for names of weights that the network does not need (classifiers).

    Raises:
        EncoderError: A weight is missing, unexpected or not finite, or has the wrong shape.
    """
    advice = "use the weights of this kind of network"
    expected = network.state_dict()
    counters = {key for key in expected if key.endswith("num_batches_tracked")}
    missing = sorted(expected.keys() - counters - state.keys())
    left_over = sorted(key for key in state.keys() - expected.keys() if not any(re.match(form, key) for form in unused))
    for problem, keys in (("lacks", missing), ("has unknown", left_over)):
        if keys:
            raise EncoderError(f"{name}: {problem} {len(keys)} weights, e.g. {keys[0]}; {advice}")
    for key, tensor in expected.items():
        if key not in counters and state[key].shape != tensor.shape:
            shapes = f"has shape {list(state[key].shape)}, expected {list(tensor.shape)}"
            raise EncoderError(f"{name}: {key} {shapes}; {advice}")
    network.load_state_dict({key: value for key, value in state.items() if key in expected}, strict=False)
    if broken := [key for key, value in network.state_dict().items() if not torch.isfinite(value).all()]:
        raise EncoderError(f"{name}: {broken[0]} has numbers that are not finite; fetch the file again")
