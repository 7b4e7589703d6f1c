"""A whole export against a stock `onnx2tf.convert` call on the same ONNX file: seconds, and memory of the largest process.

Ours does more (PyTorch to ONNX, sparse encoding, verdict, comparison with PyTorch) and stock is given its sample images
locally, so that its download is not part of the time. Run with `-s` to see the figures.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

_STOCK = """
import sys, onnx2tf
onnx2tf.convert(input_onnx_file_path=sys.argv[1], output_folder_path="stock", non_verbose=True)
"""
_OURS = """
import sys, torch, torchvision, sparsetorch
torch.manual_seed(0)
network = getattr(torchvision.models, sys.argv[1])()
report = sparsetorch.export(network, "ours.tflite", (3, 224, 224), sparsity=0.85)
assert report.verdict.eligible and report.verdict.expected_spmm == int(sys.argv[2]), report.verdict
"""
_ONNX = """
import sys, torch, torchvision
from pathlib import Path
from sparsetorch.exporter.torch_to_onnx import torch_to_onnx
torch.manual_seed(0)
torch_to_onnx(getattr(torchvision.models, sys.argv[1])().eval(), (1, 3, 224, 224), Path("model.onnx"))
"""


def _run(script: str, folder: Path, *arguments: str) -> tuple[float, float]:
    """Seconds, and the most memory in MiB that the process, or one that it started, held."""
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    started, peak = time.perf_counter(), 0.0
    with (folder / "output.txt").open("wb") as output:
        process = psutil.Popen(
            [sys.executable, "-c", script, *arguments], cwd=folder, env=environment, stdout=output, stderr=output
        )
        while process.poll() is None:
            peak = max(peak, _memory(process))
            time.sleep(0.1)
            assert time.perf_counter() - started < 600
    assert process.returncode == 0, (folder / "output.txt").read_text(errors="replace")[-2000:]
    return time.perf_counter() - started, peak


def _memory(process: psutil.Process) -> float:
    held = [0]
    for one in [process, *process.children(recursive=True)]:
        try:
            held.append(one.memory_full_info().pss)
        except psutil.Error:  # it ended meanwhile
            continue
    return max(held) / 2**20


@pytest.mark.slow
@pytest.mark.parametrize(("name", "convolutions"), [("mobilenet_v2", 34), ("mobilenet_v3_small", 40)])
def test_an_export_is_twice_as_fast_as_a_stock_conversion_in_less_memory(
    name: str, convolutions: int, tmp_path: Path
) -> None:
    samples = np.random.default_rng(0).random((20, 128, 128, 3), dtype=np.float32)
    np.save(tmp_path / "calibration_image_sample_data_20x128x128x3_float32.npy", samples)
    _run(_ONNX, tmp_path, name)
    ours, ours_memory = _run(_OURS, tmp_path, name, str(convolutions))
    stock, stock_memory = _run(_STOCK, tmp_path, "model.onnx")
    print(
        f"\n{name} 224: export {ours:.1f} s, {ours_memory:.0f} MiB; stock conversion {stock:.1f} s, {stock_memory:.0f} MiB; "
        f"{stock / ours:.1f} times as fast"
    )
    assert (tmp_path / "stock" / "model_float32.tflite").is_file()
    assert stock >= 2 * ours  # 3.3 to 3.6 times on a machine with other work
    assert ours_memory <= stock_memory
