"""Sparse files of every storage in three real runtimes: the LiteRT of this environment, LiteRT 2.3, and TensorFlow's interpreter.

Each runs in a fresh process, which also reads all tensor details (a null block map crashes some runtimes there). LiteRT 2.3 goes
into a folder of its own, from PyPI, or is the folder that SPARSETORCH_LITERT_23 names.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from graphs import OP, Net, classifier, options

from sparsetorch.tflite import Model, Storage, decode, encode, save
from sparsetorch.xnnpack import verify

FOLDER_VARIABLE = "SPARSETORCH_LITERT_23"
VALUES = ("float32", "float16", "int8")

_RUN = """
import json, sys
import numpy as np
if sys.argv[1] == "tensorflow":
    import tensorflow as tf
    Interpreter, version = tf.lite.Interpreter, tf.__version__
else:
    from ai_edge_litert.interpreter import Interpreter
    import ai_edge_litert
    version = ai_edge_litert.__version__
outputs = {}
for path in sys.argv[2:]:
    interpreter = Interpreter(path, num_threads=1)
    interpreter.allocate_tensors()
    assert interpreter.get_tensor_details()
    given = interpreter.get_input_details()[0]
    interpreter.set_tensor(given["index"], np.random.default_rng(5).uniform(-1, 1, given["shape"]).astype(np.float32))
    interpreter.invoke()
    outputs[path] = interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).ravel().tolist()
print(json.dumps([version, outputs]))
"""


def every_kind() -> Model:
    """Zeros in a 3x3, a depthwise, a 1x1 and a fully-connected layer; blocks of four in the 1x1."""
    net = Net(0.85)
    x = net.conv(net.input(16, 8), 64, 3, sparsity=0.9, name="conv.weight")
    chosen = options("DepthwiseConv2D", padding=1, strideH=1, strideW=1, depthMultiplier=1)
    weight = net.weights((1, 3, 3, 64), 0.95, "depthwise.weight")
    x = net.add(OP.DEPTHWISE_CONV_2D, [x, weight, net.bias(64)], (1, 12, 12, 64), chosen)
    weight = net.weights((64, 1, 1, 64), 0, "pointwise.weight")
    keep = np.repeat(np.random.default_rng(1).random((16, 1, 1, 64)) < 0.15, 4, axis=0)
    weight.data = np.frombuffer((weight.array() * keep).tobytes(), np.uint8)
    pooled = net.mean(net.conv(x, 64, 1, weight=weight))
    weight = net.weights((100, 64), 0.9, "dense.weight")
    net.output(net.add(OP.FULLY_CONNECTED, [pooled, weight, net.bias(100)], (1, 100), options("FullyConnected")))
    return net.model()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each file beside the same numbers as plain float32 constants."""
    folder = tmp_path_factory.mktemp("storage")
    made = {}
    for name, build in (("classifier", classifier), ("every_kind", every_kind)):
        for values in VALUES:
            model = build()
            entries = encode(model, storage=Storage(values))
            assert {entry.values for entry in entries if entry.encoding == "sparse"} == {values}
            if name == "classifier":
                assert verify(model).expected_spmm == 9
            else:
                assert [entry.encoding for entry in entries] == ["sparse"] * 4
            made[f"{name} {values}"] = folder / f"{name}_{values}.tflite"
            save(model, made[f"{name} {values}"])
            save(decode(model), folder / f"{name}_{values}.plain.tflite")
    return made


def check(files: dict[str, Path], runtime: str, version: str, folder: str | None = None) -> None:
    paths = [other for path in files.values() for other in (path, path.with_suffix(".plain.tflite"))]
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    if folder is not None:
        environment["PYTHONPATH"] = folder
    words = [sys.executable, "-c", _RUN, runtime, *map(str, paths)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found_version, outputs = json.loads(done.stdout.splitlines()[-1])
    assert found_version.startswith(version)
    for name, path in files.items():
        found, wanted = (np.array(outputs[str(other)]) for other in (path, path.with_suffix(".plain.tflite")))
        assert np.std(wanted) > 1e-3, name
        # float16 weights are summed in another order by some kernels.
        assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max(), name


def test_pitfall_21_litert_of_this_environment(files: dict[str, Path]) -> None:
    check(files, "litert", "2.")


def test_tensorflow(files: dict[str, Path]) -> None:
    pytest.importorskip("tensorflow")
    check(files, "tensorflow", "2.")


def test_litert_2_3(files: dict[str, Path], tmp_path: Path) -> None:
    installed = Path(sys.prefix) / "litert-2.3"  # by `make test`
    folder = os.environ.get(FOLDER_VARIABLE) or (str(installed) if installed.is_dir() else None)
    if folder is None:
        folder = str(tmp_path / "litert")
        words = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            folder,
            "ai-edge-litert==2.3.0",
        ]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"NOT RUN with LiteRT 2.3: pip cannot fetch it here, and {FOLDER_VARIABLE} names no folder")
    check(files, "litert", "2.3", folder)
