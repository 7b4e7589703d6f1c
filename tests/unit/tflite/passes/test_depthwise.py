"""Grouped convolutions with one channel a group."""

import numpy as np
import pytest
from graphs import OP, SAME, Net
from repairs import Repaired


@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize("kernel", [1, 3])
def test_one_channel_a_group_is_depthwise(multiplier: int, kernel: int) -> None:
    net = Net()
    net.output(
        net.conv(net.input(6, 4), 4 * multiplier, kernel, padding=SAME, groups=4, name="dw.weight", activation=3)
    )
    done = Repaired(net)
    assert done.names == ["DEPTHWISE_CONV_2D"]
    weight, chosen = done.operators[0].inputs[1], done.operators[0].options
    assert (weight.name, weight.shape) == ("dw.weight", (1, kernel, kernel, 4 * multiplier))
    assert (chosen.depthMultiplier, chosen.fusedActivationFunction) == (multiplier, 3)


def test_stride_and_padding_stay() -> None:
    net = Net()
    net.output(net.conv(net.pad(net.input(6, 4)), 4, 3, 2, groups=4))
    done = Repaired(net)
    assert done.names == ["PAD", "DEPTHWISE_CONV_2D"]
    assert (done.operators[1].options.strideH, done.operators[1].options.strideW) == (2, 2)


def test_wider_groups_stay() -> None:
    net = Net()
    net.output(net.conv(net.input(6, 4), 4, 3, groups=2))
    assert Repaired(net, tolerance=0).names == ["CONV_2D"]


def test_one_input_channel_is_no_group() -> None:
    net = Net()
    net.output(net.unary(OP.ABS, net.conv(net.input(6, 1), 4, 3)))
    done = Repaired(net, tolerance=0)
    assert done.names == ["CONV_2D", "ABS"]
    assert np.array_equal(done.operators[0].inputs[1].shape, (4, 3, 3, 1))
