"""In which shape zeros come: a pattern groups the entries of a weight into units that are kept or dropped whole.

An algorithm sees only units: it pools scores into one number per unit, decides, and spreads the decision back.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor


class Pattern(ABC):
    """Groups entries into units."""

    @abstractmethod
    def pool(self, score: Tensor) -> Tensor:
        """One score per unit, 1-D, from a non-negative score per entry (the shape of the weight)."""

    @abstractmethod
    def spread(self, units: Tensor, like: Tensor) -> Tensor:
        """The mask per entry, of the shape of `like`, from a mask per unit."""


@dataclass(frozen=True)
class Unstructured(Pattern):
    """Every entry is a unit of its own."""

    def pool(self, score: Tensor) -> Tensor:
        """The scores themselves, flat."""
        return score.reshape(-1)

    def spread(self, units: Tensor, like: Tensor) -> Tensor:
        """The mask in the shape of the weight."""
        return units.reshape(like.shape)
