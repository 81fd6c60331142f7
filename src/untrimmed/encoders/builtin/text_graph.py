"""MiniLM's layers as an ONNX graph. The graph has no weights; the module `text` reads them from a package.

`python -m untrimmed.encoders.builtin.text_graph` writes the graph to a file beside this one. The weights have their
released names. The embeddings of tokens and positions are looked up beforehand and are not in the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from untrimmed.encoders.builtin.graph import GraphBuilder
from untrimmed.encoders.builtin.text import DIM, GRAPH, NUM_LAYERS, is_layer_weight

if TYPE_CHECKING:
    import onnx

_NUM_HEADS = 12
_HIDDEN = 1536
_EPSILON = 1e-12
_OPSET = 20


class _TextGraphBuilder(GraphBuilder):
    """Builds the graph. Outside `attend`, arrays have one row per token: [Q*W, width]."""

    def layer_weight(self, name: str, *shape: int) -> str:
        """Add a weight of this shape and return its name."""
        assert is_layer_weight(name), name
        return self.weight(name, np.broadcast_to(np.float32(0), shape))

    def linear(self, value: str, name: str, width: int, inner: int) -> str:
        weights = [self.layer_weight(f"{name}.weight", inner, width), self.layer_weight(f"{name}.bias", width)]
        return self.node("Gemm", [value, *weights], f"{name}.out")

    def normalise(self, value: str, name: str) -> str:
        weights = [self.layer_weight(f"{name}.LayerNorm.{kind}", DIM) for kind in ("weight", "bias")]
        return self.node("LayerNormalization", [value, *weights], f"{name}.norm", axis=-1, epsilon=_EPSILON)

    def add_and_normalise(self, value: str, change: str, name: str) -> str:
        return self.normalise(self.node("Add", [value, change], f"{name}.sum"), name)

    def attend(self, value: str, name: str) -> str:
        """Add multi-head attention over the tokens of a sentence. The graph's input `hidden` is -inf for padding."""
        parts = {}
        for part in ("query", "key", "value"):
            split = self.node("Reshape", [self.linear(value, f"{name}.{part}", DIM, DIM), "heads"], f"{name}.{part}.4d")
            order = [0, 2, 3, 1] if part == "key" else [0, 2, 1, 3]
            parts[part] = self.node("Transpose", [split], f"{name}.{part}.heads", perm=order)
        scores = self.node("MatMul", [parts["query"], parts["key"]], f"{name}.products")
        scores = self.node("Mul", [scores, "scale"], f"{name}.scaled")
        share = self.node("Softmax", [self.node("Add", [scores, "hidden"], f"{name}.shown")], f"{name}.share", axis=-1)
        heads = self.node("MatMul", [share, parts["value"]], f"{name}.mixed")
        joined = self.node("Transpose", [heads], f"{name}.joined", perm=[0, 2, 1, 3])
        return self.node("Reshape", [joined, "rows"], f"{name}.rows")


def build_graph() -> onnx.ModelProto:
    """Return the graph of the layers.

    Inputs: embedded tokens [Q, W, D], and a mask [Q, 1, 1, W] that is added to attention scores. Output: the last
        hidden states [Q, W, D].
    """
    b = _TextGraphBuilder()
    b.constant("rows", np.array([-1, DIM]))
    b.constant("scale", np.array((DIM / _NUM_HEADS) ** -0.5, np.float32))
    b.node("Shape", ["embedded"], "shape")
    sentences = b.node("Slice", ["shape", b.constant("zero", np.array([0])), b.constant("two", np.array([2]))], "texts")
    b.node("Concat", [sentences, b.constant("head", np.array([_NUM_HEADS, DIM // _NUM_HEADS]))], "heads", axis=0)
    value = b.normalise(b.node("Reshape", ["embedded", "rows"], "embedded.rows"), "embeddings")
    for layer in (f"encoder.layer.{index}" for index in range(NUM_LAYERS)):
        attended = b.linear(b.attend(value, f"{layer}.attention.self"), f"{layer}.attention.output.dense", DIM, DIM)
        value = b.add_and_normalise(value, attended, f"{layer}.attention.output")
        widened = b.node("Gelu", [b.linear(value, f"{layer}.intermediate.dense", _HIDDEN, DIM)], f"{layer}.gelu")
        value = b.add_and_normalise(value, b.linear(widened, f"{layer}.output.dense", DIM, _HIDDEN), f"{layer}.output")
    b.node("Reshape", [value, "shape"], "states")
    inputs = {"embedded": (np.float32, ("Q", "W", DIM)), "hidden": (np.float32, ("Q", 1, 1, "W"))}
    return b.build(inputs, {"states": (np.float32, ("Q", "W", DIM))}, _OPSET)


if __name__ == "__main__":
    GRAPH.write_bytes(build_graph().SerializeToString())
