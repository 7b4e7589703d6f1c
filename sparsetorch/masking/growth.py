"""What makes an entry grow, collected during a training: dense gradients, their momentum, or random numbers.

The three sources of `Algorithm.growth`. A gradient is that of the optimizer step at hand, kept from before the step until the
update after it; the momentum (SNFS) lives on, a value per weight; random numbers are drawn when asked for.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from sparsetorch.masking import masks
from sparsetorch.sparsify.algorithm import Algorithm
from sparsetorch.sparsify.rigl import SNFS
from sparsetorch.sparsify.schedule import Schedule


class GrowthScores:
    """Growth scores of the layers of one network."""

    def __init__(self, algorithm: Algorithm, seed: int) -> None:
        self.algorithm = algorithm
        self.seed = seed
        self.momentum: dict[str, Tensor] = {}
        self._gradients: dict[str, Tensor] = {}

    def uses_gradient_of(self, step: int, schedule: Schedule) -> bool:
        """Whether the dense gradient of optimizer step `step` is needed."""
        if self.algorithm.growth == "gradient":
            return schedule.is_update_step(step)
        return self.algorithm.growth == "momentum" and step >= 0 and schedule.progress(step) < 1.0

    def take(self, name: str, layer: nn.Module) -> None:
        """Keep a layer's dense gradient; the optimizer then sees the masked one."""
        gradient = masks.take_dense_gradient(layer)
        if gradient is None:
            return
        self._gradients[name] = gradient
        # A step that is not finite, which no optimizer takes, leaves the momentum alone.
        if isinstance(self.algorithm, SNFS) and bool(torch.isfinite(gradient).all()):
            beta, old = self.algorithm.momentum, self.momentum.get(name)
            new = gradient * (1 - beta)
            self.momentum[name] = new if old is None else old.mul_(beta).add_(new)

    def score(self, name: str, weight: Tensor, step: int, index: int) -> Tensor | None:
        """The score >= 0 per entry that `Algorithm.update` asks for; None where it asks for none."""
        if self.algorithm.growth is None:
            return None
        if self.algorithm.growth == "random":
            return torch.rand(weight.shape, generator=self.generator(step, index)).to(weight.device)
        source = (self._gradients if self.algorithm.growth == "gradient" else self.momentum).get(name)
        # A layer without a gradient took no part in the loss: nothing tells its entries apart, index order decides.
        return torch.zeros_like(weight) if source is None else source.abs()

    def generator(self, step: int, index: int) -> torch.Generator:
        """A random stream of its own per seed, step and layer: equal on all ranks and after a resume, stored nowhere."""
        return torch.Generator().manual_seed(((self.seed * 1_000_003 + step) * 10_007 + index) % (1 << 62))

    def is_finite(self) -> bool:
        """Whether every gradient kept for this step is."""
        return all(bool(torch.isfinite(gradient).all()) for gradient in self._gradients.values())

    def forget(self) -> None:
        """Drop the gradients of this step."""
        self._gradients.clear()

    def load_momentum(self, momentum: Mapping[str, Tensor], layers: Mapping[str, nn.Module]) -> None:
        """Go on from stored momentum, on the devices of the layers."""
        self.momentum = {name: value.to(masks.original_of(layers[name]).device) for name, value in momentum.items()}
