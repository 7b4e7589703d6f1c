"""Costs of two small layers, measured in the real WebAssembly runtime; and the command around it."""

import json
from pathlib import Path

import pytest
import torch
from graphs import Net
from torch import nn

from sparsetorch.analysis.layer_costs import CostTable, LayerShape, LayerTimes
from sparsetorch.analysis.pointwise_layers import pointwise_layers
from sparsetorch.cli import main
from sparsetorch.errors import BadInputError
from sparsetorch.runtime import layer_costs
from sparsetorch.runtime.layer_costs import SPARSITIES, Effort, layer_model, measure_costs, measure_rest
from sparsetorch.tflite import encode, save
from sparsetorch.xnnpack import verify

NETWORK = """
from torch import nn
def network():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1), nn.Conv2d(32, 64, 1), nn.ReLU6(), nn.Conv2d(64, 32, 1),
        nn.AdaptiveAvgPool2d(1), nn.Conv2d(32, 8, 1), nn.Flatten(), nn.Linear(8, 4),
    )
"""


def test_what_is_timed_takes_the_path(tmp_path: Path) -> None:
    shape = LayerShape(24, 48, 12, 10)
    for count in (1, 5):
        dense = layer_model(shape, count, None)
        assert verify(dense, ["wasm"]).expected_spmm == 0
        for sparsity in SPARSITIES:
            assert verify(layer_model(shape, count, sparsity), ["wasm"]).expected_spmm == count
    save(layer_model(shape, 5, 0.7), tmp_path / "seen.tflite")
    assert main(["verify", str(tmp_path / "seen.tflite"), "--observe", "wasm", "--target", "wasm", "--quiet"]) == 0


def test_layers_with_their_pixels() -> None:
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 16, 1), nn.BatchNorm2d(16), nn.Conv2d(16, 16, 3, groups=16)
    )
    before = {name: value.clone() for name, value in module.state_dict().items()}
    assert pointwise_layers(module, (3, 10, 14)) == {"1": LayerShape(8, 16, 5, 7)}
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = {"a": LayerShape(64, 128, 28, 28), "b": LayerShape(256, 64, 7, 7), "c": LayerShape(64, 128, 28, 28)}
    table = measure_costs(layers, effort=Effort(20, 5), cache=tmp_path)
    assert len(table.times) == 2
    assert table.runtime.startswith("LiteRT.js")
    for one in table.times:
        assert one.dense_ms > 0.0
        assert one.sparse_ms.keys() == set(SPARSITIES)
    assert table.of("a").sparse_ms[0.95] < table.of("a").dense_ms  # 20 times fewer products
    monkeypatch.setattr(layer_costs, "_measure", None)  # nothing is measured again
    assert measure_costs(layers, effort=Effort(20, 5), cache=tmp_path) == table


def test_the_rest_is_the_networks_time_less_its_layers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    layers, path = {"a": LayerShape(64, 96, 20, 20), "b": LayerShape(96, 64, 20, 20)}, tmp_path / "network.tflite"
    network(layers, 0.85, path)
    times = tuple(LayerTimes(shape, 1.0, {0.7: 3e-6, 0.9: 1e-6}) for shape in layers.values())  # next to nothing
    table = CostTable("runtime", "processor", layers, times)
    whole = measure_rest(path, table, Effort(10, 5))
    assert whole > 0.0
    slow = tuple(LayerTimes(shape, 1.0, {0.7: 300.0, 0.9: 100.0}) for shape in layers.values())
    assert measure_rest(path, CostTable("runtime", "processor", layers, slow), Effort(10, 5)) == 0.0
    with pytest.raises(BadInputError, match="no weight of c, needed a file"):
        measure_rest(path, CostTable("runtime", "processor", {"c": layers["a"]}, times), Effort(1, 0))
    network(layers, 0.0, path)
    with pytest.raises(BadInputError, match="would not run on the sparse path"):
        measure_rest(path, table, Effort(1, 0))


def network(layers: dict[str, LayerShape], sparsity: float, path: Path) -> None:
    """A stem and 1x1 convolutions named as an export names them, at one sparsity."""
    net = Net(sparsity)
    x = net.stem(net.input(40, 3), 64)
    for name, shape in layers.items():
        x = net.pointwise(x, shape.out_channels, sparsity)
        net.graph.operators[-1].inputs[1].name = f"{name}.weight"
    net.output(net.mean(x))
    model = net.model()
    if sparsity > 0.0:
        encode(model)
    save(model, path)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.py").write_text(NETWORK)
    monkeypatch.setattr(layer_costs, "runtimes_folder", lambda: tmp_path)
    words = ["costs", "--model", f"{tmp_path / 'net.py'}:network", "--input-shape", "3,32,32", "--runs", "5"]
    out = str(tmp_path / "costs.json")
    assert main([*words, "-o", out, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["layers"]) == ["1", "3"]  # not the classifier behind the pool
    assert CostTable.read(out).layers == {"1": LayerShape(32, 64, 16, 16), "3": LayerShape(64, 32, 16, 16)}
    assert main([*words, "-o", out]) == 0
    assert "32 to 64" in capsys.readouterr().out
    assert main([*words, "-o", out, "--input-shape", "4,32,32"]) == 1
    assert "--input-shape: the network does not take" in capsys.readouterr().err


def test_without_the_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.py").write_text(NETWORK)
    monkeypatch.setenv("SPARSETORCH_RUNTIMES", str(tmp_path / "none"))
    words = [
        "costs",
        "--model",
        f"{tmp_path / 'net.py'}:network",
        "--input-shape",
        "3,32,32",
        "-o",
        str(tmp_path / "c.json"),
    ]
    assert main([*words, "--quiet"]) == 5
    assert "sparsetorch runtime install wasm" in capsys.readouterr().err
    assert not (tmp_path / "c.json").exists()
