"""The static verdict: would XNNPACK run this file on its sparse path, on which targets, and if not, why not.

It is a prediction from the sources of named revisions, not an observation. Where the revisions of a target disagree the
answer is no, and the reason names the revision.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsetorch.tflite.model import Model
from sparsetorch.tflite.read import load
from sparsetorch.tflite.sense import expect_sense
from sparsetorch.xnnpack.analysis import Analysis, analyse
from sparsetorch.xnnpack.layers import Layer, layers, weight_of
from sparsetorch.xnnpack.reasons import Reason, reasons
from sparsetorch.xnnpack.revisions import CURRENT, Revision
from sparsetorch.xnnpack.subgraph import Node
from sparsetorch.xnnpack.targets import DEFAULT_TARGETS, Target, find_targets

if TYPE_CHECKING:
    from sparsetorch.runtime.observation import Observation


@dataclass(frozen=True)
class TargetVerdict:
    """The answer for one target."""

    eligible: bool
    why_not: str | None
    unsafe: bool
    """The file would compute wrong numbers there, or not load: worse than slow."""


@dataclass(frozen=True)
class ClusterReport:
    """A set of operators that runs channels first, or would with enough zeros."""

    entry: str | None
    """The weight of the convolution that leads into it."""
    exit: str | None
    """The operator that leads out of it."""
    convs_1x1: int
    params: int
    zeros: int
    sparsity: float


@dataclass(frozen=True)
class Verdict:
    """What `sparsetorch verify` says. `to_dict` is the JSON contract."""

    file: str | None
    revision: str
    targets: dict[str, TargetVerdict]
    clusters: tuple[ClusterReport, ...]
    reasons: tuple[Reason, ...]
    expected_spmm: int
    """1x1 convolutions that would run as sparse matrix multiplications where the path is on."""
    layers: tuple[Layer, ...]
    observed: "dict[str, Observation]" = field(default_factory=dict)
    """Runtime -> what was seen there, where it was asked for."""

    @property
    def eligible(self) -> bool:
        """Whether all asked targets are."""
        return all(target.eligible for target in self.targets.values())

    @property
    def unsafe(self) -> bool:
        """Whether any asked target would get wrong numbers."""
        return any(target.unsafe for target in self.targets.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: lists instead of tuples."""
        fields = asdict(self)
        for layer in fields["layers"]:
            layer["shape"] = list(layer["shape"])
        return {
            "file": self.file,
            "revision": self.revision,
            "targets": fields["targets"],
            "eligible": self.eligible,
            "clusters": list(fields["clusters"]),
            "reasons": list(fields["reasons"]),
            "expected_spmm": self.expected_spmm,
            "layers": list(fields["layers"]),
        } | ({"observed": {name: one.to_dict() for name, one in self.observed.items()}} if self.observed else {})


@dataclass(frozen=True)
class _Outcome:
    """What one revision says of all graphs of a model."""

    analyses: tuple[Analysis, ...]
    reasons: tuple[Reason, ...]
    unsafe: bool

    @property
    def spmm(self) -> int:
        return sum(len(analysis.sparse_nodes) for analysis in self.analyses)

    @property
    def eligible(self) -> bool:
        return not self.unsafe and self.spmm > 0 and not any(analysis.left_out for analysis in self.analyses)


def verify(path_or_model: str | Path | Model, targets: Iterable[str] = DEFAULT_TARGETS) -> Verdict:
    """Predict whether XNNPACK takes its sparse path for a model.

    Args:
        path_or_model: a .tflite file, or a model in memory. It is not changed.
        targets: names out of `TARGETS`.

    Raises:
        BadInputError: the file cannot be read, or contradicts itself.
        UsageError: an unknown target.
    """
    chosen = find_targets(targets)
    model = path_or_model if isinstance(path_or_model, Model) else load(path_or_model)
    file = None if isinstance(path_or_model, Model) else str(path_or_model)
    revisions = tuple(dict.fromkeys(revision for target in chosen for revision in target.revisions)) or CURRENT
    with expect_sense(file or "the model"):
        outcomes = {revision: _outcome(model, revision) for revision in revisions}
        described = layers(model)
    found = _merge_reasons(outcomes)
    verdicts = {target.name: _target_verdict(target, model, outcomes, found) for target in chosen}
    found += [
        Reason(
            "target",
            None,
            None,
            None,
            f"target {target.name}: {target.always_off}",
            "a target with sparse kernels",
            _OFF_FIX,
        )
        for target in chosen
        if target.always_off is not None
    ]
    return Verdict(
        file,
        "; ".join(revision.name for revision in revisions),
        verdicts,
        tuple(_clusters(outcomes[revisions[0]])),
        tuple(found),
        min(outcome.spmm for outcome in outcomes.values()),
        described,
    )


_OFF_FIX = "verify for arm64 or wasm: nothing about the model can change this target"


def _outcome(model: Model, revision: Revision) -> _Outcome:
    analyses = tuple(analyse(graph, revision) for graph in model.graphs)
    used = [analysis for analysis in analyses if analysis.pointwise] or list(analyses[:1])
    found = dict.fromkeys(reason for analysis in used for reason in reasons(analysis))
    return _Outcome(analyses, tuple(found), any(analysis.unsafe for analysis in analyses))


def _merge_reasons(outcomes: dict[Revision, _Outcome]) -> list[Reason]:
    """Reasons that all revisions give as they are; the others with the revision's name."""
    merged: dict[Reason, None] = {}
    for revision, outcome in outcomes.items():
        for reason in outcome.reasons:
            if all(reason in other.reasons for other in outcomes.values()):
                merged[reason] = None
            else:
                merged[replace(reason, found=f"{reason.found} [{revision.name}]")] = None
    return list(merged)


def _target_verdict(
    target: Target, model: Model, outcomes: dict[Revision, _Outcome], found: list[Reason]
) -> TargetVerdict:
    if target.always_off is not None:
        encoded = any(tensor.sparsity is not None for tensor in model.tensors)
        unsafe = encoded and not target.knows_densify
        return TargetVerdict(False, target.always_off, unsafe)
    asked = [outcomes[revision] for revision in target.revisions]
    if all(outcome.eligible for outcome in asked):
        return TargetVerdict(True, None, False)
    unsafe = any(outcome.unsafe for outcome in asked)
    causes = [reason for reason in found if not unsafe or reason.rule.startswith(("unsafe", "integer", "unpacked"))]
    shown = [f"{reason.module or reason.tensor or 'the model'}: {reason.found}" for reason in causes[:3]]
    more = f"; and {len(found) - len(shown)} more" if len(found) > len(shown) else ""
    return TargetVerdict(False, "; ".join(shown) + more, unsafe)


def _clusters(outcome: _Outcome) -> list[ClusterReport]:
    reports = []
    for analysis in outcome.analyses:
        for part in analysis.parts:
            for cluster in part.layouts.clusters:
                convolutions = [node for node in cluster.nodes if part.layouts.flags[node].inside and node.is_pointwise]
                if cluster.marked or not convolutions:
                    continue
                flags = part.layouts.flags
                entry = next((node for node in cluster.nodes if flags[node].entry), None)
                exits = [node for node in cluster.nodes if flags[node].exit]
                reports.append(
                    ClusterReport(
                        _entry_name(entry, analysis),
                        exits[-1].operator.outputs[0].name if exits else None,
                        len(convolutions),
                        cluster.params,
                        cluster.zeros,
                        cluster.zeros / cluster.params if cluster.params else 0.0,
                    )
                )
    return reports


def _entry_name(entry: Node | None, analysis: Analysis) -> str | None:
    weight = None if entry is None else weight_of(entry.operator, analysis.plan.sources)
    return None if weight is None else weight.name
