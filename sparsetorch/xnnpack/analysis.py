"""One graph under the rules of one revision: its parts, their layouts, and what would go wrong in them."""

from dataclasses import dataclass

from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.model import Graph, Operator, Tensor
from sparsetorch.xnnpack.clusters import Layouts, decide, unsafe_nodes
from sparsetorch.xnnpack.delegate import UNARY
from sparsetorch.xnnpack.layers import is_pointwise, weight_of
from sparsetorch.xnnpack.partition import Plan, plan
from sparsetorch.xnnpack.revisions import Revision
from sparsetorch.xnnpack.rules import Failure
from sparsetorch.xnnpack.subgraph import Kind, Node, Subgraph, build

_OP = schema.BuiltinOperator


@dataclass(frozen=True, eq=False)
class Part:
    """One XNNPACK subgraph with the layouts it gets, and what would go wrong in it."""

    graph: Subgraph
    layouts: Layouts
    unsafe: dict[Node, Failure]


@dataclass(frozen=True, eq=False)
class Analysis:
    """One graph under the rules of one revision."""

    graph: Graph
    plan: Plan
    parts: tuple[Part, ...]

    @property
    def sparse_nodes(self) -> list[Node]:
        """The layers that run as sparse matrix multiplications."""
        return [node for part in self.parts for node in part.graph.nodes if part.layouts.runs_sparse(node)]

    @property
    def pointwise(self) -> list[Operator]:
        """The 1x1 convolutions."""
        return [operator for operator in self.graph.operators if is_pointwise(operator)]

    @property
    def left_out(self) -> list[Operator]:
        """1x1 convolutions with a sparse-encoded weight that would not run sparse."""
        sparse = {node.operator for node in self.sparse_nodes}
        encoded = (operator for operator in self.pointwise if is_encoded(operator, self.plan))
        return [operator for operator in encoded if operator not in sparse]

    @property
    def unsafe(self) -> list[tuple[Operator, Failure]]:
        """What computes wrong numbers, or does not load."""
        found = [(node.operator, failure) for part in self.parts for node, failure in part.unsafe.items()]
        found += [(operator, _MISLED) for operator in self._misled]
        found += [(operator, failure) for operator in self.graph.operators if (failure := self._misread_bias(operator))]
        return found + [
            (operator, _UNPACKED_INTEGERS) for operator in self.graph.operators if self._is_unloadable(operator)
        ]

    @property
    def _misled(self) -> list[Operator]:
        """Operators of another part that look at the shape of a mean with keep_dims, which is [N, C, 1, 1] then."""
        means = {
            node.outputs[0].tensor
            for part in self.parts
            for node in part.graph.nodes
            if node.kind is Kind.REDUCTION and len(node.outputs[0].shape) == 4 and node.inputs[0] in part.layouts.nchw
        }
        inside = {node.operator for part in self.parts for node in part.graph.nodes if means & _written(part)}
        return [
            operator
            for operator in self.graph.operators
            if operator not in inside and operator.code not in _SHAPELESS and not means.isdisjoint(operator.inputs)
        ]

    def _misread_bias(self, operator: Operator) -> Failure | None:
        if operator.code not in _WEIGHTED or len(operator.inputs) < 3:
            return None
        weight, bias = operator.inputs[1:3]
        packed = self.plan.sources.get(weight) if weight is not None else None
        if packed is None or packed.sparsity is None or bias is None or weight is None or weight.type == packed.type:
            return None
        half = self.plan.sources.get(bias, bias).type_name == "float16"
        wrong = half if packed.type_name == "int8" else not half
        return _misread(packed.type_name, "float16" if half else bias.type_name) if wrong else None

    def _is_unloadable(self, operator: Operator) -> bool:
        if operator.code not in _WEIGHTED or len(operator.inputs) < 2:
            return False
        source, weight = operator.inputs[:2]
        mixed = source is not None and weight is not None and source.type_name.startswith("float")
        return mixed and weight is not None and weight.type_name.startswith("int") and weight in self.plan.sources


def _written(part: Part) -> set[Tensor]:
    return {value.tensor for node in part.graph.nodes for value in node.outputs}


_WEIGHTED = frozenset({_OP.CONV_2D, _OP.DEPTHWISE_CONV_2D, _OP.FULLY_CONNECTED})
_SHAPELESS = UNARY | {_OP.RELU_0_TO_1, _OP.RESHAPE}
"""Operators that handle as many elements as there are, whatever the shape says."""

_MISLED = Failure(
    # XNNPACK 75db3c0 src/subgraph/static-reduce.c reshape_reduce_operator; ai-edge-litert 2.3.0 does not load such a file.
    "unsafe-shape",
    "reads a mean with keep_dims from another part of the graph, where its shape is [N, C, 1, 1]",
    "a mean without keep_dims, or a RESHAPE that XNNPACK takes behind it",
    "mean over H and W without keepdim; or reshape instead of squeezing",
)


def _misread(weight: str, bias: str) -> Failure:
    """Observed on x86: ai-edge-litert 2.1.0 with either mixture, 2.3.0 with int8 weights; wrong by more than the output."""
    return Failure(
        "unsafe-bias",
        f"{bias} bias beside sparse {weight} weights: runtimes take it for the other type, and the numbers are wrong",
        "a float32 bias beside int8 weights, a float16 one behind DEQUANTIZE beside float16 weights",
        "store the file again: sparsetorch encode --values " + weight,
    )


_UNPACKED_INTEGERS = Failure(
    "unpacked-integer-weights",
    "sparse int8 weights go straight into a float operator: the file does not load",
    "DEQUANTIZE between DENSIFY and the operator",
    "store the weights with float compute (--values int8), which puts DEQUANTIZE there",
)


def analyse(graph: Graph, revision: Revision) -> Analysis:
    """Partition a graph, lay out its values, and look for what would go wrong."""
    found = plan(graph, revision)
    parts = []
    for partition in found.partitions:
        lowered = build(partition, found, revision)
        layouts = decide(lowered, revision)
        parts.append(Part(lowered, layouts, unsafe_nodes(lowered, layouts, revision)))
    return Analysis(graph, found, tuple(parts))


def is_encoded(operator: Operator, found: Plan) -> bool:
    weight = weight_of(operator, found.sources)
    return weight is not None and weight.sparsity is not None
