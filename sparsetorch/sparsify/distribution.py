"""How much of each layer: a global sparsity shared out over the layers.

Sources: Evci et al., "Rigging the Lottery" (2020), arXiv 1911.11134, and google-research/rigl `rigl/sparse_utils.py`
(uniform, Erdos-Renyi, Erdos-Renyi-kernel). A shape is PyTorch's: (out, in) or (out, in, height, width). Layers that a
policy leaves out are not in `shapes` and so not in the budget.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.mask import check_sparsity


class Distribution(ABC):
    """Shares a global sparsity out over layers."""

    @abstractmethod
    def allocate(
        self, shapes: Mapping[str, Sequence[int]], sparsity: float, *, first_layer: str | None = None
    ) -> dict[str, float]:
        """Sparsity per layer, for what `sparsity` is at some step of the schedule.

        Args:
            shapes: weight shape per layer name, in network order.
            sparsity: global sparsity in [0, 1).
            first_layer: name of the network's first layer, which need not be in `shapes`; None: the first of `shapes`.
        """

    def check(self, shapes: Mapping[str, Sequence[int]], sparsity: float) -> None:
        """Refuse settings that cannot give the schedule's final sparsity.

        Raises:
            BadInputError: naming the layer and the values.
        """


@dataclass(frozen=True)
class Uniform(Distribution):
    """Every layer at the same sparsity, the network's first layer dense (it has few weights and hurts most).

    A policy that leaves the first layer out makes no other layer dense in its place.
    """

    first_layer_dense: bool = True
    """Keep the network's first layer dense."""

    def allocate(
        self, shapes: Mapping[str, Sequence[int]], sparsity: float, *, first_layer: str | None = None
    ) -> dict[str, float]:
        """Sparsity per layer; see `Distribution.allocate`."""
        check_sparsity(sparsity)
        first = first_layer if first_layer is not None else next(iter(shapes), None)
        return {name: 0.0 if self.first_layer_dense and name == first else sparsity for name in shapes}


@dataclass(frozen=True)
class ERK(Distribution):
    """Erdos-Renyi-kernel: density of layer l = eps * (sum(shape) / prod(shape)) ** power.

    `eps` makes the densities meet the global number of weights. While a density exceeds 1, the layers that share the
    largest ratio are made dense and the rest is solved again with what remains of the budget.
    """

    power: float = 1.0
    """Exponent of the shape ratio; 1 is the paper's, 0 is uniform."""

    def allocate(
        self, shapes: Mapping[str, Sequence[int]], sparsity: float, *, first_layer: str | None = None
    ) -> dict[str, float]:
        """Sparsity per layer; see `Distribution.allocate`. The first layer gets no special treatment."""
        ratios = {name: (sum(shape) / math.prod(shape)) ** self.power for name, shape in shapes.items()}
        return _solve(shapes, ratios, sparsity)


@dataclass(frozen=True)
class ER(Distribution):
    """Erdos-Renyi: as ERK with the ratio (n_in + n_out) / (n_in * n_out), which ignores the kernel's size."""

    def allocate(
        self, shapes: Mapping[str, Sequence[int]], sparsity: float, *, first_layer: str | None = None
    ) -> dict[str, float]:
        """Sparsity per layer; see `Distribution.allocate`. The first layer gets no special treatment."""
        ratios = {name: (shape[0] + shape[1]) / (shape[0] * shape[1]) for name, shape in shapes.items()}
        return _solve(shapes, ratios, sparsity)


def _solve(shapes: Mapping[str, Sequence[int]], ratios: Mapping[str, float], sparsity: float) -> dict[str, float]:
    """Densities proportional to `ratios` that meet the budget, none above 1."""
    check_sparsity(sparsity)
    for name, shape in shapes.items():
        if math.prod(shape) < 1:
            raise BadInputError(f"layer {name}: found the shape {tuple(shape)}, needed at least one weight")
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    dense: set[str] = set()
    while True:
        free = [name for name in shapes if name not in dense]
        if not free:
            return dict.fromkeys(shapes, 0.0)
        budget = (1.0 - sparsity) * sum(sizes.values()) - sum(sizes[name] for name in dense)
        eps = budget / sum(ratios[name] * sizes[name] for name in free)
        largest = max(ratios[name] for name in free)
        if eps * largest <= 1.0:
            return {name: 0.0 if name in dense else 1.0 - eps * ratios[name] for name in shapes}
        dense.update(name for name in free if ratios[name] == largest)
