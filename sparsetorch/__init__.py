"""sparsetorch: sparse CNNs from PyTorch Lightning to XNNPACK's sparse path.

Names are imported when first used, so that `import sparsetorch` costs nothing and `verify` never loads torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparsetorch.analysis.accounting import account
    from sparsetorch.callbacks.iterative_pruning import IterativePruning
    from sparsetorch.callbacks.sparse_training import SparseTraining
    from sparsetorch.callbacks.sparsity_monitor import SparsityMonitor
    from sparsetorch.exporter.encode_file import encode
    from sparsetorch.exporter.pipeline import export
    from sparsetorch.exporter.quantize import quantize
    from sparsetorch.latency.bench import bench
    from sparsetorch.preflight.check import check
    from sparsetorch.preflight.pruning import PruningPlan
    from sparsetorch.runtime.verify import verify
    from sparsetorch.sparsify.abcpruner import ABCPruner
    from sparsetorch.sparsify.chex import CHEX
    from sparsetorch.sparsify.distribution import ER, ERK, Uniform
    from sparsetorch.sparsify.epochs import InEpochs
    from sparsetorch.sparsify.hrank import HRank
    from sparsetorch.sparsify.latency_aware import LatencyAware
    from sparsetorch.sparsify.magnitude import Magnitude
    from sparsetorch.sparsify.pattern import NM, Block, Channel, Unstructured
    from sparsetorch.sparsify.per_layer import Global, PerLayer
    from sparsetorch.sparsify.policy import AllOf, AllWeights, AnyOf, ByName, Conv1x1
    from sparsetorch.sparsify.rigl import SET, SNFS, RigL, Static
    from sparsetorch.sparsify.schedule import ConstantSparsity, PolynomialDecay, StepList, ThreeStep
    from sparsetorch.structured.compact import compact, make_compact
    from sparsetorch.tflite.storage import Storage
    from sparsetorch.xnnpack.verdict import Verdict

_HOME = {
    "SparseTraining": "sparsetorch.callbacks.sparse_training",
    "IterativePruning": "sparsetorch.callbacks.iterative_pruning",
    "SparsityMonitor": "sparsetorch.callbacks.sparsity_monitor",
    "account": "sparsetorch.analysis.accounting",
    "Magnitude": "sparsetorch.sparsify.magnitude",
    "RigL": "sparsetorch.sparsify.rigl",
    "SET": "sparsetorch.sparsify.rigl",
    "Static": "sparsetorch.sparsify.rigl",
    "PolynomialDecay": "sparsetorch.sparsify.schedule",
    "ConstantSparsity": "sparsetorch.sparsify.schedule",
    "Uniform": "sparsetorch.sparsify.distribution",
    "ERK": "sparsetorch.sparsify.distribution",
    "ER": "sparsetorch.sparsify.distribution",
    "LatencyAware": "sparsetorch.sparsify.latency_aware",
    "Unstructured": "sparsetorch.sparsify.pattern",
    "AllWeights": "sparsetorch.sparsify.policy",
    "Conv1x1": "sparsetorch.sparsify.policy",
    "SNFS": "sparsetorch.sparsify.rigl",
    "Block": "sparsetorch.sparsify.pattern",
    "NM": "sparsetorch.sparsify.pattern",
    "Global": "sparsetorch.sparsify.per_layer",
    "PerLayer": "sparsetorch.sparsify.per_layer",
    "ByName": "sparsetorch.sparsify.policy",
    "AllOf": "sparsetorch.sparsify.policy",
    "AnyOf": "sparsetorch.sparsify.policy",
    "ThreeStep": "sparsetorch.sparsify.schedule",
    "ABCPruner": "sparsetorch.sparsify.abcpruner",
    "HRank": "sparsetorch.sparsify.hrank",
    "CHEX": "sparsetorch.sparsify.chex",
    "Channel": "sparsetorch.sparsify.pattern",
    "InEpochs": "sparsetorch.sparsify.epochs",
    "compact": "sparsetorch.structured.compact",
    "make_compact": "sparsetorch.structured.compact",
    "StepList": "sparsetorch.sparsify.schedule",
    "bench": "sparsetorch.latency.bench",
    "check": "sparsetorch.preflight.check",
    "PruningPlan": "sparsetorch.preflight.pruning",
    "encode": "sparsetorch.exporter.encode_file",
    "export": "sparsetorch.exporter.pipeline",
    "quantize": "sparsetorch.exporter.quantize",
    "Storage": "sparsetorch.tflite.storage",
    "verify": "sparsetorch.runtime.verify",
    "Verdict": "sparsetorch.xnnpack.verdict",
}

__all__ = [
    "CHEX",
    "ER",
    "ERK",
    "NM",
    "SET",
    "SNFS",
    "ABCPruner",
    "AllOf",
    "AllWeights",
    "AnyOf",
    "Block",
    "ByName",
    "Channel",
    "ConstantSparsity",
    "Conv1x1",
    "Global",
    "HRank",
    "InEpochs",
    "IterativePruning",
    "LatencyAware",
    "Magnitude",
    "PerLayer",
    "PolynomialDecay",
    "PruningPlan",
    "RigL",
    "SparseTraining",
    "SparsityMonitor",
    "Static",
    "StepList",
    "Storage",
    "ThreeStep",
    "Uniform",
    "Unstructured",
    "Verdict",
    "account",
    "bench",
    "check",
    "compact",
    "encode",
    "export",
    "make_compact",
    "quantize",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'sparsetorch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
