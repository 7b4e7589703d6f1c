"""ONNX pooling, reductions and resizing to TFLite. Operators: https://onnx.ai/onnx/operators, opset 20."""

import math
from collections.abc import Sequence

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.preflight.builder import Builder, UnknownOperatorError, stored_axis
from sparsetorch.preflight.node import Lowering, Node
from sparsetorch.tflite.model import Tensor
from sparsetorch.tflite.passes.links import OP, new_options

_REDUCTIONS = {
    "ReduceMean": OP.MEAN,
    "ReduceSum": OP.SUM,
    "ReduceMax": OP.REDUCE_MAX,
    "ReduceMin": OP.REDUCE_MIN,
    "ReduceProd": OP.REDUCE_PROD,
}


def _global_pool(to: Builder, node: Node) -> None:
    source = to.value(node.inputs[0])
    if len(source.shape) != 4:
        raise UnknownOperatorError(f"{node.op} of {len(source.shape)} dimensions")
    to.define(node.outputs[0], _reduced(to, source, OP.MEAN if "Average" in node.op else OP.REDUCE_MAX, [1, 2], True))


def _reduce(to: Builder, node: Node) -> None:
    rank = len(to.shape(node.inputs[0]))
    given = to.numbers(node.inputs[1]).tolist() if node.has(1) else node.attributes.get("axes", list(range(rank)))
    if not given:
        given = [] if node.attributes.get("noop_with_empty_axes", 0) else list(range(rank))
    keep = bool(node.attributes.get("keepdims", 1))
    axes = sorted(stored_axis(axis, rank) for axis in given)
    source = to.value(node.inputs[0])
    result = _reduced(to, source, _REDUCTIONS[node.op], axes, keep)
    if not keep and rank == 4:  # what is left may stand in the other order
        order = [axis for axis in (0, 3, 1, 2) if axis not in axes]  # ONNX's, by the tensor's axes
        result = to.transpose(result, [sorted(order).index(axis) for axis in order])
    to.define(node.outputs[0], result)


def _reduced(to: Builder, source: Tensor, code: int, axes: Sequence[int], keep: bool) -> Tensor:
    kept = [1 if axis in axes else size for axis, size in enumerate(source.shape)]
    shape = kept if keep else [size for axis, size in enumerate(source.shape) if axis not in axes]
    operands: list[Tensor | None] = [source, to.constant(np.array(axes, np.int32))]
    return to.add(code, operands, shape, new_options("Reducer", keepDims=keep), source.type)


def _pool(to: Builder, node: Node) -> None:
    given, source = node.attributes, to.value(node.inputs[0])
    if len(source.shape) != 4 or len(node.outputs) != 1 or any(step != 1 for step in given.get("dilations", (1, 1))):
        raise UnknownOperatorError(f"{node.op} with dilation or indices, or not over H and W")
    if given.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise UnknownOperatorError(f"padding {given['auto_pad']}")
    kernel, stride = given["kernel_shape"], given.get("strides", (1, 1))
    pads = tuple(given.get("pads", (0, 0, 0, 0)))
    n, c, h, w = to.shapes[node.outputs[0]]
    average = node.op == "AveragePool"
    padding = schema.Padding.VALID
    if average and any(pads) and not given.get("count_include_pad", 0):
        if tuple(stride) != (1, 1) or pads != (*(k // 2 for k in kernel),) * 2 or not all(k % 2 for k in kernel):
            raise UnknownOperatorError("AveragePool that leaves its padding out of the average")
        padding = schema.Padding.SAME
    else:
        # `ceil_mode` looks beyond the edge: rows and columns of padding more.
        reach = [(size - 1) * step + width for size, step, width in zip((h, w), stride, kernel, strict=True)]
        present = [source.shape[1] + pads[0] + pads[2], source.shape[2] + pads[1] + pads[3]]
        more = [max(0, needed - found) for needed, found in zip(reach, present, strict=True)]
        if average and any(more):
            raise UnknownOperatorError("AveragePool with ceil_mode")
        fill = 0.0 if average else -math.inf
        fill = max(fill, float(np.finfo(np.float32).min))
        source = to.pad(source, pads[0], pads[1], pads[2] + more[0], pads[3] + more[1], fill)
    options = new_options(
        "Pool2D", padding=padding, strideH=stride[0], strideW=stride[1], filterHeight=kernel[0], filterWidth=kernel[1]
    )
    code = OP.AVERAGE_POOL_2D if average else OP.MAX_POOL_2D
    to.define(node.outputs[0], to.add(code, [source], (n, h, w, c), options))


def _resize(to: Builder, node: Node) -> None:
    given, source = node.attributes, to.value(node.inputs[0])
    n, c, h, w = to.shapes[node.outputs[0]] if len(source.shape) == 4 else (0, 0, 0, 0)
    if len(source.shape) != 4 or (n, c) != (source.shape[0], source.shape[3]):
        raise UnknownOperatorError("Resize of other dimensions than H and W")
    mode, where = given.get("mode", "nearest"), given.get("coordinate_transformation_mode", "half_pixel")
    size = to.constant(np.array([h, w], np.int32))
    corners, half = where == "align_corners", where in ("half_pixel", "pytorch_half_pixel")
    if mode == "linear" and (corners or half or where == "asymmetric"):
        options = new_options("ResizeBilinear", alignCorners=corners, halfPixelCenters=half)
        result = to.add(OP.RESIZE_BILINEAR, [source, size], (n, h, w, c), options)
    elif mode == "nearest" and where == "asymmetric" and given.get("nearest_mode", "round_prefer_floor") == "floor":
        options = new_options("ResizeNearestNeighbor", alignCorners=False, halfPixelCenters=False)
        result = to.add(OP.RESIZE_NEAREST_NEIGHBOR, [source, size], (n, h, w, c), options)
    else:
        raise UnknownOperatorError(f"Resize {mode} with {where} coordinates")
    to.define(node.outputs[0], result)


LOWERINGS: dict[str, Lowering] = {
    **dict.fromkeys(_REDUCTIONS, _reduce),
    "AveragePool": _pool,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "MaxPool": _pool,
    "Resize": _resize,
}
