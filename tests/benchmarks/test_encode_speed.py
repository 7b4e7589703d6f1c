"""Encoding MobileNetV2 against TensorFlow's re-conversion with EXPERIMENTAL_SPARSITY, in one run; and the sizes of every storage.

MobileNetV2 1.0 at 224 pixels as Keras would build it, random weights, the 1x1 convolutions pruned to 85 %. Run with `-s` to
see the figures.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sparsetorch.tflite import Model, Storage, densify, encode, load, save
from sparsetorch.xnnpack import verify

_TENSORFLOW = """
import json, sys, time
from pathlib import Path
import numpy as np
import tensorflow as tf
import tf_keras as keras
L = keras.layers

def network():
    x = image = L.Input((224, 224, 3), batch_size=1)
    x = L.ReLU(6.0)(L.Conv2D(32, 3, 2)(L.ZeroPadding2D(1)(x)))
    channels = 32
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    for factor, width, count, first in stages:
        for index in range(count):
            stride, y = (first if index == 0 else 1), x
            if factor != 1:
                y = L.ReLU(6.0)(L.Conv2D(channels * factor, 1)(y))
            y = L.DepthwiseConv2D(3, 2)(L.ZeroPadding2D(1)(y)) if stride == 2 else L.DepthwiseConv2D(3, padding="same")(y)
            y = L.Conv2D(width, 1)(L.ReLU(6.0)(y))
            x = L.Add()([x, y]) if stride == 1 and channels == width else y
            channels = width
    x = L.GlobalAveragePooling2D()(L.ReLU(6.0)(L.Conv2D(1280, 1)(x)))
    return keras.Model(image, L.Dense(1000)(x))

def convert(model, *optimizations):
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = list(optimizations)
    return converter.convert()

model, random = network(), np.random.default_rng(0)
for layer in model.layers:
    if weights := layer.get_weights():
        shape = weights[0].shape
        depthwise = isinstance(layer, L.DepthwiseConv2D)
        kernel = random.normal(0, np.sqrt(2 / np.prod(shape[:2] if depthwise else shape[:-1])), shape).astype(np.float32)
        if len(shape) == 4 and shape[:2] == (1, 1) and not depthwise:
            kernel[np.abs(kernel) < np.quantile(np.abs(kernel), 0.85)] = 0
        layer.set_weights([kernel, random.normal(0, 0.05, weights[1].shape)])
folder = Path(sys.argv[1])
(folder / "dense.tflite").write_bytes(convert(model))
start = time.perf_counter()
(folder / "theirs.tflite").write_bytes(convert(model, tf.lite.Optimize.EXPERIMENTAL_SPARSITY))
print(json.dumps(time.perf_counter() - start))
"""
TENSORFLOW_SECONDS = 7.0
"""Of its conversion on an idle core of the machine that the limit of 0.3 s is meant for; a busy machine is slower at both."""
TENSORFLOW_FLOAT16 = 3_946_504
"""Bytes of TensorFlow's own sparse float16 file of this network."""


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """The folder with both of TensorFlow's files, and the seconds that its sparse conversion took."""
    folder = tmp_path_factory.mktemp("mobilenet")
    environment = dict(os.environ, TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    done = subprocess.run(
        [sys.executable, "-c", _TENSORFLOW, str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return folder, json.loads(done.stdout.splitlines()[-1])


def best_seconds(source: Path, target: Path, storage: Storage) -> float:
    """The best of five: read, encode, write."""
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        model = load(source)
        encode(model, storage=storage)
        save(model, target)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def prune_classifier(model: Model) -> None:
    weight = next(operator.inputs[1] for operator in model.graphs[0].operators if operator.name == "FULLY_CONNECTED")
    assert weight is not None
    values = weight.array().copy()
    values[np.abs(values) < np.quantile(np.abs(values), 0.85)] = 0
    weight.data = np.frombuffer(values.tobytes(), np.uint8)


@pytest.mark.slow
def test_encoding_is_ten_times_as_fast_as_a_second_conversion(converted: tuple[Path, float]) -> None:
    folder, theirs = converted
    for values in ("float32", "float16", "int8"):
        ours = best_seconds(folder / "dense.tflite", folder / f"{values}.tflite", Storage(values))
        print(f"\n{values}: encode {ours:.3f} s, TensorFlow's re-conversion {theirs:.1f} s, ratio {theirs / ours:.0f}")
        assert ours <= 0.3 * max(1.0, theirs / TENSORFLOW_SECONDS)
        assert theirs >= 10 * ours
        assert verify(folder / f"{values}.tflite").expected_spmm == 34


@pytest.mark.slow
def test_sizes(converted: tuple[Path, float], tmp_path: Path) -> None:
    folder, _ = converted
    sizes = {}
    for name, prune in (("dense classifier", False), ("pruned classifier", True)):
        for values in ("float32", "float16", "int8"):
            model = load(folder / "dense.tflite")
            if prune:
                prune_classifier(model)
            encode(model, storage=Storage(values))
            sizes[name, values] = save(model, tmp_path / "m.tflite")
    theirs = (folder / "theirs.tflite").stat().st_size
    print(f"\ndense {(folder / 'dense.tflite').stat().st_size:,}, TensorFlow sparse {theirs:,} B", sizes)
    assert sizes["dense classifier", "float32"] <= theirs
    assert sizes["dense classifier", "float16"] <= TENSORFLOW_FLOAT16
    assert sizes["dense classifier", "int8"] <= 2_400_000
    # 192,000 weights of the classifier with two index bytes each: both of its dimensions are above 256.
    assert sizes["pruned classifier", "int8"] <= 1_620_000


@pytest.mark.slow
def test_tensorflows_file_is_read_bit_for_bit(converted: tuple[Path, float]) -> None:
    folder, _ = converted
    dense = {tensor.name: tensor for tensor in load(folder / "dense.tflite").tensors if tensor.data is not None}
    bits = {tensor.array().tobytes() for tensor in dense.values() if len(tensor.shape) == 4}
    sparse = [tensor for tensor in load(folder / "theirs.tflite").tensors if tensor.sparsity is not None]
    assert len(sparse) == 34
    assert all(densify(tensor).tobytes() in bits for tensor in sparse)
