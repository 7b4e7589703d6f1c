"""`sparsetorch inspect`: files and checkpoints, tables and JSON, and what is neither."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from graphs import classifier
from torch import nn
from torch.nn.utils import prune

from sparsetorch.cli import main
from sparsetorch.tflite import Storage, encode, save
from sparsetorch.xnnpack import verify


@pytest.fixture
def model(tmp_path: Path) -> Path:
    made = classifier()
    encode(made, storage=Storage("int8"))
    save(made, tmp_path / "model.tflite")
    return tmp_path / "model.tflite"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 16, 1), nn.Flatten(), nn.Linear(16, 4))
    prune.l1_unstructured(net[1], "weight", amount=96)
    torch.save({"state_dict": net.state_dict()}, tmp_path / "last.ckpt")
    return tmp_path / "last.ckpt"


def test_a_file_is_shown_layer_by_layer(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(model), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "tflite"
    assert found["size"]["raw"] == model.stat().st_size > found["size"]["gzip"] > 0
    assert found["operators"]["DENSIFY"] == 9
    assert found["operators"]["CONV_2D"] == 10
    assert [value["shape"] for value in found["inputs"]] == [[1, 32, 32, 3]]
    head = next(layer for layer in found["layers"] if layer["module"] == "head")
    assert head["operators"] == ["DENSIFY", "DEQUANTIZE", "CONV_2D"]
    assert (head["parameters"], head["encoding"], head["values"]) == (2048, "sparse", "int8")
    described = {layer.tensor: layer.sparsity for layer in verify(model).layers}
    assert {layer["tensor"]: layer["sparsity"] for layer in found["layers"]} == described
    assert found["totals"]["zeros"] == sum(layer["zeros"] for layer in found["layers"])
    assert found["totals"]["bytes"] < found["totals"]["dense_bytes"]


def test_the_table_names_layers_operators_and_sizes(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(model)]) == 0
    text = capsys.readouterr().out
    assert "features.1.expand" in text
    assert "DENSIFY DEQUANTIZE CONV_2D" in text
    assert "sparse int8" in text
    assert f"File: {model.stat().st_size:,} bytes" in text


def test_a_checkpoint_is_shown_with_its_masks(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(checkpoint), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "checkpoint"
    shown = [(layer["module"], layer["operators"], layer["zeros"], layer["encoding"]) for layer in found["layers"]]
    assert sorted(shown) == [
        ("0", ["convolution"], 0, "dense"),
        ("1", ["1x1 convolution"], 96, "masked"),
        ("3", ["linear"], 0, "dense"),
    ]
    assert main(["inspect", str(checkpoint)]) == 0
    assert "75.0%" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["missing.tflite", "folder", "text.tflite", "cut.tflite", "text.ckpt", "empty.tflite"])
def test_what_is_neither_is_one_message(
    name: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("text.tflite").write_text("no model")
    Path("text.ckpt").write_text("no checkpoint")
    Path("empty.tflite").touch()
    Path("cut.tflite").write_bytes(model.read_bytes()[:5000])
    assert main(["inspect", name]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert name in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("command", ["inspect", "encode"])
def test_a_file_needs_neither_torch_nor_tensorflow(command: str, model: Path, tmp_path: Path) -> None:
    words = [command, str(model), *(["-o", str(tmp_path / "out.tflite")] if command == "encode" else [])]
    code = (
        f"import sys; from sparsetorch.cli import main; code = main({words!r}); "
        "print(code, sorted({'torch', 'tensorflow', 'onnx', 'jax', 'pytorch_lightning'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"
