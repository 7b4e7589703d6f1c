"""Clamps and hard-swish that a converter wrote out, back to the operators that XNNPACK has.

- MAXIMUM(x, 0) = RELU(x); MINIMUM(MAXIMUM(x, 0), 6), in either order, = RELU6(x); bounds -1 and 1: RELU_N1_TO_1; 0 and 1:
  RELU_0_TO_1, which the hard-sigmoid pass takes further. Exact: all are selections among x and the bounds.
- x * RELU6(x + 3) * (1/6), or divided by 6, in any order, = HARD_SWISH(x). Exact in the reals; HARD_SWISH rounds as often or
  less (it is what the same kernel computes in one step).
- RELU, RELU6 and RELU_N1_TO_1 as operators of their own move into the layer, sum or product before them (fused activation).
  Exact, and an operator less.
"""

import numpy as np

from sparsetorch.tflite.model import Graph, Operator, Tensor
from sparsetorch.tflite.passes.editing import (
    ACTIVATION,
    OP,
    Links,
    activation_of,
    change_options,
    float_constant,
    options,
)
from sparsetorch.tflite.passes.pipeline import Note, Pass

_CLAMPS = {
    (0.0, np.inf): OP.RELU,
    (0.0, 6.0): OP.RELU6,
    (-1.0, 1.0): OP.RELU_N1_TO_1,
    (0.0, 1.0): OP.RELU_0_TO_1,
}
_NAMES = {OP.RELU: "RELU", OP.RELU6: "RELU6", OP.RELU_N1_TO_1: "RELU_N1_TO_1", OP.RELU_0_TO_1: "RELU_0_TO_1"}
_BOUNDS = {code: bounds for bounds, code in _CLAMPS.items()}
_FUSED = {
    OP.RELU: ACTIVATION.RELU,
    OP.RELU6: ACTIVATION.RELU6,
    OP.RELU_N1_TO_1: ACTIVATION.RELU_N1_TO_1,
}
_FUSING = frozenset({OP.CONV_2D, OP.DEPTHWISE_CONV_2D, OP.FULLY_CONNECTED, OP.ADD, OP.MUL})


class Clamps(Pass):
    """MINIMUM and MAXIMUM with constants become the clamp that they are."""

    name = "clamps"

    def requires(self, graph: Graph) -> bool:
        """Any MINIMUM or MAXIMUM."""
        return any(operator.code in (OP.MINIMUM, OP.MAXIMUM) for operator in graph.operators)

    def run(self, graph: Graph) -> list[Note]:
        """Rewrite pairs, and single ones that are a clamp by themselves."""
        notes: list[Note] = []
        for last in list(graph.operators):
            bound = _bound(last)
            if bound is None:
                continue
            links = Links(graph)
            source, limits = bound
            first = links.producer(source)
            inner = None if first is None else _bound(first) or _clamp(first)
            if first is not None and inner is not None and links.only_reader(source) is last:
                joined = _join(inner[1], limits)
                if joined in _CLAMPS:
                    source, limits = inner[0], joined
            if limits not in _CLAMPS:
                continue
            code = _CLAMPS[limits]
            last.code, last.inputs, last.options, last.options_type = code, [source], None, 0
            notes.append(Note(self.name, last.outputs[0].name, f"a clamp written out became {_NAMES[code]}"))
        return notes


def _bound(operator: Operator) -> tuple[Tensor, tuple[float, float]] | None:
    """What a MINIMUM or MAXIMUM with a one-element constant clamps, and its (lower, upper)."""
    if operator.code not in (OP.MINIMUM, OP.MAXIMUM) or len(operator.inputs) != 2:
        return None
    for value, other in (operator.inputs, operator.inputs[::-1]):
        limit = float_constant(other)
        if value is not None and limit is not None and limit.size == 1 and value.data is None:
            number = float(limit.reshape(-1)[0])
            if value.shape == operator.outputs[0].shape:
                return value, ((-np.inf, number) if operator.code == OP.MINIMUM else (number, np.inf))
    return None


def _clamp(operator: Operator) -> tuple[Tensor, tuple[float, float]] | None:
    """The same of a clamp that is one operator already."""
    bounds = _BOUNDS.get(operator.code)
    source = operator.inputs[0] if operator.inputs else None
    return None if bounds is None or source is None else (source, bounds)


def _join(inner: tuple[float, float], outer: tuple[float, float]) -> tuple[float, float] | None:
    """The bounds of one clamp after another; None where they do not overlap (the result would be a constant)."""
    low, high = max(inner[0], outer[0]), min(inner[1], outer[1])
    return (low, high) if low < high else None


class HardSwish(Pass):
    """x * RELU6(x + 3) / 6 becomes HARD_SWISH."""

    name = "hard-swish"

    def requires(self, graph: Graph) -> bool:
        """Any clamp that could be inside of one."""
        return any(o.code == OP.RELU6 or activation_of(o) == ACTIVATION.RELU6 for o in graph.operators)

    def run(self, graph: Graph) -> list[Note]:
        """Rewrite every one."""
        notes = []
        for last in list(graph.operators):
            if last.code not in (OP.MUL, OP.DIV) or activation_of(last) != ACTIVATION.NONE:
                continue
            source = _hard_swish_of(Links(graph), last)
            if source is None or source.shape != last.outputs[0].shape:
                continue
            last.code, last.inputs = OP.HARD_SWISH, [source]
            last.options, last.options_type = options("HardSwish")
            notes.append(Note(self.name, last.outputs[0].name, "a hard-swish written out became HARD_SWISH"))
        return notes


def _hard_swish_of(links: Links, last: Operator) -> Tensor | None:
    """x, where `last` computes x * RELU6(x + 3) / 6 in any order of its products."""
    factors, scale = _factors(links, last, 1.0, depth=3)
    if len(factors) != 2 or abs(scale * 6 - 1) > 1e-6:
        return None
    for x, gate in (factors, factors[::-1]):
        if _shifted(links, gate) is x:
            return x
    return None


def _factors(links: Links, operator: Operator, scale: float, depth: int) -> tuple[list[Tensor], float]:
    """The values that a tree of products multiplies, and the constant beside them."""
    found: list[Tensor] = []
    for index, value in enumerate(operator.inputs):
        if value is None:
            continue
        number = float_constant(value)
        inner = links.producer(value)
        if number is not None and number.size == 1:
            number_here = float(number.reshape(-1)[0])
            if operator.code == OP.DIV and index == 0:
                return [], 0.0
            scale = scale / number_here if operator.code == OP.DIV and number_here else scale * number_here
        elif operator.code == OP.DIV and index == 1:
            return [], 0.0  # divided by something computed
        elif (
            inner is not None
            and depth > 1
            and inner.code in (OP.MUL, OP.DIV)
            and activation_of(inner) == ACTIVATION.NONE
            and links.only_reader(value) is operator
        ):
            below, scale = _factors(links, inner, scale, depth - 1)
            found += below or [value]
        else:
            found.append(value)
    return found, scale


def _shifted(links: Links, gate: Tensor) -> Tensor | None:
    """x, where `gate` is RELU6(x + 3)."""
    clip = links.producer(gate)
    if clip is None:
        return None
    total = (
        clip
        if activation_of(clip) == ACTIVATION.RELU6
        else links.producer(clip.inputs[0])
        if clip.code == OP.RELU6
        else None
    )
    if total is None or total.code != OP.ADD or (total is not clip and activation_of(total) != ACTIVATION.NONE):
        return None
    for value, other in (total.inputs, total.inputs[::-1]):
        number = float_constant(other)
        if value is not None and number is not None and number.size == 1 and float(number.reshape(-1)[0]) == 3.0:
            return value
    return None


class FuseActivation(Pass):
    """A clamp moves into the operator before it."""

    name = "fuse-activation"

    def requires(self, graph: Graph) -> bool:
        """Any clamp as an operator of its own."""
        return any(operator.code in _FUSED for operator in graph.operators)

    def run(self, graph: Graph) -> list[Note]:
        """Fuse every one whose source nothing else reads."""
        notes = []
        for clamp in [operator for operator in graph.operators if operator.code in _FUSED]:
            links, source = Links(graph), clamp.inputs[0]
            maker = links.producer(source)
            if maker is None or source is None or maker.code not in _FUSING or activation_of(maker) != ACTIVATION.NONE:
                continue
            if links.only_reader(source) is not clamp or maker.options is None:
                continue
            change_options(maker, fusedActivationFunction=_FUSED[clamp.code])
            maker.outputs = [clamp.outputs[0]]
            graph.operators.remove(clamp)
            notes.append(
                Note(self.name, clamp.outputs[0].name, f"{_NAMES[clamp.code]} moved into the operator before it")
            )
        return notes
