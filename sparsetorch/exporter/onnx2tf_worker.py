"""ONNX to TFLite by onnx2tf, run as a script in a folder of its own. It loads the converter, waits for a line with a number n
on standard input, and then converts 0.onnx to n-1.onnx.

Imports nothing of this package, so that it runs under any interpreter that has onnx2tf: 1.29 on Python 3.11 (through Keras and
TensorFlow's converter), 2.x on Python 3.12 and later (writes the flatbuffer itself, without TensorFlow).

1.x spends nine tenths of its time in three SavedModel round trips (MobileNetV2: 47 s in all). Asked for the Keras model
alone, which is then traced and converted once, it gives the same operators in a tenth of the time. It also downloads sample
images for every model with a three-channel input; it gets random ones instead, which only its own optional check of the
outputs looks at. And it starts the onnxsim program three times (1.4 s), which is called as a function here (0.3 s). 2.x puts
channels-first islands around gates, which `sparsetorch.tflite.passes` takes out again. Nothing here uses the network.
"""

import importlib.util
import os
import sys
from importlib.metadata import version
from pathlib import Path


def _major() -> int:
    return int(version("onnx2tf").split(".")[0])


def convert(source: str, target: str) -> None:
    """Convert one file; the working directory is a temporary folder."""
    if _major() >= 2:
        _convert_2(source, target)
    else:
        _convert_1(source, target)


def _convert_1(source: str, target: str) -> None:
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
        not_use_onnxsim=_simplify(source),
        disable_model_save=True,
        non_verbose=True,
    )
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype, name=tensor.name) for tensor in keras_model.inputs]
    function = tf.function(lambda *inputs: keras_model(list(inputs))).get_concrete_function(*specs)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], keras_model)
    converter.experimental_lower_to_saved_model = False
    Path(target).write_bytes(converter.convert())


def _simplify(source: str) -> bool:
    """Simplify the file in place as onnx2tf would; False where it has to do that itself.

    It runs onnxsim until nothing is left to simplify, three times at most, and goes on without where onnxsim fails. For
    Einsum and OneHot it runs it once more, after it has corrected their shapes.
    """
    import onnx
    import onnxsim

    model = onnx.load(source)
    if any(node.op_type in ("Einsum", "OneHot") for node in model.graph.node):
        return False
    try:
        for _ in range(3):
            before = model.SerializeToString(deterministic=True)
            model, _ = onnxsim.simplify(model)
            if model.SerializeToString(deterministic=True) == before:
                break
        onnx.save(model, source)
    except Exception as error:
        print(f"onnxsim: {error}")
        return False
    return True


def _convert_2(source: str, target: str) -> None:
    """The direct backend; the one through TensorFlow where that is installed and the direct one does not know an operator."""
    import onnx2tf

    backends = ["flatbuffer_direct"] + (["tf_converter"] if importlib.util.find_spec("tensorflow") else [])
    for backend in backends:
        folder = f"{target}.{backend}"
        try:
            onnx2tf.convert(
                input_onnx_file_path=source,
                output_folder_path=folder,
                copy_onnx_input_output_names_to_tflite=True,
                tflite_backend=backend,
                non_verbose=True,
            )
            (made,) = Path(folder).glob("*_float32.tflite")
        except (Exception, SystemExit):
            if backend == backends[-1]:
                raise
            continue
        made.rename(target)
        return


if __name__ == "__main__":
    import onnx2tf  # noqa: F401

    if _major() < 2:
        import onnxsim  # noqa: F401
        import tensorflow  # noqa: F401
    for number in range(int(sys.stdin.readline() or 0)):
        convert(f"{number}.onnx", f"{number}.tflite")
    sys.stdout.flush()
    os._exit(0)  # TensorFlow takes 0.8 s to end, and every file is written
