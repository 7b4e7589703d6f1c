"""A sparse network in training: masks on layers, changed along a schedule. Three calls a step, no framework.

    sparsifier = Sparsifier(network, algorithm=RigL(), schedule=ConstantSparsity(0.9).resolve(total_steps))
    for step, (image, label) in enumerate(batches, start=1):
        sparsifier.before_backward(step)            # will the gradient of the zeros be needed?
        loss(network(image), label).backward()
        sparsifier.before_optimizer_step(step)      # keep it, and hide it from the optimizer
        optimizer.step()
        optimizer.zero_grad()
        sparsifier.after_optimizer_step(step, [optimizer])

An update follows the optimizer step: the weights that compete are those after step t, the dense gradient is the one
that step t was computed from (accumulated, all-reduced and unscaled as the optimizer saw it). RigL's reference
implementation replaces the step instead; following it loses no gradient and keeps every scheduler's count of steps.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from sparsetorch.errors import BadInputError
from sparsetorch.masking import masks
from sparsetorch.masking.growth import GrowthScores
from sparsetorch.masking.optimizer_slots import clear_slots
from sparsetorch.sparsify.algorithm import Algorithm
from sparsetorch.sparsify.distribution import Distribution, Uniform
from sparsetorch.sparsify.mask import sparsity_of
from sparsetorch.sparsify.pattern import Pattern, Unstructured
from sparsetorch.sparsify.per_layer import Global
from sparsetorch.sparsify.policy import AllWeights, Policy, weight_layers
from sparsetorch.sparsify.schedule import Schedule


@dataclass(frozen=True)
class LayerUpdate:
    """What one update did to one layer."""

    dropped: int
    """Entries that were active and no longer are."""
    grown: int
    """Entries that were inactive and now are active; they start at 0."""


@dataclass(frozen=True)
class Update:
    """One update of all masks."""

    step: int
    layers: dict[str, LayerUpdate]


class Sparsifier:
    """Masks on the layers of `module` that `policy` picks, and the rule that changes them.

    A layer that carries a mask with zeros already (a second training, a loaded checkpoint) keeps it.

    Args:
        module: any network; masks are attached to its layers at once.
        algorithm: which entries.
        schedule: when and how sparse; `resolve` it first, so that every step is a number.
        policy: which layers.
        distribution: how much of each layer.
        pattern: in which shape.
        seed: of the first masks and of random growth; the same on every rank.

    Raises:
        BadInputError: where the policy picks no layer, or distribution, pattern and algorithm do not fit it.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        algorithm: Algorithm,
        schedule: Schedule,
        policy: Policy | None = None,
        distribution: Distribution | None = None,
        pattern: Pattern | None = None,
        seed: int = 0,
    ) -> None:
        self.module = module
        self.algorithm = algorithm
        self.schedule = schedule
        self.distribution = Uniform() if distribution is None else distribution
        self.pattern = Unstructured() if pattern is None else pattern
        self.seed = seed
        chosen = AllWeights() if policy is None else policy
        self.layers: dict[str, nn.Module] = {}
        """The masked layers by module path; of layers that share one weight, the first."""
        self._twins: dict[str, list[nn.Module]] = {}
        """The other layers that share the weight of one of `layers`."""
        owners: dict[int, str] = {}
        for name, layer in chosen.select(module).items():
            owner = owners.setdefault(id(masks.weight_parameter(layer)), name)
            if owner == name:
                self.layers[name] = layer
            else:
                self._twins.setdefault(owner, []).append(layer)
        if not self.layers:
            found = ", ".join(weight_layers(module)) or "no convolution or linear layer at all"
            raise BadInputError(f"policy: {chosen} picks no layer of {type(module).__name__}; found {found}")
        self.first_layer = next(iter(weight_layers(module)))
        self.skipped_updates = 0
        """Updates left out because a gradient or weight was not finite (a step that a gradient scaler skips)."""
        self.growth = GrowthScores(algorithm, seed)
        self._wants_dense = False
        self._check()
        self._attach()

    def _attach(self) -> None:
        new = not all(map(masks.is_masked, self._all_layers()))
        for name, layer in self.layers.items():
            masks.attach(layer)
            for twin in self._twins.get(name, []):
                masks.attach(twin, masks.mask_of(layer))
        if new and "torch._dynamo" in sys.modules:
            # A network that has run compiled would go on without the masks: compiled code does not look for new hooks.
            torch.compiler.reset()

    def _all_layers(self) -> list[nn.Module]:
        return [*self.layers.values(), *(twin for twins in self._twins.values() for twin in twins)]

    def _check(self) -> None:
        target = self.schedule.target_sparsity()
        shapes = {name: tuple(masks.weight_parameter(layer).shape) for name, layer in self.layers.items()}
        self.distribution.check(shapes, target)
        if isinstance(self.distribution, Global):
            if self.algorithm.starts_sparse:
                raise BadInputError(
                    f"distribution: Global compares magnitudes, which {type(self.algorithm).__name__}'s first, random masks "
                    "do not have; needed the algorithm Magnitude, or the distribution Uniform or ERK"
                )
            return
        for name, sparsity in self.distribution.allocate(shapes, target, first_layer=self.first_layer).items():
            self.pattern.check_fits(name, shapes[name], sparsity)

    @property
    def sparsity(self) -> float:
        """The share of inactive entries over all masked layers."""
        active = sum(int(masks.mask_of(layer).sum()) for layer in self.layers.values())
        return 1.0 - active / sum(masks.mask_of(layer).numel() for layer in self.layers.values())

    def layer_sparsity(self) -> dict[str, float]:
        """The share of inactive entries per layer."""
        return {name: sparsity_of(masks.mask_of(layer)) for name, layer in self.layers.items()}

    def allocation(self, sparsity: float) -> dict[str, float]:
        """What each layer's sparsity is at a global one. `Global` looks at the weights as they are now."""
        if isinstance(self.distribution, Global):
            return self.distribution.allocate_by_score(
                {name: self._magnitudes(layer) for name, layer in self.layers.items()}, sparsity
            )
        shapes = {name: tuple(masks.mask_of(layer).shape) for name, layer in self.layers.items()}
        return self.distribution.allocate(shapes, sparsity, first_layer=self.first_layer)

    def start(self) -> None:
        """Put the first masks on: random ones for an algorithm that starts sparse, one-shot ones due at step 0.

        A layer that already has zeros in its mask keeps it.
        """
        if self.algorithm.starts_sparse:
            for index, (name, sparsity) in enumerate(self.allocation(self.schedule.sparsity_at(0)).items()):
                layer = self.layers[name]
                if bool(masks.mask_of(layer).all()):
                    mask = masks.mask_of(layer)
                    self._set_mask(name, self.pattern.random(mask, sparsity, self.growth.generator(0, index)))
        elif self.schedule.is_update_step(0):
            self.update(0, [])

    def shortfall(self) -> dict[str, tuple[float, float]]:
        """The layers that are less sparse than the schedule's final sparsity asks, each with (reached, needed)."""
        target = self.schedule.target_sparsity()
        reached = self.layer_sparsity()
        if isinstance(self.distribution, Global):
            total = sum(masks.mask_of(layer).numel() for layer in self.layers.values())
            return (
                {} if (target - self.sparsity) * total < len(self.layers) else {"all layers": (self.sparsity, target)}
            )
        return {
            name: (reached[name], wanted)
            for name, wanted in self.allocation(target).items()
            if not self.pattern.is_reached(masks.mask_of(self.layers[name]), wanted)
        }

    def state_dict(self) -> dict[str, Any]:
        """What the module's own state dict, which holds the masks, does not."""
        return {"skipped_updates": self.skipped_updates, "momentum": dict(self.growth.momentum)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.skipped_updates = int(state.get("skipped_updates", 0))
        self.growth.load_momentum(state.get("momentum", {}), self.layers)

    def rest(self) -> None:
        """Between trainings: no gradient asked for, and the network can be copied (the `weight` of a forward is no leaf)."""
        self.before_backward(-1)
        self.growth.forget()
        for layer in self._all_layers():
            masks.refresh(layer)

    def before_backward(self, step: int) -> None:
        """Before the forward of any micro-batch of optimizer step `step` (the first is 1)."""
        wanted = self.growth.uses_gradient_of(step, self.schedule)
        if wanted != self._wants_dense:
            self._wants_dense = wanted
            for layer in self._all_layers():
                masks.want_dense_gradient(layer, wanted)

    def before_optimizer_step(self, step: int, parameters: Iterable[nn.Parameter] | None = None) -> None:
        """After the last backward of step `step`, gradients accumulated, all-reduced and unscaled, not yet clipped.

        Args:
            step: the optimizer step about to be taken.
            parameters: those of the optimizer about to step; None: all.
        """
        if not self.growth.uses_gradient_of(step, self.schedule):
            return
        mine = None if parameters is None else {id(parameter) for parameter in parameters}
        for name, layer in self.layers.items():
            if mine is None or id(masks.original_of(layer)) in mine:
                self.growth.take(name, layer)

    def after_optimizer_step(self, step: int, optimizers: Iterable[Optimizer]) -> Update | None:
        """After optimizer step `step`: the update, where one is due. None where none is or none was possible."""
        if not self.schedule.is_update_step(step):
            self.growth.forget()
            return None
        try:
            weights = map(masks.original_of, self.layers.values())
            if not (self.growth.is_finite() and all(bool(torch.isfinite(weight).all()) for weight in weights)):
                self.skipped_updates += 1
                return None
            return self.update(step, optimizers)
        finally:
            self.growth.forget()
            self.before_backward(step + 1)

    def update(self, step: int, optimizers: Iterable[Optimizer]) -> Update:
        """Change every layer's mask as the algorithm says for `step`; clear the slots of entries that come or go."""
        optimizers = list(optimizers)
        progress = self.schedule.progress(step)
        report = {}
        for index, (name, sparsity) in enumerate(self.allocation(self.schedule.sparsity_at(step)).items()):
            layer = self.layers[name]
            before, weight = masks.mask_of(layer), masks.original_of(layer)
            growth = self.growth.score(name, weight, step, index)
            after = self.algorithm.update(before, weight, growth, sparsity, progress, self.pattern)
            stays = before & after
            report[name] = LayerUpdate(
                dropped=int(before.sum() - stays.sum()),
                grown=int(after.sum() - stays.sum()),
            )
            self._set_mask(name, after)
            for optimizer in optimizers:
                clear_slots(optimizer, weight, stays)
        return Update(step, report)

    def _magnitudes(self, layer: nn.Module) -> Tensor:
        """|w| per unit, -inf where the unit is inactive."""
        active = self.pattern.pool(masks.mask_of(layer).float()) > 0
        return self.pattern.pool(masks.original_of(layer).detach().abs().float()).masked_fill(~active, -torch.inf)

    def _set_mask(self, name: str, mask: Tensor) -> None:
        for layer in (self.layers[name], *self._twins.get(name, [])):
            masks.set_mask(layer, mask)
