"""Latency-aware allocation: by hand, against exhaustive search, and what holds for any layers."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.latency_allocation import (
    Bounds,
    LayerCost,
    fastest,
    least_loss,
    least_loss_within,
    loss,
    milliseconds,
    norm_removed,
    zeros,
)

TWO = [LayerCost("early", 100, 0.04), LayerCost("late", 100, 0.01)]


def test_the_share_of_the_norm_by_hand() -> None:
    # 68.27 % of normal weights lie within one standard deviation; they hold 0.6827 - 2 * 0.24197 of the squared norm.
    assert norm_removed(0.6826894921) == pytest.approx(0.6826894921 - 2 * 0.2419707245, abs=1e-9)
    assert norm_removed(0.0) == 0.0
    step = 1e-6  # the derivative is the squared threshold: 1 at one standard deviation
    assert (norm_removed(0.6826894921 + step) - norm_removed(0.6826894921)) / step == pytest.approx(1.0, abs=1e-4)


def test_without_a_time_every_layer_is_as_sparse_as_any() -> None:
    assert least_loss(TWO, 0.8) == pytest.approx([0.8, 0.8], abs=1e-9)


def test_a_layer_twice_as_sensitive_is_cut_at_a_lower_threshold() -> None:
    found = least_loss([LayerCost("a", 50, 0.1), LayerCost("b", 50, 0.1, sensitivity=4.0)], 0.5)
    squared = [2 * _inverse_erf(value) ** 2 for value in found]
    assert squared[0] == pytest.approx(4 * squared[1], rel=1e-6)
    assert sum(found) == pytest.approx(1.0)


def _inverse_erf(value: float) -> float:
    low, high = 0.0, 6.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle) < value else (low, middle)
    return low


def test_fastest_without_a_limit_fills_the_costly_layer_first() -> None:
    # 160 zeros: 95 in the first (its bound), 65 in the second; 5 * 0.04 + 35 * 0.01 ms.
    found = fastest(TWO, 0.8, Bounds(highest=0.95))
    assert found == pytest.approx([0.95, 0.65])
    assert milliseconds(TWO, found) == pytest.approx(0.55)


def test_a_time_is_met_exactly() -> None:
    # a + b = 160 zeros and (100 - a) 0.04 + (100 - b) 0.01 = 0.7 give a = 90, b = 70; alike they would take 1 ms.
    assert least_loss(TWO, 0.8, at_most_ms=0.7) == pytest.approx([0.9, 0.7], abs=1e-9)


def test_a_time_alone() -> None:
    found = least_loss_within(TWO, 1.0)
    assert milliseconds(TWO, found) == pytest.approx(1.0, abs=1e-9)
    squared = [2 * _inverse_erf(value) ** 2 for value in found]
    assert squared[0] == pytest.approx(4 * squared[1], rel=1e-6)  # a zero there buys four times as much
    more = least_loss_within(TWO, 4.9, least_sparsity=0.7)
    assert zeros(TWO, more) == pytest.approx(140)
    assert more == pytest.approx([0.7, 0.7])


@pytest.mark.parametrize("target", [0.6, 0.75, 0.9])
def test_no_other_allocation_is_better(target: float) -> None:
    """Exhaustive: every whole number of zeros in three small layers."""
    layers = [LayerCost("a", 20, 0.05, sensitivity=2.0), LayerCost("b", 30, 0.02), LayerCost("c", 25, 0.01)]
    bounds, total = Bounds(0.1, 0.9), 50
    time = target * milliseconds(layers, least_loss(layers, total / 75, bounds))
    quickest = milliseconds(layers, fastest(layers, total / 75, bounds))
    possible = [
        [a / 20, b / 30, (total - a - b) / 25]
        for a, b in itertools.product(range(2, 19), range(3, 28))
        if 2.5 <= total - a - b <= 22.5
    ]
    assert quickest <= min(milliseconds(layers, one) for one in possible) + 1e-9
    within = [one for one in possible if milliseconds(layers, one) <= time]
    if time < quickest:
        assert not within
        with pytest.raises(BadInputError, match="needed at least"):
            least_loss(layers, total / 75, bounds, at_most_ms=time)
        return
    found = least_loss(layers, total / 75, bounds, at_most_ms=time)
    assert loss(layers, found) <= min(loss(layers, one) for one in within) + 1e-9
    allowed = loss(layers, found)
    again = fastest(
        layers, total / 75, bounds, loss_ratio=allowed / loss(layers, least_loss(layers, total / 75, bounds))
    )
    assert milliseconds(layers, again) <= min(
        milliseconds(layers, one) for one in possible if loss(layers, one) <= allowed
    )
    assert again == pytest.approx(found, abs=1e-6)


LAYERS = st.lists(
    st.tuples(st.integers(1, 100_000), st.floats(1e-8, 1e-2), st.floats(0.1, 10.0)), min_size=1, max_size=6
).map(lambda rows: [LayerCost(str(at), size, price, 0.1, weight) for at, (size, price, weight) in enumerate(rows)])


@settings(max_examples=25, deadline=None)
@given(layers=LAYERS, sparsity=st.floats(0.0, 0.95), ratio=st.floats(1.0, 2.0))
def test_zeros_bounds_and_loss_hold(layers: list[LayerCost], sparsity: float, ratio: float) -> None:
    calm, fast = least_loss(layers, sparsity), fastest(layers, sparsity, loss_ratio=ratio)
    for found in (calm, fast):
        assert abs(zeros(layers, found) - sparsity * sum(layer.weights for layer in layers)) < 1.0
        assert all(-1e-12 <= value <= 0.98 + 1e-12 for value in found)
    assert milliseconds(layers, fast) <= milliseconds(layers, calm) * (1 + 1e-9)
    assert loss(layers, fast) <= ratio * loss(layers, calm) * (1 + 1e-6) + 1e-6


@settings(max_examples=20, deadline=None)
@given(layers=LAYERS, low=st.floats(0.1, 0.9), high=st.floats(0.1, 0.9))
def test_a_tighter_time_never_loses_less(layers: list[LayerCost], low: float, high: float) -> None:
    low, high = sorted((low, high))
    floor, ceiling = (milliseconds(layers, [value] * len(layers)) for value in (0.98, 0.0))
    tight, loose = (floor + share * (ceiling - floor) for share in (low, high))
    losses = [loss(layers, least_loss_within(layers, time)) for time in (tight, loose)]
    assert losses[0] >= losses[1] * (1 - 1e-9)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Bounds(0.9, 0.5), "lowest 0.9 and highest 0.5"),
        (lambda: least_loss(TWO, 0.99), "found 0.99, needed 0 to 0.98"),
        (lambda: fastest(TWO, 0.8, loss_ratio=0.5), "found 0.5, needed 1 or more"),
        (lambda: least_loss_within(TWO, 0.01), "needed at least 0.1 ms"),
    ],
)
def test_what_cannot_be(call: object, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        call()  # type: ignore[operator]
