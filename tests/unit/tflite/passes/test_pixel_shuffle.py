"""PixelShuffle as onnx2tf leaves it, and the permuted filters."""

import numpy as np
import pytest
from graphs import OP, Net, options
from repairs import Repaired

from sparsetorch.tflite import Tensor, encode
from sparsetorch.tflite.passes import repair
from sparsetorch.xnnpack import verify


def shuffle(net: Net, x: Tensor, block: int = 2, order: tuple[int, ...] = (0, 1, 4, 2, 5, 3)) -> Tensor:
    """RESHAPE, TRANSPOSE, RESHAPE, as onnx2tf 1.29 writes torch.nn.PixelShuffle."""
    n, h, w, c = x.shape
    split = net.reshape(x, (n, h, w, c // block**2, block, block))
    turned = [split.shape[axis] for axis in order]
    y = net.add(OP.TRANSPOSE, [split, net.constant(np.array(order, np.int32))], turned, options("Transpose"))
    return net.reshape(y, (n, h * block, w * block, c // block**2))


@pytest.mark.parametrize("block", [2, 3])
def test_it_becomes_depth_to_space_bit_for_bit(block: int) -> None:
    net = Net()
    net.output(shuffle(net, net.conv(net.input(4, 3), 2 * block**2, 3), block))
    done = Repaired(net, tolerance=0)
    assert done.names == ["CONV_2D", "DEPTH_TO_SPACE"]
    assert done.operators[1].options.blockSize == block


def test_worked_by_hand() -> None:
    """Channels c r^2 + i r + j: 8 of them become (i, j) first: 0, 4, 1, 5, 2, 6, 3, 7."""
    net = Net()
    weight = net.constant(np.arange(8, dtype=np.float32).reshape(8, 1, 1, 1))
    net.output(shuffle(net, net.conv(net.input(2, 1), 8, 1, weight=weight)))
    done = Repaired(net, tolerance=0)
    assert done.operators[0].inputs[1].array().ravel().tolist() == [0, 4, 1, 5, 2, 6, 3, 7]


def test_through_activations_depthwise_and_sums() -> None:
    net = Net()
    x = net.input(6, 3)
    a = net.depthwise(net.unary(OP.HARD_SWISH, net.pointwise(x, 8)), same=True)
    net.output(shuffle(net, net.unary(OP.RELU, net.binary(OP.ADD, a, net.pointwise(x, 8)))))
    done = Repaired(net, tolerance=0)
    assert done.names[-1] == "DEPTH_TO_SPACE"
    assert "TRANSPOSE" not in done.names


def test_a_segmentation_head_becomes_eligible() -> None:
    net = Net()
    x = net.block(net.stem(net.input(32, 3)), 24, 2)
    net.output(shuffle(net, net.pointwise(x, 16)))
    model = net.model()
    repair(model)
    encode(model)
    verdict = verify(model)
    assert verdict.eligible
    assert verdict.expected_spmm == 3


def test_a_value_used_elsewhere_stays_and_says_why() -> None:
    net = Net()
    x = net.pointwise(net.input(4, 3), 8)
    net.output(shuffle(net, x), net.unary(OP.ABS, x))
    done = Repaired(net, tolerance=0)
    assert "TRANSPOSE" in done.names
    assert "is also used elsewhere" in done.refused[0]


@pytest.mark.parametrize("producer", ["input", "groups", "pool"])
def test_without_a_layer_to_permute_it_stays(producer: str) -> None:
    net = Net()
    x = net.input(4, 8)
    if producer == "groups":
        x = net.conv(x, 8, 1, groups=2)
    elif producer == "pool":
        x = net.reshape(net.unary(OP.ABS, net.reshape(x, (1, 8, 16))), (1, 4, 4, 8))
    net.output(shuffle(net, x))
    assert "DEPTH_TO_SPACE" not in Repaired(net, tolerance=0).names


def test_padded_channels_stay() -> None:
    net = Net()
    x = net.pointwise(net.input(4, 3), 6)
    amounts = net.constant(np.array([[0, 0], [0, 0], [0, 0], [0, 2]], np.int32))
    net.output(shuffle(net, net.add(OP.PAD, [x, amounts], (1, 4, 4, 8), options("Pad"))))
    done = Repaired(net, tolerance=0)
    assert "DEPTH_TO_SPACE" not in done.names
    assert "PAD changes the number of channels" in done.refused[0]


@pytest.mark.parametrize("order", [(0, 1, 5, 2, 4, 3), (0, 4, 1, 2, 5, 3), (0, 1, 2, 4, 5, 3)])
def test_another_order_is_no_pixel_shuffle(order: tuple[int, ...]) -> None:
    net = Net()
    net.output(shuffle(net, net.pointwise(net.input(4, 3), 8), order=order))
    assert "DEPTH_TO_SPACE" not in Repaired(net, tolerance=0).names


def test_a_channel_shuffle_stays() -> None:
    net = Net()
    x = net.pointwise(net.input(4, 3), 8)
    y = net.reshape(x, (1, 4, 4, 2, 4))
    y = net.add(
        OP.TRANSPOSE, [y, net.constant(np.array([0, 1, 2, 4, 3], np.int32))], (1, 4, 4, 4, 2), options("Transpose")
    )
    net.output(net.pointwise(net.reshape(y, (1, 4, 4, 8)), 4))
    assert Repaired(net, tolerance=0).names == ["CONV_2D", "RESHAPE", "TRANSPOSE", "RESHAPE", "CONV_2D"]


def gather(net: Net, x: Tensor, order: list[int], axis: int = 3) -> Tensor:
    shape = [len(order) if index == axis % 4 else size for index, size in enumerate(x.shape)]
    indices = net.constant(np.array(order, np.int32))
    return net.add(OP.GATHER, [x, indices], shape, options("Gather", axis=axis))


@pytest.mark.parametrize("axis", [3, -1])
def test_the_gather_of_onnx2tf_2_goes_into_the_filters(axis: int) -> None:
    net = Net()
    x = gather(net, net.conv(net.input(4, 3), 8, 3), [0, 4, 1, 5, 2, 6, 3, 7], axis)
    net.output(net.depth_to_space(x))
    assert Repaired(net, tolerance=0).names == ["CONV_2D", "DEPTH_TO_SPACE"]


@pytest.mark.parametrize(("order", "axis"), [([0, 1, 2], 3), ([0, 0, 1, 1], 3), ([3, 2, 1, 0], 1)])
def test_a_gather_that_is_no_order_of_channels_stays(order: list[int], axis: int) -> None:
    net = Net()
    net.output(net.unary(OP.ABS, gather(net, net.pointwise(net.input(4, 3), 4), order, axis)))
    assert Repaired(net, tolerance=0).names == ["CONV_2D", "GATHER", "ABS"]
