"""Everything that keeps a model off the sparse path, or makes it wrong on it: all of it, not the first.

A broken condition counts if it can matter: the operator leads to a 1x1 convolution, or reads what the channels-first part
writes. What lies behind the global pool may be anything.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.model import Operator, Tensor
from sparsetorch.xnnpack.analysis import Analysis, Part, is_encoded
from sparsetorch.xnnpack.layers import is_pointwise, module_of, weight_of
from sparsetorch.xnnpack.partition import Plan
from sparsetorch.xnnpack.rules import Failure
from sparsetorch.xnnpack.subgraph import Kind
from sparsetorch.xnnpack.weights import count_zeros

_OP = schema.BuiltinOperator


@dataclass(frozen=True)
class Reason:
    """Why not: where, what was found, what is needed, what to do."""

    rule: str
    operator: str | None
    tensor: str | None
    module: str | None
    found: str
    required: str
    fix: str


def reasons(analysis: Analysis) -> list[Reason]:
    """All reasons of one graph; empty if every encoded 1x1 convolution runs sparse and nothing goes wrong."""
    found = list(dict.fromkeys(_collect(analysis)))
    if not found and analysis.left_out:
        found = [_reason(operator, _LEFT_OUT, analysis.plan) for operator in analysis.left_out]
    return found


_LEFT_OUT = Failure(
    "off-path",
    "a sparse-encoded weight outside every sparse cluster: unpacked when the model loads, it runs densely",
    "a cluster from the entry convolution to the global pool that holds it",
    "encode only the weights between the entry and the exit",
)


def _collect(analysis: Analysis) -> Iterator[Reason]:
    for operator, failure in analysis.unsafe:
        yield _reason(operator, failure, analysis.plan)
    if not analysis.left_out and analysis.sparse_nodes:
        return
    yield from _graph_reasons(analysis)
    if analysis.sparse_nodes:
        for operator in analysis.left_out:
            yield _reason(operator, _LEFT_OUT, analysis.plan)
    relevant = _relevant(analysis)
    for operator, why in analysis.plan.refused.items():
        if operator in relevant:
            yield _reason(operator, _refused(operator, why), analysis.plan)
    for part in analysis.parts:
        for node in part.graph.nodes:
            if node.operator in relevant:
                for failure in part.layouts.flags[node].failures:
                    yield _reason(node.operator, failure, analysis.plan)
        yield from _part_reasons(part, relevant, analysis.plan)


def _graph_reasons(analysis: Analysis) -> Iterator[Reason]:
    if not analysis.pointwise:
        yield Reason(
            "no-pointwise",
            None,
            None,
            None,
            "no 1x1 convolution",
            "1x1 convolutions: they are what the sparse kernels compute",
            "use an architecture of depthwise and 1x1 convolutions, such as MobileNetV2",
        )
        return
    weights = {weight for operator in analysis.pointwise if (weight := weight_of(operator, analysis.plan.sources))}
    counts = [count_zeros(weight) for weight in weights]
    params, zeros = sum(count[0] for count in counts), sum(count[1] for count in counts)
    if not any(weight.sparsity is not None for weight in weights):
        what = f"{zeros} zeros present, not encoded" if zeros else "no sparse-encoded weight"
        yield Reason(
            "not-encoded",
            None,
            None,
            None,
            f"{what}: the hint is not set, and the file runs at dense speed",
            "1x1 weights stored sparsely behind DENSIFY",
            "encode the file: sparsetorch.tflite.encode, or sparsetorch export",
        )
    short = [
        cluster
        for part in analysis.parts
        for cluster in part.layouts.clusters
        if cluster.pointwise and not cluster.marked and not cluster.sparse_enough
    ]
    for cluster in short:
        yield _too_few_zeros(cluster.zeros, cluster.params)
    if not short and zeros * 3 <= params * 2:
        yield _too_few_zeros(zeros, params)


def _too_few_zeros(zeros: int, params: int) -> Reason:
    needed = params * 2 // 3 + 1
    return Reason(
        "two-thirds",
        None,
        None,
        None,
        f"{zeros} of {params} weights of the 1x1 convolutions are zero ({zeros / max(params, 1):.1%})",
        f"more than two thirds over the whole cluster: at least {needed}",
        f"{needed - zeros} more zeros: train with a sparsity above 0.67 (0.8 to 0.9 is worth it)",
    )


def _part_reasons(part: Part, relevant: set[Operator], found: Plan) -> Iterator[Reason]:
    pointwise = [node for node in part.graph.nodes if is_pointwise(node.operator)]
    if not pointwise:
        return
    if not any(part.layouts.flags[node].exit for node in part.graph.nodes):
        last = pointwise[-1].operator
        yield _reason(last, _NO_EXIT, found)
    encoded = any(is_encoded(node.operator, found) for node in pointwise)
    if not part.graph.sparse_hint and not encoded and len(part.graph.nodes) > 1 and _any_encoded(found):
        yield _reason(pointwise[0].operator, _NO_HINT, found)
    for node in part.graph.nodes:
        if node.operator in relevant and len(set(node.computed)) < len(node.computed):
            yield _reason(node.operator, _REPEATED, found)
    for node, why in part.layouts.marks.items():
        if node.operator not in relevant or "stays channels last" in why:
            continue  # the operator that stays is listed itself
        if "leaves" in why:
            yield _reason(
                node.operator, Failure("value-leaves", why, "values that only the cluster reads", _LEAVES_FIX), found
            )
        elif "input" in why:
            yield _reason(node.operator, Failure("no-entry", why, _ENTRY_NEEDED, _ENTRY_FIX), found)


_NO_EXIT = Failure(
    "no-exit",
    "no MEAN over H and W and no DEPTH_TO_SPACE is reached from the 1x1 convolutions",
    "an operator that turns channels first back into channels last",
    "end in a global pool (AdaptiveAvgPool2d(1) or x.mean((2, 3))), or in PixelShuffle for images",
)
_NO_HINT = Failure(
    "no-hint",
    "this part of the graph has no sparse-encoded weight",
    "at least one in each part that XNNPACK gets",
    "keep the graph in one part (see the operators that are not delegated), or encode a weight of this part",
)
_REPEATED = Failure(
    # The source counts a node's readers once for each value, and its compatible readers once for each operand.
    "repeated-operand",
    "both operands are one value, which XNNPACK takes for a reader outside the cluster",
    "two different operands",
    "fold the doubling into the weights of the convolution before it",
)
_ENTRY_NEEDED = "a 3x3 stride-2 convolution with 3 input channels and padding 1 as the entry"
_ENTRY_FIX = "start with nn.Conv2d(3, C, 3, stride=2, padding=1)"
_LEAVES_FIX = "return it from behind the global pool only, or compute it a second time"


def _refused(operator: Operator, why: str) -> Failure:
    fix = "replace it with an operator that the delegate takes, or move it behind the global pool"
    if operator.code == _OP.RELU_0_TO_1:
        fix = "hard sigmoid: use RELU6 with the factor 6 folded into the weights beside it"
    elif "bias" in why:
        fix = "give the convolution a bias (of zeros)"
    return Failure("not-delegated", f"{operator.name}: {why}; it splits the graph", "operators that XNNPACK takes", fix)


def _reason(operator: Operator, failure: Failure, found: Plan) -> Reason:
    weight = weight_of(operator, found.sources)
    named = weight.name if weight is not None else operator.outputs[0].name if operator.outputs else None
    module = module_of(weight.name) if weight is not None else None
    return Reason(failure.rule, operator.name, named, module, failure.found, failure.required, failure.fix)


def _any_encoded(found: Plan) -> bool:
    return any(source.sparsity is not None for source in found.sources.values())


def _relevant(analysis: Analysis) -> set[Operator]:
    """Operators that lead to a 1x1 convolution, and those that read what such an operator's channels-first part writes."""
    producers = {output: operator for operator in analysis.graph.operators for output in operator.outputs}
    leading = _upstream(analysis.pointwise, producers)
    spatial = leading | _after(analysis, leading)
    inside: set[Tensor] = set()
    for part in analysis.parts:
        for node in part.graph.nodes:
            flags = part.layouts.flags[node]
            leaves = node.kind in (Kind.REDUCTION, Kind.DEPTH_TO_SPACE)
            if (flags.inside or flags.entry) and not leaves and node.operator in spatial:
                inside.update(value.tensor for value in node.outputs)
    reading = {
        operator
        for operator in analysis.graph.operators
        if any(tensor in inside for tensor in operator.inputs if tensor)
    }
    return leading | reading


def _upstream(ends: Iterable[Operator], producers: dict[Tensor, Operator]) -> set[Operator]:
    found: set[Operator] = set()
    waiting = list(ends)
    while waiting:
        operator = waiting.pop()
        if operator not in found:
            found.add(operator)
            waiting.extend(producers[tensor] for tensor in operator.inputs if tensor in producers)
    return found


def _after(analysis: Analysis, leading: set[Operator]) -> set[Operator]:
    """Elementwise operators behind the last 1x1 convolution, still channels first."""
    values = {output for operator in leading for output in operator.outputs}
    found: set[Operator] = set()
    for part in analysis.parts:
        for node in part.graph.nodes:
            if node.kind in (Kind.UNARY, Kind.BINARY, Kind.DEPTHWISE, Kind.RESIZE_BILINEAR) and any(
                value.tensor in values for value in node.computed
            ):
                found.add(node.operator)
                values.update(node.operator.outputs)
    return found
