"""What a repair pass is: a name, what it asks for, what it does to a graph, and what holds afterwards.

The shape is that of onnx/ir-py's passes (requires -> call -> ensures). A pass edits the graph in place and says whether it
did; everything a user may want to know goes into notes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from sparsetorch.tflite.model import Graph, Operator, Tensor

Check = Callable[[Graph], str | None]
"""None, or what is wrong with a graph, in words."""


@dataclass(frozen=True)
class Note:
    """One repair, or one place where a repair would be expected and why it could not be made."""

    repair: str
    """The pass's name."""
    operator: str
    """Such as `RELU_0_TO_1`."""
    tensor: str
    """The name of the operator's weight, or else of its result: how the place is found again."""
    applied: bool
    what: str
    """What was done, or why it was not."""


@dataclass
class Outcome:
    """What a pass did, as it goes along."""

    repair: str
    modified: bool = False
    notes: list[Note] = field(default_factory=list)

    def did(self, operator: Operator, what: str, was: tuple[str, str] | None = None) -> None:
        """Record an edit. `was`: the operator's name and place before it, where the edit has changed them already."""
        self.modified = True
        name, where = was or (operator.name, place(operator))
        self.notes.append(Note(self.repair, name, where, True, what))

    def could_not(self, operator: Operator, why: str) -> None:
        """Record why a place was left as it is."""
        self.notes.append(Note(self.repair, operator.name, place(operator), False, why))


def place(operator: Operator) -> str:
    """The name by which an operator is found: its constant weight's, or else its result's."""
    weight = operator.inputs[1] if len(operator.inputs) >= 3 else None
    if weight is not None and weight.data is not None and weight.name:
        return weight.name
    return operator.outputs[0].name if operator.outputs else ""


def is_sound(graph: Graph) -> str | None:
    """Every value is written once, before it is read; what the graph returns exists."""
    written: set[Tensor] = set(graph.inputs)
    for operator in graph.operators:
        for tensor in operator.inputs:
            if tensor is not None and tensor not in written and not _has_value(tensor):
                return f"{operator.name} reads {tensor.name!r} before anything has written it"
        for tensor in operator.outputs:
            if tensor in written or tensor.data is not None:
                return f"{operator.name} writes {tensor.name!r}, which has a value already"
            written.add(tensor)
    for tensor in graph.outputs:
        if tensor not in written and not _has_value(tensor):
            return f"the graph returns {tensor.name!r}, which nothing writes"
    return None


def _has_value(tensor: Tensor) -> bool:
    """Whether a tensor needs no operator to write it: a constant, also one without elements, or a variable."""
    return tensor.data is not None or 0 in tensor.shape or bool(tensor.fields.isVariable)


@dataclass(frozen=True)
class Pass:
    """One repair."""

    name: str
    run: Callable[[Graph, Outcome], None]
    """Edits a graph in place and records what it did."""
    requires: Check = is_sound
    """What must hold before."""
    ensures: Check = is_sound
    """What must hold afterwards, beside soundness."""
