"""What a network's zeros will be at the end of a training, without the training."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import nn

from sparsetorch.masking import make_permanent
from sparsetorch.masking.sparsifier import Sparsifier
from sparsetorch.sparsify.distribution import Distribution, Uniform
from sparsetorch.sparsify.magnitude import Magnitude
from sparsetorch.sparsify.mask import check_sparsity
from sparsetorch.sparsify.pattern import Pattern, Unstructured
from sparsetorch.sparsify.policy import Conv1x1, Policy
from sparsetorch.sparsify.schedule import ConstantSparsity

if TYPE_CHECKING:
    from sparsetorch.callbacks.sparse_training import SparseTraining

_VARIETY = 1e-3
"""Of biases; any number that no rounding makes 0."""


@dataclass(frozen=True)
class PruningPlan:
    """Which layers get how sparse, in which shape; when, and which entries, does not matter here."""

    sparsity: float = 0.85
    """At the end, over all layers that the policy picks; 0 to below 1."""
    policy: Policy = field(default_factory=Conv1x1)
    distribution: Distribution = field(default_factory=Uniform)
    pattern: Pattern = field(default_factory=Unstructured)

    def __post_init__(self) -> None:
        check_sparsity(self.sparsity)

    @classmethod
    def of(cls, training: "SparseTraining") -> "PruningPlan":
        """Where a configured training ends."""
        return cls(training.schedule.target_sparsity(), training.policy, training.distribution, training.pattern)


def pruned(plain: nn.Module, plan: PruningPlan) -> nn.Module:
    """Give a plain module the zeros of the plan, in place: the smallest magnitudes, which before training are any.

    Its biases become as if trained. Where the policy picks no layer, only they change.

    Raises:
        BadInputError: the distribution or the pattern does not fit the layers.
    """
    _tell_channels_apart(plain)
    if not plan.policy.select(plain):
        return plain
    sparsifier = Sparsifier(
        plain,
        algorithm=Magnitude(),
        schedule=ConstantSparsity(plan.sparsity).resolve(1),
        policy=plan.policy,
        distribution=plan.distribution,
        pattern=plan.pattern,
    )
    sparsifier.update(1, [])
    return make_permanent(plain)


def _tell_channels_apart(module: nn.Module) -> None:
    """Give biases and batch-norm means that are still all equal the variety that training gives them, in place.

    Equal constants are stored once: an untrained network's file would come out smaller than the trained one's.
    """
    generator = torch.Generator().manual_seed(0)
    named = [*module.named_parameters(), *module.named_buffers()]
    with torch.no_grad():
        for name, value in named:
            if name.rpartition(".")[2] in ("bias", "running_mean") and bool((value == value.flatten()[:1]).all()):
                value.add_(torch.randn(value.shape, generator=generator), alpha=_VARIETY)
