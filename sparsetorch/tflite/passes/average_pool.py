"""AVERAGE_POOL_2D over the whole map becomes MEAN with keep_dims, which XNNPACK accepts as the exit of a sparse cluster.

Both sum the same H * W numbers and divide by H * W; TFLite's and XNNPACK's kernels add them in different orders, so the
results differ by rounding (relative 1e-7). Only where the one window covers exactly the map: no padding, output 1x1. A
fused activation becomes an operator of its own.

Pooling by windows of 1x1 without stride does nothing, and is taken out, exact. (Behind a clamp, released runtimes even compute
garbage for it: seen in ai-edge-litert 2.1.)
"""

import numpy as np

from sparsetorch.tflite.model import Graph, Operator
from sparsetorch.tflite.passes.contract import Outcome, Pass
from sparsetorch.tflite.passes.links import (
    ACTIVATION,
    OP,
    Links,
    become,
    bypass,
    constant,
    fused_activation,
    insert_after,
    is_float,
    new_options,
    value,
)

_ACTIVATIONS = {ACTIVATION.RELU: OP.RELU, ACTIVATION.RELU6: OP.RELU6, ACTIVATION.RELU_N1_TO_1: OP.RELU_N1_TO_1}


def run(graph: Graph, outcome: Outcome) -> None:
    """Rewrite every average over a whole map."""
    for operator in list(graph.operators):
        if _is_nothing(operator) and bypass(Links(graph), operator):
            outcome.did(operator, "pooling by 1x1 removed")
            continue
        if operator.code != OP.AVERAGE_POOL_2D or not is_float(operator.inputs[0], operator.outputs[0]):
            continue
        source, result, activation = operator.inputs[0], operator.outputs[0], fused_activation(operator)
        assert source is not None
        window = (operator.options.filterHeight, operator.options.filterWidth)
        if len(source.shape) != 4 or activation not in (ACTIVATION.NONE, *_ACTIVATIONS):
            continue
        if window != source.shape[1:3] or result.shape[1:3] != (1, 1):
            outcome.could_not(
                operator,
                f"averages windows of {window[0]}x{window[1]} in a map of {source.shape[1]}x{source.shape[2]}; only an "
                "average over the whole map is a MEAN",
            )
            continue
        outcome.did(operator, "average over the whole map is MEAN")
        if activation != ACTIVATION.NONE:
            middle = value(graph, result, result.shape, f"{result.name}/mean")
            operator.outputs = [middle]
            insert_after(graph, operator, Operator(_ACTIVATIONS[activation], [middle], [result]))
        axes = constant(graph, np.array([1, 2], np.int32), f"{result.name}/axes")
        become(operator, OP.MEAN, [source, axes], new_options("Reducer", keepDims=True))


def _is_nothing(operator: Operator) -> bool:
    if operator.code not in (OP.AVERAGE_POOL_2D, OP.MAX_POOL_2D) or not is_float(operator.inputs[0]):
        return False
    options, source = operator.options, operator.inputs[0]
    sizes = (options.filterHeight, options.filterWidth, options.strideH, options.strideW)
    whole = operator.code == OP.AVERAGE_POOL_2D and source is not None and source.shape[1:3] == (1, 1)
    return sizes == (1, 1, 1, 1) and fused_activation(operator) == ACTIVATION.NONE and not whole


PASS = Pass("average_pool", run)
