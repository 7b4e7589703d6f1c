"""Convolutions and fully-connected layers as affine maps whose outputs and inputs can be rescaled.

Written y = A(W x + b) with the activation A. With s per output channel, t likewise:

* outputs:  s * (W x + b) + t = (sW) x + (sb + t), and A stays outside, so A must be none, or RELU with s > 0 and t = 0, which
  RELU passes through;
* inputs:   W (s x + t) + b = (W s) x + (b + W t), valid only where every input position is a real one: never with t != 0 and
  padding, whose zeros do not become t.

Both are exact over the reals. In float32 each weight is rounded once (relative 6e-8), and not at all where s is a power of
two. A weight that is zero stays zero, so sparsity is kept.
"""

from dataclasses import dataclass

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.model import Graph, Operator
from sparsetorch.tflite.passes.links import ACTIVATION, OP, fused_activation, is_float
from sparsetorch.tflite.passes.numbers import Wide, floats, rounded, set_constant

LAYERS = frozenset({OP.CONV_2D, OP.DEPTHWISE_CONV_2D, OP.FULLY_CONNECTED})
_OUTPUT_AXIS = {OP.CONV_2D: 0, OP.DEPTHWISE_CONV_2D: 3, OP.FULLY_CONNECTED: 0}


@dataclass(frozen=True)
class Parameters:
    """New weights of one layer."""

    weight: Wide
    bias: Wide | None


def parameters(operator: Operator) -> Parameters | str:
    """A layer's weights as they are, or why they cannot be changed."""
    if operator.code not in LAYERS or len(operator.inputs) < 2:
        return f"{operator.name} has no weights to fold it into"
    weight = floats(operator.inputs[1])
    if weight is None or not is_float(operator.inputs[0], operator.outputs[0]):
        return f"the weights of {operator.name} are not plain float32 constants"
    if operator.code == OP.FULLY_CONNECTED and (getattr(operator.options, "weightsFormat", 0) or weight.ndim != 2):
        return "its weights are shuffled"
    bias = operator.inputs[2] if len(operator.inputs) > 2 else None
    if bias is not None and floats(bias) is None:
        return f"the bias of {operator.name} is not a plain float32 constant"
    values = floats(bias)
    return Parameters(weight.astype(np.float64), None if values is None else values.astype(np.float64))


def scale_outputs(operator: Operator, found: Parameters, scale: Wide, shift: Wide) -> Parameters | str:
    """The parameters with which a layer gives `scale * y + shift`, or why there are none."""
    activation = fused_activation(operator)
    through = activation == ACTIVATION.RELU and bool((scale > 0).all()) and not shift.any()
    if activation != ACTIVATION.NONE and not through:
        return f"{operator.name} has a fused activation"
    axis = _OUTPUT_AXIS[operator.code]
    channels = found.weight.shape[axis]
    if scale.size not in (1, channels) or shift.size not in (1, channels):
        return f"{operator.name} has another number of output channels"
    along = [1] * found.weight.ndim
    along[axis] = scale.size
    bias = found.bias
    if shift.any() or bias is not None:
        bias = (np.zeros(channels) if bias is None else bias) * scale + shift
    return Parameters(found.weight * scale.reshape(along), bias)


def scale_inputs(operator: Operator, found: Parameters, scale: Wide, shift: Wide) -> Parameters | str:
    """The parameters with which a layer takes x and computes what it did of `scale * x + shift`, or why there are none."""
    source = operator.inputs[0]
    assert source is not None
    weight = found.weight
    if shift.any() and is_padded(operator):
        return f"{operator.name} pads its input, and a shift does not pass through padding"
    if (
        operator.code == OP.CONV_2D
        and source.shape[-1] != weight.shape[3]
        and (scale.size > 1 or shift.size > 1 or shift.any())
    ):
        return f"{operator.name} has groups"
    channels = weight.shape[-1]
    if operator.code == OP.DEPTHWISE_CONV_2D:
        multiplier = channels // source.shape[-1]
        scale, shift = (part if part.size == 1 else np.repeat(part, multiplier) for part in (scale, shift))
    if scale.size not in (1, channels) or shift.size not in (1, channels):
        return f"{operator.name} has another number of input channels"
    bias = found.bias
    if shift.any():
        axes = (0, 1, 2) if operator.code == OP.DEPTHWISE_CONV_2D else tuple(range(1, weight.ndim))
        bias = (np.zeros(operator.outputs[0].shape[-1]) if bias is None else bias) + (weight * shift).sum(axis=axes)
    return Parameters(weight * scale, bias)


def is_padded(operator: Operator) -> bool:
    """Whether a layer reads positions outside its input."""
    return operator.code != OP.FULLY_CONNECTED and any(side > 0 for pair in own_padding(operator) for side in pair)


def own_padding(operator: Operator) -> tuple[tuple[int, int], tuple[int, int]]:
    """The zeros that SAME padding puts before and behind, (top, bottom) and (left, right). VALID: none.

    TensorFlow's rule: https://www.tensorflow.org/api_docs/python/tf/nn#notes_on_padding_2 (the odd one goes behind).
    """
    source, weight, result = operator.inputs[0], operator.inputs[1], operator.outputs[0]
    assert source is not None
    assert weight is not None
    if operator.options.padding != schema.Padding.SAME:
        return (0, 0), (0, 0)
    sides = []
    for axis, stride, dilation in (
        (1, operator.options.strideH, operator.options.dilationHFactor),
        (2, operator.options.strideW, operator.options.dilationWFactor),
    ):
        reach = (weight.shape[axis] - 1) * max(dilation, 1) + 1
        total = max(0, (result.shape[axis] - 1) * stride + reach - source.shape[axis])
        sides.append((total // 2, total - total // 2))
    return sides[0], sides[1]


def write_parameters(graph: Graph, operator: Operator, made: Parameters) -> None:
    """Give a layer new parameters. They must fit float32: see `fits`."""
    weight, bias = rounded(made.weight), None if made.bias is None else rounded(made.bias)
    assert weight is not None
    old = operator.inputs[1]
    assert old is not None
    set_constant(graph, operator, 1, weight, old.name)
    if bias is not None:
        set_constant(graph, operator, 2, bias, f"{old.name}/bias")


def fits(made: Parameters) -> bool:
    """Whether no value overflows float32."""
    return rounded(made.weight) is not None and (made.bias is None or rounded(made.bias) is not None)
