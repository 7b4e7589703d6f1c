"""The two-thirds rule as a plan: which layers a cluster counts, how many the policy may prune, and how sparse those must be.

XNNPACK lays a cluster out channels first only if more than two thirds of the weights of all its 1x1 convolutions together are
zero (XNNPACK 75db3c0 src/subgraph.c, xnn_subgraph_rewrite_for_nchw). One large layer that the policy leaves out keeps all others
dense.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from sparsetorch.tflite.encode import encode
from sparsetorch.tflite.model import Model, Tensor
from sparsetorch.xnnpack.analysis import Analysis, analyse
from sparsetorch.xnnpack.layers import is_pointwise, module_of, unpack_sources, weight_of
from sparsetorch.xnnpack.revisions import CURRENT
from sparsetorch.xnnpack.weights import count_zeros

_KEPT_EACH = 20
"""One weight in this many is kept where a cluster's extent is looked for: sparse enough for any rule."""


@dataclass(frozen=True)
class ClusterPlan:
    """One cluster that could run sparse, under a pruning plan."""

    layers: tuple[str, ...]
    """Its 1x1 convolutions, by module path; by tensor where none is known."""
    not_pruned: tuple[str, ...]
    """Those among them that the policy leaves alone."""
    params: int
    prunable: int
    """Parameters that the policy may prune."""
    required_zeros: int
    planned_zeros: int
    needed_sparsity: float | None
    """Over the layers that the policy prunes, as a share rounded up to 0.001; None where not even 1.0 would do."""

    @property
    def planned_sparsity(self) -> float:
        """Of the whole cluster."""
        return self.planned_zeros / self.params

    @property
    def is_enough(self) -> bool:
        """Whether the plan passes the rule."""
        return self.planned_zeros >= self.required_zeros


def cluster_plans(dense: Model, chosen: Collection[str]) -> tuple[ClusterPlan, ...]:
    """The clusters that enough zeros would make sparse, and what the plan comes to in each.

    Args:
        dense: repaired, its weights named by module path and with the zeros of the plan, not encoded.
        chosen: module paths of the layers that the policy prunes.
    """
    planned = {
        weight.name: count_zeros(weight)
        for graph in dense.graphs
        for operator in graph.operators
        if is_pointwise(operator) and (weight := weight_of(operator, {})) is not None
    }
    model = _all_pruned(dense)
    found = []
    for graph in model.graphs:
        analysis = analyse(graph, CURRENT[0])
        for names in _clusters(analysis):
            found.append(_plan(names, planned, chosen))
    return tuple(found)


def _plan(names: list[str], planned: dict[str, tuple[int, int]], chosen: Collection[str]) -> ClusterPlan:
    modules = {name: module_of(name) or name for name in names}
    params = sum(planned[name][0] for name in names)
    prunable = sum(planned[name][0] for name in names if modules[name] in chosen)
    required = params * 2 // 3 + 1
    # Zeros of layers that the policy leaves alone count as well, where there are any.
    given = sum(planned[name][1] for name in names if modules[name] not in chosen)
    missing = max(0, required - given)
    reachable = prunable > 0 and missing < prunable
    return ClusterPlan(
        layers=tuple(modules.values()),
        not_pruned=tuple(modules[name] for name in names if modules[name] not in chosen),
        params=params,
        prunable=prunable,
        required_zeros=required,
        planned_zeros=sum(planned[name][1] for name in names),
        needed_sparsity=min(1.0, math.ceil(1000 * missing / prunable) / 1000) if reachable else None,
    )


def _clusters(analysis: Analysis) -> list[list[str]]:
    """The weights of each cluster's 1x1 convolutions, those that run sparse."""
    sources = unpack_sources(analysis.graph)
    running = set(analysis.sparse_nodes)
    found = []
    for part in analysis.parts:
        for cluster in part.layouts.clusters:
            weights = [weight_of(node.operator, sources) for node in cluster.nodes if node in running]
            if names := list(dict.fromkeys(weight.name for weight in weights if weight is not None)):
                found.append(names)
    return found


def _all_pruned(dense: Model) -> Model:
    """A copy, encoded, whose 1x1 convolutions are sparse enough for any rule."""
    model = dense.copy()
    pruned: set[Tensor] = set()
    for graph in model.graphs:
        for operator in graph.operators:
            weight = weight_of(operator, {}) if is_pointwise(operator) else None
            if weight is None or weight in pruned:
                continue
            values = np.zeros_like(weight.array())
            values.reshape(-1)[::_KEPT_EACH] = 1.0
            weight.data = np.frombuffer(values.tobytes(), np.uint8)
            pruned.add(weight)
    encode(model, lambda weight: weight in pruned)
    return model
