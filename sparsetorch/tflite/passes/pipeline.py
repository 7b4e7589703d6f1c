"""All repairs, in order, until none of them finds anything to do.

The order matters only for speed and for how notes read: the loop goes on until a whole round changes nothing.
"""

from collections.abc import Sequence

from sparsetorch.errors import RepairError
from sparsetorch.tflite.model import Graph, Model, Tensor
from sparsetorch.tflite.passes import (
    average_pool,
    clamps,
    dead_code,
    depthwise,
    fold_constants,
    fuse_activations,
    gate_layers,
    hard_swish,
    layout,
    mean_tail,
    padding,
    pixel_shuffle,
    reshapes,
)
from sparsetorch.tflite.passes.contract import Note, Outcome, Pass

PASSES: tuple[Pass, ...] = (
    reshapes.PASS,
    layout.PASS,
    gate_layers.PASS,
    hard_swish.PASS,
    clamps.PASS,
    fold_constants.PASS,
    fuse_activations.PASS,
    depthwise.PASS,
    padding.PASS,
    average_pool.PASS,
    pixel_shuffle.PASS,
    mean_tail.PASS,
    dead_code.PASS,
)
MOST_ROUNDS = 30


def repair(model: Model, passes: Sequence[Pass] = PASSES) -> tuple[Note, ...]:
    """Rewrite a model, in place, into an equal one that fits XNNPACK's sparse path better.

    Args:
        model: dense; what is encoded already is left alone. Its inputs, outputs and signatures stay the same tensors.
        passes: which repairs, in which order.

    Returns:
        what was done, in order, then what could not be done and why.

    Raises:
        RepairError: a repair failed, or left a graph that contradicts itself; names it and those that ran before.
    """
    done: list[Note] = []
    undone: list[Note] = []
    for graph in model.graphs:
        why = _out_of_reach(model, graph)
        if why is not None:
            undone.append(Note("repair", "graph", graph.name or "", False, why))
            continue
        applied, refused = _settle(graph, passes)
        done += applied
        undone += refused
    return (*done, *dict.fromkeys(undone))


def _settle(graph: Graph, passes: Sequence[Pass]) -> tuple[list[Note], list[Note]]:
    done: list[Note] = []
    ran: list[str] = []
    for _ in range(MOST_ROUNDS):
        outcomes = [_apply(single, graph, ran) for single in passes]
        done += [note for outcome in outcomes for note in outcome.notes if note.applied]
        if not any(outcome.modified for outcome in outcomes):
            return done, [note for outcome in outcomes for note in outcome.notes if not note.applied]
    raise RepairError(f"the repairs do not come to an end: {', '.join(ran[-len(passes) :])} each undo the other's work")


def _apply(single: Pass, graph: Graph, ran: list[str]) -> Outcome:
    before = f"after {', '.join(dict.fromkeys(ran))}" if ran else "as the first"
    wrong = single.requires(graph)
    if wrong is not None:
        raise RepairError(f"repair {single.name!r}, {before}, cannot work on this graph: {wrong}")
    outputs = [(tensor, tensor.shape) for tensor in graph.outputs]
    outcome = Outcome(single.name)
    try:
        single.run(graph, outcome)
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise RepairError(
            f"repair {single.name!r}, {before}, failed: {type(error).__name__}: {error}. Export without repairs, and report it."
        ) from error
    wrong = single.ensures(graph)
    if wrong is None and [(tensor, tensor.shape) for tensor in graph.outputs] != outputs:
        wrong = "it changed the graph's outputs"
    if wrong is not None:
        raise RepairError(f"repair {single.name!r}, {before}, left a broken graph: {wrong}. Report it.")
    if outcome.modified:
        ran.append(single.name)
    return outcome


def _out_of_reach(model: Model, graph: Graph) -> str | None:
    """Why no repair is tried on a graph."""
    known: set[Tensor] = {*graph.inputs, *graph.outputs}
    for signature in model.signatures:
        if signature.graph is graph and any(
            tensor not in known for _, tensor in (*signature.inputs, *signature.outputs)
        ):
            return "a signature names a value inside the graph"
    for tensor in graph.tensors:
        signature = tensor.fields.shapeSignature
        if signature is not None and any(int(size) < 0 for size in signature):
            return f"{tensor.name} has a shape that is only known at run time"
    return None
