"""Files in every precision load and run in the LiteRT of this environment, in a newer one, and in TensorFlow's interpreter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from graphs import OP, VALID, Net, classifier, options
from tflite_run import outputs, random_inputs

from sparsetorch.runtime import emulated
from sparsetorch.runtime.cache import runtimes_folder
from sparsetorch.tflite import Model, Storage, Tensor, decode, encode, save

NEWER = runtimes_folder() / emulated.folder_name()
"""LiteRT 2.3, which `make test` installs for the emulated runtime."""

_RUN = """
import json, os, sys
import numpy as np
if sys.argv[1] == "tensorflow":
    import tensorflow as tf
    version, Interpreter = tf.__version__, tf.lite.Interpreter
else:
    from importlib.metadata import version as version_of
    from ai_edge_litert.interpreter import Interpreter
    version = version_of("ai-edge-litert")
found = {}
for path in sys.argv[3:]:
    interpreter = Interpreter(path, num_threads=1)
    interpreter.allocate_tensors()
    assert interpreter.get_tensor_details()
    own = path.replace(".tflite", ".npy")
    image = np.load(own if os.path.exists(own) else sys.argv[2])
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image)
    interpreter.invoke()
    found[path] = interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).ravel().tolist()
print(json.dumps([version, found]))
"""


def every_kind() -> Model:
    """Zeros in a 3x3, a depthwise, a 1x1 and a fully-connected layer; blocks of four outputs in the 1x1."""
    net = Net(0.85)
    x = net.conv(net.input(16, 8), 64, 3, sparsity=0.9, name="conv.weight")
    chosen = options("DepthwiseConv2D", padding=VALID, strideH=1, strideW=1, depthMultiplier=1)
    weight = net.weights((1, 3, 3, 64), 0.95, "depthwise.weight")
    x = net.add(OP.DEPTHWISE_CONV_2D, [x, weight, net.bias(64)], (1, 12, 12, 64), chosen)
    weight = net.weights((64, 1, 1, 64), 0, "pointwise.weight")
    keep = np.repeat(np.random.default_rng(1).random((16, 1, 1, 64)) < 0.15, 4, axis=0)
    weight.data = np.frombuffer((weight.array() * keep).tobytes(), np.uint8)
    pooled = net.mean(net.conv(x, 64, 1, weight=weight))
    weight = net.weights((100, 64), 0.9, "dense.weight")
    net.output(net.add(OP.FULLY_CONNECTED, [pooled, weight, net.bias(100)], (1, 100), options("FullyConnected")))
    return net.model()


def wide_tail(net: Net, x: Tensor) -> Tensor:
    """A classifier with both sides over 256."""
    weight, chosen = net.weights((600, 300), 0.9, "classes.weight"), options("FullyConnected")
    return net.add(OP.FULLY_CONNECTED, [net.mean(net.pointwise(x, 300)), weight, net.bias(600)], (1, 600), chosen)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[float]]]:
    """Name to a file and what it has to give; with a gate and a pruned classifier, so that every kind of layer is there."""
    folder = tmp_path_factory.mktemp("files")
    made = {}
    pairs = [("float32", None), ("float16", None), ("int8", None), ("int8", "float32"), ("float32", "float16")]
    for storage in (Storage(*pair) for pair in pairs):
        name = f"{storage.values}-{storage.dense}"
        model = classifier(gate="conv", sparsity=0.9)
        entries = encode(model, storage=storage)
        assert any(entry.encoding == "sparse" and entry.values == storage.values for entry in entries)
        save(model, folder / f"{name}.tflite")
        plain = decode(model)
        inputs = random_inputs(plain)
        np.save(folder / "input.npy", inputs[0])
        made[name] = (folder / f"{name}.tflite", outputs(plain, *inputs)[0].ravel().tolist())
    for values in ("float32", "float16", "int8"):
        model = every_kind()
        assert [entry.encoding for entry in encode(model, storage=Storage(values))] == ["sparse"] * 4
        save(model, folder / f"kinds-{values}.tflite")
        plain = decode(model)
        inputs = random_inputs(plain)
        np.save(folder / f"kinds-{values}.npy", inputs[0])
        made[f"kinds-{values}"] = (folder / f"kinds-{values}.tflite", outputs(plain, *inputs)[0].ravel().tolist())
    model = classifier(sparsity=0.9, tail=wide_tail)
    entries = encode(model, storage=Storage("int8", split=True))
    assert sum(entry.name.endswith(("/0:200", "/200:400", "/400:600")) for entry in entries) == 3
    save(model, folder / "split.tflite")
    plain = decode(model)
    made["split"] = (folder / "split.tflite", outputs(plain, *random_inputs(plain))[0].ravel().tolist())
    return made


@pytest.mark.parametrize("runtime", ["LiteRT", "newer LiteRT", "tensorflow"])
def test_files_run_right(runtime: str, files: dict[str, tuple[Path, list[float]]]) -> None:
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    if runtime == "newer LiteRT":
        assert NEWER.is_dir(), f"no second LiteRT there; pip install --no-deps --target {NEWER} ai-edge-litert==2.3.0"
        environment["PYTHONPATH"] = str(NEWER)
    paths = [str(path) for path, _ in files.values()]
    image = str(Path(paths[0]).with_name("input.npy"))
    words = [sys.executable, "-c", _RUN, runtime, image, *paths]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    version, found = json.loads(done.stdout.splitlines()[-1])
    assert version.startswith({"LiteRT": "2.1", "newer LiteRT": "2.3", "tensorflow": "2."}[runtime])
    for name, (path, wanted) in files.items():
        np.testing.assert_allclose(found[str(path)], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max(), err_msg=name)
