"""A constant operand of ADD, SUB, MUL or DIV melts into the weights and bias before or behind it.

XNNPACK lets a constant operand into a sparse cluster only beside a value without spatial extent (75db3c0 src/subgraph.c,
xnn_check_nchw_compatibility), so an affine layer that a converter left over breaks the cluster.

x + c, x - c, c - x, c * x and x / c are all s x + t with s, t per channel or scalar. Upwards, s y + t goes into the layer that
computes x if nothing else reads x; downwards, into every layer that reads the result, where t stops at padding (zeros stay
zeros, not t) and s does not. `absorb` has the rules and what may lie in between. Exact over the reals; in float32 the weights
are rounded once, relative 6e-8, and x / c becomes a product with 1 / c.
"""

import numpy as np

from sparsetorch.tflite.model import Graph, Operator, Tensor
from sparsetorch.tflite.passes.absorb import absorb
from sparsetorch.tflite.passes.contract import Outcome, Pass
from sparsetorch.tflite.passes.links import ACTIVATION, OP, Links, become, bypass, constant, fused_activation, is_float
from sparsetorch.tflite.passes.numbers import Wide, floats, non_unit, per_channel

_CODES = frozenset({OP.ADD, OP.SUB, OP.MUL, OP.DIV})
_ACTIVATIONS = {
    ACTIVATION.RELU: OP.RELU,
    ACTIVATION.RELU6: OP.RELU6,
    ACTIVATION.RELU_N1_TO_1: OP.RELU_N1_TO_1,
}


def affine(operator: Operator) -> tuple[Tensor, Wide, Wide] | None:
    """x, s and t of an operator that computes s x + t before its activation; None for any other."""
    if operator.code not in _CODES or len(operator.inputs) != 2:
        return None
    result = operator.outputs[0]
    for index, source in enumerate(operator.inputs):
        other = operator.inputs[1 - index]
        if source is None or source.data is not None or not is_float(source, result) or source.shape != result.shape:
            continue
        values = per_channel(other, source)
        if values is None:
            continue
        if operator.code == OP.ADD:
            return source, np.ones(1), values
        if operator.code == OP.SUB:
            return (source, np.ones(1), -values) if index == 0 else (source, -np.ones(1), values)
        if operator.code == OP.MUL:
            return source, values, np.zeros(1)
        if index == 0 and values.all():
            return source, 1 / values, np.zeros(1)
    return None


def run(graph: Graph, outcome: Outcome) -> None:
    """Fold every constant operand that a neighbour can take up."""
    links = Links(graph)
    for operator in list(graph.operators):
        if _fold(links, operator, outcome):
            links = Links(graph)


def _fold(links: Links, operator: Operator, outcome: Outcome) -> bool:
    found = affine(operator)
    if found is None or fused_activation(operator) not in (ACTIVATION.NONE, *_ACTIVATIONS):
        return False
    source, scale, shift = found
    result, activation = operator.outputs[0], fused_activation(operator)
    plan = absorb(links, (source, scale, shift), None)
    whys = [plan] if isinstance(plan, str) else []
    if isinstance(plan, str) and activation == ACTIVATION.NONE:
        plan = absorb(links, None, (result, scale, shift))
        whys += [plan] if isinstance(plan, str) else []
    if isinstance(plan, str):
        if _lift_constant(links.graph, operator):
            outcome.did(operator, "constant operand given four dimensions, which XNNPACK asks for; exact")
            return True
        if non_unit(source.shape) > 1:
            outcome.could_not(operator, f"its constant operand stays: {'; '.join(dict.fromkeys(whys))}")
        return False
    plan.apply()
    outcome.did(operator, f"constant operand of {operator.name} folded into {plan.names}")
    if activation != ACTIVATION.NONE:
        become(operator, _ACTIVATIONS[activation], [source])
    else:
        operator.inputs = [source]
        bypass(Links(links.graph), operator)
    return True


def _lift_constant(graph: Graph, operator: Operator) -> bool:
    """Give a constant beside a 4-D value without extent four dimensions: it is then allowed inside a cluster."""
    if len(operator.outputs[0].shape) != 4 or non_unit(operator.outputs[0].shape) > 1:
        return False
    for index, tensor in enumerate(operator.inputs):
        values = floats(tensor)
        if tensor is not None and values is not None and values.ndim < 4:
            lifted = constant(graph, values.reshape(*[1] * (4 - values.ndim), *values.shape), tensor.name)
            operator.inputs = [lifted if number == index else other for number, other in enumerate(operator.inputs)]
            return True
    return False


PASS = Pass("fold_constants", run)
