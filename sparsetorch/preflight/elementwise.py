"""ONNX activations and arithmetic to TFLite, in the forms that converters write.

Operators: https://onnx.ai/onnx/operators, opset 20.
"""

import math

import numpy as np

from sparsetorch.preflight.builder import NO_OPTIONS, Builder, Options, UnknownOperatorError
from sparsetorch.preflight.node import Lowering, Node
from sparsetorch.tflite.model import Tensor
from sparsetorch.tflite.passes.links import OP, new_options

_UNARY: dict[str, tuple[int, str | None]] = {
    "Abs": (OP.ABS, "Abs"), "Ceil": (OP.CEIL, None), "Cos": (OP.COS, "Cos"), "Elu": (OP.ELU, None), "Exp": (OP.EXP, "Exp"),
    "Floor": (OP.FLOOR, None), "HardSwish": (OP.HARD_SWISH, "HardSwish"), "Log": (OP.LOG, None), "Neg": (OP.NEG, "Neg"),
    "Relu": (OP.RELU, None), "Round": (OP.ROUND, None), "Sigmoid": (OP.LOGISTIC, None), "Sin": (OP.SIN, None),
    "Sqrt": (OP.SQRT, None), "Tanh": (OP.TANH, None),
}  # fmt: skip
_BINARY: dict[str, tuple[int, str]] = {
    "Add": (OP.ADD, "Add"), "Sub": (OP.SUB, "Sub"), "Mul": (OP.MUL, "Mul"), "Div": (OP.DIV, "Div"), "Pow": (OP.POW, "Pow"),
}  # fmt: skip
_EXTREMES = {"Max": OP.MAXIMUM, "Min": OP.MINIMUM}
_CLAMPS = {(0.0, math.inf): OP.RELU, (0.0, 6.0): OP.RELU6, (-1.0, 1.0): OP.RELU_N1_TO_1, (0.0, 1.0): OP.RELU_0_TO_1}


def _unary(to: Builder, node: Node) -> None:
    if node.op == "Elu" and node.attributes.get("alpha", 1.0) != 1.0:
        raise UnknownOperatorError(f"Elu with alpha {node.attributes['alpha']}")
    code, name = _UNARY[node.op]
    _apply(to, node, code, NO_OPTIONS if name is None else new_options(name))


def _apply(to: Builder, node: Node, code: int, options: Options = NO_OPTIONS) -> None:
    source = to.value(node.inputs[0])
    to.define(node.outputs[0], to.add(code, [source], source.shape, options, source.type))


def _leaky_relu(to: Builder, node: Node) -> None:
    _apply(to, node, OP.LEAKY_RELU, new_options("LeakyRelu", alpha=node.attributes.get("alpha", 0.01)))


def _gelu(to: Builder, node: Node) -> None:
    _apply(to, node, OP.GELU, new_options("Gelu", approximate=node.attributes.get("approximate", "none") == "tanh"))


def _softmax(to: Builder, node: Node) -> None:
    axis, rank = node.attributes.get("axis", -1), len(to.shapes[node.inputs[0]])
    source = to.value(node.inputs[0])
    last = rank - 1
    # TFLite's works on the last axis: for channels of a map, that is where they are.
    moved = 3 if rank == 4 and axis % rank == 1 else None
    if moved is None and axis % rank == last:
        source = to.as_first(source)
    elif moved is None:
        raise UnknownOperatorError(f"{node.op} over axis {axis} of {rank}")
    code, options = (
        (OP.LOG_SOFTMAX, new_options("LogSoftmax"))
        if node.op == "LogSoftmax"
        else (OP.SOFTMAX, new_options("Softmax", beta=1.0))
    )
    result = to.add(code, [source], source.shape, options)
    to.define(node.outputs[0], result if moved is not None else to.as_last(result))


def _clip(to: Builder, node: Node) -> None:
    low, high = (
        float(to.numbers(node.inputs[i])) if node.has(i) else edge for i, edge in ((1, -math.inf), (2, math.inf))
    )
    to.define(node.outputs[0], clamp(to, to.value(node.inputs[0]), low, high))


def clamp(to: Builder, source: Tensor, low: float, high: float) -> Tensor:
    """One operator where TFLite has one for the interval, else MINIMUM and MAXIMUM."""
    if (low, high) in _CLAMPS:
        return to.add(_CLAMPS[low, high], [source], source.shape)
    for limit, code in ((high, OP.MINIMUM), (low, OP.MAXIMUM)):
        if math.isfinite(limit):
            source = to.add(code, [source, to.constant(np.float32(limit))], source.shape, new_options("MaximumMinimum"))
    return source


def _hard_sigmoid(to: Builder, node: Node) -> None:
    """clip(alpha x + beta, 0, 1), as the converter leaves it; the repairs know it."""
    factor, summand = node.attributes.get("alpha", 0.2), node.attributes.get("beta", 0.5)
    source = to.value(node.inputs[0])
    x = to.add(OP.MUL, [source, to.constant(np.float32(factor))], source.shape, new_options("Mul"))
    x = to.add(OP.ADD, [x, to.constant(np.float32(summand))], source.shape, new_options("Add"))
    to.define(node.outputs[0], clamp(to, x, 0.0, 1.0))


def _mish(to: Builder, node: Node) -> None:
    """x tanh(log(1 + e^x))."""
    source = to.value(node.inputs[0])
    x = to.add(OP.EXP, [source], source.shape, new_options("Exp"))
    x = to.add(OP.ADD, [x, to.constant(np.float32(1))], source.shape, new_options("Add"))
    x = to.add(OP.TANH, [to.add(OP.LOG, [x], source.shape)], source.shape)
    to.define(node.outputs[0], to.add(OP.MUL, [source, x], source.shape, new_options("Mul")))


def _reciprocal(to: Builder, node: Node) -> None:
    source = to.value(node.inputs[0])
    to.define(node.outputs[0], to.add(OP.DIV, [to.constant(np.float32(1)), source], source.shape, new_options("Div")))


def _prelu(to: Builder, node: Node) -> None:
    source = to.value(node.inputs[0])
    slope = to.numbers(node.inputs[1])
    if len(source.shape) == 4:  # TFLite's slopes are [1, 1, C]
        slope = (
            np.broadcast_to(slope, (source.shape[3], 1, 1)).reshape(1, 1, -1)
            if slope.size in (1, source.shape[3])
            else slope
        )
    to.define(node.outputs[0], to.add(OP.PRELU, [source, to.constant(slope, node.inputs[1])], source.shape))


def _binary(to: Builder, node: Node) -> None:
    if node.op in _EXTREMES:
        code, options = _EXTREMES[node.op], new_options("MaximumMinimum")
    else:
        code, options = _BINARY[node.op][0], new_options(_BINARY[node.op][1])
    shape = to.shapes[node.outputs[0]]
    result = operand(to, node.inputs[0], len(shape))
    for name in node.inputs[1:]:
        other = operand(to, name, len(shape))
        result = to.add(code, [result, other], np.broadcast_shapes(result.shape, other.shape), options, result.type)
    to.define(node.outputs[0], result)


def operand(to: Builder, name: str, rank: int) -> Tensor:
    """A value that is to be broadcast with others up to `rank` dimensions: its dimensions stand where theirs do."""
    shape = to.shape(name)
    full = (1,) * (rank - len(shape)) + shape
    if name in to.constants:
        array = to.constants[name]
        if array.size == 1:
            return to.constant(array.reshape(()), name)
        array = array.reshape(full)
        return to.constant(array.transpose(0, 2, 3, 1) if rank == 4 else array, name)
    if len(shape) == rank:
        return to.value(name)
    return to.as_last(to.reshape(to.as_first(to.value(name)), full))


LOWERINGS: dict[str, Lowering] = {
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys([*_BINARY, *_EXTREMES], _binary),
    "Clip": _clip,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "LeakyRelu": _leaky_relu,
    "LogSoftmax": _softmax,
    "Mish": _mish,
    "PRelu": _prelu,
    "Reciprocal": _reciprocal,
    "Softmax": _softmax,
}
