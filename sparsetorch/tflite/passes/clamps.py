"""Clamps that XNNPACK does not take become clamps that it does: RELU_0_TO_1, and MINIMUM and MAXIMUM with a scalar.

PyTorch's hard-sigmoid, clip(x / 6 + 1/2, 0, 1), arrives as a convolution that has taken up the affine part, and RELU_0_TO_1.
The XNNPACK delegate has no such operator (LiteRT f674577 tflite/delegates/xnnpack/xnnpack_delegate.cc, VisitNode), so every
squeeze-excite gate cuts the graph, and the sparse cluster with it. PyTorch's clamp arrives as MINIMUM, then MAXIMUM or RELU.

A run of clamps is one clamp to an interval [lo, hi]; the activation fused into the operator before it counts in.

1. [0, inf) is RELU, [0, 6] RELU6, [-1, 1] RELU_N1_TO_1, and [0, 1] is RELU then RELU_N1_TO_1, since
   max(-1, min(1, max(0, x))) = max(0, min(1, x)). **Exact**, bit for bit: no weight changes, and it always applies. (The
   alternative for [0, 1], RELU6 with a factor 6 in the convolution before and 1/6 in the one behind, changes weights and
   needs neighbours that can take the factors up.)
2. Any other interval is moved onto one of these by u = a x + b, taken up by the layer that computes x, and undone by
   y = (v - b) / a in the layers that use y: RELU6 with a = 6 / (hi - lo) and b = -a lo; RELU_N1_TO_1 with a = 1 / hi where
   lo = -hi; RELU with a = 1, b = -lo for [lo, inf) and with a = -1, b = hi for (-inf, hi]. Exact over the reals, and up to the
   rounding of a, b and the weights in float32. Where a neighbour cannot take its part up, the clamp stays and the note says
   which.
"""

import math
from dataclasses import dataclass

import numpy as np

from sparsetorch.tflite.model import Graph, Operator, Tensor
from sparsetorch.tflite.passes.absorb import absorb
from sparsetorch.tflite.passes.contract import Outcome, Pass
from sparsetorch.tflite.passes.links import (
    ACTIVATION,
    OP,
    Links,
    become,
    bypass,
    changed_options,
    fused_activation,
    insert_after,
    is_float,
    remove,
    value,
)
from sparsetorch.tflite.passes.numbers import Wide, scalar

_INTERVALS = {
    OP.RELU: (0.0, math.inf),
    OP.RELU6: (0.0, 6.0),
    OP.RELU_N1_TO_1: (-1.0, 1.0),
    OP.RELU_0_TO_1: (0.0, 1.0),
}
_FUSED = {ACTIVATION.RELU: OP.RELU, ACTIVATION.RELU6: OP.RELU6, ACTIVATION.RELU_N1_TO_1: OP.RELU_N1_TO_1}
_EXACT: dict[tuple[float, float], tuple[int, ...]] = {
    (-math.inf, math.inf): (),
    (0.0, math.inf): (OP.RELU,),
    (0.0, 6.0): (OP.RELU6,),
    (-1.0, 1.0): (OP.RELU_N1_TO_1,),
    (0.0, 1.0): (OP.RELU, OP.RELU_N1_TO_1),
}
_FOREIGN = frozenset({OP.RELU_0_TO_1, OP.MINIMUM, OP.MAXIMUM})


@dataclass(frozen=True)
class Run:
    """Clamps one behind the other, with nothing else reading in between."""

    operators: tuple[Operator, ...]
    source: Tensor
    """What the first one clamps."""
    lo: float
    hi: float


def interval(operator: Operator) -> tuple[Tensor, float, float] | None:
    """What an operator clamps and to which interval, or None if it is no clamp of float values."""
    result = operator.outputs[0] if operator.outputs else None
    if operator.code in _INTERVALS and is_float(operator.inputs[0], result):
        source = operator.inputs[0]
        return None if source is None else (source, *_INTERVALS[operator.code])
    if operator.code in (OP.MINIMUM, OP.MAXIMUM) and len(operator.inputs) == 2:
        for source, bound in (operator.inputs, reversed(operator.inputs)):
            number = scalar(bound)
            if source is None or source.data is not None or number is None or math.isnan(number):
                continue
            if is_float(source, result) and source.shape == result.shape:  # type: ignore[union-attr]
                return (source, -math.inf, number) if operator.code == OP.MINIMUM else (source, number, math.inf)
    return None


def clamp_run(links: Links, last: Operator) -> Run | None:
    """The longest run of clamps that ends in `last`, or None."""
    found = interval(last)
    if found is None:
        return None
    source, lo, hi = found
    operators = [last]
    while (before := links.producer(source)) is not None and links.only_reader(source) is operators[0]:
        found = interval(before)
        if found is None:
            break
        source = found[0]
        lo, hi = _composed((found[1], found[2]), (lo, hi))
        operators.insert(0, before)
    return Run(tuple(operators), source, lo, hi)


def _composed(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """The interval of clamping to `first`, then to `second`."""
    lo, hi = (min(max(bound, second[0]), second[1]) for bound in first)
    return lo, hi


def run(graph: Graph, outcome: Outcome) -> None:
    """Rewrite every run of clamps that holds one that XNNPACK does not take."""
    links = Links(graph)
    for operator in list(graph.operators):
        found = clamp_run(links, operator)
        if found is None or not any(part.code in _FOREIGN for part in found.operators):
            continue
        follower = links.only_reader(operator.outputs[0])
        if follower is not None and interval(follower) is not None:
            continue  # the run goes on; it is looked at when its last clamp comes
        if _rewrite(links, found, outcome):
            links = Links(graph)


def _rewrite(links: Links, found: Run, outcome: Outcome) -> bool:
    lo, hi = found.lo, found.hi
    producer = links.producer(found.source)
    alone = links.only_reader(found.source) is not None
    activation = ACTIVATION.NONE if producer is None else fused_activation(producer)
    names = " and ".join(part.name for part in found.operators)
    name, result = found.operators[-1].name, found.operators[-1].outputs[0].name
    text = f"{names}, a clamp to {_text(found.lo, found.hi)}"
    if activation in _FUSED and alone:
        lo, hi = _composed(_INTERVALS[_FUSED[activation]], (lo, hi))
    codes = _EXACT.get((lo, hi))
    if codes is not None:
        rest = _fuse(producer, codes) if activation in _FUSED and alone and producer is not None else codes
        if not rest and not _vanishes(links, found, alone):
            return False
        if rest:
            _become_clamps(links.graph, found, rest)
        told = " and ".join(_NAMES[code] for code in codes) or "changes nothing"
        outcome.did(found.operators[-1], f"{text}: {told}, exact", was=(name, result))
        return True
    if not lo < hi:
        outcome.could_not(found.operators[-1], f"{text} always gives the same value")
        return False
    why = _move(links, found, lo, hi)
    told = f"stays: {why}" if why else "moved onto the one that its neighbours' weights can take up"
    if why is None:
        outcome.did(found.operators[-1], f"{text}, {told}", was=(name, result))
    else:
        outcome.could_not(found.operators[-1], f"{text}, {told}")
    return why is None


def _move(links: Links, found: Run, lo: float, hi: float) -> str | None:
    """Case 2: scale and shift the neighbours; why that is impossible, or None. A fused activation is part of [lo, hi]."""
    producer = links.producer(found.source)
    if producer is None:
        return f"{found.source.name} comes from outside the graph"
    scale, shift, code = _onto(lo, hi)
    undo: Wide = 1 / scale
    options = producer.options
    if fused_activation(producer) in _FUSED and links.only_reader(found.source) is not None:
        producer.options = changed_options(producer, fusedActivationFunction=ACTIVATION.NONE)
    plan = absorb(links, (found.source, scale, shift), (found.operators[-1].outputs[0], undo, -shift * undo))
    if isinstance(plan, str):
        producer.options = options
        return plan
    plan.apply()
    _become_clamps(links.graph, found, (code,))
    return None


_NAMES = {OP.RELU: "RELU", OP.RELU6: "RELU6", OP.RELU_N1_TO_1: "RELU_N1_TO_1"}


def _onto(lo: float, hi: float) -> tuple[Wide, Wide, int]:
    """a, b and the clamp with clamp(x, lo, hi) = (clamp'(a x + b) - b) / a."""
    if math.isinf(hi):
        a, b, code = 1.0, -lo, OP.RELU
    elif math.isinf(lo):
        a, b, code = -1.0, hi, OP.RELU
    elif lo == -hi:
        a, b, code = 1 / hi, 0.0, OP.RELU_N1_TO_1
    else:
        a = 6 / (hi - lo)
        b, code = -a * lo, OP.RELU6
    return np.array([a]), np.array([b]), code


def _text(lo: float, hi: float) -> str:
    return f"[{lo:g}, {hi:g}]"


def _fuse(producer: Operator, codes: tuple[int, ...]) -> tuple[int, ...]:
    """Let an operator with a fused activation do the first of `codes` instead of it; the others."""
    if not codes:
        return codes
    activation = next(number for number, code in _FUSED.items() if code == codes[0])
    producer.options = changed_options(producer, fusedActivationFunction=activation)
    return codes[1:]


def _vanishes(links: Links, found: Run, alone: bool) -> bool:
    """Take out a run that changes nothing, or that the operator before it does already."""
    if links.is_output(found.operators[-1].outputs[0]) and (not alone or links.producer(found.source) is None):
        return False
    for operator in found.operators[:-1]:
        remove(links.graph, operator)
    last = found.operators[-1]
    last.inputs = [found.source]
    return bypass(Links(links.graph), last)


def _become_clamps(graph: Graph, found: Run, codes: tuple[int, ...]) -> None:
    """Put the operators `codes` in the place of a run."""
    last = found.operators[-1]
    for operator in found.operators[:-1]:
        remove(graph, operator)
    result = last.outputs[0]
    source = found.source
    become(last, codes[0], [source])
    if len(codes) == 2:
        middle = value(graph, result, result.shape, f"{result.name}/relu")
        last.outputs = [middle]
        insert_after(graph, last, Operator(codes[1], [middle], [result]))


PASS = Pass("clamps", run)
