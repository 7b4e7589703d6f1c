"""Write small sparse networks with TensorFlow's own converter: `python tensorflow_graphs.py DIRECTORY [NAME ...]`.

Run as a process of its own, so that no test imports TensorFlow. Every file is encoded by EXPERIMENTAL_SPARSITY, with the same
random weights each time. The names say what differs from `ok`.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import numpy as np
import tensorflow as tf
import tf_keras as keras

layers = keras.layers


@dataclass(frozen=True)
class Network:
    """One inverted-bottleneck network of four blocks."""

    stem: str = "valid"
    depthwise: str = "valid"
    activation: str = "relu6"
    tail: str = "pool"
    gate: str | None = None
    """`conv`: squeeze-excite of 1x1 convolutions in the third block."""
    middle: str | None = None
    sparsity: float = 0.85
    int8: bool = False


NETWORKS = {
    "ok": Network(),
    "s60": Network(sparsity=0.6),
    "dw2same": Network(depthwise="same"),
    "maxpool": Network(middle="maxpool"),
    "bilinear": Network(middle="bilinear"),
    "flatten": Network(tail="flatten"),
    "avgpool": Network(tail="avgpool"),
    "gapkeep": Network(tail="keep_conv"),
    "d2s": Network(tail="depth_to_space"),
    "silu": Network(activation="silu"),
    "se_conv": Network(gate="conv"),
    "int8": Network(int8=True),
}


def activate(name: str, x: object) -> object:
    return x * tf.sigmoid(x) if name == "silu" else layers.ReLU(6.0)(x)


def gated(x: object, channels: int) -> object:
    pooled = layers.GlobalAveragePooling2D(keepdims=True)(x)
    return layers.Multiply()(
        [x, tf.sigmoid(layers.Conv2D(channels, 1)(layers.Conv2D(8, 1, activation="relu")(pooled)))]
    )


def build(network: Network) -> keras.Model:
    inputs = layers.Input((96, 96, 3), batch_size=1)
    x = layers.ZeroPadding2D(1)(inputs) if network.stem == "valid" else inputs
    x = activate(network.activation, layers.Conv2D(16, 3, 2, network.stem)(x))
    channels = 16
    for number, (width, stride) in enumerate([(24, 2), (24, 1), (32, 2), (32, 1)]):
        y = activate(network.activation, layers.Conv2D(channels * 4, 1)(x))
        if stride == 2 and network.depthwise != "same":
            y = layers.ZeroPadding2D(1)(y)
            y = layers.DepthwiseConv2D(3, 2, "valid")(y)
        else:
            y = layers.DepthwiseConv2D(3, stride, "same")(y)
        y = activate(network.activation, y)
        if network.gate and number == 2:
            y = gated(y, channels * 4)
        y = layers.Conv2D(width, 1)(y)
        x = layers.Add()([x, y]) if stride == 1 and channels == width else y
        channels = width
        if number == 1 and network.middle == "maxpool":
            x = layers.MaxPool2D(2)(x)
        if number == 1 and network.middle == "bilinear":
            x = layers.UpSampling2D(2, interpolation="bilinear")(x)
    x = activate(network.activation, layers.Conv2D(128, 1)(x))
    return keras.Model(inputs, tail(network.tail, x))


def tail(kind: str, x: object) -> object:
    if kind == "pool":
        return layers.Dense(10)(layers.GlobalAveragePooling2D()(x))
    if kind == "flatten":
        return layers.Dense(10)(layers.Flatten()(x))
    if kind == "avgpool":
        return layers.Dense(10)(layers.Flatten()(layers.AveragePooling2D(x.shape[1])(x)))
    if kind == "keep_conv":
        return layers.Reshape((10,))(layers.Conv2D(10, 1)(layers.GlobalAveragePooling2D(keepdims=True)(x)))
    if kind == "depth_to_space":
        return tf.nn.depth_to_space(layers.Conv2D(12, 1)(x), 2)
    return x


def prune(model: keras.Model, sparsity: float) -> None:
    random = np.random.default_rng(0)
    for layer in model.layers:
        weights = layer.get_weights()
        if not weights:
            continue
        kernel = random.normal(0, 0.2, weights[0].shape).astype(np.float32)
        if kernel.ndim == 4 and kernel.shape[:2] == (1, 1) and not isinstance(layer, layers.DepthwiseConv2D):
            kernel[np.abs(kernel) < np.quantile(np.abs(kernel), sparsity)] = 0
        layer.set_weights([kernel, random.normal(0, 0.1, weights[1].shape).astype(np.float32)])


def write(directory: Path, name: str) -> None:
    network = NETWORKS[name]
    model = build(network)
    prune(model, network.sparsity)
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.EXPERIMENTAL_SPARSITY]
    if network.int8:
        converter.optimizations.append(tf.lite.Optimize.DEFAULT)
    (directory / f"{name}.tflite").write_bytes(converter.convert())


if __name__ == "__main__":
    for wanted in sys.argv[2:] or NETWORKS:
        write(Path(sys.argv[1]), wanted)
