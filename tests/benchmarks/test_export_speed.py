"""A whole export against a stock `onnx2tf.convert` call on the same ONNX file, in one run.

Ours does more (PyTorch to ONNX, sparse encoding, verdict, comparison with PyTorch) and stock is given its sample images
locally, so that its download is not part of the time. Run with `-s` to see the figures.
"""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

_STOCK = """
import sys, onnx2tf
onnx2tf.convert(input_onnx_file_path=sys.argv[1], output_folder_path="stock", non_verbose=True)
"""
_OURS = """
import sys, torch, torchvision, sparsetorch
torch.manual_seed(0)
network = torchvision.models.mobilenet_v2()
report = sparsetorch.export(network, "ours.tflite", (3, 224, 224), sparsity=0.85)
assert report.verdict.eligible and report.verdict.expected_spmm == 34, report.verdict
"""
_ONNX = """
import torch, torchvision
from pathlib import Path
from sparsetorch.exporter.torch_to_onnx import torch_to_onnx
torch.manual_seed(0)
torch_to_onnx(torchvision.models.mobilenet_v2().eval(), (1, 3, 224, 224), Path("model.onnx"))
"""


def _seconds(script: str, folder: Path, *arguments: str) -> float:
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    words = [sys.executable, "-c", script, *arguments]
    started = time.perf_counter()
    subprocess.run(words, cwd=folder, env=environment, check=True, capture_output=True, timeout=600)
    return time.perf_counter() - started


@pytest.mark.slow
def test_an_export_is_three_times_as_fast_as_a_stock_conversion(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).random((20, 128, 128, 3), dtype=np.float32)
    np.save(tmp_path / "calibration_image_sample_data_20x128x128x3_float32.npy", samples)
    _seconds(_ONNX, tmp_path)
    ours = _seconds(_OURS, tmp_path)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    stock = _seconds(_STOCK, tmp_path, "model.onnx")
    print(
        f"\nMobileNetV2 224: export {ours:.1f} s ({peak:.0f} MiB), stock conversion {stock:.1f} s, ratio {stock / ours:.1f}"
    )
    assert (tmp_path / "stock" / "model_float32.tflite").is_file()
    assert stock >= 3 * ours
