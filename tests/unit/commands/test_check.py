"""`sparsetorch check`."""

import json
import sys
from pathlib import Path

import pytest

from sparsetorch.cli import main

RECIPE = Path(__file__).parents[3] / "recipes" / "digits" / "rigl_90.yaml"
NET = """
from torch import nn

def make(width=16):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, width, 1), nn.ReLU(), nn.Conv2d(width, 64, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    path = tmp_path / "net_for_check.py"
    path.write_text(NET)
    return f"{path}:make"


def test_a_recipe_says_its_plan_and_its_input(capsys: pytest.CaptureFixture[str]) -> None:
    """rigl_90.yaml: fourteen 1x1 convolutions, 90 %, 32 pixels."""
    assert main(["check", "--config", str(RECIPE), "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["expected_spmm"], told["sparsity"], told["input_shape"]) == (14, 0.9, [1, 3, 32, 32])
    assert told["eligible"] is True


def test_a_model_that_misses_two_thirds(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", net, "--model-args", '{"width": 64}', "--input-shape", "3,32,32", "--sparsity", "0.6"]
    assert main(["check", *words]) == 3
    out = capsys.readouterr().out
    assert "Cluster of 2 1x1 convolutions, 2 to 4" in out
    assert "at least 0.667" in out
    assert "arm64: not eligible" in out


def test_a_network_without_1x1_convolutions_gets_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "dense_net.py"
    path.write_text("from torch import nn\ndef make():\n    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())\n")
    assert main(["check", "--model", f"{path}:make", "--input-shape", "3,32,32"]) == 3
    assert "no 1x1 convolution" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], 2, "either --config X.yaml or --model M"),
        (["--config", "a.yaml", "--model", "b:c"], 2, "either --config X.yaml or --model M"),
        (["--config", "nowhere.yaml"], 1, "no such file"),
        (["--model", "torch.nn:ReLU"], 1, "give it with --input-shape"),
        (["--model", "torch.nn:ReLU", "--input-shape", "3,8,8", "--sparsity", "1.5"], 1, "1.5"),
        (["--model", "torch.nn:ReLU", "--input-shape", "3,8,8", "--target", "moon"], 2, "moon"),
    ],
)
def test_bad_words(words: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *words]) == code
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_a_missing_package_is_named_with_the_command_that_brings_it(
    package: str, net: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["check", "--model", net, "--input-shape", "3,32,32", "--quiet"]) == 1
    assert capsys.readouterr().err == (
        f"sparsetorch check: error: {package} is not installed; needed: pip install 'sparsetorch[export]', in one call "
        "with the rest\n"
    )
