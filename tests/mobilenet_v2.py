"""MobileNetV2 1.0 with 1000 classes as a TFLite graph, without PyTorch and a converter. Not encoded."""

import numpy as np
from graphs import Net

from sparsetorch.tflite import Model

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet_v2(classifier_sparsity: float = 0.0) -> Model:
    """Expansion, channels, blocks and stride of Sandler et al. 2018, table 2; 85 % of the 1x1 weights are zero."""
    net = Net(0.85)
    x = net.stem(net.input(224, 3), 32)
    for expansion, width, count, first in STAGES:
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
