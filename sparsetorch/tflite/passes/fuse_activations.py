"""RELU, RELU6 and RELU_N1_TO_1 melt into the operator before them.

Exact, bit for bit: a kernel with a fused activation clamps what it would have written. Older XNNPACK revisions do not do
this themselves and spend a pass over the whole map on it.
"""

from sparsetorch.tflite.model import Graph
from sparsetorch.tflite.passes.contract import Outcome, Pass
from sparsetorch.tflite.passes.links import ACTIVATION, OP, Links, bypass, changed_options, fused_activation, is_float

_ACTIVATIONS = {OP.RELU: ACTIVATION.RELU, OP.RELU6: ACTIVATION.RELU6, OP.RELU_N1_TO_1: ACTIVATION.RELU_N1_TO_1}
_FUSING = frozenset(
    {OP.CONV_2D, OP.DEPTHWISE_CONV_2D, OP.FULLY_CONNECTED, OP.ADD, OP.SUB, OP.MUL, OP.DIV, OP.AVERAGE_POOL_2D, OP.MAX_POOL_2D}
)  # fmt: skip


def run(graph: Graph, outcome: Outcome) -> None:
    """Fuse every activation that only one operator stands before."""
    links = Links(graph)
    for operator in list(graph.operators):
        if operator.code not in _ACTIVATIONS or not is_float(operator.inputs[0], operator.outputs[0]):
            continue
        source = operator.inputs[0]
        producer = links.producer(source)
        if producer is None or source is None or links.only_reader(source) is not operator:
            continue
        if producer.code not in _FUSING or producer.options is None or fused_activation(producer) != ACTIVATION.NONE:
            continue
        activation = _ACTIVATIONS[operator.code]
        if bypass(links, operator):
            producer.options = changed_options(producer, fusedActivationFunction=activation)
            outcome.did(operator, f"fused into {producer.name}")
            links = Links(graph)


PASS = Pass("fuse_activations", run)
