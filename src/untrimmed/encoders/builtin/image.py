"""EfficientNet-Lite (Tan & Le 2019, arXiv 1905.11946) as an 8-bit ONNX graph, built from the released float weights.

The Lite networks were designed for quantisation: they have no squeeze-and-excitation, and ReLU6 limits nearly all
activations to [0, 6]. Only the outputs of the narrow layers have no activation. We estimate the range of these outputs
from their batch normalisation, which gives a channel the mean `bias` and the standard deviation `weight`. So we need no
calibration pictures. As in Jacob et al. 2018 (arXiv 1712.05877), real = scale * (stored - zero):

- frames: 8-bit RGB is used as it is, because the networks were trained on real = (RGB - 127) / 128;
- after ReLU6: `zero` is 0, and the stored range [0, 255] replaces the clamping;
- narrow layers: the range contains `_DEVIATIONS` standard deviations around the mean of every channel; for a sum of
  layers, deviations add in quadrature;
- weights: 8 bits with one scale per output channel.

x86 processors without the VNNI instructions clip the sum of two 8-bit products at 16 bits. The setting
`session.x64quantprecision` of ONNX Runtime avoids this, so that logits are equal on all processors. Weights of 7 bits
would also avoid it, but they are less exact: the mean cosine with the float logits is 0.954 instead of 0.990.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
from jaxtyping import Float, UInt8

from untrimmed.encoders.builtin.graph import GraphBuilder, load_session
from untrimmed.encoders.builtin.released import read_torch_state
from untrimmed.encoders.builtin.weights import IMAGE_WEIGHTS
from untrimmed.precision import has_exact_int8

if TYPE_CHECKING:
    import onnx

_BATCH_NORM_EPSILON = 1e-3
# a stage's number of blocks, kernel size, stride and expansion: Table 1 of the paper before scaling
_STAGES = ((1, 3, 1, 1), (2, 3, 2, 6), (2, 5, 2, 6), (3, 3, 2, 6), (3, 5, 1, 6), (4, 5, 2, 6), (1, 3, 1, 6))
_WEIGHT_LIMIT = 127
_DEVIATIONS = 4.0
_OPSET = 17
FEATURE_DIM = 1280
# depth of each network, relative to the smallest; widths follow from the weights
_DEPTHS = {"lite2": 1.2}


@dataclass(frozen=True)
class _Block:
    """An inverted residual block.

    It widens its input (unless `expansion` is 1), filters each channel, and narrows it.
    """

    prefix: str
    kernel: int
    stride: int
    expansion: int
    is_residual: bool


def _blocks(depth: float) -> Iterator[_Block]:
    index = 0
    for stage, (repeats, kernel, stride, expansion) in enumerate(_STAGES):
        is_end = stage in (0, len(_STAGES) - 1)  # depth scaling does not apply to the first and last stage
        for repeat in range(repeats if is_end else math.ceil(repeats * depth)):
            yield _Block(f"_blocks.{index}", kernel, 1 if repeat else stride, expansion, is_residual=repeat > 0)
            index += 1


@dataclass(frozen=True)
class _Value:
    """A quantised tensor of the graph. `mean` and `deviation` per channel are empty if ReLU6 limits the range."""

    name: str
    scale: float
    zero: int
    mean: Float[np.ndarray, " C"] = field(default_factory=lambda: np.zeros(0))
    deviation: Float[np.ndarray, " C"] = field(default_factory=lambda: np.zeros(0))


class _ImageGraphBuilder(GraphBuilder):
    """Builds the graph layer by layer.

    Each layer converts its inputs from integers to real numbers and its outputs back. ONNX Runtime fuses these steps.
    """

    def __init__(self, released: Mapping[str, np.ndarray]):
        super().__init__()
        self._released = released

    def convolve(
        self, value: _Value, conv: str, norm: str, kernel: int, *, stride: int = 1, clamp: bool = True
    ) -> _Value:
        """Add a convolution that includes its batch normalisation, with TensorFlow's 'SAME' padding."""
        gamma, beta = self._read(f"{norm}.weight"), self._read(f"{norm}.bias")
        factor = gamma / np.sqrt(self._read(f"{norm}.running_var") + _BATCH_NORM_EPSILON)
        weight = self._read(f"{conv}.weight") * factor[:, None, None, None]
        bias = beta - self._read(f"{norm}.running_mean") * factor
        scales = np.abs(weight).max(axis=(1, 2, 3)) / _WEIGHT_LIMIT
        # the bias is stored in 32 bits with the same scale, which is too small if a channel has only a bias
        scales = np.maximum(scales, np.maximum(np.abs(bias), 1e-6) / value.scale / 2**24)
        stored = np.rint(weight / scales[:, None, None, None]).astype(np.int8)
        bias_scales = (scales * value.scale).astype(np.float32)
        stored_bias = np.rint(bias / bias_scales).astype(np.int32)
        inputs = [
            self._dequantise(value),
            self._dequantise_constant(f"{conv}.weight", stored, scales.astype(np.float32)),
            self._dequantise_constant(f"{conv}.bias", stored_bias, bias_scales),
        ]
        options = {"auto_pad": "SAME_UPPER", "strides": [stride, stride], "kernel_shape": [kernel, kernel]}
        is_depthwise = weight.shape[1] == 1
        real = self.node("Conv", inputs, f"{conv}.real", group=len(weight) if is_depthwise else 1, **options)
        if clamp:
            high = min(6.0, float((beta + _DEVIATIONS * np.abs(gamma)).max()))
            return self._quantise(real, _Value(f"{conv}.out", high / 255, 0))
        return self._quantise(real, _linear_range(f"{conv}.out", beta, np.abs(gamma)))

    def add(self, first: _Value, second: _Value, name: str) -> _Value:
        """Add a node for the sum of two values without activation. Their deviations add in quadrature."""
        real = self.node("Add", [self._dequantise(first), self._dequantise(second)], f"{name}.real")
        deviation = np.hypot(first.deviation, second.deviation)
        return self._quantise(real, _linear_range(f"{name}.out", first.mean + second.mean, deviation))

    def pool(self, value: _Value, name: str) -> None:
        """Add a node that returns the mean over all positions as floats."""
        self.node("ReduceMean", [self._dequantise(value)], name, axes=[2, 3], keepdims=0)

    def _read(self, name: str) -> Float[np.ndarray, ...]:
        return self._released[name].astype(np.float64)

    def _parameters(self, value: _Value) -> list[str]:
        # ONNX Runtime does not fuse nodes that share parameters
        prefix = f"{value.name}.{len(self.weights)}"
        scale = self.weight(f"{prefix}.scale", np.array(value.scale, np.float32))
        return [scale, self.weight(f"{prefix}.zero", np.array(value.zero, np.uint8))]

    def _quantise(self, real: str, value: _Value) -> _Value:
        self.node("QuantizeLinear", [real, *self._parameters(value)], value.name)
        return value

    def _dequantise(self, value: _Value) -> str:
        output = f"{value.name}.real{len(self.nodes)}"
        return self.node("DequantizeLinear", [value.name, *self._parameters(value)], output)

    def _dequantise_constant(self, name: str, stored: np.ndarray, scales: Float[np.ndarray, " K"]) -> str:
        zeros = self.weight(f"{name}.zero", np.zeros(len(scales), stored.dtype))
        inputs = [self.weight(name, stored), self.weight(f"{name}.scale", scales), zeros]
        return self.node("DequantizeLinear", inputs, f"{name}.real", axis=0)


def _linear_range(name: str, mean: Float[np.ndarray, " C"], deviation: Float[np.ndarray, " C"]) -> _Value:
    low = float(np.minimum(mean - _DEVIATIONS * deviation, 0).min())
    high = float(np.maximum(mean + _DEVIATIONS * deviation, 0).max())
    scale = (high - low) / 255
    return _Value(name, scale, round(-low / scale), mean, deviation)


def quantise(network: str, released: Mapping[str, np.ndarray]) -> GraphBuilder:
    """Return the graph of the 8-bit network and its weights, from released float weights.

    The graph maps 8-bit frames [T, 3, Y, X] to features [T, 1280].

    Raises:
        KeyError: The weights are those of another network.
    """
    builder = _ImageGraphBuilder(released)
    value = builder.convolve(_Value("frames", 1 / 128, 127), "_conv_stem", "_bn0", 3, stride=2)
    for block in _blocks(_DEPTHS[network]):
        p = block.prefix
        skipped = value
        if block.expansion > 1:
            value = builder.convolve(value, f"{p}._expand_conv", f"{p}._bn0", 1)
        value = builder.convolve(value, f"{p}._depthwise_conv", f"{p}._bn1", block.kernel, stride=block.stride)
        value = builder.convolve(value, f"{p}._project_conv", f"{p}._bn2", 1, clamp=False)
        if block.is_residual:
            value = builder.add(skipped, value, p)
    builder.pool(builder.convolve(value, "_conv_head", "_bn1", 1), "features")
    return builder


def build_graph(network: str, released: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """Build the graph of the 8-bit network, without its weights."""
    frames, features = (np.uint8, ("T", 3, "Y", "X")), (np.float32, ("T", FEATURE_DIM))
    return quantise(network, released).build({"frames": frames}, {"features": features}, _OPSET)


def graph_file(network: str) -> Path:
    """Return the path of a network's stored graph. `python -m untrimmed.encoders.builtin.image` writes this file."""
    return Path(__file__).with_name(f"{network}.onnx")


class ImageNetwork:
    """Returns the logits of the thousand ImageNet classes for RGB frames of any size."""

    def __init__(self, network: str, released: Mapping[str, np.ndarray]):
        options = onnxruntime.SessionOptions()
        # The decoder runs at the same time, so leave one core free. Idle threads must not keep a core busy.
        options.intra_op_num_threads = max(1, (os.cpu_count() or 2) - 1)
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if not has_exact_int8():  # not needed with VNNI, where it would double the time
            options.add_session_config_entry("session.x64quantprecision", "1")
        self._session = load_session(graph_file(network), quantise(network, released).weights, options)
        self._classify = released["_fc.weight"].T
        self._bias = released["_fc.bias"]

    def classify(self, frames: UInt8[np.ndarray, "T Y X 3"]) -> Float[np.ndarray, "T 1000"]:
        """Return the logits of whole frames: the features of all positions are averaged, then classified."""
        planes = np.ascontiguousarray(frames.transpose(0, 3, 1, 2))
        (features,) = self._session.run(None, {"frames": planes})
        return features @ self._classify + self._bias


if __name__ == "__main__":
    for name in _DEPTHS:
        graph = build_graph(name, read_torch_state(IMAGE_WEIGHTS[name].locate()))
        graph_file(name).write_bytes(graph.SerializeToString())
