"""Passes over a TFLite graph: each rewrites one thing into an equal one, and all run until nothing changes any more.

A pass `requires` something of the graph, runs, and `ensures` something afterwards. It edits in place and answers with
notes: what it did, and what it had to leave although a reader might expect it to be done. A failure names the pass and
those that ran before it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from sparsetorch.errors import SparsetorchError
from sparsetorch.tflite.model import Graph, Model
from sparsetorch.tflite.passes.editing import make_names_unique, remove_unused

_MOST_ROUNDS = 20


@dataclass(frozen=True)
class Note:
    """One thing that a pass did, or why it did not."""

    repair: str
    """Name of the pass."""
    operator: str
    """Name of the value at which it happened, which holds the module path where the exporter knows it."""
    text: str
    applied: bool = True
    """False: something that was left as it was."""


class PassError(SparsetorchError):
    """A pass failed: a fault of this package, not of the input."""


class Pass(ABC):
    """Rewrites one thing, in place, into an equal one."""

    name: str

    @abstractmethod
    def run(self, graph: Graph) -> list[Note]:
        """Edit `graph` wherever the pass applies."""

    def requires(self, graph: Graph) -> bool:
        """Whether there is anything to look at; cheap."""
        return True

    def ensures(self, graph: Graph) -> None:
        """Check what must hold after the pass.

        Raises:
            PassError: where it does not.
        """


def run_passes(model: Model, passes: Sequence[Pass]) -> tuple[Note, ...]:
    """Run passes in order over the main graph, again and again until a whole round changes nothing.

    Args:
        model: edited in place. On a failure it is as it was before.
        passes: in the order in which they are to run.

    Returns:
        Notes of all changes in order, then, of the last round, what was left and why.

    Raises:
        PassError: naming the pass, and the passes that ran before.
    """
    if not model.graphs:
        return ()
    before = model.copy()
    done: list[Note] = []
    ran: list[str] = []
    try:
        for _ in range(_MOST_ROUNDS):
            left: list[Note] = []
            changed = False
            for one in passes:
                if not one.requires(model.graphs[0]):
                    continue
                try:
                    notes = one.run(model.graphs[0])
                    applied = [note for note in notes if note.applied]
                    if applied:
                        remove_unused(model.graphs[0])
                        check_order(model.graphs[0])
                        one.ensures(model.graphs[0])
                except Exception as error:
                    earlier = ", ".join(ran) or "no other"
                    raise PassError(
                        f"repair: the pass {one.name} failed ({type(error).__name__}: {error}) after {earlier}"
                        "; the model is as it was. This is a fault of sparsetorch: please report it with the model"
                    ) from error
                left += [note for note in notes if not note.applied]
                if applied:
                    ran.append(one.name)
                    done += applied
                    changed = True
            if not changed:
                if done:
                    make_names_unique(model.graphs[0])
                return (*done, *left)
        raise PassError(f"repair: no end after {_MOST_ROUNDS} rounds of {', '.join(one.name for one in passes)}")
    except PassError:
        model.graphs, model.signatures = before.graphs, before.signatures
        raise


def check_order(graph: Graph) -> None:
    """Every value is there before it is read, and made once.

    Raises:
        PassError: naming the operator and the value.
    """
    made = set(map(id, graph.inputs))
    for operator in graph.operators:
        for value in operator.inputs:
            if value is not None and value.data is None and id(value) not in made and not _is_state(graph, value):
                raise PassError(f"{operator.name} reads {value.name!r}, which nothing before it makes")
        for value in operator.outputs:
            if id(value) in made:
                raise PassError(f"{operator.name} makes {value.name!r} a second time")
            made.add(id(value))
    for value in graph.outputs:
        if value.data is None and id(value) not in made:
            raise PassError(f"the graph returns {value.name!r}, which nothing makes")


def _is_state(graph: Graph, value: object) -> bool:
    """A variable tensor, or an empty one: there without a producer."""
    return bool(getattr(getattr(value, "fields", None), "isVariable", False)) or 0 in getattr(value, "shape", ())
