"""Average over the whole map: MEAN. Anything less stays, with the window in the note."""

import pytest
from graphs import OP, Net
from repairs import Repaired

from sparsetorch.tflite.passes import average_pool

ONLY = (average_pool.PASS,)


@pytest.mark.parametrize("activation", [0, 1, 3])
def test_the_whole_map_is_a_mean(activation: int) -> None:
    net = Net()
    net.output(net.dense(net.pool(OP.AVERAGE_POOL_2D, net.pointwise(net.input(7, 3), 4), 7), 5))
    net.graph.operators[1].options.fusedActivationFunction = activation
    done = Repaired(net, passes=ONLY)
    names = {0: [], 1: ["RELU"], 3: ["RELU6"]}[activation]
    assert done.names == ["CONV_2D", "MEAN", *names, "FULLY_CONNECTED"]
    mean = done.operators[1]
    assert mean.options.keepDims
    assert mean.inputs[1].array().tolist() == [1, 2]


def test_a_window_stays_and_says_why() -> None:
    net = Net()
    net.output(net.pool(OP.AVERAGE_POOL_2D, net.pointwise(net.input(8, 3), 4), 4))
    done = Repaired(net, tolerance=0)
    assert done.names == ["CONV_2D", "AVERAGE_POOL_2D"]
    assert "windows of 4x4 in a map of 8x8" in done.refused[0]


def test_maxima_stay() -> None:
    net = Net()
    net.output(net.pool(OP.MAX_POOL_2D, net.pointwise(net.input(8, 3), 4), 8))
    assert Repaired(net, tolerance=0).names == ["CONV_2D", "MAX_POOL_2D"]


@pytest.mark.parametrize("code", [OP.AVERAGE_POOL_2D, OP.MAX_POOL_2D])
def test_windows_of_one_pixel_go(code: int) -> None:
    net = Net()
    net.output(net.pointwise(net.pool(code, net.unary(OP.TANH, net.input(4, 3)), 1), 4))
    assert Repaired(net, tolerance=0).names == ["TANH", "CONV_2D"]
