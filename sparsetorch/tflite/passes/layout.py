"""Islands in another layout are brought back: TRANSPOSE, elementwise operators, TRANSPOSE.

Converters that go operator by operator leave channels-first islands in a channels-last graph (onnx2tf 2.x's flatbuffer_direct
does, around squeeze-excite blocks). XNNPACK lets no TRANSPOSE into a sparse cluster.

1. TRANSPOSE of a TRANSPOSE is one with the composed order, or nothing.
2. An island is a connected set of operators that compute the same in any layout: unary and binary ones, and, with their axes
   renumbered, PAD, CONCATENATION, MEAN and its like. It is turned over as a whole: transposes before it go, those behind it go,
   and where it touches something else a new one is put. Done only if fewer are left than there were, or as many and all of them
   behind the island, where constants can be folded ahead of them: so the repair ends.
   With t = transpose(x, p), axis i of t is axis p[i] of x; constants are transposed by the inverse of p.

Exact, bit for bit, elementwise: each number is computed from the same numbers. MEAN may add them in another order.
"""

from dataclasses import dataclass, field

import numpy as np

from sparsetorch.tflite.model import Graph, Operator, Tensor
from sparsetorch.tflite.passes.contract import Outcome, Pass
from sparsetorch.tflite.passes.elementwise import BINARY, UNARY
from sparsetorch.tflite.passes.links import (
    OP,
    Links,
    become,
    bypass,
    changed_options,
    constant,
    insert_after,
    insert_before,
    is_float,
    new_options,
    remove,
    reshape,
    value,
)
from sparsetorch.tflite.passes.numbers import floats, integers, non_unit, set_constant

_REDUCTIONS = frozenset({OP.MEAN, OP.SUM, OP.REDUCE_MAX, OP.REDUCE_MIN})
Order = tuple[int, ...]


def run(graph: Graph, outcome: Outcome) -> None:
    """Compose transposes, then turn islands over."""
    for step in (_compose, _turn):
        links = Links(graph)
        for operator in list(graph.operators):
            if operator.outputs and links.producer(operator.outputs[0]) is operator and step(links, operator, outcome):
                links = Links(graph)


def order_of(operator: Operator | None) -> Order | None:
    """The permutation of a TRANSPOSE of a float value; None for anything else."""
    if operator is None or operator.code != OP.TRANSPOSE or not is_float(operator.inputs[0]):
        return None
    numbers = integers(operator.inputs[1])
    return None if numbers is None else tuple(numbers)


def inverse(order: Order) -> Order:
    """The permutation that undoes `order`."""
    return tuple(int(axis) for axis in np.argsort(order))


def _compose(links: Links, operator: Operator, outcome: Outcome) -> bool:
    second, before = order_of(operator), links.producer(operator.inputs[0])
    if second is None:
        return False
    if second == tuple(range(len(second))):
        if bypass(links, operator):
            outcome.did(operator, "TRANSPOSE that changes nothing removed")
            return True
        return False
    first = order_of(before)
    if first is None or before is None:
        return False
    graph, source, result = links.graph, before.inputs[0], operator.outputs[0]
    composed = tuple(first[axis] for axis in second)
    assert source is not None
    if composed == tuple(range(len(composed))) and not links.is_output(result):
        outcome.did(operator, "a pair of TRANSPOSE removed")
        remove(graph, operator)
        graph.replace_input(result, source)
        return True
    outcome.did(operator, "TRANSPOSE of a TRANSPOSE made one")
    order = constant(graph, np.array(composed, np.int32), f"{result.name}/order")
    become(operator, OP.TRANSPOSE, [source, order], new_options("Transpose"))
    return True


@dataclass
class Island:
    """What is turned over together."""

    order: Order
    operators: list[Operator] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    """Read or written inside, with extent."""


def _turn(links: Links, operator: Operator, outcome: Outcome) -> bool:
    order = order_of(operator)
    if order is None or len(order) != len(operator.outputs[0].shape):
        return False
    island = _grow(links, operator, order)
    before, after, ahead = _count(links, island)
    if not island.operators or after + (ahead > 0) > before or _is_bridged(links, island):
        return False
    names = ", ".join(dict.fromkeys(member.name for member in island.operators))
    outcome.did(operator, f"{names} turned over: {before} TRANSPOSE become {after}")
    _Turning(links, island).run()
    return True


def _grow(links: Links, start: Operator, order: Order) -> Island:
    island = Island(order, values=[start.outputs[0]])
    for grown in island.values:  # grows while it is walked
        producer = links.producer(grown)
        candidates = links.readers(grown) + ([producer] if producer is not None else [])
        for operator in candidates:
            if operator in island.operators or not _turns(operator, island.order):
                continue
            island.operators.append(operator)
            island.values += [tensor for tensor in _large(operator) if tensor not in island.values]
    return island


def _turns(operator: Operator, order: Order) -> bool:
    """Whether an operator computes the same in another layout."""
    rank, code = len(order), operator.code
    if not operator.outputs or not is_float(*operator.outputs, operator.inputs[0] if operator.inputs else None):
        return False
    source, result = operator.inputs[0], operator.outputs[0]
    assert source is not None
    if code in UNARY:
        return len(source.shape) == rank
    if code in BINARY:
        return len(result.shape) == rank and all(_fits(tensor, rank) for tensor in operator.inputs)
    if code == OP.CONCATENATION:
        return all(
            tensor is not None and tensor.data is None and len(tensor.shape) == rank for tensor in operator.inputs
        )
    if len(source.shape) != rank or source.data is not None:
        return False
    numbers = integers(operator.inputs[1]) if len(operator.inputs) > 1 else None
    if code == OP.PAD:
        return numbers is not None
    if code in _REDUCTIONS and numbers is not None:
        if operator.options.keepDims:
            return True
        left = [order[axis] for axis in range(rank) if axis not in {number % rank for number in numbers}]
        return left == sorted(left)
    return False


def _fits(tensor: Tensor | None, rank: int) -> bool:
    if tensor is None:
        return False
    if tensor.data is not None:
        return floats(tensor) is not None and len(tensor.shape) <= rank
    return is_float(tensor) and len(tensor.shape) == rank


def _is_small(tensor: Tensor) -> bool:
    """Whether a RESHAPE does what a TRANSPOSE would."""
    return non_unit(tensor.shape) <= 1


def _large(operator: Operator) -> list[Tensor]:
    """The computed values of a member whose layout has to change with it."""
    dropped = operator.code in _REDUCTIONS and not operator.options.keepDims
    written = [] if dropped else operator.outputs
    first = operator.inputs if operator.code in BINARY | {OP.CONCATENATION} else operator.inputs[:1]
    return [
        tensor for tensor in (*first, *written) if tensor is not None and tensor.data is None and not _is_small(tensor)
    ]


def _is_bridged(links: Links, island: Island) -> bool:
    """Whether a transpose leads from the island into itself: it would count as going and as staying."""
    producers = (links.producer(tensor) for tensor in island.values)
    return any(
        order_of(producer) is not None and producer.inputs[0] in island.values for producer in producers if producer
    )


def _count(links: Links, island: Island) -> tuple[int, int, int]:
    """How many transposes touch the island now, how many would, and how many of these would be new ones ahead of it."""
    back = inverse(island.order)
    before = after = ahead = 0
    for tensor in island.values:
        producer = links.producer(tensor)
        outside = [reader for reader in links.readers(tensor) if reader not in island.operators]
        undone = [reader for reader in outside if order_of(reader) == back]
        needed = len(undone) < len(outside) or links.is_output(tensor)
        before += len(undone)
        if producer in island.operators:
            after += needed + max(0, sum(links.is_output(reader.outputs[0]) for reader in undone))
        elif order_of(producer) == island.order:
            before += 1
            after += needed
        else:
            after += 1 + len(undone)
            ahead += 1
    return before, after, ahead


class _Turning:
    """The edits of one island."""

    def __init__(self, links: Links, island: Island) -> None:
        self.links, self.graph, self.island = links, links.graph, island
        self.back = inverse(island.order)
        self.turned: dict[Tensor, Tensor] = {}

    def shape(self, tensor: Tensor) -> list[int]:
        return [tensor.shape[axis] for axis in self.back]

    def run(self) -> None:
        members = [operator for operator in self.graph.operators if operator in self.island.operators]
        for operator in members:
            self.renumber(operator)
            operator.inputs = [self.read(operator, index, tensor) for index, tensor in enumerate(operator.inputs)]
            if operator.code in _REDUCTIONS and not operator.options.keepDims:
                continue
            operator.outputs = [self.write(operator, operator.outputs[0])]

    def read(self, operator: Operator, index: int, tensor: Tensor | None) -> Tensor | None:
        """What a member reads instead of an operand."""
        if tensor is None or (index > 0 and operator.code not in BINARY | {OP.CONCATENATION}):
            return tensor
        if tensor in self.turned:
            return self.turned[tensor]
        if tensor.data is not None:
            return self.constant(tensor)
        producer = self.links.producer(tensor)
        if order_of(producer) == self.island.order and producer is not None and producer.inputs[0] is not None:
            self.turned[tensor] = producer.inputs[0]
            return producer.inputs[0]
        if _is_small(tensor):
            made = reshape(self.graph, tensor, self.shape(tensor), f"{tensor.name}/turned")
        else:
            made = self.transpose(tensor, self.back, self.shape(tensor))
        insert_before(self.graph, operator, made)
        self.turned[tensor] = made.outputs[0]
        return made.outputs[0]

    def constant(self, tensor: Tensor) -> Tensor:
        values = floats(tensor)
        assert values is not None
        if values.size == 1:
            return tensor
        rank = len(self.back)
        lifted = values.reshape(*[1] * (rank - values.ndim), *values.shape)
        return constant(self.graph, lifted.transpose(self.back), tensor.name)

    def transpose(self, source: Tensor, order: Order, shape: list[int]) -> Operator:
        numbers = constant(self.graph, np.array(order, np.int32), f"{source.name}/order")
        result = value(self.graph, source, shape, f"{source.name}/turned")
        return Operator(OP.TRANSPOSE, [source, numbers], [result], *new_options("Transpose"))

    def write(self, operator: Operator, tensor: Tensor) -> Tensor:
        """What a member writes instead of its result."""
        made = value(self.graph, tensor, self.shape(tensor), f"{tensor.name}/turned")
        self.turned[tensor] = made
        outside = [reader for reader in self.links.readers(tensor) if reader not in self.island.operators]
        for reader in outside:
            result = reader.outputs[0]
            if order_of(reader) == self.back and not self.links.is_output(result):
                remove(self.graph, reader)
                self.graph.replace_input(result, made)
        if any(order_of(reader) != self.back or self.links.is_output(reader.outputs[0]) for reader in outside) or (
            self.links.is_output(tensor)
        ):
            again = self.transpose(made, self.island.order, list(tensor.shape))
            if _is_small(tensor):
                again = reshape(self.graph, made, tensor.shape, tensor.name)
            self.graph.tensors = [listed for listed in self.graph.tensors if listed is not again.outputs[0]]
            again.outputs = [tensor]
            insert_after(self.graph, operator, again)
        return made

    def renumber(self, operator: Operator) -> None:
        """Axes and paddings of a member in the new layout."""
        order, rank = self.island.order, len(self.island.order)
        if operator.code == OP.CONCATENATION:
            operator.options = changed_options(operator, axis=order[operator.options.axis % rank])
        numbers = integers(operator.inputs[1]) if operator.code in _REDUCTIONS | {OP.PAD} else None
        if numbers is None:
            return
        if operator.code == OP.PAD:
            old = np.array(numbers, np.int32).reshape(rank, 2)
            set_constant(self.graph, operator, 1, old[list(self.back)], f"{operator.outputs[0].name}/paddings")
        else:
            axes = np.array(sorted(order[number % rank] for number in numbers), np.int32)
            set_constant(self.graph, operator, 1, axes, f"{operator.outputs[0].name}/axes")


PASS = Pass("layout", run)
