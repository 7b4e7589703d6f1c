"""Operators whose results nobody uses are dropped, and tensors that nothing mentions any more.

Exact: nothing that is read changes. Operators with effects (variables, control flow, custom operators) stay.
"""

from sparsetorch.tflite.model import Graph, Tensor
from sparsetorch.tflite.passes.contract import Outcome, Pass
from sparsetorch.tflite.passes.links import OP

_WITH_EFFECTS = frozenset(
    {
        OP.CUSTOM, OP.DELEGATE, OP.CALL, OP.CALL_ONCE, OP.IF, OP.WHILE, OP.VAR_HANDLE, OP.ASSIGN_VARIABLE, OP.READ_VARIABLE,
        OP.HASHTABLE, OP.HASHTABLE_IMPORT, OP.HASHTABLE_FIND, OP.HASHTABLE_SIZE, OP.UNIDIRECTIONAL_SEQUENCE_LSTM,
        OP.UNIDIRECTIONAL_SEQUENCE_RNN, OP.LSTM, OP.RNN, OP.SVDF, OP.BIDIRECTIONAL_SEQUENCE_LSTM,
        OP.BIDIRECTIONAL_SEQUENCE_RNN,
    }
)  # fmt: skip


def run(graph: Graph, outcome: Outcome) -> None:
    """Drop, from the end to the front, what is not needed. Quiet: dropping is what other repairs leave to do."""
    needed: set[Tensor] = set(graph.outputs)
    kept = []
    for operator in reversed(graph.operators):
        if operator.code in _WITH_EFFECTS or not operator.outputs or not needed.isdisjoint(operator.outputs):
            kept.append(operator)
            needed.update(tensor for tensor in operator.inputs if tensor is not None)
    if len(kept) < len(graph.operators):
        outcome.modified = True
        graph.operators = kept[::-1]
    used = needed.union(graph.inputs)
    for operator in graph.operators:
        used.update(operator.outputs, operator.intermediates)
    graph.tensors = [tensor for tensor in graph.tensors if tensor in used or tensor.fields.isVariable]


PASS = Pass("dead_code", run)
