"""ONNX to a dense .tflite by onnx2tf, in a process of its own.

A process of its own, because TensorFlow and onnx2tf print, seed the random generators, hold a gigabyte, and can end the
process they run in. None of that may happen to a training.

onnx2tf 1.x spends nine tenths of its time in three SavedModel round trips (MobileNetV2: 47 s in all). Asked for the
Keras model alone, which is then traced and converted once, it gives the same operators in a tenth of the time. It also
downloads sample images for every model with a three-channel input; it gets random ones instead, which only its own
optional check of the outputs looks at. Nothing here uses the network.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sparsetorch.errors import BadInputError

_TIMEOUT_SECONDS = 1800


def onnx_to_tflite(source: Path) -> bytes:
    """The dense float32 .tflite of an ONNX file: NHWC inputs and outputs, in the order of the ONNX graph.

    Raises:
        BadInputError: where onnx2tf is not installed, or cannot convert the graph.
    """
    return convert_all([source])[0]


def convert_all(sources: Sequence[Path]) -> list[bytes]:
    """The .tflite of each ONNX file, all converted in one process: TensorFlow takes seconds to load.

    Raises:
        BadInputError: where onnx2tf is not installed, or cannot convert one of the graphs.
    """
    with tempfile.TemporaryDirectory(prefix="sparsetorch-") as folder:
        for index, source in enumerate(sources):
            shutil.copyfile(source, Path(folder, f"{index}.onnx"))  # onnx2tf simplifies its input in place
        environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", PYTHONWARNINGS="ignore")
        # onnx2tf calls the `onnxsim` program, which lies beside this interpreter even where that is not on the PATH.
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
        try:
            done = subprocess.run(
                [sys.executable, "-m", "sparsetorch.exporter.onnx_to_tflite", str(len(sources))],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT_SECONDS * len(sources),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise BadInputError(f"onnx2tf did not finish within {_TIMEOUT_SECONDS * len(sources)} s") from error
        made = [Path(folder, f"{index}.tflite") for index in range(len(sources))]
        if done.returncode != 0 or not all(file.is_file() for file in made):
            raise BadInputError(_failure(done.stdout + "\n" + done.stderr))
        return [file.read_bytes() for file in made]


def _failure(output: str) -> str:
    """One sentence from what onnx2tf printed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if any("No module named" in line and ("onnx2tf" in line or "tensorflow" in line) for line in lines):
        return (
            "onnx2tf is not installed; needed for export: pip install 'sparsetorch[export]', in one call with the rest"
        )
    told = [line for line in lines if line.startswith("ERROR") or "Error:" in line]
    return f"onnx2tf cannot convert this network: {(told or lines or ['it ended without a word'])[-1][:500]}"


def _convert(source: str, target: str) -> None:
    """The conversion itself, run in the process of its own; the working directory is a temporary folder."""
    import numpy as np
    import onnx2tf
    import onnx2tf.onnx2tf as implementation
    import tensorflow as tf

    samples = np.random.default_rng(0).random((20, 128, 128, 3), dtype=np.float32)
    implementation.download_test_image_data = lambda: samples
    keras_model = onnx2tf.convert(
        input_onnx_file_path=source,
        output_folder_path=f"{target}.saved_model",
        copy_onnx_input_output_names_to_tflite=True,
        disable_model_save=True,
        non_verbose=True,
    )
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype, name=tensor.name) for tensor in keras_model.inputs]
    function = tf.function(lambda *inputs: keras_model(list(inputs))).get_concrete_function(*specs)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], keras_model)
    converter.experimental_lower_to_saved_model = False
    Path(target).write_bytes(converter.convert())


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        _convert(f"{number}.onnx", f"{number}.tflite")
