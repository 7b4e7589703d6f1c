"""Distributions that look at more than shapes: an explicit map, and one threshold over all weights."""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.distribution import Distribution
from sparsetorch.sparsify.mask import check_sparsity, keep_top, number_kept


@dataclass(frozen=True)
class PerLayer(Distribution):
    """Named layers at the sparsity given for them, all others at one that meets the schedule's.

    While a gradual schedule is still below what the named layers alone account for, these are scaled down together.
    """

    sparsities: dict[str, float] = field(default_factory=dict)
    """Final sparsity by module path."""

    def __post_init__(self) -> None:
        for name, sparsity in self.sparsities.items():
            check_sparsity(sparsity, f"sparsities.{name}")

    def allocate(
        self, shapes: Mapping[str, Sequence[int]], sparsity: float, *, first_layer: str | None = None
    ) -> dict[str, float]:
        """Sparsity per layer; see `Distribution.allocate`. The first layer gets no special treatment."""
        check_sparsity(sparsity)
        sizes = {name: math.prod(shape) for name, shape in shapes.items()}
        budget = sparsity * sum(sizes.values())
        named = sum(self.sparsities.get(name, 0.0) * size for name, size in sizes.items())
        others = sum(size for name, size in sizes.items() if name not in self.sparsities)
        scale = min(budget / named, 1.0) if named else 1.0
        rest = (budget - scale * named) / others if others else 0.0
        return {name: scale * self.sparsities[name] if name in self.sparsities else rest for name in shapes}

    def check(self, shapes: Mapping[str, Sequence[int]], sparsity: float) -> None:
        """Every name has to be a layer, and the map has to fit the budget exactly or leave others to meet it."""
        for name in self.sparsities:
            if name not in shapes:
                near = difflib.get_close_matches(name, shapes, n=3)
                raise BadInputError(
                    f"sparsities: {name!r} is no layer that the policy picks; "
                    f"{'near it: ' + ', '.join(near) if near else 'there are ' + ', '.join(shapes)}"
                )
        sizes = {name: math.prod(shape) for name, shape in shapes.items()}
        total, budget = sum(sizes.values()), sparsity * sum(sizes.values())
        named = sum(value * sizes[name] for name, value in self.sparsities.items())
        others = total - sum(sizes[name] for name in self.sparsities)
        if named > budget + len(shapes):
            raise BadInputError(
                f"sparsities: the layers named come to {named:.0f} zeros, past the {budget:.0f} of {total} that the "
                f"schedule's sparsity {sparsity:g} allows; lower them, or raise the schedule to {named / total:.4g}"
            )
        if budget - named > max(others - 1, 0) + len(shapes):
            raise BadInputError(
                f"sparsities: the layers named come to {named:.0f} zeros and the others have only {others} weights, short of "
                f"the {budget:.0f} that the schedule's sparsity {sparsity:g} asks for"
            )


@dataclass(frozen=True)
class Global(Distribution):
    """One magnitude threshold over the weights of all layers; every layer keeps at least a share of its own.

    Goes with `Magnitude`. Without a floor, a layer of small weights loses all of them and the network falls apart.
    """

    floor: float = 0.01
    """Least share of a layer's weights that is kept, and at least one weight."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.floor <= 1.0:
            raise BadInputError(f"floor: found {self.floor!r}, needed a share in [0, 1]")

    def allocate(
        self, shapes: Mapping[str, Sequence[int]], sparsity: float, *, first_layer: str | None = None
    ) -> dict[str, float]:
        """The same sparsity for all: without weights to look at there is nothing to tell layers apart."""
        check_sparsity(sparsity)
        return dict.fromkeys(shapes, sparsity)

    def allocate_by_score(self, scores: Mapping[str, Tensor], sparsity: float) -> dict[str, float]:
        """Sparsity per layer.

        Args:
            scores: 1-D per layer, one value >= 0 per unit of the pattern; -inf where it is pruned already.
            sparsity: global sparsity in [0, 1).

        Raises:
            BadInputError: where the floors alone keep more than the sparsity allows.
        """
        check_sparsity(sparsity)
        floors = {name: max(1, math.ceil(self.floor * score.numel())) for name, score in scores.items()}
        wanted = number_kept(sum(score.numel() for score in scores.values()), sparsity)
        if sum(floors.values()) > wanted:
            raise BadInputError(
                f"floor: {self.floor!r} of every layer keeps {sum(floors.values())} weights, sparsity {sparsity:g} only {wanted}"
            )
        # The floors and, of the rest, the largest: that is one threshold over the layers which it leaves above their floor,
        # and the floor in the others. Layers fall to their floor one round after another, usually none.
        counts, free = dict(floors), dict(scores)
        while free:
            taken = keep_top(torch.cat([score.cpu() for score in free.values()]), wanted - _sum_of_others(counts, free))
            sizes = [score.numel() for score in free.values()]
            found = {name: int(part.sum()) for name, part in zip(free, taken.split(sizes), strict=True)}
            short = [name for name, count in found.items() if count < floors[name]]
            if not short:
                counts |= found
                break
            for name in short:
                del free[name]
        return {name: 1.0 - counts[name] / score.numel() for name, score in scores.items()}


def _sum_of_others(counts: Mapping[str, int], free: Mapping[str, Tensor]) -> int:
    return sum(count for name, count in counts.items() if name not in free)
