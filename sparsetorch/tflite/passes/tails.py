"""What follows the global pool leaves the 4-D form: MEAN without kept axes, 1x1 convolutions as FULLY_CONNECTED.

XNNPACK's rewrite lets a MEAN lead out of channels-first layout only where nothing that could stay in it reads the result. A
1x1 convolution or an activation on the (1, 1, 1, C) that MEAN leaves could, so the exit is gone, and the file fails to
load, gives zeros, or is silently wrong, by version (LiteRT 2.1, 2.3, LiteRT.js). On two axes nothing can stay.

On a map of 1x1, a 1x1 convolution is the matrix product of FULLY_CONNECTED with the same weights, and everything else here works
entry by entry. Exact: the same products, summed in the same order or another.
"""

import numpy as np

from sparsetorch.tflite.model import Graph, Operator, Tensor
from sparsetorch.tflite.passes.editing import (
    OP,
    Links,
    activation_of,
    change_options,
    constant,
    float_constant,
    is_linear,
    new_constant,
    new_value,
    options,
)
from sparsetorch.tflite.passes.pipeline import Note, Pass

_UNARY = frozenset(
    {
        OP.RELU,
        OP.RELU6,
        OP.RELU_N1_TO_1,
        OP.RELU_0_TO_1,
        OP.HARD_SWISH,
        OP.LOGISTIC,
        OP.TANH,
        OP.ELU,
        OP.LEAKY_RELU,
        OP.SOFTMAX,
    }
    | {OP.ABS, OP.NEG, OP.SQUARE, OP.SQRT, OP.RSQRT, OP.EXP}
)
_BINARY = frozenset({OP.ADD, OP.SUB, OP.MUL, OP.DIV, OP.MINIMUM, OP.MAXIMUM})
_RESHAPING = frozenset({OP.RESHAPE, OP.SQUEEZE})


class Tails(Pass):
    """MEAN, then 1x1 convolutions and activations to the end of the network, becomes two-dimensional."""

    name = "tails"

    def requires(self, graph: Graph) -> bool:
        """Any MEAN that keeps its axes."""
        return any(operator.code == OP.MEAN and operator.options.keepDims for operator in graph.operators)

    def run(self, graph: Graph) -> list[Note]:
        """Rewrite every tail; a squeeze-excite gate, which meets the map again, is none."""
        notes = []
        for mean in [
            operator for operator in graph.operators if operator.code == OP.MEAN and operator.options.keepDims
        ]:
            axes = constant(mean.inputs[1])
            source, pooled = mean.inputs[0], mean.outputs[0]
            if (
                axes is None
                or source is None
                or len(source.shape) != 4
                or {int(a) % 4 for a in axes.reshape(-1)} != {1, 2}
            ):
                continue
            region = _tail(Links(graph), pooled)
            if not region:
                continue
            change_options(mean, keepDims=False)
            _flatten(graph, pooled)
            for operator in region:
                _rewrite(graph, operator)
            names = sorted({operator.name for operator in region})
            notes.append(
                Note(self.name, pooled.name, f"the tail behind MEAN ({', '.join(names)}) became two-dimensional")
            )
        return notes


def _tail(links: Links, pooled: Tensor) -> list[Operator]:
    """The operators behind a pooled value up to where it is reshaped, read by FULLY_CONNECTED, or returned.

    Empty where it is already so, where the value meets a map again, or where something in it is not known.
    """
    region: list[Operator] = []
    values = [pooled]
    for value in values:
        for reader in links.readers(value):
            if reader in region or reader.code in _RESHAPING or reader.code == OP.FULLY_CONNECTED:
                continue
            if not _is_known(reader, value):
                return []
            region.append(reader)
            values += reader.outputs
    known = set(map(id, values))
    for operator in region:
        if any(v is not None and v.data is None and id(v) not in known for v in operator.inputs):
            return []  # something from elsewhere joins: a gate
    return region


def _is_known(operator: Operator, value: Tensor) -> bool:
    if any(len(output.shape) != 4 or output.shape[:3] != value.shape[:3] for output in operator.outputs):
        return False
    if operator.code in _UNARY or operator.code in _BINARY:
        return True
    weight = operator.inputs[1] if len(operator.inputs) > 1 else None
    return (
        operator.code == OP.CONV_2D
        and is_linear(operator)
        and weight is not None
        and weight.shape[1:3] == (1, 1)
        and (weight.shape[3] == value.shape[3] and operator.inputs[0] is value)
    )


def _flatten(graph: Graph, value: Tensor) -> None:
    """Make a (N, 1, 1, C) value (N, C); where the graph returns it, a RESHAPE gives that its shape back."""
    shape = (value.shape[0], value.shape[3])
    if any(output is value for output in graph.outputs):
        maker = Links(graph).producer(value)
        assert maker is not None
        flat = new_value(graph, f"{value.name}/flat", shape)
        graph.replace_input(value, flat)
        maker.outputs = [flat if output is value else output for output in maker.outputs]
        target = new_constant(graph, f"{value.name}/shape", np.array(value.shape, np.int32))
        made, kind = options("Reshape", newShape=list(value.shape))
        graph.operators.append(Operator(OP.RESHAPE, [flat, target], [value], made, kind))
    else:
        value.shape = shape
        _forget_signature(value)


def _forget_signature(value: Tensor) -> None:
    if getattr(value.fields, "shapeSignature", None) is not None:
        value.fields = type(value.fields)()


def _rewrite(graph: Graph, operator: Operator) -> None:
    if operator.code == OP.CONV_2D:
        weight = operator.inputs[1]
        values = float_constant(weight)
        assert weight is not None
        assert values is not None
        operator.inputs[1] = new_constant(graph, weight.name, values.reshape(len(values), -1))
        made, kind = options("FullyConnected", fusedActivationFunction=activation_of(operator))
        operator.code, operator.options, operator.options_type = OP.FULLY_CONNECTED, made, kind
    else:
        for index, operand in enumerate(operator.inputs):
            values = float_constant(operand)
            if operand is not None and values is not None and values.ndim == 4:
                flat = values.reshape(values.shape[0], values.shape[3])
                operator.inputs[index] = new_constant(graph, operand.name, flat)
    for output in operator.outputs:
        _flatten(graph, output)
