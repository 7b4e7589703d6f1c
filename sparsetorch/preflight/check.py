"""`sparsetorch.check`: the verdict on a network and a pruning plan, before the training, in seconds.

    report = sparsetorch.check(torchvision.models.mobilenet_v2(), (3, 224, 224), sparsity=0.85)
    report.eligible, report.verdict.expected_spmm, report.files["int8"].bytes

PyTorch to ONNX by the exporter, ONNX to TFLite by `preflight.lowering` in place of the converter; from there on it is the same
code that an export runs: names, repairs, sparse encoding, the rules of `sparsetorch.xnnpack`.
"""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from sparsetorch.callbacks.resume import random_state, set_random_state
from sparsetorch.exporter.names import name_model
from sparsetorch.exporter.outcome import encode_safely
from sparsetorch.exporter.pipeline import batched
from sparsetorch.exporter.torch_to_onnx import check_size, torch_to_onnx
from sparsetorch.masking import permanent_copy
from sparsetorch.preflight.lowering import lower
from sparsetorch.preflight.pruning import PruningPlan, pruned
from sparsetorch.preflight.two_thirds import ClusterPlan, cluster_plans
from sparsetorch.tflite import VALUES, Model, Storage, to_bytes
from sparsetorch.tflite.passes import Note, repair
from sparsetorch.tflite.unique_names import make_names_unique
from sparsetorch.xnnpack import DEFAULT_TARGETS, Verdict, verify


@dataclass(frozen=True)
class PlannedFile:
    """What an export of the trained network would write."""

    bytes: int
    eligible: bool
    """Small weights may not be worth encoding in one precision, and are in another."""
    expected_spmm: int


@dataclass(frozen=True)
class CheckReport:
    """What a training will end in, as far as shapes and zeros decide it."""

    verdict: Verdict
    """On the file that would be exported with weights stored as `values`."""
    values: str
    """`float32`, `float16` or `int8`."""
    clusters: tuple[ClusterPlan, ...]
    """What could run sparse, and the two-thirds rule in each; empty where the architecture has no cluster."""
    files: dict[str, PlannedFile]
    """The same with weights stored as `float32`, `float16` and `int8`."""
    dense_bytes: int
    """Of the dense float32 file."""
    opaque: tuple[str, ...]
    """ONNX operators that are not known here, each with why; they are taken for operators that end a sparse cluster."""
    refused: tuple[str, ...]
    """Why an export would not leave zeros out: the file would compute wrong numbers on devices."""
    repairs: tuple[Note, ...]
    """What the export's repairs do to this graph."""
    sparsity: float
    """Planned, over the layers that the policy picks."""
    pruned_layers: tuple[str, ...]
    """Those layers, by module path."""
    input_shape: tuple[int, ...]
    """(N, C, H, W)."""
    seconds: float

    @property
    def eligible(self) -> bool:
        """Whether every asked target would take the sparse path."""
        return self.verdict.eligible

    @property
    def hint(self) -> str | None:
        """One sentence on what stands in the way; None where nothing does."""
        if self.eligible:
            return None
        if self.refused:
            return f"the export would be dense: {self.refused[0]}"
        short = next((cluster for cluster in self.clusters if not cluster.is_enough), None)
        if short is not None:
            return _too_little(short)
        why = next(
            (target.why_not for target in self.verdict.targets.values() if target.why_not), "see sparsetorch check"
        )
        return why

    def to_dict(self) -> dict[str, Any]:
        """Plain Python types, for `--json`: the fields of `verify --json`, and this report's own."""
        return {
            **self.verdict.to_dict(),
            "values": self.values,
            "sizes": {"dense_float32": self.dense_bytes} | {values: file.bytes for values, file in self.files.items()},
            "by_values": {values: asdict(file) for values, file in self.files.items()},
            "two_thirds": [
                {
                    **{key: list(value) if isinstance(value, tuple) else value for key, value in asdict(plan).items()},
                    "planned_sparsity": plan.planned_sparsity,
                    "is_enough": plan.is_enough,
                }
                for plan in self.clusters
            ],
            "opaque": list(self.opaque),
            "refused": list(self.refused),
            "repairs": [asdict(note) for note in self.repairs],
            "sparsity": self.sparsity,
            "pruned_layers": list(self.pruned_layers),
            "input_shape": list(self.input_shape),
            "seconds": self.seconds,
        }


def _too_little(plan: ClusterPlan) -> str:
    found = (
        f"{plan.planned_sparsity:.1%} of the cluster's {plan.params:,} weights would be zero, more than 66.7 % needed"
    )
    if plan.needed_sparsity is None:
        return f"{found}; prune {', '.join(plan.not_pruned[:3])} too: the policy leaves out too much"
    pruned_layers = len(plan.layers) - len(plan.not_pruned)
    return f"{found}: a sparsity of {plan.needed_sparsity:.3f} over the {pruned_layers} layers that the policy prunes"


def check(
    module: nn.Module,
    input_shape: Sequence[int],
    *,
    sparsity: float | None = None,
    plan: PruningPlan | None = None,
    values: str = "float32",
    targets: Sequence[str] = DEFAULT_TARGETS,
    progress: Callable[[str], None] = lambda stage: None,
) -> CheckReport:
    """Predict whether XNNPACK will take its sparse path for a network at the end of a training.

    The module is left as it is: weights, masks, mode and random state are not touched.

    Args:
        module: trained or not; masks that it carries are not looked at where the plan covers their layers.
        input_shape: (C, H, W), or (N, C, H, W).
        sparsity: over the layers that the plan's policy picks; None: the plan's.
        plan: which layers, how much of each, in which shape; None: 85 % of every 1x1 convolution.
            `PruningPlan.of` takes it from a `SparseTraining`.
        values: what weights will be stored as: `float32`, `float16` or `int8`; the verdict is about that file.
        targets: names out of `sparsetorch.xnnpack.TARGETS`.
        progress: called with the name of every stage.

    Raises:
        BadInputError: a shape that does not fit, a network that cannot be traced, a plan that does not fit its layers.
        UsageError: an unknown target.
    """
    started = time.monotonic()
    chosen = PruningPlan() if plan is None else plan
    if sparsity is not None:
        chosen = replace(chosen, sparsity=sparsity)
    shape = batched(input_shape)
    check_size(module)
    state = random_state()
    try:
        plain = pruned(permanent_copy(module).eval().cpu().float(), chosen)
        with tempfile.TemporaryDirectory(prefix="sparsetorch-") as folder:
            progress("ONNX")
            torch_to_onnx(plain, shape, Path(folder, "model.onnx"))
            report = check_onnx(Path(folder, "model.onnx"), plain, shape, chosen, values, targets, progress)
    finally:
        set_random_state(state)
    return replace(report, seconds=round(time.monotonic() - started, 2))


def check_onnx(
    path: str | os.PathLike[str],
    plain: nn.Module,
    shape: tuple[int, ...],
    plan: PruningPlan,
    values: str = "float32",
    targets: Sequence[str] = DEFAULT_TARGETS,
    progress: Callable[[str], None] = lambda stage: None,
) -> CheckReport:
    """`check` from the ONNX file on; `plain` holds the plan's zeros already."""
    progress("repairs")
    dense, opaque = lower(Path(path))
    name_model(dense, plain, shape)
    _add_metadata(dense)
    repairs = repair(dense)
    make_names_unique(dense.graphs[0])
    progress("verdict")
    files, verdicts, reasons = {}, {}, {}
    for stored in dict.fromkeys((values, *VALUES)):
        sparse, _, refused = encode_safely(dense, Storage(stored))
        verdict = verify(sparse, targets)
        files[stored] = PlannedFile(len(to_bytes(sparse)), verdict.eligible, verdict.expected_spmm)
        verdicts[stored], reasons[stored] = verdict, refused
    layers = tuple(plan.policy.select(plain))
    return CheckReport(
        verdict=verdicts[values],
        values=values,
        clusters=cluster_plans(dense, layers),
        files={stored: files[stored] for stored in VALUES},
        dense_bytes=len(to_bytes(dense)),
        opaque=opaque,
        refused=reasons[values],
        repairs=repairs,
        sparsity=plan.sparsity,
        pruned_layers=layers,
        input_shape=shape,
        seconds=0.0,
    )


def _add_metadata(model: Model) -> None:
    """As many bytes as TensorFlow's converter writes about itself."""
    model.description = "MLIR Converted."
    for name, size in (("min_runtime_version", 16), ("CONVERSION_METADATA", 96)):
        model.metadata.append((name, np.zeros(size, np.uint8)))
