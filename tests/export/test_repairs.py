"""Repairs on the way from PyTorch to a file: MobileNetV3's gates join the sparse cluster, and a wrong repair is named."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from converted import AlreadyConverted
from graphs import OP, Net
from torch import nn

import sparsetorch
from sparsetorch.cli import main
from sparsetorch.errors import WrongNumbersError
from sparsetorch.exporter import pipeline
from sparsetorch.tflite import Model, load, to_bytes
from sparsetorch.tflite.passes import Note, repair
from sparsetorch.xnnpack import verify


def test_mobilenet_v3_small_becomes_eligible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", "--model", "torchvision.models:mobilenet_v3_small", "--model-args", '{"weights": null}']
    words += ["--input-shape", "3,64,64", "--sparsity", "0.85", "-o", str(tmp_path / "m.tflite")]
    torch.manual_seed(0)
    assert main([*words, "--json", str(tmp_path / "m.json")]) == 0
    report = json.loads((tmp_path / "m.json").read_text())
    assert report["eligible"]
    assert report["refused"] == []
    assert max(report["errors"]["model"]) < 1e-5
    operators = load(tmp_path / "m.tflite").graphs[0].operators
    pointwise = [
        operator for operator in operators if operator.name == "CONV_2D" and operator.outputs[0].shape[1:3] != (32, 32)
    ]
    assert report["expected_spmm"] == len(pointwise) == 40
    names = [operator.name for operator in operators]
    assert "RELU_0_TO_1" not in names
    assert names.count("HARD_SWISH") == 19  # as many as torch.nn.Hardswish in the network
    made = [note["repair"] for note in report["repairs"] if note["applied"]]
    assert made.count("clamps") == 9  # one for each squeeze-excite gate
    assert made.count("hard_swish") == 1  # the classifier's, from two copies of its first layer
    assert "clamps 9x" in capsys.readouterr().out
    for name, seen in sparsetorch.verify(tmp_path / "m.tflite", observe=["wasm", "emulated"]).observed.items():
        assert (name, seen.taken, seen.spmm, seen.disagreements) == (name, True, 40, ())


class Hat(nn.Module):
    """1x1 convolution, clamped to [0, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).clamp(0, 1)


def converted(module: Hat) -> bytes:
    """What a converter would make of it."""
    net = Net()
    weight = module.layer.weight.detach().numpy().transpose(0, 2, 3, 1)
    x = net.conv(net.input(4, 3), 4, 1, weight=net.constant(np.ascontiguousarray(weight)))
    net.graph.operators[-1].inputs[2] = net.constant(module.layer.bias.detach().numpy())
    net.output(net.unary(OP.RELU_0_TO_1, x))
    return to_bytes(net.model())


@pytest.fixture
def hat(monkeypatch: pytest.MonkeyPatch) -> Hat:
    """A network whose conversion takes no time."""
    module = Hat()
    monkeypatch.setattr(pipeline, "torch_to_onnx", lambda *arguments: None)
    monkeypatch.setattr(pipeline, "check_onnx", lambda *arguments: [])
    monkeypatch.setattr(pipeline, "Converter", AlreadyConverted(lambda: converted(module)))
    return module


def test_the_report_tells_the_repairs(hat: Hat, tmp_path: Path) -> None:
    report = pipeline.export(hat, tmp_path / "m.tflite", (3, 4, 4))
    first = report.repairs[0]
    assert (first.repair, first.operator, first.applied) == ("clamps", "RELU_0_TO_1", True)
    assert report.to_dict()["repairs"][0]["what"] == "RELU_0_TO_1, a clamp to [0, 1]: RELU and RELU_N1_TO_1, exact"
    assert not verify(tmp_path / "m.tflite").unsafe


def test_a_wrong_repair_is_named_and_nothing_is_written(
    hat: Hat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(model: Model) -> tuple[Note, ...]:
        notes = repair(model)
        bias = model.graphs[0].operators[0].inputs[2]
        assert bias is not None
        bias.data = np.frombuffer((bias.array() + 1).tobytes(), np.uint8)
        return notes

    monkeypatch.setattr(pipeline, "repair", wrong)
    with pytest.raises(
        WrongNumbersError,
        match=r"the converter made is right; a repair \(clamps, fuse_activations\) or the encoding is not",
    ):
        pipeline.export(hat, tmp_path / "m.tflite", (3, 4, 4))
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_conversion_is_not_blamed_on_repairs(hat: Hat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Hat()
    monkeypatch.setattr(pipeline, "Converter", AlreadyConverted(lambda: converted(other)))
    with pytest.raises(WrongNumbersError, match="differs from PyTorch") as error:
        pipeline.export(hat, tmp_path / "m.tflite", (3, 4, 4))
    assert "a repair" not in str(error.value)
