"""RELU_0_TO_1 to RELU6, the factor 6 folded into the layers on either side.

A hard sigmoid is clip(x / 6 + 1/2, 0, 1). The converter folds `x / 6 + 1/2` into the convolution before it and writes the clip
as RELU_0_TO_1, which XNNPACK's delegate does not take: every squeeze-excite gate of a MobileNetV3 cuts the graph in two.

With c = 6 y: clip(y, 0, 1) = clip(6 y, 0, 6) / 6 = RELU6(c) / 6. The layer that makes y is linear, so its weights and bias times
6 make c. What is left is a factor 1/6 on the gate, and a product with it is read by linear layers (a 1x1 convolution, as a
rule) whose weights take the factor: conv(W, g/6 * x) = conv(W/6, g * x), padding included since it pads with zeros.

Exact in the reals. In float32 each weight is rounded once more (relative 2^-24), and zeros stay zeros.
"""

from sparsetorch.tflite.model import Graph, Operator, Tensor
from sparsetorch.tflite.passes.editing import (
    ACTIVATION,
    OP,
    Links,
    activation_of,
    float_constant,
    is_linear,
    scaled,
)
from sparsetorch.tflite.passes.pipeline import Note, Pass

_PASS_ON = frozenset({OP.PAD, OP.MEAN, OP.RESHAPE, OP.AVERAGE_POOL_2D, OP.TRANSPOSE})
"""Operators that pass a factor on: f(s x) = s f(x)."""


class HardSigmoid(Pass):
    """RELU_0_TO_1 behind a linear layer and before a product becomes RELU6."""

    name = "hard-sigmoid"

    def requires(self, graph: Graph) -> bool:
        """Any RELU_0_TO_1, alone or fused."""
        return any(operator.code == OP.RELU_0_TO_1 for operator in graph.operators)

    def run(self, graph: Graph) -> list[Note]:
        """Rewrite every one that can be."""
        notes = []
        for clip in [operator for operator in graph.operators if operator.code == OP.RELU_0_TO_1]:
            links = Links(graph)
            name = clip.outputs[0].name
            maker = _linear_maker(links, clip)
            takers = None if maker is None else absorbers(links, clip.outputs[0])
            if maker is None:
                text = "left as RELU_0_TO_1: what it clips is not made by a convolution or linear layer of its own"
                notes.append(Note(self.name, name, text, applied=False))
            elif takers is None:
                text = "left as RELU_0_TO_1: the factor 1/6 cannot be folded into everything that reads it"
                notes.append(Note(self.name, name, text, applied=False))
            else:
                scale_output(graph, maker, 6.0)
                for taker in takers:
                    taker.inputs[1] = scaled(graph, taker.inputs[1], 1 / 6)
                clip.code, clip.options, clip.options_type = OP.RELU6, None, 0
                readers = ", ".join(_weight_name(taker) for taker in takers)
                notes.append(Note(self.name, name, f"RELU_0_TO_1 became RELU6, with the factor 1/6 in {readers}"))
        return notes


def _linear_maker(links: Links, clip: Operator) -> Operator | None:
    """The linear layer whose output nothing but `clip` reads."""
    source = clip.inputs[0]
    maker = links.producer(source)
    if maker is None or source is None or not is_linear(maker) or activation_of(maker) != ACTIVATION.NONE:
        return None
    return maker if links.only_reader(source) is clip else None


def absorbers(links: Links, value: Tensor) -> list[Operator] | None:
    """The linear layers whose weights can take a factor that is on `value`; None where some reader cannot pass it to one.

    The factor goes through products with anything else, sums never, and through what only moves or averages values.
    """
    if links.is_output(value) or not links.readers(value):
        return None
    found: list[Operator] = []
    for reader in links.readers(value):
        others = [operand for operand in reader.inputs if operand is not value]
        if (
            is_linear(reader)
            and reader.inputs[0] is value
            and all(operand is not value for operand in reader.inputs[1:])
        ):
            found.append(reader)
        elif (reader.code == OP.MUL and len(others) == 1 and activation_of(reader) == ACTIVATION.NONE) or (
            reader.code in _PASS_ON and reader.inputs[0] is value
        ):
            beyond = absorbers(links, reader.outputs[0])
            if beyond is None:
                return None
            found += beyond
        else:
            return None
    # A layer reached twice would take the factor twice.
    return found if len(set(map(id, found))) == len(found) else None


def scale_output(graph: Graph, layer: Operator, factor: float) -> None:
    """Multiply what a linear layer computes: its weights and its bias."""
    for index in range(1, len(layer.inputs)):
        layer.inputs[index] = scaled(graph, layer.inputs[index], factor)


def _weight_name(layer: Operator) -> str:
    weight = layer.inputs[1]
    return weight.name if weight is not None and float_constant(weight) is not None else layer.outputs[0].name
