"""ONNX convolutions and matrix products to TFLite, with the padding that onnx2tf 1.29 writes.

Padding that keeps the size at stride 1 is SAME; any other is a PAD and VALID (onnx2tf 1.29 ops/Conv.py), which XNNPACK melts into
the convolution. That difference decides whether a stem can lead into a sparse cluster.
Operators: https://onnx.ai/onnx/operators, opset 20.
"""

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.preflight.builder import Array, Builder, UnknownOperatorError
from sparsetorch.preflight.node import Lowering, Node
from sparsetorch.tflite.model import Tensor
from sparsetorch.tflite.passes.links import OP, new_options

_SAME, _VALID = schema.Padding.SAME, schema.Padding.VALID


def _conv(to: Builder, node: Node) -> None:
    weight = to.numbers(node.inputs[1])
    if weight.ndim != 4:
        raise UnknownOperatorError(f"a convolution over {weight.ndim - 2} dimensions")
    if node.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise UnknownOperatorError(f"padding {node.attributes['auto_pad']}")
    source, result = to.value(node.inputs[0]), to.shapes[node.outputs[0]]
    top, left, bottom, right = node.attributes.get("pads", (0, 0, 0, 0))
    stride, dilation = node.attributes.get("strides", (1, 1)), node.attributes.get("dilations", (1, 1))
    reach = [(kernel - 1) * step for kernel, step in zip(weight.shape[2:], dilation, strict=True)]
    even = (top, left) == (bottom, right) and [2 * top, 2 * left] == reach
    padding = _SAME if tuple(stride) == (1, 1) and even and any(reach) else _VALID
    if padding == _VALID:
        source = to.pad(source, top, left, bottom, right)
    bias = _bias(to, node, 2, len(weight))
    groups, channels = node.attributes.get("group", 1), source.shape[3]
    shared = {
        "padding": padding,
        "strideH": stride[0],
        "strideW": stride[1],
        "dilationHFactor": dilation[0],
        "dilationWFactor": dilation[1],
    }
    shape = (result[0], result[2], result[3], result[1])
    if groups == channels and groups > 1:
        filters = to.constant(weight.transpose(1, 2, 3, 0), node.inputs[1])
        options = new_options("DepthwiseConv2D", depthMultiplier=len(weight) // channels, **shared)
        to.define(node.outputs[0], to.add(OP.DEPTHWISE_CONV_2D, [source, filters, bias], shape, options))
        return
    filters = to.constant(weight.transpose(0, 2, 3, 1), node.inputs[1])
    to.define(node.outputs[0], to.add(OP.CONV_2D, [source, filters, bias], shape, new_options("Conv2D", **shared)))


def _conv_transpose(to: Builder, node: Node) -> None:
    weight = to.numbers(node.inputs[1])
    given = node.attributes
    if weight.ndim != 4 or given.get("group", 1) != 1 or tuple(given.get("dilations", (1, 1))) != (1, 1):
        raise UnknownOperatorError("a transposed convolution with groups, dilation or not over H and W")
    if any(given.get("output_padding", (0, 0))) or given.get("auto_pad", "NOTSET") != "NOTSET":
        raise UnknownOperatorError("a transposed convolution with output padding")
    source = to.value(node.inputs[0])
    n, h, w, _ = source.shape
    stride = given.get("strides", (1, 1))
    pads = given.get("pads", (0, 0, 0, 0))
    full = [(size - 1) * step + kernel for size, step, kernel in zip((h, w), stride, weight.shape[2:], strict=True)]
    channels = weight.shape[1]
    shape = (n, *full, channels)
    filters = to.constant(weight.transpose(1, 2, 3, 0), node.inputs[1])
    options = new_options("TransposeConv", padding=_VALID, strideH=stride[0], strideW=stride[1])
    inputs = [to.constant(np.array(shape, np.int32)), filters, source, _bias(to, node, 2, channels)]
    result = to.add(OP.TRANSPOSE_CONV, inputs, shape, options, version=3)  # 3 knows the bias
    if any(pads):
        wanted = (n, full[0] - pads[0] - pads[2], full[1] - pads[1] - pads[3], channels)
        begin = to.constant(np.array((0, pads[0], pads[1], 0), np.int32))
        result = to.add(
            OP.SLICE, [result, begin, to.constant(np.array(wanted, np.int32))], wanted, new_options("Slice")
        )
    to.define(node.outputs[0], result)


def _bias(to: Builder, node: Node, index: int, channels: int) -> Tensor:
    """XNNPACK takes no convolution without one; converters write zeros."""
    if not node.has(index):
        return to.constant(np.zeros(channels, np.float32))
    return to.constant(to.numbers(node.inputs[index]), node.inputs[index])


def _gemm(to: Builder, node: Node) -> None:
    weight = to.numbers(node.inputs[1])
    given = node.attributes
    if given.get("transA", 0):
        raise UnknownOperatorError("Gemm with its first operand transposed")
    weight = (weight if given.get("transB", 0) else weight.T) * np.float32(given.get("alpha", 1.0))
    bias = np.zeros(len(weight), np.float32)
    if node.has(2):
        bias = np.broadcast_to(to.numbers(node.inputs[2]) * np.float32(given.get("beta", 1.0)), (1, len(weight)))[0]
    _fully_connected(to, node, weight, bias)


def _matmul(to: Builder, node: Node) -> None:
    if node.inputs[1] in to.constants and to.constants[node.inputs[1]].ndim == 2:
        weight = to.numbers(node.inputs[1]).T
        _fully_connected(to, node, weight, np.zeros(len(weight), np.float32))
        return
    operands: list[Tensor | None] = [to.as_first(to.value(name)) for name in node.inputs]
    shape = to.shapes[node.outputs[0]]
    result = to.add(OP.BATCH_MATMUL, operands, shape, new_options("BatchMatMul", adjX=False, adjY=False))
    to.define(node.outputs[0], to.as_last(result))


def _fully_connected(to: Builder, node: Node, weight: Array, bias: Array) -> None:
    shape = to.shapes[node.outputs[0]]
    source = to.as_first(to.value(node.inputs[0]))
    operands = [source, to.constant(weight, node.inputs[1]), to.constant(bias)]
    options = new_options("FullyConnected", keepNumDims=len(shape) != 2)
    to.define(node.outputs[0], to.as_last(to.add(OP.FULLY_CONNECTED, operands, shape, options)))


def _batch_normalization(to: Builder, node: Node) -> None:
    """One that the exporter could not fold into a convolution: a factor and a summand per channel."""
    scale, shift, mean, variance = (to.numbers(name).astype(np.float64) for name in node.inputs[1:5])
    factor = scale / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
    source = to.value(node.inputs[0])
    if len(source.shape) not in (2, 4):
        raise UnknownOperatorError(f"BatchNormalization of {len(source.shape)} dimensions")
    form = (1,) * (len(source.shape) - 1) + (-1,)
    product = to.add(
        OP.MUL, [source, to.constant(factor.reshape(form).astype(np.float32))], source.shape, new_options("Mul")
    )
    summand = to.constant((shift - mean * factor).reshape(form).astype(np.float32))
    to.define(node.outputs[0], to.add(OP.ADD, [product, summand], source.shape, new_options("Add")))


LOWERINGS: dict[str, Lowering] = {
    "BatchNormalization": _batch_normalization,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
}
