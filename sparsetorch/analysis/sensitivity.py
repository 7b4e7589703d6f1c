"""Where a network can be pruned: accuracy against sparsity, one layer or channel group at a time, and what follows from it.

A curve holds the accuracy with one unit pruned by magnitude, all others whole and nothing trained again (Han et al. 2015,
arXiv 1506.02626; Li et al. 2017, arXiv 1608.08710). The recommendation gives every unit the largest sparsity at which it alone
costs no more than some loss of accuracy, the same for all; that loss is raised until the budget is met. Losses of several
layers do not simply add up, so it is a start for training and no prediction of its result.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sparsetorch.errors import BadInputError
from sparsetorch.masking.masks import weight_parameter
from sparsetorch.sparsify.magnitude import magnitude_mask
from sparsetorch.sparsify.mask import check_sparsity, keep_top, number_kept
from sparsetorch.structured.groups import Group
from sparsetorch.structured.slicing import Weights, filters_of, out_first


@dataclass(frozen=True)
class Curve:
    """What pruning one unit costs."""

    name: str
    """Module path of the layer, or name of the channel group."""
    size: int
    """Weights of the layer, or channels of the group."""
    sparsities: tuple[float, ...]
    """Rising, each in (0, 1)."""
    accuracies: tuple[float, ...]
    """One for each sparsity; higher is better."""

    def sparsity_at(self, loss: float, baseline: float) -> float:
        """The largest sparsity that costs at most `loss`, between measured ones along a straight line, and 0 at none."""
        reached, spent = 0.0, 0.0
        for sparsity, accuracy in zip(self.sparsities, self.accuracies, strict=True):
            here = max(baseline - accuracy, spent)  # more zeros that cost less are luck
            if here > loss:
                return reached + (sparsity - reached) * (loss - spent) / (here - spent)
            reached, spent = sparsity, here
        return reached


def recommend(curves: Sequence[Curve], baseline: float, sparsity: float) -> tuple[dict[str, float], float]:
    """Sparsity per unit for a total one, and the loss that every one of them alone costs at most.

    Args:
        curves: of all units that are to be pruned.
        baseline: accuracy with nothing pruned.
        sparsity: of all their weights or channels together, in [0, 1).

    Raises:
        BadInputError: where the highest sparsities measured are too low for it.
    """
    check_sparsity(sparsity)
    total = sum(curve.size for curve in curves)

    def at(loss: float) -> dict[str, float]:
        return {curve.name: curve.sparsity_at(loss, baseline) for curve in curves}

    def share(found: Mapping[str, float]) -> float:
        return sum(found[curve.name] * curve.size for curve in curves) / total

    low, high = 0.0, max((baseline - min(curve.accuracies) for curve in curves), default=0.0)
    high = max(high, 0.0)
    most = share(at(high))
    if most < sparsity - 1e-9:
        raise BadInputError(
            f"budget: found {sparsity:g}, but the highest sparsities measured come to {most:.4g} in all; measure higher --levels"
        )
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if share(at(middle)) < sparsity else (low, middle)
    found = at(high)
    scale = sparsity / share(found) if share(found) > 0 else 0.0
    return {name: value * min(scale, 1.0) for name, value in found.items()}, high


def measure(
    units: Mapping[str, Callable[[float], Iterator[None]]],
    levels: Sequence[float],
    evaluate: Callable[[], float],
    known: Mapping[str, float],
) -> Iterator[tuple[str, float]]:
    """Accuracies by `key(name, level)`, one after another, those known already passed over.

    Args:
        units: by name, a context in which the unit is pruned to a sparsity.
        levels: sparsities.
        evaluate: accuracy of the network as it is.
        known: accuracies measured before.
    """
    if "baseline" not in known:
        yield "baseline", evaluate()
    for name, pruned in units.items():
        for level in levels:
            if key(name, level) not in known:
                with contextmanager(pruned)(level):
                    accuracy = evaluate()
                yield key(name, level), accuracy


def key(name: str, level: float) -> str:
    """Under which an accuracy is kept."""
    return f"{name}@{level:g}"


def curves_of(sizes: Mapping[str, int], levels: Sequence[float], known: Mapping[str, float]) -> list[Curve]:
    """The curves, of all accuracies measured."""
    order = sorted(levels)
    return [
        Curve(name, size, tuple(order), tuple(known[key(name, level)] for level in order))
        for name, size in sizes.items()
    ]


def layer_unit(layer: nn.Module) -> Callable[[float], Iterator[None]]:
    """A layer's smallest weights zero, for a while."""

    def pruned(sparsity: float) -> Iterator[None]:
        weight = weight_parameter(layer)
        before = weight.detach().clone()
        with _restored([(weight, before)]):
            with torch.no_grad():
                weight.mul_(magnitude_mask(before, sparsity))
            yield

    return pruned


def group_unit(module: nn.Module, group: Group) -> Callable[[float], Iterator[None]]:
    """A group's channels of smallest norm zero everywhere, for a while; at least one stays."""

    def pruned(sparsity: float) -> Iterator[None]:
        squares = torch.zeros(group.channels, dtype=torch.float64)
        for member in group.of_role("out"):
            layer = module.get_submodule(member.module)
            squares += filters_of(out_first(weight_parameter(layer), layer), member.indices).square().sum(dim=1)
        gone = ~keep_top(squares, max(number_kept(group.channels, sparsity), 1))
        touched = [
            (parameter, parameter.detach().clone())
            for member in group.members
            for parameter in module.get_submodule(member.module).parameters(recurse=False)
        ]
        with _restored(touched), torch.no_grad():
            for member in group.members:
                layer, own = module.get_submodule(member.module), member.of(gone)
                if isinstance(layer, nn.PReLU):
                    continue
                weight = weight_parameter(layer)
                view = out_first(weight, layer) if isinstance(layer, Weights) else weight
                if member.role == "in":
                    view[:, own] = 0.0
                    continue
                view[own] = 0.0
                bias = getattr(layer, "bias", None)
                if isinstance(bias, Tensor):
                    bias[own] = 0.0
            yield

    return pruned


@contextmanager
def _restored(values: Sequence[tuple[Tensor, Tensor]]) -> Iterator[None]:
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, before in values:
                parameter.copy_(before)


def check_levels(levels: Sequence[float]) -> tuple[float, ...]:
    """Rising sparsities in (0, 1), each once.

    Raises:
        BadInputError: otherwise.
    """
    for level in levels:
        if not 0.0 < level < 1.0 or math.isnan(level):
            raise BadInputError(f"levels: found {level!r}, needed sparsities above 0 and below 1, such as 0.3,0.6,0.9")
    if not levels:
        raise BadInputError("levels: found none, needed sparsities such as 0.3,0.6,0.9")
    return tuple(sorted(set(levels)))
