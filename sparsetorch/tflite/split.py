"""Fully-connected layers in parts, so that an index of a sparse weight fits into one byte.

A sparse weight holds an index a value, and the index takes two bytes where both sides of the matrix are longer than 256: with
int8 values two thirds of a pruned classifier are indices. Parts of at most 256 outputs each, side by side and concatenated,
are the same sums over the same inputs, so the layer computes what it did, bit for bit in exact arithmetic: output o is
act(sum_i w_oi x_i + b_o) in whichever part o lies.

The parts follow what left the sparse cluster; their concatenation is no part of it.
"""

import copy
import itertools

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.model import Graph, Operator, Tensor

_OP = schema.BuiltinOperator
MOST_OUTPUTS = 256
"""An index below this fits into a byte."""
_LEAST_ZEROS = 0.5
"""Below, a layer is not worth its parts."""


def split_fully_connected(graph: Graph) -> int:
    """Split every fully-connected layer whose indices would take two bytes, in place; how many were split.

    Layers with other readers of their weight or bias, with a weight that is packed already, or with few zeros stay whole.
    """
    layers = [operator for operator in graph.operators if _worth_it(graph, operator)]
    for layer in layers:
        _split(graph, layer)
    return len(layers)


def _worth_it(graph: Graph, layer: Operator) -> bool:
    if layer.code != _OP.FULLY_CONNECTED or len(layer.outputs) != 1 or len(layer.inputs) not in (2, 3):
        return False
    weight, bias = layer.inputs[1], (layer.inputs[2:] or [None])[0]
    if weight is None or not all(
        _own_constant(graph, layer, tensor) for tensor in (weight, bias) if tensor is not None
    ):
        return False
    if len(weight.shape) != 2 or min(weight.shape) <= MOST_OUTPUTS or layer.outputs[0].quantization is not None:
        return False
    return float(np.mean(weight.array() == 0)) >= _LEAST_ZEROS


def _own_constant(graph: Graph, layer: Operator, tensor: Tensor) -> bool:
    """A float32 constant that this layer alone reads."""
    dense = tensor.data is not None and tensor.sparsity is None and tensor.type == schema.TensorType.FLOAT32
    return dense and graph.consumers(tensor) == [layer] and not any(output is tensor for output in graph.outputs)


def _split(graph: Graph, layer: Operator) -> None:
    image, weight, *rest = layer.inputs
    assert weight is not None
    bias = rest[0] if rest else None
    whole = layer.outputs[0]
    count = -(-weight.shape[0] // MOST_OUTPUTS)
    bounds = [weight.shape[0] * part // count for part in range(count + 1)]
    steps, parts = [], []
    for start, stop in itertools.pairwise(bounds):
        operands = [image, _rows(weight, start, stop)]
        if rest:
            operands.append(None if bias is None else _rows(bias, start, stop))
        part = Tensor(f"{whole.name}/{start}:{stop}", (*whole.shape[:-1], stop - start), whole.type)
        steps.append(
            Operator(layer.code, operands, [part], copy.copy(layer.options), layer.options_type, version=layer.version)
        )
        graph.tensors += [operand for operand in operands[1:] if operand is not None] + [part]
        parts.append(part)
    options = schema.ConcatenationOptionsT()
    options.axis = len(whole.shape) - 1
    kind = schema.BuiltinOptions.ConcatenationOptions
    steps.append(Operator(_OP.CONCATENATION, list(parts), [whole], options, kind, version=1))
    position = graph.operators.index(layer)
    graph.operators[position : position + 1] = steps
    graph.tensors = [
        tensor for tensor in graph.tensors if tensor is not weight and (bias is None or tensor is not bias)
    ]


def _rows(tensor: Tensor, start: int, stop: int) -> Tensor:
    """Outputs `start` to `stop` of a weight or a bias; the name stays in front, by which its layer is found."""
    rows = np.ascontiguousarray(tensor.array()[start:stop])
    return Tensor(
        f"{tensor.name}/{start}:{stop}", rows.shape, tensor.type, data=np.frombuffer(rows.tobytes(), np.uint8)
    )
