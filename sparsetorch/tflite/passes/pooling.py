"""An average-pool over the whole map becomes MEAN, and a grouped convolution with one channel a group depthwise.

XNNPACK's sparse path leaves channels-first layout at MEAN (or DEPTH_TO_SPACE), not at AVERAGE_POOL_2D.

AVERAGE_POOL_2D with a window as large as the map and no padding sums the same H * W numbers and divides by H * W: MEAN over the
two axes, keeping them. A CONV_2D of weights (C, h, w, 1) on C channels multiplies channel c by filter c alone: a
DEPTHWISE_CONV_2D of weights (1, h, w, C). Both exact, up to the order of a sum.
"""

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.model import Graph, Operator
from sparsetorch.tflite.passes.editing import (
    ACTIVATION,
    OP,
    activation_of,
    float_constant,
    new_constant,
    options,
)
from sparsetorch.tflite.passes.pipeline import Note, Pass


class GlobalPool(Pass):
    """AVERAGE_POOL_2D over the whole map becomes MEAN."""

    name = "global-pool"

    def requires(self, graph: Graph) -> bool:
        """Any average-pool."""
        return any(operator.code == OP.AVERAGE_POOL_2D for operator in graph.operators)

    def run(self, graph: Graph) -> list[Note]:
        """Rewrite every one whose window is the map."""
        notes = []
        for pool in [operator for operator in graph.operators if operator.code == OP.AVERAGE_POOL_2D]:
            source, result = pool.inputs[0], pool.outputs[0]
            if source is None or len(source.shape) != 4:
                continue
            window = (pool.options.filterHeight, pool.options.filterWidth)
            if window != source.shape[1:3] or result.shape[1:3] != (1, 1) or activation_of(pool) != ACTIVATION.NONE:
                text = f"AVERAGE_POOL_2D stays: a window of {window[0]}x{window[1]} over {source.shape[1]}x{source.shape[2]}"
                notes.append(Note(self.name, result.name, f"{text} is not the whole map", applied=False))
                continue
            axes = new_constant(graph, f"{result.name}/axes", np.array([1, 2], np.int32))
            pool.code, pool.inputs = OP.MEAN, [source, axes]
            pool.options, pool.options_type = options("Reducer", keepDims=True)
            notes.append(Note(self.name, result.name, "AVERAGE_POOL_2D over the whole map became MEAN"))
        return notes


class Depthwise(Pass):
    """CONV_2D with as many groups as channels becomes DEPTHWISE_CONV_2D."""

    name = "depthwise"

    def requires(self, graph: Graph) -> bool:
        """Any such convolution."""
        return any(_channels(operator) is not None for operator in graph.operators)

    def run(self, graph: Graph) -> list[Note]:
        """Rewrite every one."""
        notes = []
        for conv in graph.operators:
            weight = conv.inputs[1] if _channels(conv) is not None else None
            values = float_constant(weight)
            if weight is None or values is None:
                continue
            conv.inputs[1] = new_constant(graph, weight.name, np.ascontiguousarray(values.transpose(3, 1, 2, 0)))
            old = conv.options
            conv.code = OP.DEPTHWISE_CONV_2D
            conv.options, conv.options_type = options(
                "DepthwiseConv2D",
                padding=old.padding,
                strideW=old.strideW,
                strideH=old.strideH,
                depthMultiplier=1,
                fusedActivationFunction=old.fusedActivationFunction,
                dilationWFactor=old.dilationWFactor,
                dilationHFactor=old.dilationHFactor,
            )
            notes.append(Note(self.name, conv.outputs[0].name, "a grouped CONV_2D became DEPTHWISE_CONV_2D"))
        return notes


def _channels(conv: Operator) -> int | None:
    """C, where `conv` is a float32 CONV_2D of C groups of one channel and one filter each."""
    if conv.code != OP.CONV_2D or len(conv.inputs) < 2 or conv.inputs[0] is None or conv.inputs[1] is None:
        return None
    source, weight = conv.inputs[0], conv.inputs[1]
    if weight.type != schema.TensorType.FLOAT32 or len(weight.shape) != 4 or len(source.shape) != 4:
        return None
    channels = source.shape[3]
    return channels if channels > 1 and weight.shape[3] == 1 and weight.shape[0] == channels else None
