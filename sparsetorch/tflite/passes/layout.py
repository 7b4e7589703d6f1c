"""Layout islands: TRANSPOSE and RESHAPE that undo each other, and what lies between them.

- TRANSPOSE after TRANSPOSE is one with the permutations joined; one that moves nothing goes. RESHAPE after RESHAPE is the last
  alone; one that changes nothing goes. A TRANSPOSE that moves only axes of size 1 is a RESHAPE.
- A TRANSPOSE moves down through what works entry by entry, through a sum or product of two values with the same TRANSPOSE or
  of one with a constant, through CONCATENATION, PAD and MEAN with their axes renamed, until it meets its inverse. Converters put
  such islands around operators that they know in channels-first layout only.

Exact: entries are moved, or computed from the same entries at another place.
"""

import numpy as np

from sparsetorch.tflite.model import Graph, Operator, Tensor
from sparsetorch.tflite.passes.editing import (
    OP,
    Array,
    Links,
    bypass,
    change_options,
    constant,
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
        OP.ABS,
        OP.NEG,
    }
    | {OP.SQUARE, OP.SQRT, OP.RSQRT, OP.EXP, OP.FLOOR, OP.CEIL, OP.ROUND, OP.GELU}
)
_BINARY = frozenset({OP.ADD, OP.SUB, OP.MUL, OP.DIV, OP.MINIMUM, OP.MAXIMUM})


_MOVABLE = _UNARY | _BINARY | {OP.CONCATENATION, OP.PAD, OP.MEAN, OP.TRANSPOSE, OP.RESHAPE}
_TO_CHANNELS_FIRST, _TO_CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


class Layout(Pass):
    """TRANSPOSE and RESHAPE pairs go, with the TRANSPOSE moved down to its inverse."""

    name = "layout"

    def requires(self, graph: Graph) -> bool:
        """Any TRANSPOSE or RESHAPE."""
        return any(operator.code in (OP.TRANSPOSE, OP.RESHAPE) for operator in graph.operators)

    def run(self, graph: Graph) -> list[Note]:
        """Move, join and remove until nothing moves."""
        notes: list[Note] = []
        moved = True
        while moved:
            moved = False
            for operator in list(graph.operators):
                if not any(operator is one for one in graph.operators):
                    continue
                text = _join(graph, operator) or _move_down(graph, operator)
                if text is not None:
                    notes.append(Note(self.name, operator.outputs[0].name, text))
                    moved = True
        return notes


def _join(graph: Graph, operator: Operator) -> str | None:
    """Join with the same operator before, or go; None where there is nothing to do."""
    source = operator.inputs[0] if operator.inputs else None
    if source is None or operator.code not in (OP.TRANSPOSE, OP.RESHAPE):
        return None
    result, links = operator.outputs[0], Links(graph)
    before = links.producer(source)
    permutation = _permutation(operator)
    if operator.code == OP.RESHAPE:
        if source.shape == result.shape and bypass(graph, operator, source):
            return "a RESHAPE that changed nothing is gone"
        if before is not None and before.code == OP.RESHAPE and before.inputs[0] is not None:
            operator.inputs = [before.inputs[0], *operator.inputs[1:]]
            return "RESHAPE after RESHAPE became one"
        return None
    if permutation is None:
        return None
    if list(permutation) == list(range(len(permutation))) and bypass(graph, operator, source):
        return "a TRANSPOSE that moved nothing is gone"
    inner = None if before is None else _permutation(before)
    if before is not None and inner is not None and before.inputs[0] is not None:
        joined = new_constant(graph, f"{result.name}/permutation", inner[permutation].astype(np.int32))
        operator.inputs = [before.inputs[0], joined]
        return "TRANSPOSE after TRANSPOSE became one"
    real = [axis for axis in permutation if source.shape[axis] != 1]
    if real == sorted(real) and list(permutation) != list(range(len(permutation))):
        target = new_constant(graph, f"{result.name}/shape", np.array(result.shape, np.int32))
        operator.code, operator.inputs = OP.RESHAPE, [source, target]
        operator.options, operator.options_type = options("Reshape", newShape=list(result.shape))
        return "a TRANSPOSE of axes of size 1 became RESHAPE"
    return None


def _moving(operator: Operator) -> Array | None:
    """The permutation of a TRANSPOSE, or of a RESHAPE that does what one between the two image layouts does."""
    source = operator.inputs[0] if operator.inputs else None
    if operator.code != OP.RESHAPE or source is None or len(source.shape) != 4:
        return _permutation(operator)
    if sum(size != 1 for size in source.shape) > 1:
        return None
    result = operator.outputs[0].shape
    for permutation in (_TO_CHANNELS_FIRST, _TO_CHANNELS_LAST):
        if tuple(source.shape[axis] for axis in permutation) == result != source.shape:
            return np.array(permutation, np.int32)
    return None


def _permutation(operator: Operator) -> Array | None:
    if operator.code != OP.TRANSPOSE or len(operator.inputs) != 2:
        return None
    found = constant(operator.inputs[1])
    return None if found is None else found.reshape(-1)


def _move_down(graph: Graph, operator: Operator) -> str | None:
    """Put the TRANSPOSE that feeds `operator` behind it; None where that cannot be."""
    if len(operator.outputs) != 1 or operator.code in (OP.TRANSPOSE, OP.RESHAPE):
        return None
    links = Links(graph)
    feeding = [(index, links.producer(value)) for index, value in enumerate(operator.inputs) if value is not None]
    moved = {index: maker for index, maker in feeding if maker is not None and _moving(maker) is not None}
    if not moved:
        return None
    permutations = [_moving(maker) for maker in moved.values()]
    permutation = permutations[0]
    if permutation is None or any(other is None or list(other) != list(permutation) for other in permutations[1:]):
        return None
    # Where others read the TRANSPOSE too, it stays until they have been moved as well; so all must be of a kind that can be.
    for maker in moved.values():
        if links.is_output(maker.outputs[0]) or not all(r.code in _MOVABLE for r in links.readers(maker.outputs[0])):
            return None
    inputs = _inputs_before(graph, operator, moved, permutation)
    if inputs is None:
        return None
    result = operator.outputs[0]
    operator.inputs = inputs
    inverse = np.argsort(permutation)
    if operator.code == OP.MEAN and not operator.options.keepDims:
        return f"a TRANSPOSE before {operator.name} is gone"
    early = new_value(graph, f"{result.name}/untransposed", [result.shape[axis] for axis in inverse])
    early.type = result.type
    operator.outputs = [early]
    axes = new_constant(graph, f"{result.name}/permutation", permutation.astype(np.int32))
    transpose = Operator(OP.TRANSPOSE, [early, axes], [result], *options("Transpose"))
    graph.operators.insert(next(i for i, one in enumerate(graph.operators) if one is operator) + 1, transpose)
    return f"a TRANSPOSE moved behind {operator.name}"


def _inputs_before(
    graph: Graph, operator: Operator, moved: dict[int, Operator], permutation: Array
) -> list[Tensor | None] | None:
    """The operands of `operator` in the layout before the TRANSPOSE, its options changed to it; None where it has no equal."""
    inputs = list(operator.inputs)
    for index, maker in moved.items():
        inputs[index] = maker.inputs[0]
    if operator.code in _UNARY:
        return inputs
    if operator.code in _BINARY:
        return _binary_inputs(graph, inputs, moved, permutation)
    if operator.code == OP.CONCATENATION and len(moved) == len(inputs):
        axis = operator.options.axis % len(permutation)
        change_options(operator, axis=int(permutation[axis]))
        return inputs
    if operator.code == OP.PAD and list(moved) == [0]:
        amounts = constant(inputs[1])
        if amounts is None or inputs[1] is None:
            return None
        inputs[1] = new_constant(graph, inputs[1].name, amounts[np.argsort(permutation)].astype(np.int32))
        return inputs
    if operator.code == OP.MEAN and list(moved) == [0]:
        axes = constant(inputs[1])
        if axes is None or inputs[1] is None:
            return None
        reduced = [int(axis) % len(permutation) for axis in axes.reshape(-1)]
        kept = [int(permutation[axis]) for axis in range(len(permutation)) if axis not in reduced]
        if not operator.options.keepDims and kept != sorted(kept):
            return None
        renamed = sorted(int(permutation[axis]) for axis in reduced)
        inputs[1] = new_constant(graph, inputs[1].name, np.array(renamed, np.int32))
        return inputs
    return None


def _binary_inputs(
    graph: Graph, inputs: list[Tensor | None], moved: dict[int, Operator], permutation: Array
) -> list[Tensor | None] | None:
    if len(moved) == 2:
        return inputs
    index = 1 - next(iter(moved))
    other = inputs[index]
    values = constant(other)
    if other is None or values is None:
        return None
    if values.size == 1:
        return inputs
    wide = values.reshape((1,) * (len(permutation) - values.ndim) + values.shape)
    if wide.ndim != len(permutation):
        return None
    inputs[index] = new_constant(graph, other.name, np.ascontiguousarray(wide.transpose(np.argsort(permutation))))
    return inputs
