"""What a reduction of channels-first values leaves: each case as ai-edge-litert 2.3.0 without AVX and LiteRT.js 2.5.3 gave it."""

from collections.abc import Callable

import pytest
from graphs import OP, Net

from sparsetorch.runtime.prediction import predict
from sparsetorch.tflite import Model, Tensor, encode
from sparsetorch.xnnpack.revisions import XNNPACK_2023_06, XNNPACK_2026_08


def network(height: int, width: int, tail: Callable[[Net, Tensor], Tensor], channels: int = 8) -> Model:
    """Two sparse 1x1 convolutions before a tail that reads (1, height, width, channels)."""
    net = Net()
    x = net.block(net.stem(net.input(2 * height, 3, 2 * width), 8), channels)
    net.output(tail(net, x))
    model = net.model()
    encode(model)
    return model


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    ("axes", "square", "rectangle"),
    [
        ((1, 2), True, True),
        ((2, 1), True, True),
        ((1, 2, 3), True, True),
        ((3,), True, True),
        ((1,), False, False),
        ((2,), False, False),
        ((1, 3), True, False),
        ((3, 1), True, False),
        ((2, 3), True, False),
    ],
)
def test_axes(axes: tuple[int, ...], square: bool, rectangle: bool, keep: bool) -> None:
    for (height, width), right in (((12, 12), square), ((12, 16), rectangle), ((16, 12), rectangle)):
        found = predict(network(height, width, lambda net, x: net.mean(x, keep, axes)), XNNPACK_2026_08)
        assert found.counts.spmm == 2
        assert bool(found.unsafe) != right


READERS = {
    "conv": lambda net, x: net.conv(net.mean(x, keep=True), 10, 1),
    "logistic": lambda net, x: net.unary(OP.LOGISTIC, net.mean(x, keep=True)),
    "fully_connected": lambda net, x: net.dense(net.mean(x, keep=True), 10, keep=True),
    "times": lambda net, x: net.mean(net.binary(OP.MUL, x, net.mean(x, keep=True))),
}


@pytest.mark.parametrize("reader", READERS)
def test_the_shape_of_a_kept_mean_is_right_where_rows_are_as_many_as_channels(reader: str) -> None:
    for (height, width), right in (((8, 8), True), ((8, 16), True), ((16, 8), False), ((12, 12), False)):
        model = network(height, width, READERS[reader])
        assert bool(predict(model, XNNPACK_2026_08).unsafe) != right
        assert predict(model, XNNPACK_2023_06).unsafe == ()  # shapes were fixed when the graph was built


def test_a_reshape_does_not_look_at_the_shape() -> None:
    def tail(net: Net, x: Tensor) -> Tensor:
        return net.dense(net.reshape(net.mean(x, keep=True), (1, 8)), 10)

    assert predict(network(12, 12, tail), XNNPACK_2026_08).unsafe == ()
