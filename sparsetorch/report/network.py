"""A network as rows to draw: every operator in execution order, what it reads, and its part in the sparse path.

Operators that only unpack constants (DENSIFY, DEQUANTIZE) are no rows. The path is that of one revision, the newest.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.model import Graph, Model, Operator, Tensor
from sparsetorch.xnnpack.analysis import Analysis, analyse
from sparsetorch.xnnpack.layers import is_pointwise, module_of, weight_of
from sparsetorch.xnnpack.reasons import Reason
from sparsetorch.xnnpack.revisions import CURRENT
from sparsetorch.xnnpack.weights import count_zeros

_OP = schema.BuiltinOperator


class Role(StrEnum):
    """What an operator is to the sparse path."""

    SPARSE = "sparse"
    """A 1x1 convolution that runs as a sparse matrix multiplication."""
    ENTRY = "entry"
    """Reads channels last, writes channels first."""
    EXIT = "exit"
    """Reads channels first, writes channels last."""
    INSIDE = "inside"
    """Runs channels first, between the two."""
    CANDIDATE = "candidate"
    """Could run channels first, and does not: the hint is missing, or zeros."""
    OUTSIDE = "outside"
    """Channels last, as in any dense file."""
    BREAKER = "breaker"
    """A reason why the path is off lies here."""
    UNSAFE = "unsafe"
    """Computes wrong numbers on the sparse path."""
    PORT = "port"
    """The network's input or output; no operator."""


@dataclass(frozen=True)
class Row:
    """One operator, or an input or output of the network."""

    operator: str
    name: str
    """PyTorch's module path, or the tensor that it writes."""
    shape: tuple[int, ...]
    """Of the first output."""
    role: Role
    producers: tuple[int, ...] = ()
    """Rows whose output it reads, each once."""
    channels_first: bool = False
    """Whether what it writes is channels first."""
    sparsity: float | None = None
    """Share of zeros of its weight, 0 to 1; None without a weight."""
    reasons: tuple[Reason, ...] = ()


def rows(model: Model, reasons: Sequence[Reason]) -> list[Row]:
    """The rows of a model's first graph.

    Args:
        model: not changed.
        reasons: those of its verdict; each is put where its operator is.
    """
    graph = model.graphs[0]
    analysis = analyse(graph, CURRENT[0])
    roles = _Roles(analysis)
    found: list[Row] = []
    written: dict[Tensor, int] = {}
    for tensor in graph.inputs:
        written[tensor] = len(found)
        found.append(Row("input", tensor.name, tensor.shape, Role.PORT))
    for operator in graph.operators:
        if not operator.outputs or operator.outputs[0] in analysis.plan.sources:
            continue
        weight = weight_of(operator, analysis.plan.sources)
        label = (weight.name if weight is not None else None) or operator.outputs[0].name
        here = tuple(reason for reason in reasons if reason.operator == operator.name and reason.tensor == label)
        params, zeros = count_zeros(weight) if weight is not None else (0, 0)
        role = roles.of(operator, here)
        for output in operator.outputs:
            written[output] = len(found)
        found.append(
            Row(
                _described(operator),
                module_of(label) or label,
                operator.outputs[0].shape,
                role,
                _producers(operator.inputs, written, len(found)),
                role is Role.INSIDE or any(output in roles.channels_first for output in operator.outputs),
                zeros / params if params else None,
                here,
            )
        )
    _add_outputs(graph, written, found)
    return found


def _add_outputs(graph: Graph, written: dict[Tensor, int], found: list[Row]) -> None:
    for tensor in graph.outputs:
        found.append(Row("output", tensor.name, tensor.shape, Role.PORT, _producers([tensor], written, len(found))))


def _producers(tensors: Iterable[Tensor | None], written: dict[Tensor, int], own: int) -> tuple[int, ...]:
    found = (written[tensor] for tensor in tensors if tensor is not None and tensor in written)
    return tuple(dict.fromkeys(row for row in found if row != own))


def _described(operator: Operator) -> str:
    """`CONV_2D 1x1`, `DEPTHWISE_CONV_2D 3x3 /2`, `ADD`."""
    weight = operator.inputs[1] if len(operator.inputs) > 1 else None
    if operator.code not in (_OP.CONV_2D, _OP.DEPTHWISE_CONV_2D) or weight is None or len(weight.shape) != 4:
        return operator.name
    stride = max(getattr(operator.options, "strideH", 1), getattr(operator.options, "strideW", 1))
    return f"{operator.name} {weight.shape[1]}x{weight.shape[2]}" + (f" /{stride}" if stride > 1 else "")


class _Roles:
    def __init__(self, analysis: Analysis) -> None:
        self.sparse = {node.operator for node in analysis.sparse_nodes}
        self.unsafe = {operator for operator, _ in analysis.unsafe}
        self.channels_first = {value.tensor for part in analysis.parts for value in part.layouts.nchw}
        self.candidates = {
            node.operator
            for part in analysis.parts
            for cluster in part.layouts.clusters
            for node in cluster.nodes
            if not cluster.marked and cluster.pointwise and not part.layouts.flags[node].failures
        }

    def of(self, operator: Operator, reasons: Sequence[Reason]) -> Role:
        if operator in self.unsafe:
            return Role.UNSAFE
        if reasons:
            return Role.BREAKER
        if operator in self.sparse:
            return Role.SPARSE
        reads = any(tensor in self.channels_first for tensor in operator.inputs)
        writes = any(tensor in self.channels_first for tensor in operator.outputs)
        if reads and writes:
            return Role.INSIDE
        if reads:
            # A pad, or a clamp, that melts into its neighbour leaves a value that XNNPACK never sees.
            return Role.INSIDE if operator.code == _OP.PAD else Role.EXIT
        if writes:
            return Role.ENTRY if operator.code == _OP.CONV_2D and not is_pointwise(operator) else Role.INSIDE
        return Role.CANDIDATE if operator in self.candidates else Role.OUTSIDE
