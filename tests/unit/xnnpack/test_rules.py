"""One graph for each condition of one node: broken, it is named; at its bound, it passes."""

from collections.abc import Callable

import numpy as np
import pytest
from graphs import OP, SAME, VALID, Net, options

from sparsetorch.tflite import Tensor, encode
from sparsetorch.xnnpack import verify

Middle = Callable[[Net, Tensor], Tensor]


def rules(make: Middle, stem: Middle | None = None, channels: int = 3) -> set[str]:
    """The rules that a network with this in its middle breaks, or with this as its entry."""
    net = Net(sparsity=0.9)
    x = (stem or (lambda net, image: net.stem(image)))(net, net.input(17, channels))
    net.output(net.mean(net.pointwise(make(net, net.pointwise(x, 64)), 64)))
    model = net.model()
    encode(model)
    return {reason.rule for reason in verify(model).reasons} - {"unsafe-layout"}


def plain(net: Net, x: Tensor) -> Tensor:
    return x


def constant(net: Net, *shape: int) -> Tensor:
    return net.constant(np.ones(shape, np.float32))


def multiplied(net: Net, x: Tensor) -> Tensor:
    y = net.depthwise(x)
    net.graph.operators[-1].options.depthMultiplier = 2
    return y


def unpadded(net: Net, x: Tensor) -> Tensor:
    y = net.depthwise(x)
    net.graph.operators[-1].options.padding = VALID
    return y


BROKEN: dict[str, tuple[Middle, str]] = {
    "dense 3x3": (lambda net, x: net.conv(net.pad(x), 64, 3), "entry-stride"),
    "5x5 convolution": (lambda net, x: net.conv(x, 64, 5, padding=SAME), "kernel"),
    "1x1 stride 2": (lambda net, x: net.pointwise(x, 64, stride=2), "pointwise-stride"),
    "1x1 padded": (lambda net, x: net.conv(net.pad(x), 64, 1, sparsity=0.9), "unsupported-operator"),
    "1x1 padded, stride 2": (lambda net, x: net.conv(net.pad(x), 64, 1, 2, sparsity=0.9), "pointwise-padding"),
    "1x1 grouped": (lambda net, x: net.conv(x, 64, 1, groups=2, sparsity=0.9), "groups"),
    "1x1 dilated": (lambda net, x: net.conv(x, 64, 1, dilation=2, sparsity=0.9), "dilation"),
    "depthwise dilated": (lambda net, x: net.depthwise(x, dilation=2), "dilation"),
    "depthwise stride 3": (lambda net, x: net.depthwise(x, stride=3), "depthwise-stride"),
    "depthwise 7x7": (lambda net, x: net.depthwise(x, kernel=7), "depthwise-kernel"),
    "depthwise unpadded": (unpadded, "depthwise-padding"),
    "one value twice": (lambda net, x: net.binary(OP.ADD, x, x), "repeated-operand"),
    "depthwise SAME stride 2": (lambda net, x: net.depthwise(x, stride=2, same=True), "same-padding"),
    "multiplier": (multiplied, "multiplier"),
    "constant vector": (lambda net, x: net.binary(OP.MUL, x, constant(net, 1, 1, 1, 64)), "constant-operand"),
    "constant scalar": (lambda net, x: net.binary(OP.ADD, x, constant(net, 1)), "rank"),
    "subtraction": (lambda net, x: net.binary(OP.SUB, x, x), "unsupported-operator"),
    "max pool": (lambda net, x: net.pool(OP.MAX_POOL_2D, x, 2), "unsupported-operator"),
    "channel pad": (
        lambda net, x: net.add(
            OP.PAD,
            [x, net.constant(np.array([[0, 0], [0, 0], [0, 0], [0, 8]], np.int32))],
            (*x.shape[:3], x.shape[3] + 8),
            options("Pad"),
        ),
        "unsupported-operator",
    ),
    "nearest resize": (
        lambda net, x: net.add(OP.RESIZE_NEAREST_NEIGHBOR, [x, constant(net, 2)], x.shape),
        "not-delegated",
    ),
    "bilinear of one pixel": (lambda net, x: net.resize(net.mean(x, keep=True)), "resize-input"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name: str) -> None:
    make, rule = BROKEN[name]
    assert rule in rules(make)


@pytest.mark.parametrize(
    "make",
    [
        plain,
        lambda net, x: net.depthwise(x, kernel=3, stride=2),
        lambda net, x: net.depthwise(x, kernel=5, stride=2),
        lambda net, x: net.depthwise(x, kernel=5),
        lambda net, x: net.depthwise(x, kernel=3, same=True),
        lambda net, x: net.binary(OP.ADD, x, net.unary(OP.RELU, x)),
        lambda net, x: net.squeeze_excite(x, "conv"),
        lambda net, x: net.unary(OP.ELU, net.unary(OP.SQUARE, x)),
        lambda net, x: net.resize(x),
    ],
)
def test_kept(make: Middle) -> None:
    assert rules(make) == set()


@pytest.mark.parametrize(
    ("stem", "channels", "expected"),
    [
        (lambda net, x: net.stem(x), 3, set()),
        (lambda net, x: net.stem(x), 1, {"entry-channels"}),
        (lambda net, x: net.stem(x, same=True), 3, {"entry-padding"}),
        (lambda net, x: net.conv(x, 16, 3, 2, VALID), 3, {"entry-padding"}),
        (lambda net, x: net.conv(net.pad(x), 16, 3, 1), 3, {"entry-stride"}),
        (lambda net, x: net.conv(net.pad(x, 3), 16, 7, 2), 3, {"kernel"}),
        (plain, 3, {"no-entry"}),
        (lambda net, x: net.conv(x, 16, 3, 1, SAME), 1, {"entry-stride", "entry-channels"}),
    ],
)
def test_entry(stem: Middle, channels: int, expected: set[str]) -> None:
    assert expected <= rules(plain, stem, channels)
    assert bool(expected) == bool(rules(plain, stem, channels))
