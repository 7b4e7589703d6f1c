"""One counter: what `account` says of the trained network is what `verify` reads out of the exported file."""

import json

import pytest
from digits_road import Road

import sparsetorch
from sparsetorch.analysis import account
from sparsetorch.exporter.source import load_checkpoint
from sparsetorch.tflite import load


def test_account_equals_verify_on_the_exported_file(road: Road) -> None:
    module, shape = load_checkpoint(road.checkpoint)
    counted = {layer.module: layer for layer in account(module, shape).layers}
    found = {layer.module: layer for layer in sparsetorch.verify(road.model).layers}
    assert len(found) == 23
    assert counted.keys() == found.keys()
    for name, layer in found.items():
        assert counted[name].sparsity == layer.sparsity, name
        assert counted[name].dense_bytes == layer.dense_bytes, name
        assert counted[name].bytes == layer.bytes, name
        assert counted[name].parameters * 4 == layer.dense_bytes, name


def test_the_summary_holds_the_same_totals(road: Road) -> None:
    module, shape = load_checkpoint(road.checkpoint)
    assert road.fit["accounting"] == account(module, shape).totals()
    summary = json.loads((road.run_dir / "summary.json").read_text())
    assert summary["accounting"]["non_zero"] == summary["parameters"]["non_zero"]
    layers = {layer.module: layer for layer in sparsetorch.verify(load(road.model)).layers}
    for name, sparsity in summary["sparsity"]["layers"].items():
        assert sparsity == layers[name].sparsity, name
    weights = sum(layer.dense_bytes for layer in layers.values() if layer.module in summary["sparsity"]["layers"])
    zeros = sum(
        layer.sparsity * layer.dense_bytes for layer in layers.values() if layer.module in summary["sparsity"]["layers"]
    )
    assert summary["sparsity"]["total"] == pytest.approx(zeros / weights, rel=1e-12)


def test_a_sparse_run_leaves_plots_and_history(road: Road) -> None:
    for name in ("sparsity_over_time", "sparsity_per_layer"):
        assert (road.run_dir / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (road.run_dir / f"{name}.svg").read_text()[:1000]
    lines = (road.run_dir / "sparsity.csv").read_text().splitlines()
    # Six epochs are 96 steps: updates at 20, 40, 60 and the end step 72, beside the start; 14 layers and the total.
    assert {int(line.split(",")[0]) for line in lines[1:]} == {0, 20, 40, 60, 72}
    assert len(lines) == 1 + 5 * 15
    header = (road.run_dir / "metrics.csv").read_text().splitlines()[0].split(",")
    assert {"churn", "exploration", "dropped", "grown", "churn/network.features.1.conv.1"} <= set(header)
