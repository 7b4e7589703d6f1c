"""What the rules predict that a runtime's profiler shows, and what the profiler's names say."""

import re
from dataclasses import dataclass

from ai_edge_litert import schema_py_generated as schema

from sparsetorch.runtime.observation import Counts
from sparsetorch.tflite.model import Model
from sparsetorch.xnnpack.analysis import Analysis, analyse, is_encoded
from sparsetorch.xnnpack.layers import is_pointwise
from sparsetorch.xnnpack.revisions import Revision
from sparsetorch.xnnpack.subgraph import Kind

_TYPE = schema.TensorType
_FLOATS = frozenset({_TYPE.FLOAT32, _TYPE.FLOAT16})


@dataclass(frozen=True)
class Prediction:
    """One model under the rules of one revision."""

    revision: Revision
    counts: Counts
    unsafe: tuple[str, ...]
    """Why the numbers would be wrong, or the file would not load; empty where they would be right."""
    left_out: int
    """Sparse-encoded 1x1 convolutions that would not run sparse."""

    @property
    def taken(self) -> bool:
        """Whether every sparse-encoded 1x1 convolution would run sparse."""
        return self.counts.spmm > 0 and not self.left_out


def predict(model: Model, revision: Revision) -> Prediction:
    """Apply the rules to the model's first graph, which is the one that runtimes run."""
    analysis = analyse(model.graphs[0], revision)
    unsafe = tuple(dict.fromkeys(failure.found for _, failure in analysis.unsafe))
    return Prediction(revision, _counts(analysis), unsafe, len(analysis.left_out))


def _counts(analysis: Analysis) -> Counts:
    spmm = entries = depthwise = rest = 0
    for part in analysis.parts:
        for node in part.graph.nodes:
            if node.kind not in (Kind.CONVOLUTION, Kind.DEPTHWISE, Kind.FULLY_CONNECTED):
                continue
            # The kernel is chosen by what a node writes. What it reads may be in another layout: that is the unsafe case.
            if node.outputs[0] not in part.layouts.nchw:
                rest += 1
            elif node.is_pointwise:
                spmm += 1
            elif node.kind is Kind.DEPTHWISE:
                depthwise += 1
            else:
                entries += 1
    return Counts(spmm, entries, depthwise, rest)


_CONVOLUTION = re.compile(r"Convolution \((NCHW|NHWC), [^)]*\)(?: (.*))?")


def count_operators(operators: dict[str, int]) -> Counts:
    """Sort a profiler's operator names into kinds.

    Names as XNNPACK's src/operator-utils.c and its callers give them: `Convolution (NCHW, F32) SPMM`, `... Conv2D HWC2CHW`,
    `... DWConv`; `Convolution (NHWC, F32) IGEMM` or `GEMM` or `DWConv`; `Fully Connected (NC, F32) GEMM`.
    """
    kinds = {"spmm": 0, "entries": 0, "depthwise": 0, "channels_last": 0}
    for name, count in operators.items():
        found = _CONVOLUTION.match(name)
        if found is None:
            kinds["channels_last"] += count if name.startswith(("Fully Connected", "Dynamic Fully Connected")) else 0
        elif found[1] == "NHWC":
            kinds["channels_last"] += count
        else:
            kernel = found[2] or ""
            kind = "spmm" if "SPMM" in kernel else "depthwise" if "DWConv" in kernel else "entries"
            kinds[kind] += count
    return Counts(**kinds)


def encoded_pointwise(model: Model, revision: Revision) -> int:
    """Sparse-encoded 1x1 convolutions of the first graph: what should run sparse."""
    found = analyse(model.graphs[0], revision)
    return sum(is_pointwise(operator) and is_encoded(operator, found.plan) for operator in model.graphs[0].operators)


def computes_in_integers(model: Model) -> bool:
    """Whether activations are quantized, or weights are integers beside float activations: rounding differs by runtime."""
    for operator in model.graphs[0].operators:
        if operator.code not in (schema.BuiltinOperator.CONV_2D, schema.BuiltinOperator.FULLY_CONNECTED):
            continue
        if any(tensor is not None and tensor.type not in _FLOATS for tensor in operator.inputs[:2]):
            return True
    return False
