"""What a network's zeros will be at the end of a training, without the training."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import nn

from sparsetorch.errors import NotEligibleError
from sparsetorch.masking import permanent_copy
from sparsetorch.masking.sparsifier import Sparsifier
from sparsetorch.sparsify.distribution import Distribution, Uniform
from sparsetorch.sparsify.magnitude import Magnitude
from sparsetorch.sparsify.mask import check_sparsity
from sparsetorch.sparsify.pattern import Pattern, Unstructured
from sparsetorch.sparsify.policy import Conv1x1, Policy
from sparsetorch.sparsify.schedule import ConstantSparsity

if TYPE_CHECKING:
    from sparsetorch.callbacks.sparse_training import SparseTraining


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
    """A copy of a module with the zeros of the plan: the smallest magnitudes, which before training are any.

    The module itself gets masks.

    Raises:
        BadInputError: the distribution or the pattern does not fit the layers.
        NotEligibleError: the policy picks no layer.
    """
    if not plan.policy.select(plain):
        raise NotEligibleError(
            f"policy: {plan.policy} picks no layer of {type(plain).__name__}; nothing would be sparse"
        )
    sparsifier = Sparsifier(
        plain,
        algorithm=Magnitude(),
        schedule=ConstantSparsity(plan.sparsity).resolve(1),
        policy=plan.policy,
        distribution=plan.distribution,
        pattern=plan.pattern,
    )
    sparsifier.update(1, [])
    return permanent_copy(plain)
