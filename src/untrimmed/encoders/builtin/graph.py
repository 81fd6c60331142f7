"""Build ONNX graphs without weights, and run them with weights from other files.

Graphs are stored beside this file, so that a search need not import the package `onnx` (30 MB of memory), which only
`GraphBuilder.build` needs. Tests build the graphs again and compare them with the stored ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

if TYPE_CHECKING:
    import onnx

TypeAndShape = tuple[type, Sequence[int | str]]
_IR_VERSION = 9


@dataclass(frozen=True)
class Node:
    """One operation of a graph. Its name is the name of its output."""

    kind: str
    inputs: tuple[str, ...]
    output: str
    options: Mapping[str, Any]


@dataclass
class GraphBuilder:
    """Builds a graph from nodes, constants and weights.

    Constants are stored in the graph. Weights are supplied when the graph is loaded.
    """

    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    def node(self, kind: str, inputs: Sequence[str], output: str, **options: Any) -> str:
        """Add a node and return the name of its output."""
        self.nodes.append(Node(kind, tuple(inputs), output, options))
        return output

    def constant(self, name: str, content: np.ndarray) -> str:
        """Add a constant and return its name."""
        self.constants[name] = content
        return name

    def weight(self, name: str, content: np.ndarray) -> str:
        """Add a weight and return its name. The graph contains only the weight's type and shape."""
        self.weights[name] = content
        return name

    def build(
        self, inputs: Mapping[str, TypeAndShape], outputs: Mapping[str, TypeAndShape], opset: int
    ) -> onnx.ModelProto:
        """Return the graph with these inputs and outputs. `opset` is the version of ONNX's operations."""
        from onnx import TensorProto, helper, numpy_helper

        def described(values: Mapping[str, TypeAndShape]) -> list[Any]:
            return [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape)
                for name, (kind, shape) in values.items()
            ]

        tensors = [numpy_helper.from_array(content, name) for name, content in self.constants.items()]
        for name, content in self.weights.items():
            data_type = helper.np_dtype_to_tensor_dtype(content.dtype)
            tensor = TensorProto(name=name, data_type=data_type, dims=content.shape, data_location=TensorProto.EXTERNAL)
            tensor.external_data.add(key="location", value="given")
            tensors.append(tensor)
        nodes = [helper.make_node(n.kind, n.inputs, [n.output], name=n.output, **n.options) for n in self.nodes]
        graph = helper.make_graph(nodes, "untrimmed", described(inputs), described(outputs), tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=_IR_VERSION)


def load_session(
    graph: Path, weights: Mapping[str, np.ndarray], options: onnxruntime.SessionOptions
) -> onnxruntime.InferenceSession:
    """Return a session that runs a stored graph with these weights. Contiguous weights are not copied."""
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(weight, order="C")) for weight in weights.values()]
    options.add_external_initializers(list(weights), values)
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
