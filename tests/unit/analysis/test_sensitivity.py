"""Sensitivity: curves, what they recommend, and pruning that leaves no trace."""

import pytest
import torch
from channels import Residual, randomise
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetorch import PerLayer
from sparsetorch.analysis.sensitivity import (
    Curve,
    check_levels,
    curves_of,
    group_unit,
    key,
    layer_unit,
    measure,
    recommend,
)
from sparsetorch.errors import BadInputError
from sparsetorch.structured.groups import channel_groups, prunable

TOUGH = Curve("tough", 100, (0.5, 0.9), (0.89, 0.85))
FRAIL = Curve("frail", 100, (0.5, 0.9), (0.80, 0.10))


def test_a_curve_is_read_between_its_points() -> None:
    assert TOUGH.sparsity_at(0.0, 0.9) == 0.0
    assert TOUGH.sparsity_at(0.005, 0.9) == pytest.approx(0.25)
    assert TOUGH.sparsity_at(0.01, 0.9) == pytest.approx(0.5)
    assert TOUGH.sparsity_at(0.03, 0.9) == pytest.approx(0.7)
    assert TOUGH.sparsity_at(1.0, 0.9) == 0.9
    lucky = Curve("lucky", 1, (0.5, 0.7, 0.9), (0.8, 0.91, 0.7))  # the middle one is no better than its neighbour
    assert lucky.sparsity_at(0.05, 0.9) == pytest.approx(0.25)
    assert lucky.sparsity_at(0.15, 0.9) == pytest.approx(0.8)


def test_a_budget_is_met_exactly_at_one_loss_for_all() -> None:
    # At a loss of .05 the tough one gives .9 and the frail one .25: 57.5 % of all.
    found, loss = recommend([TOUGH, FRAIL], 0.9, 0.575)
    assert loss == pytest.approx(0.05)
    assert found == pytest.approx({"tough": 0.9, "frail": 0.25})
    with pytest.raises(BadInputError, match=r"budget: found 0\.95, but the highest sparsities measured come to 0\.9 "):
        recommend([TOUGH, FRAIL], 0.9, 0.95)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.floats(0, 0.85), st.integers(0, 1000))
def test_any_budget_is_met_and_is_a_distribution(count: int, sparsity: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    curves = []
    for index in range(count):
        accuracies = (0.9 - torch.rand(3, generator=generator) * 0.5).sort(descending=True).values.tolist()
        curves.append(Curve(str(index), 100 * (index + 1), (0.3, 0.6, 0.9), tuple(accuracies)))
    found, _ = recommend(curves, 0.9, sparsity)
    total = sum(curve.size for curve in curves)
    assert sum(found[curve.name] * curve.size for curve in curves) == pytest.approx(sparsity * total, abs=0.01 * total)
    assert all(0 <= value <= 0.9 for value in found.values())
    shapes = {curve.name: (curve.size, 1) for curve in curves}
    PerLayer(found).check(shapes, sum(found[c.name] * c.size for c in curves) / total)


def test_pruning_one_unit_leaves_no_trace() -> None:
    network = randomise(Residual(8))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    zeros = []

    def evaluate() -> float:
        zeros.append({name: int((value == 0).sum()) for name, value in network.named_parameters()})
        return len(zeros) / 10

    groups = {group.name: group for group in prunable(channel_groups(network, (3, 8, 8)))}
    units = {"conv1": layer_unit(network.conv1), "stem": group_unit(network, groups["stem"])}
    found = dict(measure(units, (0.25, 0.5), evaluate, {}))
    assert list(found) == ["baseline", "conv1@0.25", "conv1@0.5", "stem@0.25", "stem@0.5"]
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert zeros[1]["conv1.weight"] == 8 * 72 // 4
    assert zeros[2]["conv1.weight"] == 8 * 72 // 2
    assert zeros[3]["stem.weight"] == 2 * 27
    assert zeros[3]["bn2.bias"] == 2
    assert zeros[3]["down.weight"] == 2 * 16
    assert curves_of({"conv1": 576}, (0.5, 0.25), found)[0] == Curve("conv1", 576, (0.25, 0.5), (0.2, 0.3))


def test_an_evaluation_that_fails_puts_the_weights_back() -> None:
    network = Residual(4)
    before = network.conv1.weight.detach().clone()

    def fail() -> float:
        raise RuntimeError("no data")

    with pytest.raises(RuntimeError, match="no data"):
        list(measure({"conv1": layer_unit(network.conv1)}, (0.5,), fail, {"baseline": 1.0}))
    assert torch.equal(network.conv1.weight, before)


def test_what_is_known_is_not_measured_again() -> None:
    network = Residual(4)
    known = {"baseline": 0.9, key("conv1", 0.3): 0.8}
    found = dict(measure({"conv1": layer_unit(network.conv1)}, (0.3, 0.6), lambda: 0.5, known))
    assert found == {"conv1@0.6": 0.5}


def test_levels_are_sparsities() -> None:
    assert check_levels([0.9, 0.3, 0.3]) == (0.3, 0.9)
    with pytest.raises(BadInputError, match=r"levels: found 1\.0"):
        check_levels([0.5, 1.0])
    with pytest.raises(BadInputError, match="levels: found none"):
        check_levels([])
