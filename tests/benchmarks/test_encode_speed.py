"""Encoding a file against TensorFlow's own way to it, a second conversion with EXPERIMENTAL_SPARSITY, in one run.

Run with `-s` to see the figures.
"""

import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
import sys, time
import numpy as np
import tensorflow as tf
from sparsetorch.tflite import encode, load, save

tf.keras.utils.set_random_seed(0)
model = tf.keras.applications.MobileNetV2((96, 96, 3), alpha=float(sys.argv[1]), weights=None, classes=1000)
for layer in model.layers:
    if type(layer) is tf.keras.layers.Conv2D and layer.kernel_size == (1, 1):
        weights = layer.get_weights()
        weights[0][np.abs(weights[0]) < np.quantile(np.abs(weights[0]), 0.85)] = 0
        layer.set_weights(weights)
function = tf.function(lambda x: model(x)).get_concrete_function(tf.TensorSpec((1, 96, 96, 3)))

def convert(*optimizations):
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], model)
    converter.optimizations = list(optimizations)
    converter.experimental_lower_to_saved_model = False
    return converter.convert()

open("dense.tflite", "wb").write(convert())
started = time.perf_counter()
theirs = len(convert(tf.lite.Optimize.EXPERIMENTAL_SPARSITY))
conversion = time.perf_counter() - started
seconds = []
for _ in range(3):
    started = time.perf_counter()
    dense = load("dense.tflite")
    encode(dense)
    ours = save(dense, "sparse.tflite")
    seconds.append(time.perf_counter() - started)
print(conversion, sorted(seconds)[1], theirs, ours)
"""


def measure(alpha: float, folder: Path) -> tuple[float, float, int, int]:
    """Seconds of TensorFlow's conversion and of load, encode and save; bytes of either file."""
    words = [sys.executable, "-c", _SCRIPT, str(alpha)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    conversion, encoding, theirs, ours = done.stdout.split()[-4:]
    return float(conversion), float(encoding), int(theirs), int(ours)


@pytest.mark.slow
def test_encoding_takes_a_tenth_of_tensorflows_reconversion_and_no_more_bytes(tmp_path: Path) -> None:
    conversion, encoding, theirs, ours = measure(0.5, tmp_path)
    print(f"\nMobileNetV2 0.5: TensorFlow {conversion:.2f} s, {theirs:,} B; encode {encoding:.3f} s, {ours:,} B")
    assert encoding * 10 <= conversion
    assert ours <= theirs
