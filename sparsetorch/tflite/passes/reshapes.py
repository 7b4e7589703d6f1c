"""Reshapes that come to nothing are removed: what converters leave around squeeze-excite gates and tails.

1. SQUEEZE, EXPAND_DIMS, and TRANSPOSE that moves only dimensions of size 1, are RESHAPE: the order of the elements is the same.
2. RESHAPE to the shape it has goes; RESHAPE of a RESHAPE is one RESHAPE.
3. RESHAPE, elementwise operators (unary, or beside a scalar constant), RESHAPE: the operators work on the first shape, and
   one RESHAPE is left.
4. MEAN over H and W without keep_dims, then RESHAPE to [N,1,1,C], inside a gate: MEAN with keep_dims. (Behind the network's
   body it is the other way round: see `mean_tail`.)

All exact, bit for bit: no number changes, only the shape under which it is found.
"""

import numpy as np

from sparsetorch.tflite.model import Graph, Operator, Tensor, element_count
from sparsetorch.tflite.passes.contract import Outcome, Pass
from sparsetorch.tflite.passes.elementwise import BINARY, UNARY
from sparsetorch.tflite.passes.links import (
    OP,
    Links,
    become,
    bypass,
    changed_options,
    constant,
    is_float,
    new_options,
    remove,
    value,
)
from sparsetorch.tflite.passes.numbers import floats, integers, scalar


def run(graph: Graph, outcome: Outcome) -> None:
    """Normalise, then cancel."""
    for step in (_is_reshape, _to_itself, _pair, _through_elementwise, _kept_mean):
        links = Links(graph)
        for operator in list(graph.operators):
            # What is no producer any more is gone since.
            if operator.outputs and links.producer(operator.outputs[0]) is operator and step(links, operator, outcome):
                links = Links(graph)


def _set_reshape(graph: Graph, operator: Operator, source: Tensor) -> None:
    sizes = list(operator.outputs[0].shape)
    wanted = constant(graph, np.array(sizes, np.int32), f"{operator.outputs[0].name}/shape")
    become(operator, OP.RESHAPE, [source, wanted], new_options("Reshape", newShape=sizes))


def _is_reshape(links: Links, operator: Operator, outcome: Outcome) -> bool:
    if operator.code not in (OP.SQUEEZE, OP.EXPAND_DIMS, OP.TRANSPOSE) or not is_float(operator.inputs[0]):
        return False
    source = operator.inputs[0]
    assert source is not None
    if operator.code == OP.TRANSPOSE:
        order = integers(operator.inputs[1])
        if order is None or not only_moves_units(source.shape, order):
            return False
    outcome.did(operator, f"{operator.name} keeps the order of the elements: RESHAPE")
    _set_reshape(links.graph, operator, source)
    return True


def only_moves_units(shape: tuple[int, ...], order: list[int]) -> bool:
    """Whether a permutation leaves the dimensions that are not 1 in their order."""
    moved = [axis for axis in order if shape[axis] != 1]
    return moved == sorted(moved)


def _is_static(operator: Operator) -> bool:
    return (
        operator.code == OP.RESHAPE
        and operator.inputs[0] is not None
        and operator.inputs[0].data is None
        and (len(operator.inputs) == 1 or integers(operator.inputs[1]) is not None)
        and element_count(operator.inputs[0].shape) == element_count(operator.outputs[0].shape)
    )


def _to_itself(links: Links, operator: Operator, outcome: Outcome) -> bool:
    if not _is_static(operator) or operator.inputs[0] is None or operator.inputs[0].shape != operator.outputs[0].shape:
        return False
    if not bypass(links, operator):
        return False
    outcome.did(operator, "RESHAPE to the shape it has removed")
    return True


def _pair(links: Links, operator: Operator, outcome: Outcome) -> bool:
    before = links.producer(operator.inputs[0]) if _is_static(operator) else None
    if before is None or not _is_static(before) or before.inputs[0] is None:
        return False
    outcome.did(operator, "RESHAPE of a RESHAPE made one")
    _set_reshape(links.graph, operator, before.inputs[0])
    return True


def _through_elementwise(links: Links, operator: Operator, outcome: Outcome) -> bool:
    if not _is_static(operator):
        return False
    between: list[tuple[Operator, int]] = []
    tensor, reader = operator.inputs[0], operator
    while tensor is not None and (producer := links.producer(tensor)) is not None:
        if links.only_reader(tensor) is not reader:
            return False
        operand = _shapeless_operand(producer)
        if operand is None:
            break
        between.insert(0, (producer, operand))
        tensor, reader = producer.inputs[operand], producer
    before = None if tensor is None else links.producer(tensor)
    if not between or before is None or not _is_static(before) or before.inputs[0] is None:
        return False
    if links.only_reader(before.outputs[0]) is None:
        return False
    source = before.inputs[0]
    for member, operand in between:
        moved = value(links.graph, source, source.shape, member.outputs[0].name)
        member.inputs = [
            source if index == operand else _lowered(links.graph, other) for index, other in enumerate(member.inputs)
        ]
        member.outputs = [moved]
        source = moved
    remove(links.graph, before)
    outcome.did(operator, f"RESHAPE moved behind {', '.join(member.name for member, _ in between)} and made one")
    _set_reshape(links.graph, operator, source)
    return True


def _shapeless_operand(operator: Operator) -> int | None:
    """Which operand an operator works on element by element: the only one, or the one beside a scalar constant."""
    if operator.code in UNARY and is_float(operator.inputs[0], operator.outputs[0]):
        return 0
    if operator.code in BINARY and len(operator.inputs) == 2:
        for index in (0, 1):
            source = operator.inputs[index]
            same = source is not None and source.data is None and source.shape == operator.outputs[0].shape
            if same and is_float(source) and scalar(operator.inputs[1 - index]) is not None:
                return index
    return None


def _lowered(graph: Graph, tensor: Tensor | None) -> Tensor | None:
    """A scalar constant without dimensions, so that it fits beside any shape."""
    values = floats(tensor)
    if tensor is None or values is None or not values.shape:
        return tensor
    return constant(graph, values.reshape(()), tensor.name)


def _kept_mean(links: Links, operator: Operator, outcome: Outcome) -> bool:
    before = links.producer(operator.inputs[0]) if _is_static(operator) else None
    if before is None or before.code != OP.MEAN or links.only_reader(before.outputs[0]) is not operator:
        return False
    source, axes = before.inputs[0], integers(before.inputs[1])
    if source is None or axes is None or len(source.shape) != 4 or sorted(axis % 4 for axis in axes) != [1, 2]:
        return False
    shape = (source.shape[0], 1, 1, source.shape[3])
    if before.options.keepDims or operator.outputs[0].shape != shape or not meets_a_map(links, operator.outputs[0]):
        return False
    before.options = changed_options(before, keepDims=True)
    before.outputs[0].shape = shape
    before.outputs[0].fields = type(before.outputs[0].fields)()
    outcome.did(operator, "MEAN keeps H and W instead")
    return bypass(links, operator)


def meets_a_map(links: Links, tensor: Tensor) -> bool:
    """Whether a value, or anything computed from it, is combined into one with more than one pixel."""
    seen = {tensor}
    waiting = [tensor]
    while waiting:
        for reader in links.readers(waiting.pop()):
            for result in reader.outputs:
                if len(result.shape) == 4 and result.shape[1:3] != (1, 1):
                    return True
                if result not in seen:
                    seen.add(result)
                    waiting.append(result)
    return False


PASS = Pass("reshapes", run)
