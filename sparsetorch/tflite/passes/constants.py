"""Constant factors and summands move into the weights and biases of the layers beside them.

XNNPACK's sparse path refuses, in effect, a constant operand of ADD or MUL. With W the weights and b the bias of a layer,
per output channel o and input channel i:

- after it: (W x + b) * c_o + d_o = (c_o W) x + (c_o b + d_o);
- before it: W (c_i x + d_i) + b = (W c_i) x + (b + sum_i W d_i), where no padding lies in between: padding puts zeros in,
  which a factor leaves zeros and a summand does not.

A fused RELU lets a positive factor through. Exact in the reals; in float32 each weight is rounded once more (2^-24).
"""

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.model import Graph, Operator, Tensor
from sparsetorch.tflite.passes.editing import (
    ACTIVATION,
    OP,
    Array,
    Links,
    activation_of,
    bypass,
    change_options,
    float_constant,
    is_linear,
    new_constant,
    per_channel,
)
from sparsetorch.tflite.passes.pipeline import Note, Pass

_ARITHMETIC = frozenset({OP.ADD, OP.SUB, OP.MUL, OP.DIV})


class FoldConstants(Pass):
    """ADD, SUB, MUL and DIV with a constant, beside a convolution or linear layer."""

    name = "fold-constants"

    def requires(self, graph: Graph) -> bool:
        """Any arithmetic with a constant."""
        return any(_affine(operator) is not None for operator in graph.operators)

    def run(self, graph: Graph) -> list[Note]:
        """Fold each into the layer before it, else into the layers after it."""
        notes = []
        for operator in list(graph.operators):
            found = _affine(operator)
            if found is None:
                continue
            source, factor, summand = found
            name, links = operator.outputs[0].name, Links(graph)
            maker = links.producer(source)
            if maker is not None and links.only_reader(source) is operator and _takes_after(maker, factor, summand):
                _fold_after(graph, maker, operator, factor, summand)
                notes.append(
                    Note(self.name, name, f"{operator.name} with a constant folded into {maker.name} before it")
                )
                continue
            readers = links.readers(operator.outputs[0])
            ready = (
                bool(readers)
                and not links.is_output(operator.outputs[0])
                and activation_of(operator) == ACTIVATION.NONE
            )
            if ready and all(_takes_before(reader, operator.outputs[0], summand) for reader in readers):
                for reader in readers:
                    _fold_before(graph, reader, factor, summand)
                bypass(graph, operator, source)
                notes.append(Note(self.name, name, f"{operator.name} with a constant folded into what reads it"))
            else:
                text = f"{operator.name} with a constant stays: no layer of its own before it, nor only such layers after it"
                notes.append(Note(self.name, name, text, applied=False))
        return notes


def _affine(operator: Operator) -> tuple[Tensor, Array, Array] | None:
    """x, factor and summand per channel, where an operator computes factor * x + summand with constants."""
    if operator.code not in _ARITHMETIC or len(operator.inputs) != 2:
        return None
    result = operator.outputs[0]
    left, right = operator.inputs
    for source, other, swapped in ((left, right, False), (right, left, True)):
        values = per_channel(other, result)
        if source is None or values is None or source.data is not None or source.shape != result.shape:
            continue
        ones, zeros = np.ones_like(values), np.zeros_like(values)
        if operator.code == OP.ADD:
            return source, ones, values
        if operator.code == OP.SUB:
            return (source, -ones, values) if swapped else (source, ones, -values)
        if operator.code == OP.MUL:
            return source, values, zeros
        if not swapped and np.all(values != 0):
            return source, 1 / values, zeros
    return None


def _takes_after(maker: Operator, factor: Array, summand: Array) -> bool:
    """Whether a layer can compute factor * its output + summand."""
    if not is_linear(maker) or maker.outputs[0].shape[-1] != len(factor):
        return False
    fused = activation_of(maker)
    # factor * RELU(y) = RELU(factor * y); nothing else passes.
    return fused == ACTIVATION.NONE or (fused == ACTIVATION.RELU and not summand.any() and bool(np.all(factor > 0)))


def _fold_after(graph: Graph, maker: Operator, operator: Operator, factor: Array, summand: Array) -> None:
    weight = maker.inputs[1]
    values = float_constant(weight)
    assert values is not None
    assert weight is not None
    by_channel = factor if maker.code == OP.DEPTHWISE_CONV_2D else factor.reshape(-1, *[1] * (values.ndim - 1))
    maker.inputs[1] = new_constant(graph, weight.name, (values.astype(np.float64) * by_channel).astype(np.float32))
    _set_bias(graph, maker, _bias(maker, len(factor)) * factor + summand)
    if activation_of(operator) != ACTIVATION.NONE:
        change_options(maker, fusedActivationFunction=activation_of(operator))
    bypass(graph, operator, maker.outputs[0])


def _takes_before(reader: Operator, value: Tensor, summand: Array) -> bool:
    """Whether a layer can compute from x what it now computes from factor * x + summand."""
    if not is_linear(reader) or reader.inputs[0] is not value or reader.inputs.count(value) != 1:
        return False
    weight = float_constant(reader.inputs[1])
    assert weight is not None
    if weight.shape[-1] != len(summand) or (
        reader.code == OP.DEPTHWISE_CONV_2D and reader.options.depthMultiplier != 1
    ):
        return False
    pads = reader.code != OP.FULLY_CONNECTED and reader.options.padding == schema.Padding.SAME
    one_by_one = weight.ndim == 4 and weight.shape[1:3] == (1, 1)
    return not summand.any() or not pads or one_by_one


def _fold_before(graph: Graph, reader: Operator, factor: Array, summand: Array) -> None:
    weight = reader.inputs[1]
    values = float_constant(weight)
    assert values is not None
    assert weight is not None
    wide = values.astype(np.float64)
    if summand.any():
        axes = (0, 1, 2) if reader.code == OP.DEPTHWISE_CONV_2D else tuple(range(1, wide.ndim))
        channels = reader.outputs[0].shape[-1]
        _set_bias(graph, reader, _bias(reader, channels) + (wide * summand).sum(axis=axes))
    reader.inputs[1] = new_constant(graph, weight.name, (wide * factor).astype(np.float32))


def _bias(layer: Operator, channels: int) -> Array:
    values = float_constant(layer.inputs[2]) if len(layer.inputs) > 2 else None
    return np.zeros(channels) if values is None else values.astype(np.float64)


def _set_bias(graph: Graph, layer: Operator, bias: Array) -> None:
    old = layer.inputs[2] if len(layer.inputs) > 2 else None
    if old is None and not bias.any():
        return
    weight = layer.inputs[1]
    name = old.name if old is not None else f"{weight.name if weight is not None else layer.outputs[0].name}/bias"
    layer.inputs = [*layer.inputs[:2], new_constant(graph, name, bias.astype(np.float32))]
