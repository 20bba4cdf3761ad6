"""Writes the trained verifier as ONNX: linear layers in int8, the embedding table in the four bits that it came in."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from stratacache.policy.calibration import Calibration
from stratacache.training.e5 import BLOCK, Base, Dimensions

OPSET = 20


class Graph:
    """Collects nodes and weights; each method adds one operation and returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, value: NDArray[np.generic]) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name=f"n{name}", **attributes))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))


class _Weights:
    def __init__(self, state: Mapping[str, torch.Tensor]) -> None:
        self._state = state

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        return self._state[name].float().numpy()


def build(state: Mapping[str, torch.Tensor], base: Base, kept: Sequence[int]) -> onnx.ModelProto:
    """The graph: ``input_ids`` and ``token_type_ids`` int64 (batch, length), without padding; ``logit`` (batch,)."""
    graph, weights, dimensions = Graph(), _Weights(state), base.dimensions
    x = _embed(graph, weights, base, kept)
    for number in range(dimensions.layers):
        x = _layer(graph, weights, f"layers.{number}.", x, dimensions)
    logit = _head(graph, weights, x, dimensions)
    graph.nodes.append(helper.make_node("Identity", [logit], ["logit"]))
    made = helper.make_graph(
        graph.nodes,
        "verifier",
        [
            helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "length"])
            for n in ("input_ids", "token_type_ids")
        ],
        [helper.make_tensor_value_info("logit", TensorProto.FLOAT, ["batch"])],
        graph.weights,
    )
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="stratacache"
    )
    model.ir_version = 9
    onnx.checker.check_model(model)
    return model


def _embed(graph: Graph, weights: _Weights, base: Base, kept: Sequence[int]) -> str:
    """Rows of the table are unpacked where they are used: a byte holds weights j (low bits) and j + 16 of a block."""
    blocks = base.words[list(kept)]
    nibbles = graph.add("Gather", graph.constant(blocks["nibbles"].reshape(len(kept), -1)), "input_ids")
    scales = graph.add("Gather", graph.constant(blocks["scale"].astype(np.float16)), "input_ids")
    count = base.dimensions.hidden // BLOCK
    packed = graph.add("Reshape", nibbles, graph.ints(0, 0, count, BLOCK // 2))
    sixteen = graph.constant(np.array(16, np.uint8))
    high = graph.add("Div", packed, sixteen)
    low = graph.add("Sub", packed, graph.add("Mul", high, sixteen))
    values = graph.add("Cast", graph.add("Concat", low, high, axis=3), to=TensorProto.FLOAT)
    centred = graph.add("Sub", values, graph.constant(np.array(8.0, np.float32)))
    scale = graph.add("Unsqueeze", graph.add("Cast", scales, to=TensorProto.FLOAT), graph.ints(3))
    words = graph.add("Reshape", graph.add("Mul", centred, scale), graph.ints(0, 0, base.dimensions.hidden))
    length = graph.add("Shape", "input_ids", start=1, end=2)
    places = graph.add(
        "Slice", graph.constant(weights["positions.weight"][:128]), graph.ints(0), length, graph.ints(0)
    )
    segments = graph.add("Gather", graph.constant(weights["segments.weight"]), "token_type_ids")
    return _norm(
        graph, weights, "norm.", graph.add("Add", graph.add("Add", words, segments), places), base.dimensions
    )


def _norm(graph: Graph, weights: _Weights, name: str, x: str, dimensions: Dimensions) -> str:
    scale, shift = graph.constant(weights[name + "weight"]), graph.constant(weights[name + "bias"])
    return graph.add("LayerNormalization", x, scale, shift, axis=-1, epsilon=dimensions.epsilon)


def _linear(graph: Graph, weights: _Weights, name: str, x: str) -> str:
    product = graph.add("MatMul", x, graph.constant(weights[name + ".weight"].T))
    return graph.add("Add", product, graph.constant(weights[name + ".bias"]))


def _layer(graph: Graph, weights: _Weights, name: str, x: str, dimensions: Dimensions) -> str:
    heads, width = dimensions.heads, dimensions.hidden // dimensions.heads
    parts = [
        np.concatenate([weights[f"{name}{p}.{kind}"] for p in ("q", "k", "v")]) for kind in ("weight", "bias")
    ]
    joined = graph.add("Add", graph.add("MatMul", x, graph.constant(parts[0].T)), graph.constant(parts[1]))
    split = graph.add("Reshape", joined, graph.ints(0, 0, 3, heads, width))
    q, k, v = (graph.add("Gather", split, graph.constant(np.array(i, np.int64)), axis=2) for i in range(3))
    q, v = (graph.add("Transpose", part, perm=[0, 2, 1, 3]) for part in (q, v))
    k = graph.add("Transpose", k, perm=[0, 2, 3, 1])
    root = graph.constant(np.array(width**-0.5, np.float32))
    scores = graph.add("Softmax", graph.add("Mul", graph.add("MatMul", q, k), root), axis=-1)
    mixed = graph.add("Transpose", graph.add("MatMul", scores, v), perm=[0, 2, 1, 3])
    flat = graph.add("Reshape", mixed, graph.ints(0, 0, dimensions.hidden))
    x = _norm(
        graph,
        weights,
        name + "aln.",
        graph.add("Add", x, _linear(graph, weights, name + "ao", flat)),
        dimensions,
    )
    inner = graph.add("Gelu", _linear(graph, weights, name + "fi", x))
    return _norm(
        graph,
        weights,
        name + "oln.",
        graph.add("Add", x, _linear(graph, weights, name + "fo", inner)),
        dimensions,
    )


def _head(graph: Graph, weights: _Weights, x: str, dimensions: Dimensions) -> str:
    segment = graph.add("Mod", "token_type_ids", graph.ints(2))
    in_second = graph.add("Unsqueeze", graph.add("Cast", segment, to=TensorProto.FLOAT), graph.ints(2))
    one = graph.constant(np.array(1.0, np.float32))
    first, second = (
        graph.add(
            "Div",
            graph.add("ReduceSum", graph.add("Mul", x, chosen), graph.ints(1), keepdims=0),
            graph.add("ReduceSum", chosen, graph.ints(1), keepdims=0),
        )
        for chosen in (graph.add("Sub", one, in_second), in_second)
    )
    opening = graph.add("Gather", x, graph.constant(np.array(0, np.int64)), axis=1)
    middle = graph.add("Mul", graph.add("Add", first, second), graph.constant(np.array(0.5, np.float32)))
    apart = graph.add("Abs", graph.add("Sub", first, second))
    seen = graph.add("Concat", opening, middle, apart, graph.add("Mul", first, second), axis=-1)
    dense = graph.add("Tanh", _linear(graph, weights, "dense", seen))
    return graph.add("Squeeze", _linear(graph, weights, "out", dense), graph.ints(1))


def quantise(model: onnx.ModelProto, path: Path) -> None:
    """Write ``model`` with its matrices in int8, one scale per column; activations are quantised as they come."""
    whole = path.with_suffix(".f32.onnx")
    onnx.save(model, whole)
    try:
        quantize_dynamic(
            whole,
            path,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            extra_options={"MatMulConstBOnly": True, "DefaultTensorType": TensorProto.FLOAT},
        )
    finally:
        whole.unlink()


def write_card(folder: Path, calibration: Calibration, longest: int) -> None:
    """Write ``verifier.json``: the calibration and the hashes of the files beside it."""
    files = ("model.onnx", "tokenizer.json")
    card = {
        "format": 1,
        "sha256": {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files},
        "symmetric": True,
        "languages": calibration.languages,
        "embedders": calibration.embedders,
        "max_tokens": longest,
    }
    (folder / "verifier.json").write_bytes(msgspec.json.format(msgspec.json.encode(card), indent=1) + b"\n")
