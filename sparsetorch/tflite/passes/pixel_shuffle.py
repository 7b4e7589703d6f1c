"""PixelShuffle, taken apart into RESHAPE, TRANSPOSE, RESHAPE, becomes DEPTH_TO_SPACE, an exit of sparse clusters.

With block r, PyTorch's PixelShuffle puts input channel c r^2 + i r + j at channel c of sub-pixel (i, j)
(https://docs.pytorch.org/docs/stable/generated/torch.nn.PixelShuffle.html). DEPTH_TO_SPACE takes that pixel's channel c from
(i r + j) C + c, C the number of output channels (https://www.tensorflow.org/api_docs/python/tf/nn/depth_to_space). So the
channels are permuted first, for nothing, by permuting the filters and the bias of the convolution that computes them; unary
operators and clamps in between do not care, depthwise filters are permuted along. (onnx2tf 2.x writes GATHER, which permutes the
channels, and DEPTH_TO_SPACE: the GATHER goes the same way.)

Exact, bit for bit: the same filters at other places.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sparsetorch.tflite.model import Graph, Operator, Tensor
from sparsetorch.tflite.passes.contract import Outcome, Pass
from sparsetorch.tflite.passes.elementwise import UNARY
from sparsetorch.tflite.passes.layers import LAYERS, Parameters, parameters, write_parameters
from sparsetorch.tflite.passes.links import OP, Links, become, bypass, is_float, new_options
from sparsetorch.tflite.passes.numbers import integers

_CHANNELWISE = UNARY | {OP.PAD, OP.RESIZE_BILINEAR, OP.RESIZE_NEAREST_NEIGHBOR, OP.MAX_POOL_2D, OP.AVERAGE_POOL_2D}
Order = npt.NDArray[np.intp]


@dataclass
class Shuffle:
    """The three operators, and what they do."""

    operators: tuple[Operator, Operator, Operator]
    source: Tensor
    block: int


def find(links: Links, last: Operator) -> Shuffle | None:
    """The PixelShuffle that ends in `last`, or None."""
    transpose = links.producer(last.inputs[0]) if last.code == OP.RESHAPE else None
    first = None if transpose is None else links.producer(transpose.inputs[0])
    if transpose is None or first is None or (first.code, transpose.code) != (OP.RESHAPE, OP.TRANSPOSE):
        return None
    source, result = first.inputs[0], last.outputs[0]
    if links.only_reader(first.outputs[0]) is not transpose or links.only_reader(transpose.outputs[0]) is not last:
        return None
    if source is None or not is_float(source, result) or len(source.shape) != 4 or len(result.shape) != 4:
        return None
    n, h, w, _ = source.shape
    block = result.shape[1] // h if h else 0
    channels = result.shape[3]
    if block < 2 or result.shape != (n, h * block, w * block, channels):
        return None
    # [N, H, W, C, r, r] -> [N, H, r, W, r, C]; the order of the split dimensions is what makes it a PixelShuffle
    if first.outputs[0].shape != (n, h, w, channels, block, block):
        return None
    return (
        Shuffle((first, transpose, last), source, block)
        if integers(transpose.inputs[1]) == [0, 1, 4, 2, 5, 3]
        else None
    )


@dataclass
class Permutation:
    """Layers whose filters are permuted together."""

    links: Links
    order: Order
    layers: dict[Operator, Parameters] = field(default_factory=dict)

    def reach(self, tensor: Tensor) -> str | None:
        """Go up from `tensor` to the layers that fix the order of its channels; why that is impossible, or None."""
        producer = self.links.producer(tensor)
        if self.links.only_reader(tensor) is None:
            return f"{tensor.name} is also used elsewhere"
        if producer is None:
            return f"{tensor.name} comes from outside the graph"
        if producer.code in _CHANNELWISE:
            source = producer.inputs[0]
            if source is None or source.shape[-1] != tensor.shape[-1]:
                return f"{producer.name} changes the number of channels"
            return self.reach(source)
        if producer.code in (OP.ADD, OP.MUL) and all(
            operand is not None and operand.shape == tensor.shape and operand.data is None
            for operand in producer.inputs
        ):
            return next((why for operand in producer.inputs if operand and (why := self.reach(operand))), None)
        if producer.code not in LAYERS:
            return f"{producer.name} cannot permute its channels"
        found = parameters(producer)
        if isinstance(found, str):
            return found
        bias = None if found.bias is None else found.bias[self.order]
        if producer.code == OP.DEPTHWISE_CONV_2D:
            source = producer.inputs[0]
            if source is None or source.shape[-1] != found.weight.shape[-1]:
                return f"{producer.name} has a depth multiplier"
            self.layers[producer] = Parameters(found.weight[..., self.order], bias)
            return self.reach(source)
        source = producer.inputs[0]
        if producer.code == OP.CONV_2D and source is not None and source.shape[-1] != found.weight.shape[-1]:
            return f"{producer.name} has groups"
        self.layers[producer] = Parameters(found.weight[self.order], bias)
        return None


def run(graph: Graph, outcome: Outcome) -> None:
    """Rewrite every PixelShuffle behind a layer that can permute its channels."""
    links = Links(graph)
    for operator in list(graph.operators):
        if _permute_ahead(links, operator, outcome):
            links = Links(graph)
            continue
        found = find(links, operator)
        if found is None:
            continue
        blocks = found.block**2
        order = np.arange(found.source.shape[3]).reshape(-1, blocks).T.ravel()
        permutation = Permutation(links, order)
        why = permutation.reach(found.source)
        if why is not None:
            outcome.could_not(operator, f"a PixelShuffle stays as it is: {why}")
            continue
        for layer, made in permutation.layers.items():
            write_parameters(graph, layer, made)
        first, transpose, last = found.operators
        outcome.did(last, f"PixelShuffle by {found.block} is DEPTH_TO_SPACE; filters permuted")
        graph.operators = [kept for kept in graph.operators if kept is not first and kept is not transpose]
        become(last, OP.DEPTH_TO_SPACE, [found.source], new_options("DepthToSpace", blockSize=found.block))
        links = Links(graph)


def _permute_ahead(links: Links, operator: Operator, outcome: Outcome) -> bool:
    """GATHER that only puts the channels in another order: the filters in that order instead."""
    if operator.code != OP.GATHER or not is_float(operator.inputs[0], operator.outputs[0]):
        return False
    source, order = operator.inputs[0], integers(operator.inputs[1])
    assert source is not None
    rank = len(source.shape)
    last = operator.options.axis % rank == rank - 1 and not operator.options.batchDims
    if not last or order is None or sorted(order) != list(range(source.shape[-1])):
        return False
    permutation = Permutation(links, np.array(order))
    why = permutation.reach(source)
    if why is not None:
        outcome.could_not(operator, f"the channels' order stays: {why}")
        return False
    for layer, made in permutation.layers.items():
        write_parameters(links.graph, layer, made)
    outcome.did(operator, "the channels' order moved into the filters")
    return bypass(links, operator)


PASS = Pass("pixel_shuffle", run)
