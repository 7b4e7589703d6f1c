"""The road with onnx2tf 2 as the converter: other graphs, the same numbers, and after repair the same verdicts."""

import os
import subprocess
from pathlib import Path

import pytest
import torch
import torchvision
from random_networks import SIZE, random_network
from torch import nn

import sparsetorch
from sparsetorch.exporter.onnx_to_tflite import PYTHON_VARIABLE

pytestmark = pytest.mark.onnx2tf2


@pytest.fixture(autouse=True)
def _is_onnx2tf_2() -> None:
    python = os.environ[PYTHON_VARIABLE]
    words = [python, "-c", "from importlib.metadata import version; print(version('onnx2tf'))"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.startswith("2.")


def calibrated(network: nn.Module, pixels: int) -> nn.Module:
    torch.manual_seed(0)
    network.train()
    with torch.no_grad():
        network(torch.randn(4, 3, pixels, pixels))
    return network.eval()


@pytest.mark.parametrize(("name", "convs"), [("mobilenet_v2", 34), ("mobilenet_v3_small", 40), ("efficientnet_b0", 64)])
def test_torchvision_networks_are_eligible_after_repair(name: str, convs: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = calibrated(getattr(torchvision.models, name)(), 64)
    report = sparsetorch.export(network, tmp_path / "m.tflite", (3, 64, 64), sparsity=0.85)
    assert report.verdict.eligible, report.verdict.reasons
    assert report.verdict.expected_spmm == convs
    assert max(report.model.errors) <= 1e-5


@pytest.mark.parametrize("seed", range(8))
def test_random_networks_are_exported_right(seed: int, tmp_path: Path) -> None:
    report = sparsetorch.export(random_network(seed), tmp_path / "m.tflite", (3, SIZE, SIZE), sparsity=0.85)
    assert max(report.model.errors) <= 1e-5
    assert not [name for name, target in report.verdict.targets.items() if target.unsafe]
