"""A whole export against a stock `onnx2tf.convert` call on the same ONNX file: seconds, and memory of the largest process.

Ours does more (PyTorch to ONNX, loading TensorFlow in a process of its own, sparse encoding, verdict, comparison with PyTorch)
and stock is given its sample images locally, so that its download is not part of the time. Told are the calls, as a script that
has its libraries loaded sees them, and the whole processes, with the import of PyTorch or of TensorFlow and the way out. Run
with `-s` to see the figures.
"""

import contextlib
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest

_LOOK_SECONDS = 0.5
_STOCK = """
import sys, time, onnx2tf, tensorflow
started = time.perf_counter()
onnx2tf.convert(input_onnx_file_path=sys.argv[1], output_folder_path="stock", non_verbose=True)
print("\\nCALL", time.perf_counter() - started)
"""
_OURS = """
import sys, time, torch, torchvision, sparsetorch
torch.manual_seed(0)
network = getattr(torchvision.models, sys.argv[1])()
started = time.perf_counter()
report = sparsetorch.export(network, "ours.tflite", (3, 224, 224), sparsity=0.85)
assert report.verdict.eligible and report.verdict.expected_spmm == int(sys.argv[2]), report.verdict
print("\\nCALL", time.perf_counter() - started)
"""
_ONNX = """
import sys, torch, torchvision
from pathlib import Path
from sparsetorch.exporter.torch_to_onnx import torch_to_onnx
torch.manual_seed(0)
torch_to_onnx(getattr(torchvision.models, sys.argv[1])().eval(), (1, 3, 224, 224), Path("model.onnx"))
print("CALL 0")
"""


@dataclass(frozen=True)
class Run:
    """What a script took."""

    call_seconds: float
    process_seconds: float
    memory: float
    """MiB; the most that the process, or one that it started, held at any time."""


def _run(script: str, folder: Path, *arguments: str) -> Run:
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    started, peak = time.perf_counter(), 0.0
    with (folder / "output.txt").open("wb") as output:
        process = psutil.Popen(
            [sys.executable, "-c", script, *arguments], cwd=folder, env=environment, stdout=output, stderr=output
        )
        while True:
            peak = max(peak, _memory(process))
            try:
                process.wait(_LOOK_SECONDS)
                break
            except psutil.TimeoutExpired:
                assert time.perf_counter() - started < 600
    seconds = time.perf_counter() - started
    said = (folder / "output.txt").read_text(errors="replace")
    assert process.returncode == 0, said[-2000:]
    return Run(float(said.rpartition("CALL ")[2].split()[0]), seconds, peak)


def _memory(process: psutil.Process) -> float:
    """The kernel's own record of the most that each held, so that looking seldom, which slows nothing, misses no peak."""
    held = [0.0]
    for one in [process, *process.children(recursive=True)]:
        with contextlib.suppress(OSError):  # it ended meanwhile
            status = Path("/proc", str(one.pid), "status").read_text()
            held += [int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")]
    return max(held)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "convolutions"), [("mobilenet_v2", 34), ("mobilenet_v3_small", 40)])
def test_an_export_is_four_times_as_fast_as_a_stock_conversion_in_less_memory(
    name: str, convolutions: int, tmp_path: Path
) -> None:
    samples = np.random.default_rng(0).random((20, 128, 128, 3), dtype=np.float32)
    np.save(tmp_path / "calibration_image_sample_data_20x128x128x3_float32.npy", samples)
    _run(_ONNX, tmp_path, name)
    ours = _run(_OURS, tmp_path, name, str(convolutions))
    stock = _run(_STOCK, tmp_path, "model.onnx")
    calls, processes = stock.call_seconds / ours.call_seconds, stock.process_seconds / ours.process_seconds
    print(
        f"\n{name} 224: export {ours.call_seconds:.1f} s, stock {stock.call_seconds:.1f} s, {calls:.1f} times as fast; "
        f"with imports {ours.process_seconds:.1f} and {stock.process_seconds:.1f} s, {processes:.1f} times; "
        f"largest process {ours.memory:.0f} and {stock.memory:.0f} MiB"
    )
    assert (tmp_path / "stock" / "model_float32.tflite").is_file()
    assert calls >= 4
    assert processes >= 2.5
    assert ours.memory <= stock.memory
