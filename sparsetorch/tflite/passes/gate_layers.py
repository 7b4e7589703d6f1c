"""Fully-connected layers of a squeeze-excite gate become 1x1 convolutions, and its factor gets four dimensions.

Gates are written with linear layers too (MEAN, FULLY_CONNECTED twice, RESHAPE, MUL). XNNPACK's delegate puts a reshape before
TFLite's FULLY_CONNECTED, which no sparse cluster takes (LiteRT f674577 tflite/delegates/xnnpack/xnnpack_delegate.cc,
VisitFullyConnectedNode), and operands of a MUL must be 4-D (XNNPACK 75db3c0 src/subgraph.c, xnn_check_nchw_compatibility).

On one pixel a fully-connected layer and a 1x1 convolution are the same sums of products; kernels may add them in another
order (relative 1e-7). The rest only renames shapes. Done only where the result is combined with a map by an elementwise
operator; a classifier stays fully connected.
"""

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.model import Graph, Operator, Tensor
from sparsetorch.tflite.passes.contract import Outcome, Pass
from sparsetorch.tflite.passes.elementwise import BINARY, UNARY
from sparsetorch.tflite.passes.layers import Parameters, parameters, write_parameters
from sparsetorch.tflite.passes.links import (
    OP,
    Links,
    become,
    fused_activation,
    insert_after,
    insert_before,
    is_float,
    new_options,
    reshape,
    value,
)


def run(graph: Graph, outcome: Outcome) -> None:
    """Rewrite the layers of every gate, then the operands of every product with a map."""
    for step in (_convolve, _lift):
        links = Links(graph)
        for operator in list(graph.operators):
            if step(links, operator, outcome):
                links = Links(graph)


def is_pixel(tensor: Tensor) -> bool:
    """Whether a value is one vector per image: [N, C] or [N, 1, 1, C]."""
    return len(tensor.shape) == 2 or (len(tensor.shape) == 4 and tensor.shape[1:3] == (1, 1))


def gates_a_map(links: Links, tensor: Tensor) -> bool:
    """Whether a vector ends as the operand of an elementwise operator beside a map, on a way of layers and such operators."""
    seen, waiting = {tensor}, [tensor]
    while waiting:
        for reader in links.readers(waiting.pop()):
            result = reader.outputs[0] if reader.outputs else None
            if result is None or reader.code not in UNARY | BINARY | {OP.FULLY_CONNECTED, OP.CONV_2D, OP.RESHAPE}:
                continue
            if not is_pixel(result):
                if reader.code in BINARY:
                    return True
            elif result not in seen:
                seen.add(result)
                waiting.append(result)
    return False


def _convolve(links: Links, operator: Operator, outcome: Outcome) -> bool:
    if operator.code != OP.FULLY_CONNECTED or operator.inputs[0] is None:
        return False
    graph, source, result = links.graph, operator.inputs[0], operator.outputs[0]
    found = parameters(operator)
    if isinstance(found, str) or not is_pixel(source) or not is_pixel(result) or not gates_a_map(links, result):
        return False
    if (source.shape[0], source.shape[-1]) != (result.shape[0], found.weight.shape[1]):
        return False
    outcome.did(operator, "FULLY_CONNECTED of a gate is a 1x1 convolution")
    weight = found.weight.reshape(found.weight.shape[0], 1, 1, -1)
    bias = np.zeros(len(weight)) if found.bias is None else found.bias
    write_parameters(graph, operator, Parameters(weight, bias))
    if len(source.shape) == 2:
        lifted = reshape(graph, source, (source.shape[0], 1, 1, source.shape[1]), f"{source.name}/4d")
        insert_before(graph, operator, lifted)
        source = lifted.outputs[0]
    if len(result.shape) == 2:
        made = value(graph, result, (result.shape[0], 1, 1, result.shape[1]), f"{result.name}/4d")
        operator.outputs = [made]
        flat = reshape(graph, made, result.shape, result.name)
        graph.tensors.remove(flat.outputs[0])
        flat.outputs = [result]
        insert_after(graph, operator, flat)
    options = new_options(
        "Conv2D",
        padding=schema.Padding.VALID,
        strideH=1,
        strideW=1,
        dilationHFactor=1,
        dilationWFactor=1,
        fusedActivationFunction=fused_activation(operator),
    )
    become(operator, OP.CONV_2D, [source, *operator.inputs[1:]], options)
    return True


def _lift(links: Links, operator: Operator, outcome: Outcome) -> bool:
    if operator.code not in BINARY or not operator.outputs or len(operator.outputs[0].shape) != 4:
        return False
    low = [
        tensor
        for tensor in operator.inputs
        if tensor is not None and tensor.data is None and is_float(tensor) and 0 < len(tensor.shape) < 4
    ]
    if not low:
        return False
    tensor = low[0]
    shape = (*[1] * (4 - len(tensor.shape)), *tensor.shape)
    made = reshape(links.graph, tensor, shape, f"{tensor.name}/4d")
    insert_before(links.graph, operator, made)
    operator.inputs = [made.outputs[0] if other is tensor else other for other in operator.inputs]
    outcome.did(operator, f"operand of shape {list(tensor.shape)} given four dimensions")
    return True


PASS = Pass("gate_layers", run)
