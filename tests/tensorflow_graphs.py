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
    """Squeeze-excite in the third block: `conv`, of 1x1 convolutions; `dense`, of fully-connected layers; `hard`, with a
    hard sigmoid; `hard_later`, that one behind a `conv` gate in the second block."""
    middle: str | None = None
    kernel: int = 3
    residual: bool = True
    sparsity: float = 0.85
    storage: str = "float32"


NETWORKS = {
    "ok": Network(),
    "s70": Network(sparsity=0.7),
    "no_residual": Network(residual=False),
    "kernel5": Network(kernel=5),
    "relu": Network(activation="relu"),
    "hard_swish": Network(activation="hard_swish"),
    "silu": Network(activation="silu"),
    "leaky": Network(activation="leaky"),
    "bilinear": Network(middle="bilinear"),
    "d2s": Network(tail="depth_to_space"),
    "keep_reshape": Network(tail="keep_reshape"),
    "se_conv": Network(gate="conv"),
    "float16": Network(storage="float16"),
    "s60": Network(sparsity=0.6),
    "same_stem": Network(stem="same"),
    "same_everywhere": Network(stem="same", depthwise="same"),
    "flatten": Network(tail="flatten"),
    "avgpool": Network(tail="avgpool"),
    "no_tail": Network(tail="none"),
    "se_dense": Network(gate="dense"),
    "dw2same": Network(depthwise="same"),
    "maxpool": Network(middle="maxpool"),
    "gapkeep": Network(tail="keep_conv"),
    "gapkeep_output": Network(tail="keep_conv_output"),
    "hard_later": Network(gate="hard_later"),
    "int8": Network(storage="int8"),
}


def activate(name: str, x: object) -> object:
    if name == "silu":
        return x * tf.sigmoid(x)
    if name == "hard_swish":
        return x * (layers.ReLU(6.0)(x + 3.0) * (1 / 6.0))
    if name == "leaky":
        return layers.LeakyReLU(0.1)(x)
    return layers.ReLU(6.0 if name == "relu6" else None)(x)


def gated(x: object, channels: int, gate: str) -> object:
    if gate == "dense":
        y = layers.Dense(8, activation="relu")(layers.GlobalAveragePooling2D()(x))
        return layers.Multiply()([x, layers.Reshape((1, 1, channels))(tf.sigmoid(layers.Dense(channels)(y)))])
    y = layers.Conv2D(8, 1, activation="relu")(layers.GlobalAveragePooling2D(keepdims=True)(x))
    y = layers.Conv2D(channels, 1)(y)
    return layers.Multiply()([x, tf.maximum(0.0, tf.minimum(1.0, y / 6.0 + 0.5)) if gate == "hard" else tf.sigmoid(y)])


def gate_of(network: Network, block: int) -> str | None:
    if network.gate == "hard_later":
        return {1: "conv", 2: "hard"}.get(block)
    return network.gate if block == 2 else None


def build(network: Network) -> keras.Model:
    inputs = layers.Input((96, 96, 3), batch_size=1)
    x = layers.ZeroPadding2D(1)(inputs) if network.stem == "valid" else inputs
    x = activate(network.activation, layers.Conv2D(16, 3, 2, network.stem)(x))
    channels = 16
    for number, (width, stride) in enumerate([(24, 2), (24, 1), (32, 2), (32, 1)]):
        y = activate(network.activation, layers.Conv2D(channels * 4, 1)(x))
        if stride == 2 and network.depthwise != "same":
            y = layers.ZeroPadding2D(network.kernel // 2)(y)
            y = layers.DepthwiseConv2D(network.kernel, 2, "valid")(y)
        else:
            y = layers.DepthwiseConv2D(network.kernel, stride, "same")(y)
        y = activate(network.activation, y)
        gate = gate_of(network, number)
        y = y if gate is None else gated(y, channels * 4, gate)
        y = layers.Conv2D(width, 1)(y)
        x = layers.Add()([x, y]) if network.residual and stride == 1 else y
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
    if kind.startswith("keep"):
        x = layers.GlobalAveragePooling2D(keepdims=True)(x)
        if kind == "keep_reshape":
            return layers.Dense(10)(layers.Reshape((128,))(x))
        x = layers.Conv2D(10, 1)(x)
        return x if kind == "keep_conv_output" else layers.Reshape((10,))(x)
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
    function = tf.function(model, input_signature=[tf.TensorSpec((1, 96, 96, 3))]).get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function])
    converter.experimental_lower_to_saved_model = False  # the same operators in a fraction of the time
    converter.optimizations = [tf.lite.Optimize.EXPERIMENTAL_SPARSITY]
    if network.storage != "float32":  # int8: weights only, computed from float ("dynamic range")
        converter.optimizations.append(tf.lite.Optimize.DEFAULT)
    if network.storage == "float16":
        converter.target_spec.supported_types = [tf.float16]
    (directory / f"{name}.tflite").write_bytes(converter.convert())


if __name__ == "__main__":
    for wanted in sys.argv[2:] or NETWORKS:
        write(Path(sys.argv[1]), wanted)
