"""Random small sparse networks, each with what may keep XNNPACK off its sparse path, or make it wrong there.

A stem, some pieces, a tail; every one of them mostly right, sometimes not. Sparsities, storage, and which weights are
encoded vary as well. Cheap: no converter, a few thousand weights.
"""

from collections.abc import Callable

import numpy as np
from graphs import OP, SAME, VALID, Net, options

from sparsetorch.tflite import Model, Storage, Tensor, encode


class RandomSparseNet:
    """Grows one network from a seed."""

    def __init__(self, seed: int, faults: float = 0.25) -> None:
        self.random = np.random.default_rng(seed)
        self.faults = faults
        """Chance that a place gets something that does not fit."""
        self.sparsity = float(
            self.random.choice([0.5, 0.66, 0.7, 0.8, 0.85, 0.9], p=[0.08, 0.07, 0.15, 0.25, 0.25, 0.2])
        )
        self.net = Net(self.sparsity, seed)
        self.extra: list[Tensor] = []

    def odd(self) -> bool:
        return bool(self.random.random() < self.faults)

    def one_of(self, choices: list[Callable[[Tensor], Tensor]]) -> Callable[[Tensor], Tensor]:
        return choices[self.random.integers(len(choices))]

    def model(self) -> Model:
        """The network, its weights encoded in a random storage."""
        x = self.stem()
        for _ in range(self.random.integers(1, 5)):
            odd = self.odd() and self.random.random() < 0.6
            x = self.one_of(self.breakers() if odd else self.pieces())(x)
        self.net.output(self.one_of(self.odd_tails() if self.odd() else self.tails())(x), *self.extra)
        model = self.net.model()
        storage = Storage(str(self.random.choice(["float32", "float32", "float16", "int8"])))
        draws = iter(self.random.random(500))
        partial = self.random.random() < 0.1
        encode(model, (lambda weight: next(draws) < 0.7) if partial else None, storage)
        return model

    def stem(self) -> Tensor:
        size = int(self.random.integers(12, 25))
        width = size if self.random.random() < 0.7 else int(self.random.integers(12, 25))
        channels = int(self.random.choice([8, 12, 16]))
        net = self.net
        if not self.odd() or self.random.random() < 0.5:
            return net.stem(net.input(size, 3, width), channels)
        form = self.random.integers(5)
        if form == 0:
            return net.stem(net.input(size, 3, width), channels, same=True)
        if form == 1:
            return net.conv(net.input(size, 3, width), channels, 3, 1, SAME, activation=3)
        if form == 2:
            return net.conv(net.pad(net.input(size, 4, width)), channels, 3, 2, VALID)
        if form == 3:
            return net.conv(net.pad(net.input(size, 3, width), 3), channels, 7, 2, VALID)
        return net.pointwise(net.input(size, 8, width), channels)

    def width(self) -> int:
        return int(self.random.choice([8, 16, 24, 32]))

    def pieces(self) -> list[Callable[[Tensor], Tensor]]:
        """What fits into a cluster."""
        net = self.net
        unary = (OP.RELU, OP.RELU6, OP.RELU_N1_TO_1, OP.HARD_SWISH, OP.LOGISTIC, OP.ABS, OP.NEG, OP.SQUARE, OP.ELU, OP.ROUND,
                 OP.FLOOR, OP.CEIL)  # fmt: skip
        return [
            lambda x: net.block(x, self.width(), int(self.random.integers(1, 3)) if min(x.shape[1:3]) > 4 else 1),
            lambda x: net.block(x, x.shape[3]),
            lambda x: net.block(x, self.width(), kernel=5),
            lambda x: net.block(x, self.width(), gate="conv"),
            lambda x: net.pointwise(x, self.width(), activation=int(self.random.integers(4))),
            lambda x: net.unary(unary[self.random.integers(len(unary))], net.pointwise(x, self.width())),
            lambda x: net.unary(OP.LEAKY_RELU, net.pointwise(x, self.width()), options("LeakyRelu", alpha=0.1)),
            lambda x: net.binary(OP.MUL, x, net.unary(OP.LOGISTIC, x)),
            lambda x: net.depthwise(x, 3),
            lambda x: net.resize(x) if x.shape[1] < 9 else net.depthwise(x, 5),
        ]

    def breakers(self) -> list[Callable[[Tensor], Tensor]]:
        """What does not, or not everywhere."""
        net = self.net
        constant = lambda x, shape: net.constant(self.random.uniform(0.5, 1.5, shape).astype(np.float32))  # noqa: E731
        return [
            lambda x: net.depthwise(x, 3, 2, same=True),
            lambda x: net.depthwise(x, 7),
            lambda x: net.depthwise(x, 3, dilation=2),
            lambda x: net.depthwise(x, 5, 2),
            lambda x: net.conv(net.pad(x), self.width(), 3, 1, VALID),
            lambda x: net.conv(x, self.width(), 1, 2, sparsity=self.sparsity),
            lambda x: net.conv(x, x.shape[3], 1, sparsity=self.sparsity, groups=2),
            lambda x: net.pool(OP.MAX_POOL_2D, x, 2) if min(x.shape[1:3]) > 1 else x,
            lambda x: net.pool(OP.AVERAGE_POOL_2D, x, 2) if min(x.shape[1:3]) > 1 else x,
            lambda x: net.squeeze_excite(x, "hard"),
            lambda x: net.squeeze_excite(x, "dense"),
            lambda x: net.block(x, x.shape[3], gate="hard"),
            lambda x: net.unary(OP.RELU_0_TO_1, x),
            lambda x: net.unary(OP.TANH, x),
            lambda x: net.unary(OP.EXP, x),
            lambda x: net.binary(OP.MUL, x, constant(x, (1, 1, 1, x.shape[3]))),
            lambda x: net.binary(OP.MUL, constant(x, (1, 1, 1, x.shape[3])), x),
            lambda x: net.binary(OP.ADD, x, constant(x, ())),
            lambda x: net.binary(OP.ADD, x, x),
            lambda x: net.binary(OP.MUL, x, x),
            lambda x: net.binary(OP.SUB, net.pointwise(x, x.shape[3]), x),
            lambda x: net.binary(OP.MAXIMUM, net.pointwise(x, x.shape[3]), constant(x, ())),
            lambda x: net.binary(OP.MUL, x, net.mean(x, keep=True)),
            lambda x: net.reshape(self.flat(x), x.shape),
            lambda x: net.pad(x, 1),
            lambda x: net.pointwise(net.pad(x, 1), self.width()),
            lambda x: net.binary(OP.PRELU, x, constant(x, (1, 1, x.shape[3]))),
            lambda x: net.binary(OP.MINIMUM, net.pointwise(x, x.shape[3]), constant(x, (1,))),
            lambda x: net.binary(OP.DIV, net.pointwise(x, x.shape[3]), constant(x, ())),
            lambda x: net.dense(x, self.width(), keep=True),
            lambda x: net.binary(OP.MUL, x, net.mean(x, keep=True, axes=(3,))),
            lambda x: net.depth_to_space(net.pointwise(x, 16)) if x.shape[1] < 9 else x,
            lambda x: self.second_input(x),
            lambda x: self.leak(x),
            lambda x: self.concatenate(x),
            lambda x: self.swap(x),
        ]

    def flat(self, x: Tensor) -> Tensor:
        return self.net.reshape(x, (1, int(np.prod(x.shape))))

    def second_input(self, x: Tensor) -> Tensor:
        """Add a second picture of the same size, as it comes."""
        made = self.net.tensor(x.shape, name="second")
        self.net.graph.inputs.append(made)
        return self.net.binary(OP.ADD, x, made)

    def leak(self, x: Tensor) -> Tensor:
        """Return a value from the middle of the network as well."""
        self.extra.append(x)
        return self.net.pointwise(x, self.width())

    def concatenate(self, x: Tensor) -> Tensor:
        y = self.net.pointwise(x, self.width())
        shape = (*x.shape[:3], x.shape[3] + y.shape[3])
        return self.net.add(OP.CONCATENATION, [x, y], shape, options("Concatenation", axis=3))

    def swap(self, x: Tensor) -> Tensor:
        order = self.net.constant(np.array([0, 2, 1, 3], np.int32))
        return self.net.add(OP.TRANSPOSE, [x, order], [x.shape[axis] for axis in (0, 2, 1, 3)], options("Transpose"))

    def tails(self) -> list[Callable[[Tensor], Tensor]]:
        net = self.net
        return [
            lambda x: net.dense(net.mean(x), 10),
            lambda x: net.dense(net.mean(net.pointwise(x, 32, activation=3)), 5),
            lambda x: net.dense(net.reshape(net.mean(x, keep=True), (1, x.shape[3])), 10),
            lambda x: net.dense(net.mean(x, axes=(2, 1)), 10),
            lambda x: net.mean(x),
            lambda x: net.depth_to_space(net.pointwise(x, 12)),
            lambda x: net.mean(x, keep=True),
            lambda x: net.unary(OP.TANH, net.depth_to_space(net.pointwise(x, 8))),
        ]

    def odd_tails(self) -> list[Callable[[Tensor], Tensor]]:
        net = self.net
        return [
            lambda x: x,
            lambda x: net.dense(self.flat(x), 5),
            lambda x: net.reshape(net.pointwise(net.mean(x, keep=True), 10), (1, 10)),
            lambda x: net.pointwise(net.mean(x, keep=True), 10),
            lambda x: net.unary(OP.LOGISTIC, net.mean(x, keep=True)),
            lambda x: net.dense(net.mean(x, keep=True), 10, keep=True),
            lambda x: net.dense(net.mean(x), 10, keep=True),
            lambda x: net.dense(net.mean(x, code=OP.SUM), 10),
            lambda x: net.mean(x, code=OP.REDUCE_MAX),
            lambda x: net.mean(x, axes=(3,)),
            lambda x: net.mean(x, axes=(1,)),
            lambda x: net.mean(x, axes=(2,), keep=True),
            lambda x: net.mean(x, axes=(2, 3)),
            lambda x: net.mean(x, axes=(1, 2, 3)),
            lambda x: net.mean(x, axes=(3,), keep=True),
            lambda x: net.conv(net.pad(net.depth_to_space(net.pointwise(x, 16))), 6, 3, 1, VALID),
            lambda x: net.pointwise(net.depth_to_space(net.pointwise(x, 16)), 8),
            lambda x: net.resize(net.pointwise(x, 8)),
            lambda x: net.dense(self.flat(net.pool(OP.AVERAGE_POOL_2D, x, min(x.shape[1:3]))), 10),
            lambda x: net.unary(OP.SOFTMAX, net.reshape(net.mean(x), (1, x.shape[3])), options("Softmax", beta=1.0)),
        ]
