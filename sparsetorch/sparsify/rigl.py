"""Dynamic sparse training: RigL, SET, SNFS and Static differ only in what makes an entry grow.

Evci et al., "Rigging the Lottery: Making All Tickets Winners" (2020), arXiv 1911.11134. At every update step t:

1. drop `int(n_active * f(t))` active entries of smallest |w|, with `f` annealed from `drop_fraction` to 0;
2. grow as many of the largest growth score among everything not kept; just-dropped entries are candidates.

An entry dropped and grown in one update is thereby unchanged; a truly new one starts at weight 0 with empty optimizer
slots. The number of active entries does not change, or follows the schedule where that one is not constant
(gradual drop and grow: Liu et al., "Sparse Training via Boosting Pruning Plasticity" (2021), arXiv 2106.10404).
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.algorithm import Algorithm, Growth
from sparsetorch.sparsify.mask import keep_top
from sparsetorch.sparsify.pattern import Pattern

Annealing = Literal["cosine", "linear", "constant"]


def annealed_drop_fraction(drop_fraction: float, progress: float, annealing: Annealing = "cosine") -> float:
    """The share of active entries to drop, `progress` (0 to 1) of the way through the schedule.

    cosine: `alpha / 2 * (1 + cos(pi * progress))`; linear: `alpha * (1 - progress)`; constant: `alpha`.
    """
    if annealing == "cosine":
        return drop_fraction / 2 * (1 + math.cos(math.pi * progress))
    return drop_fraction * (1 - progress) if annealing == "linear" else drop_fraction


def drop_and_grow(
    mask: Tensor, weight: Tensor, growth: Tensor, drop_fraction: float, sparsity: float, pattern: Pattern
) -> Tensor:
    """One update.

    Args:
        mask: current mask, boolean, of the weight's shape.
        weight: the weight, masked or not: entries outside `mask` are never looked at.
        growth: score >= 0 per entry, for instance |dense gradient|.
        drop_fraction: share of the active units to drop, `f(t)`.
        sparsity: target sparsity after the update.
        pattern: how entries group into units.

    Returns:
        The new mask, with exactly `N - round(sparsity * N)` units.
    """
    active = pattern.pool(mask.to(torch.float32)) > 0
    n_active = int(active.sum())
    # Inactive entries come last even against an active weight that happens to be exactly 0.
    magnitude = pattern.pool(weight.detach().abs().float()).masked_fill(~active, -torch.inf)
    kept = keep_top(magnitude, n_active - int(n_active * drop_fraction))
    kept &= pattern.select(magnitude, sparsity)  # where the schedule asks for fewer than that
    return pattern.spread(pattern.fill(kept, pattern.pool(growth.detach().float()), sparsity), weight)


@dataclass(frozen=True)
class _DropAndGrow(Algorithm):
    drop_fraction: float = 0.3
    """Share of the active weights replaced by the first update (alpha)."""
    annealing: Annealing = "cosine"
    """How the share falls from `begin_step` to `end_step`: cosine, linear, or constant."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.drop_fraction <= 1.0:
            raise BadInputError(f"drop_fraction: found {self.drop_fraction!r}, needed a share in [0, 1]")
        if self.annealing not in ("cosine", "linear", "constant"):
            raise BadInputError(f"annealing: found {self.annealing!r}, needed cosine, linear or constant")

    def update(
        self, mask: Tensor, weight: Tensor, growth: Tensor | None, sparsity: float, progress: float, pattern: Pattern
    ) -> Tensor:
        """One drop and grow."""
        if growth is None:
            raise ValueError(f"{type(self).__name__} needs a growth score ({self.growth})")
        fraction = annealed_drop_fraction(self.drop_fraction, progress, self.annealing)
        return drop_and_grow(mask, weight, growth, fraction, sparsity, pattern)


@dataclass(frozen=True)
class RigL(_DropAndGrow):
    """Grow where the gradient with respect to the masked-out weight is largest."""

    growth: ClassVar[Growth] = "gradient"


@dataclass(frozen=True)
class SET(_DropAndGrow):
    """Grow at random (Mocanu et al. 2018, arXiv 1707.04780)."""

    growth: ClassVar[Growth] = "random"


@dataclass(frozen=True)
class SNFS(_DropAndGrow):
    """Grow where the momentum of the gradient is largest (Dettmers & Zettlemoyer 2019, arXiv 1907.04840).

    The momentum is that of the dense gradient: `momentum * old + (1 - momentum) * gradient` at every step, a value per
    weight that the sparsifier keeps. The paper also moves weights between layers; this class does not.
    """

    momentum: float = 0.9
    """Share of the old value kept at each step."""

    growth: ClassVar[Growth] = "momentum"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.momentum < 1.0:
            raise BadInputError(f"momentum: found {self.momentum!r}, needed a share in [0, 1)")


@dataclass(frozen=True)
class Static(Algorithm):
    """A random mask that never changes: the control that every dynamic method must beat."""

    def update(
        self, mask: Tensor, weight: Tensor, growth: Tensor | None, sparsity: float, progress: float, pattern: Pattern
    ) -> Tensor:
        """The same mask."""
        return mask
