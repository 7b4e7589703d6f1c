"""Bytes of MobileNetV2 1.0 (1000 classes, 1x1 convolutions pruned to 85 %) in every storage, and what they must not exceed."""

import numpy as np
import pytest
from graphs import Net

from sparsetorch.tflite import Model, Storage, encode, to_bytes
from sparsetorch.xnnpack import verify

_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet_v2(classifier_sparsity: float) -> Model:
    """Expansion, channels, blocks and stride of Sandler et al. 2018, table 2."""
    net = Net(0.85)
    x = net.stem(net.input(224, 3), 32)
    for expansion, width, count, first in _STAGES:
        for index in range(count):
            y = x if expansion == 1 else net.pointwise(x, x.shape[3] * expansion, activation=3)
            y = net.pointwise(net.depthwise(y, stride=first if index == 0 else 1), width)
            x = net.binary(0, x, y) if y.shape == x.shape else y
    y = net.dense(net.mean(net.pointwise(x, 1280, activation=3)), 1000)
    weight = net.graph.operators[-1].inputs[1]
    assert weight is not None
    values = weight.array().copy()
    values[np.abs(values) < np.quantile(np.abs(values), classifier_sparsity)] = 0
    weight.data = np.frombuffer(values.tobytes(), np.uint8)
    net.output(y)
    return net.model()


@pytest.mark.parametrize(
    ("values", "classifier_sparsity", "largest"),
    [
        ("float32", 0.0, 7_300_324),  # TensorFlow's EXPERIMENTAL_SPARSITY
        ("float16", 0.0, 3_946_504),  # the same with float16
        ("int8", 0.0, 2_400_000),
        # Both dimensions of the classifier are above 256: two bytes of index for each of its 192,000 int8 weights.
        ("int8", 0.85, 1_620_000),
    ],
)
def test_mobilenet_v2_at_85_percent(values: str, classifier_sparsity: float, largest: int) -> None:
    model = mobilenet_v2(classifier_sparsity)
    encode(model, storage=Storage(values))
    size = len(to_bytes(model))
    print(f"{values}, classifier {classifier_sparsity:.0%}: {size:,} B")
    assert size <= largest
    assert verify(model).expected_spmm == 34
