"""How sparse each layer is for a network to be fast at little loss: a convex problem, solved by its multipliers.

XNNPACK's sparse matrix product costs a fixed time and a time per non-zero weight, which grows with the layer's pixels. A zero
in a layer of many pixels buys more time than one in a layer of few; what it costs in accuracy grows the sparser the layer is.

Loss: weights of a layer are taken as normal with one variance, pruned by magnitude. Pruned to the sparsity `s`, all
magnitudes below `t` standard deviations are gone, where `s = P(|x| < t)`; the share of the squared norm that went is
`f(s) = s - 2 t phi(t)`, and `f'(s) = t^2`. A layer of `n` weights loses `n * sensitivity * f(s)`.

Least loss at a total of zeros and at most a time: where no bound is met, `sensitivity * t^2 = mu + lam * ms_per_weight`
(Boyd and Vandenberghe, "Convex Optimization" (2004), 5.5.3); `mu` meets the zeros and `lam` the time, each by bisection.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from sparsetorch.errors import BadInputError

_NORMAL = NormalDist()
_STEPS = 60
"""Halvings of a bracket: as many as a double has digits."""
_GROWTH = 60
"""Doublings until a multiplier is taken as having no upper end."""


@dataclass(frozen=True)
class LayerCost:
    """What one layer's weights cost in time and in accuracy."""

    name: str
    weights: int
    ms_per_weight: float
    """Milliseconds of one non-zero weight in one inference."""
    fixed_ms: float = 0.0
    """Milliseconds whatever the sparsity."""
    sensitivity: float = 1.0
    """Loss of one weight of ordinary size, against other layers'."""

    def milliseconds(self, sparsity: float) -> float:
        """Time of the layer at a sparsity in [0, 1]."""
        return self.fixed_ms + self.ms_per_weight * self.weights * (1.0 - sparsity)


@dataclass(frozen=True)
class Bounds:
    """The least and the largest sparsity that any layer gets."""

    lowest: float = 0.0
    highest: float = 0.98

    def __post_init__(self) -> None:
        if not 0.0 <= self.lowest <= self.highest < 1.0:
            raise BadInputError(
                f"bounds: found lowest {self.lowest:g} and highest {self.highest:g}, needed 0 <= lowest <= highest < 1"
            )


def norm_removed(sparsity: float) -> float:
    """Share of the squared norm of normal weights that magnitude pruning to `sparsity` in [0, 1) takes away."""
    threshold = _NORMAL.inv_cdf((1.0 + sparsity) / 2.0)
    return sparsity - 2.0 * threshold * _NORMAL.pdf(threshold)


def loss(layers: Sequence[LayerCost], sparsities: Sequence[float]) -> float:
    """Loss of the whole, in units of one weight's variance."""
    return sum(
        layer.weights * layer.sensitivity * norm_removed(sparsity)
        for layer, sparsity in zip(layers, sparsities, strict=True)
    )


def milliseconds(layers: Sequence[LayerCost], sparsities: Sequence[float]) -> float:
    """Time of all layers together."""
    return sum(layer.milliseconds(sparsity) for layer, sparsity in zip(layers, sparsities, strict=True))


def zeros(layers: Sequence[LayerCost], sparsities: Sequence[float]) -> float:
    """Zeros of all layers together."""
    return sum(layer.weights * sparsity for layer, sparsity in zip(layers, sparsities, strict=True))


def least_loss(
    layers: Sequence[LayerCost], sparsity: float, bounds: Bounds | None = None, *, at_most_ms: float | None = None
) -> list[float]:
    """Sparsity per layer with the least loss at a total of zeros and within a time.

    Args:
        layers: at least one.
        sparsity: zeros over weights of all layers together, met exactly.
        bounds: of each layer; None: the defaults.
        at_most_ms: time of all layers together; None: any.

    Raises:
        BadInputError: bounds that the sparsity cannot be met in, or a time that cannot be met at it.
    """
    bounds = bounds or Bounds()
    _check_reachable(sparsity, bounds)
    found = _with_zeros(layers, sparsity, 0.0, bounds)
    if at_most_ms is None or milliseconds(layers, found) <= at_most_ms:
        return found
    quickest = fastest(layers, sparsity, bounds)
    if milliseconds(layers, quickest) > at_most_ms:
        raise BadInputError(
            f"latency: found a target of {at_most_ms:.4g} ms for the layers, needed at least "
            f"{milliseconds(layers, quickest):.4g} ms, the fastest that they are at a sparsity of {sparsity:g} with no layer "
            f"above {bounds.highest:g}; raise the sparsity or the target"
        )
    price = _bisect(lambda lam: milliseconds(layers, _with_zeros(layers, sparsity, lam, bounds)) <= at_most_ms)
    return quickest if price is None else _with_zeros(layers, sparsity, price, bounds)


def fastest(
    layers: Sequence[LayerCost], sparsity: float, bounds: Bounds | None = None, *, loss_ratio: float = math.inf
) -> list[float]:
    """Sparsity per layer with the least time at a total of zeros and at most a loss.

    Args:
        layers: at least one.
        sparsity: zeros over weights of all layers together, met exactly.
        bounds: of each layer; None: the defaults.
        loss_ratio: largest loss over the least that is possible at these zeros; at least 1. Infinite: zeros go where they buy
            most time until the bounds stop them.

    Raises:
        BadInputError: bounds that the sparsity cannot be met in, or a ratio below 1.
    """
    bounds = bounds or Bounds()
    _check_reachable(sparsity, bounds)
    if loss_ratio < 1.0:
        raise BadInputError(f"loss_ratio: found {loss_ratio:g}, needed 1 or more")
    quickest = _greedy(layers, sparsity, bounds)
    allowed = loss_ratio * loss(layers, _with_zeros(layers, sparsity, 0.0, bounds))
    if loss(layers, quickest) <= allowed:
        return quickest
    # The last price at which the loss is still allowed: the first at which it is not, from below.
    price = _bisect(lambda lam: loss(layers, _with_zeros(layers, sparsity, lam, bounds)) > allowed, first=False)
    return quickest if price is None else _with_zeros(layers, sparsity, price, bounds)


def least_loss_within(
    layers: Sequence[LayerCost], at_most_ms: float, bounds: Bounds | None = None, *, least_sparsity: float = 0.0
) -> list[float]:
    """Sparsity per layer with the least loss within a time, with as many zeros as that takes.

    Args:
        layers: at least one.
        at_most_ms: time of all layers together.
        bounds: of each layer; None: the defaults.
        least_sparsity: zeros over weights to have at least; just above 2/3 for XNNPACK's sparse path.

    Raises:
        BadInputError: a time that the largest sparsity does not meet.
    """
    bounds = bounds or Bounds()
    least = [bounds.highest] * len(layers)
    if milliseconds(layers, least) > at_most_ms:
        raise BadInputError(
            f"latency: found a target of {at_most_ms:.4g} ms for the layers, needed at least "
            f"{milliseconds(layers, least):.4g} ms, what they take with every layer {bounds.highest:g} sparse"
        )
    price = 0.0
    if milliseconds(layers, _at(layers, 0.0, 0.0, bounds)) > at_most_ms:
        price = _bisect(lambda lam: milliseconds(layers, _at(layers, 0.0, lam, bounds)) <= at_most_ms) or 0.0
    found = _at(layers, 0.0, price, bounds)
    if zeros(layers, found) >= least_sparsity * sum(layer.weights for layer in layers):
        return found
    return least_loss(layers, max(least_sparsity, bounds.lowest), bounds, at_most_ms=at_most_ms)


def _check_reachable(sparsity: float, bounds: Bounds) -> None:
    if not bounds.lowest <= sparsity <= bounds.highest:
        raise BadInputError(
            f"sparsity: found {sparsity:g}, needed {bounds.lowest:g} to {bounds.highest:g}, the bounds of every layer"
        )


def _at(layers: Sequence[LayerCost], mu: float, lam: float, bounds: Bounds) -> list[float]:
    """The least loss where a zero earns `mu` and a millisecond `lam`."""

    def one(layer: LayerCost) -> float:
        worth = max(mu + lam * layer.ms_per_weight, 0.0)
        free = math.erf(math.sqrt(worth / layer.sensitivity / 2.0)) if layer.sensitivity > 0.0 else 1.0
        return min(max(free, bounds.lowest), bounds.highest)

    return [one(layer) for layer in layers]


def _with_zeros(layers: Sequence[LayerCost], sparsity: float, lam: float, bounds: Bounds) -> list[float]:
    """`_at` with the `mu` that meets the zeros: below 0 where time alone would buy more of them."""
    needed = sparsity * sum(layer.weights for layer in layers)
    low = -lam * max(layer.ms_per_weight for layer in layers) - 1.0
    high = 1.0
    while zeros(layers, _at(layers, high, lam, bounds)) < needed and high < 1e9:
        high *= 2.0
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        if zeros(layers, _at(layers, middle, lam, bounds)) < needed:
            low = middle
        else:
            high = middle
    return _exact(layers, _at(layers, low, lam, bounds), _at(layers, high, lam, bounds), needed)


def _exact(layers: Sequence[LayerCost], below: list[float], above: list[float], needed: float) -> list[float]:
    """The mixture of two neighbours that has exactly the zeros needed (they differ where a layer's loss is flat)."""
    few, many = zeros(layers, below), zeros(layers, above)
    share = min(max((needed - few) / (many - few), 0.0), 1.0) if many > few else 0.0
    return [one + share * (other - one) for one, other in zip(below, above, strict=True)]


def _greedy(layers: Sequence[LayerCost], sparsity: float, bounds: Bounds) -> list[float]:
    """Zeros to the layers where each buys most time, layers of the same price alike."""
    left = (sparsity - bounds.lowest) * sum(layer.weights for layer in layers)
    found = [bounds.lowest] * len(layers)
    for price in sorted({layer.ms_per_weight for layer in layers}, reverse=True):
        alike = [index for index, layer in enumerate(layers) if layer.ms_per_weight == price]
        room = sum(layers[index].weights for index in alike) * (bounds.highest - bounds.lowest)
        share = min(left / room, 1.0) if room > 0.0 else 0.0
        for index in alike:
            found[index] += share * (bounds.highest - bounds.lowest)
        left -= share * room
    return found


def _bisect(holds: Callable[[float], bool], *, first: bool = True) -> float | None:
    """The multiplier from which on `holds` is true: the first one that does, or the last one that does not."""
    high = 1.0
    for _ in range(_GROWTH):
        if holds(high):
            break
        high *= 2.0
    else:
        return None
    low = 0.0
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high if first else low
