"""Networks for other programs: the ONNX file of a perceptron on observations, which any runtime plays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.base.errors import require
from cvxmdp.base.storage import whole_file

OPSET = 17
LAYER = tuple[np.ndarray, np.ndarray]  # weights and biases


def write_perceptron(
    path: str | Path, middle: np.ndarray, scale: np.ndarray, layers: Sequence[LAYER], note: str
) -> None:
    """Write softmax(W_k tanh(... tanh(W_1 (o - middle) / scale + b_1) ...) + b_k), in single precision.

    The input is ``observation``, (n, ...) as the environment gives it; the outputs are ``probabilities`` and
    ``logits``, (n, A).

    Args:
        path: the file to write, whole or not at all.
        middle, scale: of observations, in their shape.
        layers: weights (inputs, outputs) and biases of every layer.
        note: what the network is, for whoever opens the file.
    """
    onnx = require("onnx", "onnx")
    helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
    graph = _Graph(onnx)
    shifted = graph.add("Sub", "observation", graph.constant("middle", middle))
    seen = graph.add("Flatten", graph.add("Div", shifted, graph.constant("scale", scale)), axis=1)
    for number, (weights, biases) in enumerate(layers):
        seen = graph.add("Tanh", seen) if number else seen
        constants = [graph.constant(f"weights{number}", weights)]
        constants.append(graph.constant(f"biases{number}", biases))
        seen = graph.add("Gemm", seen, *constants)
    graph.add("Identity", seen, output="logits")
    graph.add("Softmax", seen, output="probabilities", axis=1)
    actions = int(layers[-1][1].size)
    given = helper.make_tensor_value_info("observation", float32, ["n", *np.shape(middle)])
    outputs = [
        helper.make_tensor_value_info(name, float32, ["n", actions])
        for name in ("probabilities", "logits")
    ]
    made = helper.make_graph(graph.nodes, "policy", [given], outputs, graph.constants)
    version = helper.make_opsetid("", OPSET)
    model = helper.make_model(made, opset_imports=[version], producer_name="cvxmdp", ir_version=8)
    model.doc_string = note
    onnx.checker.check_model(model)
    with whole_file(path) as temporary:
        temporary.write_bytes(model.SerializeToString())


class _Graph:
    """Nodes and constants of a graph, each with a name of its own."""

    def __init__(self, onnx: Any) -> None:
        self.onnx, self.nodes, self.constants = onnx, [], []

    nodes: list[Any]
    constants: list[Any]

    def constant(self, name: str, array: np.ndarray) -> str:
        single = np.asarray(array, dtype=np.float32)
        self.constants.append(self.onnx.numpy_helper.from_array(single, name))
        return name

    def add(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = output or f"{kind.lower()}{len(self.nodes)}"
        node = self.onnx.helper.make_node(kind, list(inputs), [name], **attributes)
        self.nodes.append(node)
        return name
