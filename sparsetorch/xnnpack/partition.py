"""How TFLite cuts a graph into the parts that XNNPACK gets, and which part is told that its weights are sparse.

1. Constants that DENSIFY or DEQUANTIZE unpack are unpacked once, ahead of time: these operators vanish, and their outputs
   count as constants ("quasi-static"). LiteRT f674577 tflite/delegates/xnnpack/xnnpack_delegate.cc, PrepareOpsToDelegate.
2. The operators are dealt into epochs: all operators that are ready and of one kind (taken by the delegate, or not), then all
   of the other kind, and so on. LiteRT f674577 tflite/graph_info.cc, PartitionGraphIntoIndependentNodeSubsets.
3. Each delegated epoch is an XNNPACK subgraph of its own, with its own layout decision. Values that another epoch reads are
   its outputs.
4. A subgraph gets the sparse hint if one of its operators reads a constant that DENSIFY unpacked. A DEQUANTIZE behind DENSIFY is
   such an operator, and is dealt into the first epoch wherever its result is needed. LiteRT f674577 xnnpack_delegate.cc,
   Subgraph::Create.
"""

from dataclasses import dataclass

from ai_edge_litert import schema_py_generated as schema

from sparsetorch.errors import BadInputError
from sparsetorch.tflite.model import Graph, Operator, Tensor
from sparsetorch.xnnpack.delegate import older_refusal, refusal
from sparsetorch.xnnpack.revisions import XNNPACK_2026_08, Revision

_OP, _TYPE = schema.BuiltinOperator, schema.TensorType
_DENSIFIED = frozenset({_TYPE.FLOAT32, _TYPE.FLOAT16, _TYPE.INT8})


@dataclass(frozen=True, eq=False)
class Partition:
    """One XNNPACK subgraph: TFLite operators in execution order, without those that only unpack constants."""

    operators: tuple[Operator, ...]
    inputs: frozenset[Tensor]
    """Computed values that come from outside."""
    outputs: frozenset[Tensor]
    """Values that something outside reads, or that the graph returns."""
    sparse_hint: bool


@dataclass(frozen=True, eq=False)
class Plan:
    """What the delegate makes of one graph."""

    partitions: tuple[Partition, ...]
    refused: dict[Operator, str]
    """Operators left to TFLite, with why."""
    sources: dict[Tensor, Tensor]
    """Quasi-static tensor -> the constant with the bytes that it is unpacked from."""


def plan(graph: Graph, revision: Revision = XNNPACK_2026_08) -> Plan:
    """Partition a graph as TFLite and the XNNPACK delegate of a revision do.

    Raises:
        BadInputError: operators that never become ready (a cycle, a tensor written twice or read before it is written).
    """
    sources: dict[Tensor, Tensor] = {}
    unpackers: dict[Tensor, Operator] = {}
    sparse: set[Tensor] = set()
    refused: dict[Operator, str] = {}
    taken: set[Operator] = set()
    unpacking: set[Operator] = set()
    for operator in graph.operators:
        source = _unpacked(operator, sources)
        why = None if source is not None else refusal(operator, sources) or older_refusal(operator, revision)
        if source is not None:
            output = operator.outputs[0]
            sources[output], unpackers[output] = source, operator
            unpacking.add(operator)
            taken.add(operator)
            if operator.code == _OP.DENSIFY or operator.inputs[0] in sparse:
                sparse.add(output)
        elif why is None:
            taken.add(operator)
        else:
            refused[operator] = why
            # TFLite's own kernels need the unpacked constant as well, so what unpacks it stays with them.
            taken -= {unpackers[tensor] for tensor in operator.inputs if tensor in unpackers}
    partitions = tuple(
        _partition(graph, epoch, unpacking, sources, sparse) for kind, epoch in _epochs(graph, taken) if kind
    )
    return Plan(tuple(part for part in partitions if part.operators), refused, sources)


def _unpacked(operator: Operator, sources: dict[Tensor, Tensor]) -> Tensor | None:
    """The constant with the bytes, if this operator only unpacks one."""
    if len(operator.inputs) != 1 or len(operator.outputs) != 1 or operator.inputs[0] is None:
        return None
    packed, result = operator.inputs[0], operator.outputs[0]
    constant = packed.data is not None
    if operator.code == _OP.DENSIFY:
        fits = constant and packed.sparsity is not None and packed.type in _DENSIFIED and result.type == packed.type
    elif operator.code == _OP.DEQUANTIZE:
        quantized = (
            packed.type == _TYPE.INT8 and packed.quantization is not None and packed.quantization.scale is not None
        )
        static = packed.sparsity is None and (constant or packed in sources)
        fits = static and (packed.type == _TYPE.FLOAT16 or quantized) and result.type == _TYPE.FLOAT32
    else:
        return None
    return sources.get(packed, packed) if fits else None


def _epochs(graph: Graph, taken: set[Operator]) -> list[tuple[bool, list[Operator]]]:
    """Deal the operators into epochs: whether the delegate has it, and its operators in the order they are dealt."""
    pending_writes: dict[Tensor, Operator] = {}
    for operator in graph.operators:
        for output in operator.outputs:
            if output in pending_writes or output.data is not None:
                raise BadInputError(f"tensor {output.name!r} is written twice. The file is damaged: convert it again.")
            pending_writes[output] = operator
    waiting = list(graph.operators)
    epochs: list[tuple[bool, list[Operator]]] = []
    while waiting:
        kind: bool | None = None
        epoch: list[Operator] = []
        progress = True
        while progress:
            progress, rest = False, list[Operator]()
            for operator in waiting:
                ready = not any(tensor in pending_writes for tensor in operator.inputs if tensor is not None)
                if ready and kind is None:
                    kind = operator in taken
                if ready and kind == (operator in taken):
                    epoch.append(operator)
                    for output in operator.outputs:
                        del pending_writes[output]
                    progress = True
                else:
                    rest.append(operator)
            waiting = rest
        if kind is None:
            raise BadInputError(
                f"operator {waiting[0].name} reads a tensor that is never written before it. The file is damaged: "
                "convert it again."
            )
        epochs.append((kind, epoch))
    return epochs


def _partition(
    graph: Graph, epoch: list[Operator], unpacking: set[Operator], sources: dict[Tensor, Tensor], sparse: set[Tensor]
) -> Partition:
    operators = [operator for operator in epoch if operator not in unpacking]
    inside = set(operators)
    written = {output for operator in operators for output in operator.outputs}
    read = {tensor for operator in operators for tensor in operator.inputs if tensor is not None}
    read_outside = {tensor for operator in graph.operators if operator not in inside for tensor in operator.inputs}
    return Partition(
        tuple(operators),
        frozenset(tensor for tensor in read - written if tensor.data is None and tensor not in sources),
        frozenset(written & (read_outside | set(graph.outputs))),
        sparse_hint=any(tensor in sparse for operator in epoch for tensor in operator.inputs),
    )
