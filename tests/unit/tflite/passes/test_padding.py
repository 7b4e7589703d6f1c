"""PAD in the one form that melts into a convolution, and SAME at stride 2 where it is symmetric."""

import numpy as np
import pytest
from graphs import OP, SAME, VALID, Net, options
from repairs import Repaired

from sparsetorch.tflite import Tensor
from sparsetorch.tflite.passes import padding


def paddings(operator: object) -> list[list[int]]:
    return operator.inputs[1].array().tolist()


def pad(
    net: Net, x: Tensor, amounts: list[list[int]], kind: type = np.int32, code: int = OP.PAD, fill: float | None = None
) -> Tensor:
    shape = [size + sum(pair) for size, pair in zip(x.shape, amounts, strict=True)]
    constant = net.constant(np.array(amounts, np.int32))
    if kind is np.int64:
        constant.type, constant.data = 4, np.frombuffer(np.array(amounts, np.int64).tobytes(), np.uint8)
    inputs = [x, constant] + ([] if fill is None else [net.constant(np.float32(fill))])
    return net.add(code, inputs, shape, options("Pad" if code == OP.PAD else "PadV2"))


ONE = [[0, 0], [1, 1], [1, 1], [0, 0]]


def test_a_pad_of_a_pad_is_one() -> None:
    net = Net()
    x = pad(net, pad(net, net.input(6, 3), [[0, 0], [1, 0], [0, 0], [0, 0]]), [[0, 0], [0, 1], [1, 1], [0, 0]])
    net.output(net.conv(x, 4, 3, 2))
    done = Repaired(net, tolerance=0)
    assert done.names == ["PAD", "CONV_2D"]
    assert paddings(done.operators[0]) == ONE


def test_a_pad_of_nothing_goes() -> None:
    net = Net()
    net.output(net.conv(pad(net, net.input(6, 3), [[0, 0]] * 4), 4, 1))
    assert Repaired(net, tolerance=0).names == ["CONV_2D"]


def test_a_pad_of_nothing_between_input_and_output_stays() -> None:
    net = Net()
    net.output(pad(net, net.input(6, 3), [[0, 0]] * 4))
    assert Repaired(net, tolerance=0).names == ["PAD"]


@pytest.mark.parametrize(("kind", "code", "fill"), [(np.int64, OP.PAD, None), (np.int32, OP.PADV2, 0.0)])
def test_other_spellings_become_pad(kind: type, code: int, fill: float | None) -> None:
    net = Net()
    net.output(net.conv(pad(net, net.input(6, 3), ONE, kind, code, fill), 4, 3, 2))
    done = Repaired(net, tolerance=0)
    assert done.names == ["PAD", "CONV_2D"]
    assert done.operators[0].inputs[1].type_name == "int32"


def test_padding_with_another_value_stays() -> None:
    net = Net()
    net.output(net.conv(pad(net, net.input(6, 3), ONE, np.int32, OP.PADV2, 1.0), 4, 3, 2))
    assert Repaired(net, tolerance=0).names == ["PADV2", "CONV_2D"]


def test_a_pad_with_two_readers_is_repeated() -> None:
    net = Net()
    x = net.pad(net.pointwise(net.input(6, 3), 4))
    net.output(net.conv(x, 4, 3, 2), net.conv(x, 2, 3, 2))
    assert Repaired(net, tolerance=0).names == ["CONV_2D", "PAD", "CONV_2D", "PAD", "CONV_2D"]


def test_a_pad_that_something_else_reads_stays_for_that() -> None:
    net = Net()
    x = net.pad(net.pointwise(net.input(6, 3), 4))
    net.output(net.conv(x, 4, 3, 2), net.unary(OP.ABS, x))
    assert Repaired(net, tolerance=0).names == ["CONV_2D", "PAD", "PAD", "CONV_2D", "ABS"]


@pytest.mark.parametrize("size", [5, 7, 9])
@pytest.mark.parametrize("kernel", [3, 5])
def test_same_at_stride_2_and_odd_size_is_pad_and_valid(size: int, kernel: int) -> None:
    net = Net()
    net.output(
        net.depthwise(net.pointwise(net.input(size, 3), 4), kernel, 2, same=True),
        net.conv(net.graph.inputs[0], 4, 3, 2, SAME),
    )
    done = Repaired(net, tolerance=1e-6)
    assert done.names == ["CONV_2D", "PAD", "DEPTHWISE_CONV_2D", "PAD", "CONV_2D"]
    half = kernel // 2
    assert paddings(done.operators[1]) == [[0, 0], [half, half], [half, half], [0, 0]]
    assert done.operators[2].options.padding == VALID


def test_same_without_padding_is_valid() -> None:
    net = Net()
    net.output(net.conv(net.input(6, 3), 4, 1, 2, SAME))
    done = Repaired(net, tolerance=0)
    assert done.names == ["CONV_2D"]
    assert done.operators[0].options.padding == VALID


@pytest.mark.parametrize("size", [6, 8])
def test_same_at_stride_2_and_even_size_stays_and_says_why(size: int) -> None:
    net = Net()
    net.output(net.depthwise(net.input(size, 3), 3, 2, same=True))
    done = Repaired(net, tolerance=0)
    assert done.names == ["DEPTHWISE_CONV_2D"]
    assert "top 0, right 1, bottom 1, left 0, which no symmetric padding equals" in done.refused[0]


def test_same_at_stride_1_is_explicit_already() -> None:
    net = Net()
    net.output(net.depthwise(net.input(6, 3), 3, 1, same=True))
    assert Repaired(net, tolerance=0, passes=(padding.PASS,)).notes == ()
