"""A hard-swish that a converter took apart becomes HARD_SWISH again.

hard_swish(x) = x * relu6(x + 3) / 6 (Howard et al. 2019, https://arxiv.org/abs/1905.02244, section 5.2). It arrives as

    MUL(a, g),   a = alpha x + beta,   g = k clamp(s x + t, 0, h)

with the constants spread over either side. With p = 6 s / h and q = 6 t / h the gate is k h / 6 * relu6(p x + q), so the product
is kappa * hard_swish(x') with x' = p x + q - 3 and kappa = alpha k h / p, whenever a is a multiple of x', that is
beta = alpha (q - 3) / p. Taken: x' is x itself or a itself; and kappa is 1, or the layers behind can take it up (`absorb`).

Two layers instead of one are recognised too: TensorFlow's converter folds `/ 6` into one copy of a layer and `+ 3` into another,
so that the layer runs twice and its weights are stored twice (the classifier of torchvision's MobileNetV3). One copy stays.

Exact over the reals. In float32 the constants 1/6 and 3 round differently: relative 1e-7 of x'.
"""

import math
from dataclasses import dataclass

import numpy as np

from sparsetorch.tflite.model import Graph, Operator, Tensor
from sparsetorch.tflite.passes.absorb import absorb
from sparsetorch.tflite.passes.clamps import clamp_run
from sparsetorch.tflite.passes.contract import Outcome, Pass
from sparsetorch.tflite.passes.fold_constants import affine
from sparsetorch.tflite.passes.layers import LAYERS, Parameters, fits, parameters, write_parameters
from sparsetorch.tflite.passes.links import ACTIVATION, OP, Links, become, changed_options, fused_activation, is_float

_INTERVALS = {ACTIVATION.NONE: (-math.inf, math.inf), ACTIVATION.RELU: (0.0, math.inf), ACTIVATION.RELU6: (0.0, 6.0)}
_CLOSE = 1e-5


@dataclass(frozen=True)
class Gate:
    """k * clamp(s * x + t, 0, h)."""

    x: Tensor
    s: float
    t: float
    k: float
    h: float


def _affine(links: Links, tensor: Tensor) -> tuple[Tensor, float, float]:
    """x, s and t with tensor = s x + t, as far up as scalar constants go."""
    s, t = 1.0, 0.0
    while (operator := links.producer(tensor)) is not None and fused_activation(operator) == ACTIVATION.NONE:
        found = affine(operator)
        if found is None or found[1].size > 1 or found[2].size > 1:
            break
        tensor, s, t = found[0], s * found[1].item(), s * found[2].item() + t
    return tensor, s, t


def _gate(links: Links, tensor: Tensor) -> Gate | None:
    inner, k, offset = _affine(links, tensor)
    operator = links.producer(inner)
    if operator is None or offset != 0 or k == 0:
        return None
    run = clamp_run(links, operator)
    lo, hi, source = (-math.inf, math.inf, inner) if run is None else (run.lo, run.hi, run.source)
    before = links.producer(source)
    s, t = 1.0, 0.0
    found = None if before is None else affine(before)
    if before is not None and found is not None and fused_activation(before) in _INTERVALS:
        if found[1].size > 1 or found[2].size > 1:
            return None
        first = _INTERVALS[fused_activation(before)]
        lo, hi = (min(max(bound, lo), hi) for bound in first)
        source, s, t = found[0], found[1].item(), found[2].item()
    if lo != 0 or not 0 < hi < math.inf:
        return None
    x, inner_s, inner_t = _affine(links, source)
    return Gate(x, s * inner_s, s * inner_t + t, k, hi)


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= _CLOSE * max(1.0, abs(b))


def run(graph: Graph, outcome: Outcome) -> None:
    """Look at every product of two computed values."""
    links = Links(graph)
    for operator in list(graph.operators):
        if operator.code != OP.MUL or fused_activation(operator) != ACTIVATION.NONE or len(operator.inputs) != 2:
            continue
        if not is_float(*operator.inputs, *operator.outputs):
            continue
        for a, gate in (operator.inputs, operator.inputs[::-1]):
            assert a is not None
            assert gate is not None
            if _restore(links, operator, a, gate, outcome) or _merge_twins(links, operator, a, gate, outcome):
                links = Links(graph)
                break


def _restore(links: Links, operator: Operator, a: Tensor, gated: Tensor, outcome: Outcome) -> bool:
    gate = _gate(links, gated)
    if gate is None or gate.s == 0:
        return False
    x, alpha, beta = _affine(links, a)
    p, q = 6 * gate.s / gate.h, 6 * gate.t / gate.h
    if x is not gate.x or alpha == 0 or not _near(beta * p, alpha * (q - 3)):
        return False
    if operator.outputs[0].shape != x.shape:
        return False
    kappa = alpha * gate.k * gate.h / p
    if _near(p, 1) and abs(q - 3) <= _CLOSE:
        argument = x
    elif _near(alpha, p) and _near(beta, q - 3):
        argument = a
    else:
        outcome.could_not(operator, f"a hard-swish of {p:g} x + {q - 3:g}, which no operator computes")
        return False
    return _become_hard_swish(links, operator, argument, kappa, outcome)


def _become_hard_swish(links: Links, operator: Operator, argument: Tensor, kappa: float, outcome: Outcome) -> bool:
    if not _near(kappa, 1):
        plan = absorb(links, None, (operator.outputs[0], np.array([kappa]), np.zeros(1)))
        if isinstance(plan, str):
            outcome.could_not(operator, f"{kappa:g} times a hard-swish: {plan}")
            return False
        plan.apply()
    outcome.did(operator, "MUL with a clamped gate is HARD_SWISH")
    become(operator, OP.HARD_SWISH, [argument])
    return True


def _merge_twins(links: Links, operator: Operator, a: Tensor, gated: Tensor, outcome: Outcome) -> bool:
    """MUL(layer(x) with weights c W and bias c b, layer(x) with W, b + 3 and RELU6) is 6 c hard_swish(W x + b)."""
    one, two = links.producer(a), links.producer(gated)
    if one is None or two is None or one is two or links.only_reader(gated) is not operator:
        return False
    if not _same_layer(one, two) or fused_activation(two) != ACTIVATION.RELU6:
        return False
    scaled, plain = parameters(one), parameters(two)
    if isinstance(scaled, str) or isinstance(plain, str) or scaled.weight.shape != plain.weight.shape:
        return False
    largest = np.unravel_index(np.abs(plain.weight).argmax(), plain.weight.shape)
    if plain.weight[largest] == 0 or scaled.weight[largest] == 0:
        return False
    c = float(scaled.weight[largest] / plain.weight[largest])
    c = 1 / 6 if abs(6 * c - 1) < 1e-6 else c
    bias = np.zeros(operator.outputs[0].shape[-1]) if scaled.bias is None else scaled.bias / c
    shifted = np.zeros_like(bias) if plain.bias is None else plain.bias
    smallest = float(np.finfo(np.float32).smallest_normal)
    if not np.allclose(scaled.weight, c * plain.weight, rtol=1e-6, atol=smallest):
        return False
    if not np.allclose(shifted, bias + 3, rtol=_CLOSE, atol=_CLOSE) or not fits(Parameters(plain.weight, bias)):
        return False
    if not _become_hard_swish(links, operator, gated, 6 * c, outcome):
        return False
    two.options = changed_options(two, fusedActivationFunction=ACTIVATION.NONE)
    write_parameters(links.graph, two, Parameters(plain.weight, bias))
    return True


def _same_layer(one: Operator, two: Operator) -> bool:
    if one.code not in LAYERS or one.code != two.code or one.inputs[0] is not two.inputs[0]:
        return False
    ours, theirs = (dict(vars(layer.options), fusedActivationFunction=0) for layer in (one, two))
    return ours == theirs and fused_activation(one) == ACTIVATION.NONE and one.outputs[0].shape == two.outputs[0].shape


PASS = Pass("hard_swish", run)
