"""ONNX operators that only move values, to TFLite. Operators: https://onnx.ai/onnx/operators, opset 20."""

import numpy as np

from sparsetorch.preflight.builder import Builder, UnknownOperatorError, stored_axis
from sparsetorch.preflight.node import Lowering, Node
from sparsetorch.tflite.model import Operator, Tensor
from sparsetorch.tflite.passes.links import OP, new_options


def _reshape(to: Builder, node: Node) -> None:
    """Reshape, Flatten, Squeeze, Unsqueeze: the elements in ONNX's order, under another shape."""
    flat = to.reshape(to.as_first(to.value(node.inputs[0])), to.shapes[node.outputs[0]])
    to.define(node.outputs[0], to.as_last(flat))


def _identity(to: Builder, node: Node) -> None:
    to.define(node.outputs[0], to.value(node.inputs[0]))


def _transpose(to: Builder, node: Node) -> None:
    rank = len(to.shape(node.inputs[0]))
    order = node.attributes.get("perm", list(range(rank))[::-1])
    moved = [0] * rank
    for axis, origin in enumerate(order):
        moved[stored_axis(axis, rank)] = stored_axis(origin, rank)
    to.define(node.outputs[0], to.transpose(to.value(node.inputs[0]), moved))


def _concat(to: Builder, node: Node) -> None:
    rank = len(to.shapes[node.outputs[0]])
    axis = stored_axis(node.attributes["axis"], rank)
    parts = [to.value(name) for name in node.inputs]
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    options = new_options("Concatenation", axis=axis, fusedActivationFunction=0)
    to.define(node.outputs[0], to.add(OP.CONCATENATION, parts, shape, options, parts[0].type))


def _split(to: Builder, node: Node) -> None:
    source = to.value(node.inputs[0])
    rank = len(source.shape)
    axis = stored_axis(node.attributes.get("axis", 0), rank)
    sizes = [to.shapes[name][node.attributes.get("axis", 0)] for name in node.outputs]
    if sum(sizes) != source.shape[axis]:
        raise UnknownOperatorError("Split into parts that do not add up")
    shapes = [[*source.shape[:axis], size, *source.shape[axis + 1 :]] for size in sizes]
    results = [to.tensor(shape, source.type) for shape in shapes]
    where = to.constant(np.array(axis, np.int32))
    if len(set(sizes)) == 1:
        operator = Operator(OP.SPLIT, [where, source], results, *new_options("Split", numSplits=len(sizes)))
    else:
        lengths = to.constant(np.array(sizes, np.int32))
        operator = Operator(OP.SPLIT_V, [source, lengths, where], results, *new_options("SplitV", numSplits=len(sizes)))
    to.graph.operators.append(operator)
    for name, result in zip(node.outputs, results, strict=True):
        to.define(name, result)


def _slice(to: Builder, node: Node) -> None:
    source = to.value(node.inputs[0])
    rank = len(source.shape)
    starts, ends = (to.numbers(node.inputs[index]).tolist() for index in (1, 2))
    axes = to.numbers(node.inputs[3]).tolist() if node.has(3) else list(range(len(starts)))
    steps = to.numbers(node.inputs[4]).tolist() if node.has(4) else [1] * len(starts)
    begin, end, stride = [0] * rank, list(source.shape), [1] * rank
    for axis, first, last, step in zip(axes, starts, ends, steps, strict=True):
        place = stored_axis(axis, rank)
        if step < 1:
            raise UnknownOperatorError(f"Slice with step {step}")
        begin[place], end[place], _ = slice(first, last, step).indices(source.shape[place])
        stride[place] = step
    shape = [len(range(*bounds)) for bounds in zip(begin, end, stride, strict=True)]
    operands: list[Tensor | None] = [source, *(to.constant(np.array(one, np.int32)) for one in (begin, end, stride))]
    result = to.add(OP.STRIDED_SLICE, operands, shape, new_options("StridedSlice"), source.type)
    to.define(node.outputs[0], result)


def _gather(to: Builder, node: Node) -> None:
    """A constant choice along one axis; a single one is a slice without that axis."""
    source, chosen = to.value(node.inputs[0]), to.numbers(node.inputs[1])
    rank = len(source.shape)
    if chosen.ndim > 1:
        raise UnknownOperatorError(f"Gather with indices of {chosen.ndim} dimensions")
    place = stored_axis(node.attributes.get("axis", 0), rank)
    positions = np.atleast_1d(chosen) % source.shape[place]
    shape = [*source.shape[:place], len(positions), *source.shape[place + 1 :]]
    operands: list[Tensor | None] = [source, to.constant(positions.astype(np.int32))]
    result = to.add(OP.GATHER, operands, shape, new_options("Gather", axis=place), source.type)
    if chosen.ndim == 0:
        result = to.as_last(to.reshape(to.as_first(result), to.shapes[node.outputs[0]]))
    to.define(node.outputs[0], result)


def _pad(to: Builder, node: Node) -> None:
    source, mode = to.value(node.inputs[0]), node.attributes.get("mode", "constant")
    rank = len(source.shape)
    amounts = to.numbers(node.inputs[1]).tolist()
    axes = to.numbers(node.inputs[3]).tolist() if node.has(3) else list(range(rank))
    pairs = np.zeros((rank, 2), np.int32)
    for index, axis in enumerate(axes):
        pairs[stored_axis(axis, rank)] = (amounts[index], amounts[index + len(axes)])
    if pairs.min(initial=0) < 0:
        raise UnknownOperatorError("Pad that cuts")
    shape = [size + int(sum(pair)) for size, pair in zip(source.shape, pairs, strict=True)]
    fill = float(to.numbers(node.inputs[2])) if node.has(2) else 0.0
    operands: list[Tensor | None] = [source, to.constant(pairs)]
    if mode == "reflect":
        result = to.add(OP.MIRROR_PAD, operands, shape, new_options("MirrorPad", mode=0))
    elif mode != "constant":
        raise UnknownOperatorError(f"Pad in mode {mode}")
    elif fill == 0.0:
        result = to.add(OP.PAD, operands, shape, new_options("Pad"))
    else:
        result = to.add(OP.PADV2, [*operands, to.constant(np.float32(fill))], shape, new_options("PadV2"))
    to.define(node.outputs[0], result)


def _depth_to_space(to: Builder, node: Node) -> None:
    """In PyTorch's order of channels (CRD) it is taken apart, as converters do; TFLite's own has the other (DCR)."""
    source, block = to.value(node.inputs[0]), node.attributes["blocksize"]
    n, h, w, c = source.shape
    shape = (n, h * block, w * block, c // block**2)
    if node.attributes.get("mode", "DCR") == "DCR":
        result = to.add(OP.DEPTH_TO_SPACE, [source], shape, new_options("DepthToSpace", blockSize=block))
    else:
        parts = to.reshape(source, (n, h, w, shape[3], block, block))
        result = to.reshape(to.transpose(parts, (0, 1, 4, 2, 5, 3)), shape)
    to.define(node.outputs[0], result)


def _space_to_depth(to: Builder, node: Node) -> None:
    source, block = to.value(node.inputs[0]), node.attributes["blocksize"]
    n, h, w, c = source.shape
    options = new_options("SpaceToDepth", blockSize=block)
    shape = (n, h // block, w // block, c * block**2)
    to.define(node.outputs[0], to.add(OP.SPACE_TO_DEPTH, [source], shape, options))


def _expand(to: Builder, node: Node) -> None:
    source, shape = to.value(node.inputs[0]), to.shapes[node.outputs[0]]
    if to.shape(node.inputs[0]) == shape:
        to.define(node.outputs[0], source)
        return
    full = to.reshape(to.as_first(source), (1,) * (len(shape) - len(source.shape)) + to.shape(node.inputs[0]))
    wanted = to.constant(np.array(shape, np.int32))
    to.define(node.outputs[0], to.as_last(to.add(OP.BROADCAST_TO, [full, wanted], shape, kind=source.type, version=2)))


LOWERINGS: dict[str, Lowering] = {
    **dict.fromkeys(("Flatten", "Reshape", "Squeeze", "Unsqueeze"), _reshape),
    **dict.fromkeys(("Dropout", "Identity"), _identity),
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Gather": _gather,
    "Pad": _pad,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Transpose": _transpose,
}
