"""The distribution that reads a cost table: what it gives, and what it refuses."""

import dataclasses
import json
from pathlib import Path

import pytest

from sparsetorch.analysis.layer_costs import CostTable, LayerShape, LayerTimes
from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.latency_aware import LatencyAware

EARLY, LATE = LayerShape(10, 10, 20, 20), LayerShape(20, 10, 5, 5)
SHAPES = {"early": (10, 10, 1, 1), "late": (10, 20, 1, 1)}


@pytest.fixture
def costs(tmp_path: Path) -> Path:
    """0.1 ms and 0.04 ms a weight in the first layer, 0.2 ms and 0.01 ms a weight in the second."""
    times = (
        LayerTimes(EARLY, 4.0, {0.7: 0.1 + 30 * 0.04, 0.9: 0.1 + 10 * 0.04}),
        LayerTimes(LATE, 2.0, {0.7: 0.2 + 60 * 0.01, 0.9: 0.2 + 20 * 0.01}),
    )
    table = CostTable("runtime 1", "processor", {"early": EARLY, "late": LATE}, times)
    (tmp_path / "costs.json").write_text(table.to_json())
    assert CostTable.read(tmp_path / "costs.json") == table
    return tmp_path / "costs.json"


def test_lines_by_hand(costs: Path) -> None:
    table = CostTable.read(costs)
    assert table.of("early").line() == pytest.approx((0.1, 0.04))
    assert LayerTimes(EARLY, 1.0, {0.7: 0.5, 0.9: 0.7}).line() == (pytest.approx(0.6), 0.0)  # noise: flat
    assert LayerTimes(EARLY, 1.0, {0.7: 0.9, 0.9: 0.1}).line() == (0.0, pytest.approx(28 / 1000))  # through the origin


def test_a_layer_measured_as_free_is_taken_as_its_pixels_suggest() -> None:
    shapes = {name: LayerShape(10, 10, 10, pixels) for name, pixels in (("a", 1), ("b", 2), ("odd", 40))}
    times = tuple(
        LayerTimes(
            shape, 1.0, {0.7: 1.0, 0.9: 1.0} if name == "odd" else {0.7: 0.3 * shape.width, 0.9: 0.1 * shape.width}
        )
        for name, shape in shapes.items()
    )
    table = CostTable("runtime 1", "processor", shapes, times)
    assert [table.line_of(name)[1] for name in shapes] == pytest.approx([0.01, 0.02, 0.01 * 40 / 2.5])


def test_a_target_is_met_at_the_same_zeros(costs: Path) -> None:
    # Alike at 0.8: 0.1 + 20 * 0.04 + 0.2 + 40 * 0.01 = 1.5 ms. Moving x zeros to the first saves 0.03 x: x = 5 gives 1.35.
    found = LatencyAware(str(costs), target_ms=2.35, rest_ms=1.0).allocate(SHAPES, 0.8)
    assert found == pytest.approx({"early": 0.85, "late": 0.775}, abs=1e-9)
    assert LatencyAware(str(costs), rest_ms=1.0).predict_ms(found) == pytest.approx(2.35)


def test_without_a_target_the_loss_is_the_limit(costs: Path) -> None:
    calm, bold = (LatencyAware(str(costs), loss_ratio=ratio) for ratio in (1.0, 1.2))
    assert calm.allocate(SHAPES, 0.8) == pytest.approx({"early": 0.8, "late": 0.8}, abs=1e-4)
    found = bold.allocate(SHAPES, 0.8)
    assert found["early"] > 0.85
    assert 100 * found["early"] + 200 * found["late"] == pytest.approx(240)


def test_a_gradual_schedule_starts_dense(costs: Path) -> None:
    aware = LatencyAware(str(costs), target_ms=1.3)
    aware.check(SHAPES, 0.8)
    assert aware.allocate(SHAPES, 0.0) == {"early": 0.0, "late": 0.0}
    totals = [aware.allocate(SHAPES, sparsity) for sparsity in (0.2, 0.5, 0.8)]
    assert [100 * one["early"] + 200 * one["late"] for one in totals] == pytest.approx([60, 150, 240])


def test_what_does_not_fit_is_said(costs: Path, tmp_path: Path) -> None:
    aware = LatencyAware(str(costs), target_ms=0.5)
    with pytest.raises(BadInputError, match=r"found a target of 0\.5 ms"):
        aware.check(SHAPES, 0.8)
    with pytest.raises(BadInputError, match="layer classifier is not in the table"):
        aware.check({"classifier": (10, 10)}, 0.8)
    with pytest.raises(BadInputError, match="measure this network"):
        aware.check({"early": (12, 10, 1, 1)}, 0.8)
    with pytest.raises(BadInputError, match="sensitivity: fc"):
        dataclasses.replace(aware, sensitivity={"fc": 2.0}).check(SHAPES, 0.8)
    with pytest.raises(BadInputError, match="cannot be read"):
        LatencyAware(str(tmp_path / "none.json")).check(SHAPES, 0.8)
    (tmp_path / "other.json").write_text(json.dumps({"layers": {}}))
    with pytest.raises(BadInputError, match="needed a cost table"):
        LatencyAware(str(tmp_path / "other.json")).check(SHAPES, 0.8)


def test_the_rest_is_the_tables_unless_told(costs: Path) -> None:
    table = dataclasses.replace(CostTable.read(costs), rest_ms=1.0)
    costs.write_text(table.to_json())
    assert CostTable.read(costs) == table
    alike = {"early": 0.8, "late": 0.8}
    assert table.predict_ms(alike) == pytest.approx(1.5)  # the layers alone
    assert LatencyAware(str(costs)).predict_ms(alike) == pytest.approx(2.5)
    assert LatencyAware(str(costs), rest_ms=0.25).predict_ms(alike) == pytest.approx(1.75)
    found = LatencyAware(str(costs), target_ms=2.35).allocate(SHAPES, 0.8)
    assert found == pytest.approx({"early": 0.85, "late": 0.775}, abs=1e-9)
    with pytest.raises(BadInputError, match="needed more than 1 ms, what the rest of the network takes"):
        LatencyAware(str(costs), target_ms=0.9).check(SHAPES, 0.8)
