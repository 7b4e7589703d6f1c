"""Magnitude pruning: drop the smallest |w| until the scheduled sparsity is met. Gradual with `PolynomialDecay`
(Zhu & Gupta 2017, arXiv 1710.01878), one-shot with `ConstantSparsity`.

Only active entries compete: an entry once pruned stays pruned. Its gradient is masked, so nothing could bring it back.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sparsetorch.sparsify.algorithm import Algorithm
from sparsetorch.sparsify.mask import keep_top, number_kept
from sparsetorch.sparsify.pattern import Pattern


def magnitude_mask(weight: Tensor, sparsity: float) -> Tensor:
    """The mask that keeps exactly `N - round(sparsity * N)` entries of largest |w|; ties are broken by index."""
    return keep_top(weight.detach().abs(), number_kept(weight.numel(), sparsity))


def shrink(mask: Tensor, weight: Tensor, sparsity: float, pattern: Pattern) -> Tensor:
    """The mask of the largest |w| among the active entries, at `sparsity`; never reactivates an entry."""
    active = pattern.pool(mask.to(torch.float32)) > 0
    score = pattern.pool(weight.detach().abs().float()).masked_fill(~active, -torch.inf)
    return pattern.spread(pattern.select(score, sparsity) & active, weight)


@dataclass(frozen=True)
class Magnitude(Algorithm):
    """Prune by magnitude along the schedule. Training starts dense; the first mask comes at `begin_step`."""

    starts_sparse: ClassVar[bool] = False

    def update(
        self, mask: Tensor, weight: Tensor, growth: Tensor | None, sparsity: float, progress: float, pattern: Pattern
    ) -> Tensor:
        """Drop the smallest active weights until `sparsity` is met."""
        return shrink(mask, weight, sparsity, pattern)
