"""PixelShuffle, written out as RESHAPE, TRANSPOSE, RESHAPE, becomes DEPTH_TO_SPACE: an exit from channels-first layout.

With block r, PyTorch's PixelShuffle takes channel c r^2 + y r + x to channel c at row y, column x of a block, TFLite's
DEPTH_TO_SPACE channel (y r + x) C + c, C being the channels of the result. So the output channels of the convolution before are
put into that order: its weights and bias, entry by entry the same. Between the two, only what works entry by entry may lie.
Exact: entries are moved.
"""

import numpy as np

from sparsetorch.tflite.model import Graph, Operator, Tensor
from sparsetorch.tflite.passes.editing import (
    OP,
    Array,
    Links,
    bypass,
    constant,
    float_constant,
    is_linear,
    new_constant,
    options,
)
from sparsetorch.tflite.passes.pipeline import Note, Pass

_UNARY = frozenset(
    {OP.RELU, OP.RELU6, OP.RELU_N1_TO_1, OP.HARD_SWISH, OP.LOGISTIC, OP.TANH, OP.ELU, OP.LEAKY_RELU, OP.ABS, OP.NEG}
)
_CHANNELS_FIRST, _CHANNELS_LAST = [0, 1, 4, 2, 5, 3], [0, 1, 3, 2, 4, 5]


class DepthToSpace(Pass):
    """RESHAPE to six axes, TRANSPOSE, RESHAPE to four becomes DEPTH_TO_SPACE."""

    name = "depth-to-space"

    def requires(self, graph: Graph) -> bool:
        """Any TRANSPOSE of six axes."""
        return any(o.code == OP.TRANSPOSE and len(o.outputs[0].shape) == 6 for o in graph.operators)

    def run(self, graph: Graph) -> list[Note]:
        """Rewrite every one whose channels can be put into order."""
        notes = []
        for last in [operator for operator in graph.operators if operator.code == OP.RESHAPE]:
            links = Links(graph)
            found = _pixel_shuffle(links, last)
            if found is None:
                continue
            source, block, order = found
            name = last.outputs[0].name
            if order is not None:
                maker = _maker(links, source)
                if maker is None:
                    text = "PixelShuffle stays: no convolution of its own before it whose channels could be reordered"
                    notes.append(Note(self.name, name, text, applied=False))
                    continue
                _reorder(graph, maker, order)
            last.code, last.inputs = OP.DEPTH_TO_SPACE, [source]
            last.options, last.options_type = options("DepthToSpace", blockSize=block)
            notes.append(
                Note(self.name, name, f"PixelShuffle({block}) became DEPTH_TO_SPACE, channels before it reordered")
            )
        return notes


def _pixel_shuffle(links: Links, last: Operator) -> tuple[Tensor, int, Array | None] | None:
    """What is shuffled, the block, and the order its channels must come in (None: it is right already)."""
    transpose = links.producer(last.inputs[0])
    permutation = None if transpose is None or transpose.code != OP.TRANSPOSE else constant(transpose.inputs[1])
    if transpose is None or permutation is None or links.only_reader(transpose.outputs[0]) is not last:
        return None
    split = links.producer(transpose.inputs[0])
    if split is None or split.code != OP.RESHAPE or links.only_reader(split.outputs[0]) is not transpose:
        return None
    source, six, result = split.inputs[0], split.outputs[0].shape, last.outputs[0].shape
    if source is None or len(source.shape) != 4 or len(six) != 6 or len(result) != 4 or source.shape[:3] != six[:3]:
        return None
    axes = [int(axis) for axis in permutation.reshape(-1)]
    if axes == _CHANNELS_FIRST:
        channels, block, other = six[3], six[4], six[5]
    elif axes == _CHANNELS_LAST:
        block, other, channels = six[3], six[4], six[5]
    else:
        return None
    if block != other or block < 2 or result != (six[0], six[1] * block, six[2] * block, channels):
        return None
    if axes == _CHANNELS_LAST or channels == 1:
        return source, block, None
    # order[new channel] = old channel
    return source, block, np.arange(channels * block * block).reshape(channels, block * block).T.reshape(-1)


def _maker(links: Links, value: Tensor) -> Operator | None:
    """The convolution behind `value`, seen through operators that work entry by entry, none of them read by anything else."""
    while True:
        maker = links.producer(value)
        if maker is None or len(links.readers(value)) != 1 or links.is_output(value):
            return None
        if is_linear(maker):
            return maker if maker.code == OP.CONV_2D else None
        if maker.code not in _UNARY or maker.inputs[0] is None:
            return None
        value = maker.inputs[0]


def _reorder(graph: Graph, conv: Operator, order: Array) -> None:
    for index in range(1, len(conv.inputs)):
        tensor = conv.inputs[index]
        values = float_constant(tensor)
        if tensor is not None and values is not None:
            conv.inputs[index] = new_constant(graph, tensor.name, np.ascontiguousarray(values[order]))


class ChannelOrder(Pass):
    """A GATHER of channels behind a convolution becomes the order of its output channels: how onnx2tf 2 writes PixelShuffle."""

    name = "channel-order"

    def requires(self, graph: Graph) -> bool:
        """Any GATHER."""
        return any(operator.code == OP.GATHER for operator in graph.operators)

    def run(self, graph: Graph) -> list[Note]:
        """Rewrite every one along the last axis with constant indices."""
        notes = []
        for gather in [operator for operator in graph.operators if operator.code == OP.GATHER]:
            source, indices, result = gather.inputs[0], constant(gather.inputs[1]), gather.outputs[0]
            if source is None or indices is None or indices.ndim != 1 or gather.options.batchDims:
                continue
            if len(source.shape) != 4 or gather.options.axis % 4 != 3 or source.shape != result.shape:
                continue
            maker = _maker(Links(graph), source)
            if maker is None:
                text = "GATHER of channels stays: no convolution of its own before it whose channels could be reordered"
                notes.append(Note(self.name, result.name, text, applied=False))
            elif bypass(graph, gather, source):
                _reorder(graph, maker, indices.astype(np.int64))
                notes.append(
                    Note(self.name, result.name, "GATHER of channels became the order of the convolution before it")
                )
        return notes
