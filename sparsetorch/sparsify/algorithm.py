"""Which entries: the contract between an algorithm and the loop that drives it (Lightning's or your own)."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from torch import Tensor

from sparsetorch.sparsify.pattern import Pattern

Growth = Literal["gradient", "momentum", "random"] | None


class Algorithm(ABC):
    """Chooses the entries of one layer. Knows nothing of steps, optimizers or other layers."""

    starts_sparse: ClassVar[bool] = True
    """Whether training starts from a random mask at the schedule's first sparsity, or dense."""
    growth: ClassVar[Growth] = None
    """What `update` needs as `growth`: |dense gradient|, |momentum of the dense gradient|, uniform random numbers, or nothing."""

    @abstractmethod
    def update(
        self, mask: Tensor, weight: Tensor, growth: Tensor | None, sparsity: float, progress: float, pattern: Pattern
    ) -> Tensor:
        """The mask after one update.

        Args:
            mask: current mask of the layer, boolean, the weight's shape, True = keep.
            weight: the layer's weight after the optimizer step; only its active entries are looked at.
            growth: score >= 0 per entry, of the kind named by the class's `growth`.
            sparsity: what this layer's sparsity is to be after the update, in [0, 1).
            progress: how far the schedule is, 0.0 to 1.0.
            pattern: how entries group into units.
        """
