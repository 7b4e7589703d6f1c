"""Files in every precision load and run in the LiteRT of this environment, in a newer one, and in TensorFlow's interpreter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from graphs import classifier
from tflite_run import outputs, random_inputs

from sparsetorch.tflite import Storage, decode, encode, save

NEWER = Path(sys.prefix) / "litert-2.3"
"""Where `make test` installs it."""

_RUN = """
import json, sys
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
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], np.load(sys.argv[2]))
    interpreter.invoke()
    found[path] = interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).ravel().tolist()
print(json.dumps([version, found]))
"""


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
    return made


@pytest.mark.parametrize("runtime", ["LiteRT", "newer LiteRT", "tensorflow"])
def test_files_run_right(runtime: str, files: dict[str, tuple[Path, list[float]]]) -> None:
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
    if runtime == "newer LiteRT":
        if not NEWER.is_dir() and "CI" not in os.environ:
            pytest.skip(f"no second LiteRT in {NEWER}: `make test` installs it")
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
