"""What other tools get wrong about sparse files, one test each. The numbers are those of the issue threads that were read."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from graphs import KIND, OP, Net, classifier

import sparsetorch
from sparsetorch.cli import main
from sparsetorch.tflite import Storage, densify, densify_model, encode, load, save
from sparsetorch.xnnpack import verify


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    save(classifier(size=64), tmp_path / "dense.tflite")
    return tmp_path / "dense.tflite"


def test_pitfall_20_sizes_are_told_raw_and_gzip_dense_and_sparse_and_for_each_tensor(
    dense: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pruned, but the file is as large: nobody encoded it."""
    out = tmp_path / "sparse.tflite"
    assert main(["encode", str(dense), "-o", str(out), "--json", str(tmp_path / "told.json")]) == 0
    told = json.loads((tmp_path / "told.json").read_text())
    original, model = told["sizes"]["original"], told["sizes"]["model"]
    assert (original["raw"], model["raw"]) == (dense.stat().st_size, out.stat().st_size)
    assert original["raw"] > model["raw"] > model["gzip"]
    assert original["raw"] > original["gzip"]
    shown = capsys.readouterr().out
    for size in (original, model):
        assert f"{size['raw']:,}" in shown
        assert f"{size['gzip']:,}" in shown
    saved = sum(layer["dense_bytes"] - layer["bytes"] for layer in told["layers"])
    assert original["raw"] - model["raw"] == pytest.approx(saved, rel=0.3)  # DENSIFY and names take the rest
    assert verify(dense).reasons[0].rule == "not-encoded"


@pytest.mark.parametrize("values", ["float32", "float16", "int8"])
def test_pitfall_21_the_block_map_is_empty_and_not_absent(values: str, tmp_path: Path) -> None:
    """Interpreters crash on reading the details of a tensor with a null block map: here in a process of its own."""
    model = classifier()
    encode(model, storage=Storage(values))
    save(model, tmp_path / "m.tflite")
    sparse = [tensor for tensor in load(tmp_path / "m.tflite").tensors if tensor.sparsity is not None]
    assert len(sparse) == 9
    assert all(isinstance(tensor.sparsity.blockMap, np.ndarray) for tensor in sparse)
    script = (
        "import sys; from ai_edge_litert.interpreter import Interpreter\n"
        "interpreter = Interpreter(sys.argv[1])\n"
        "interpreter.allocate_tensors()\n"
        "print(sum(bool(detail['sparsity_parameters']) for detail in interpreter.get_tensor_details()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "m.tflite")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "9"


def test_pitfall_22_a_target_without_densify_gets_a_dense_file_and_the_reason(
    dense: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "micro.tflite"
    assert main(["encode", str(dense), "-o", str(out), "--target", "tflite-micro"]) == 3
    captured = capsys.readouterr()
    assert "DENSIFY is unknown" in captured.out
    assert all(operator.code != OP.DENSIFY for operator in load(out).graphs[0].operators)
    sparse = tmp_path / "sparse.tflite"
    sparsetorch.encode(dense, sparse)
    verdict = verify(sparse, ["tflite-micro"])
    assert verdict.unsafe
    assert "DENSIFY is unknown" in (verdict.targets["tflite-micro"].why_not or "")
    twin = densify_model(load(sparse))
    assert all(operator.code != OP.DENSIFY for operator in twin.graphs[0].operators)
    assert not verify(twin, ["tflite-micro"]).unsafe


@pytest.mark.parametrize("values", ["float16", "int8"])
def test_pitfall_32_what_rounding_makes_zero_is_left_out(values: str) -> None:
    """float16 ends at 2^-24, int8 at half a step: a value below it must not be stored as an explicit zero."""
    net = Net()
    weight = net.weights((64, 1, 1, 64), 0.8, "layer.weight")
    array = weight.array().copy()
    tiny = (array == 0) & (np.random.default_rng(0).random(array.shape) < 0.5)
    array[tiny] = 1e-9
    weight.data = np.frombuffer(array.tobytes(), np.uint8)
    net.output(net.mean(net.conv(net.stem(net.input(16, 3), 64), 64, 1, weight=weight)))
    model = net.model()
    entry = next(entry for entry in encode(model, storage=Storage(values)) if entry.name == "layer.weight")
    assert np.mean(array == 0) < 0.5
    assert entry.sparsity == pytest.approx(0.8, abs=0.01)
    assert weight.type == {"float16": KIND.FLOAT16, "int8": KIND.INT8}[values]
    assert np.count_nonzero(weight.stored()) == weight.stored().size
    assert weight.stored().size == np.count_nonzero(densify(weight)) < np.count_nonzero(array)


def test_pitfall_32_float16_is_presented_as_size(dense: Path, tmp_path: Path) -> None:
    """The verdict and the sparse matrix products are those of float32: nothing is claimed to be faster."""
    reports = [
        sparsetorch.encode(dense, tmp_path / f"{values}.tflite", storage=Storage(values))
        for values in ("float32", "float16")
    ]
    assert reports[1].model.bytes < reports[0].model.bytes
    assert [report.verdict.expected_spmm for report in reports] == [9, 9]
    assert reports[0].verdict.targets == reports[1].verdict.targets
