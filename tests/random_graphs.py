"""Random small TFLite graphs made of what converters leave behind: gates, clamps, constants, paddings, islands, tails."""

from collections.abc import Callable

import numpy as np
from graphs import OP, SAME, VALID, Net, options

from sparsetorch.tflite import Model, Tensor

CLAMPS = (OP.RELU, OP.RELU6, OP.RELU_N1_TO_1, OP.RELU_0_TO_1)


class RandomNet:
    """Grows a graph, piece by piece, from random values that it has already."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.net = Net(sparsity=0.7, seed=seed)
        self.maps = [self.net.input(int(self.random.integers(4, 8)), 3)]
        self.done: list[Tensor] = []

    def pick(self, *choices: object) -> object:
        return choices[self.random.integers(len(choices))]

    def map(self) -> Tensor:
        """A value to go on with, mostly the newest."""
        return self.maps[-1] if self.random.random() < 0.75 else self.maps[self.random.integers(len(self.maps))]

    def number(self, low: float, high: float) -> float:
        return float(np.float32(self.random.uniform(low, high)))

    def constant(self, values: object) -> Tensor:
        return self.net.constant(np.array(values, np.float32))

    def model(self, pieces: int) -> Model:
        kinds: list[Callable[[Tensor], Tensor]] = [
            self.conv, self.conv, self.depthwise, self.clamp, self.clamps, self.affine, self.affine, self.pads, self.swish,
            self.gate, self.residual, self.island, self.reshapes, self.shuffle, self.unary, self.transposes, self.pool,
        ]  # fmt: skip
        for _ in range(pieces):
            x = self.map()
            made = kinds[self.random.integers(len(kinds))](x)
            self.maps.append(made)
        self.tails()
        return self.net.model()

    def conv(self, x: Tensor) -> Tensor:
        kernel, stride = (1, 1) if min(x.shape[1:3]) < 3 else ((1, 1), (3, 1), (3, 2))[self.random.integers(3)]
        padding = (SAME, VALID)[self.random.integers(2)]
        if self.random.random() < 0.25:
            return self.net.conv(
                x, x.shape[3] * int(self.random.integers(1, 3)), kernel, stride, padding, groups=x.shape[3]
            )
        channels = int(self.random.integers(2, 7)) * 2
        return self.net.conv(
            x, channels, kernel, stride, padding, 0.7 * (kernel == 1), activation=int(self.random.integers(4))
        )

    def depthwise(self, x: Tensor) -> Tensor:
        stride = int(self.random.integers(1, 3))
        return self.net.depthwise(x, 3, stride, same=bool(self.random.integers(2)))

    def clamp(self, x: Tensor) -> Tensor:
        return self.net.unary(CLAMPS[self.random.integers(4)], x)

    def clamps(self, x: Tensor) -> Tensor:
        x = self.net.pointwise(x, 6) if self.random.random() < 0.6 else x
        lo = float(self.pick(0.0, -1.0, self.number(-2, 0)))
        hi = float(self.pick(1.0, 6.0, -lo or 2.0, self.number(0.1, 3)))
        for code in [[OP.MINIMUM, OP.MAXIMUM], [OP.MAXIMUM, OP.MINIMUM], [OP.MINIMUM], [OP.MAXIMUM]][
            self.random.integers(4)
        ]:
            x = self.net.binary(code, x, self.constant(hi if code == OP.MINIMUM else lo))
        return x

    def affine(self, x: Tensor) -> Tensor:
        code = (OP.ADD, OP.SUB, OP.MUL, OP.DIV)[self.random.integers(4)]
        shape = [(), (1,), (1, 1, 1, 1), (x.shape[3],), (1, 1, 1, x.shape[3])][self.random.integers(5)]
        sign = self.random.choice([-1.0, 1.0])
        values = self.constant(self.random.uniform(0.5, 2, shape) * sign)
        pair = (values, x) if code != OP.DIV and self.random.random() < 0.4 else (x, values)
        names = {OP.ADD: "Add", OP.SUB: "Sub", OP.MUL: "Mul", OP.DIV: "Div"}
        activation = int(self.random.integers(4)) if self.random.random() < 0.3 else 0
        return self.net.add(code, list(pair), x.shape, options(names[code], fusedActivationFunction=activation))

    def pads(self, x: Tensor) -> Tensor:
        for _ in range(self.random.integers(1, 3)):
            x = self.net.pad(x, int(self.random.integers(0, 2)))
        if self.random.random() < 0.5:
            return self.net.conv(x, 4, 3, int(self.random.integers(1, 3)), VALID) if min(x.shape[1:3]) > 2 else x
        return x

    def swish(self, x: Tensor) -> Tensor:
        x = self.net.pointwise(x, 6) if self.random.random() < 0.5 else x
        form = self.random.integers(4)
        if form == 0:
            return self.net.unary(OP.HARD_SWISH, x)
        if form == 1:
            gate = self.net.binary(OP.ADD, self.net.binary(OP.MUL, x, self.constant(1 / 6)), self.constant(0.5))
            return self.net.binary(OP.MUL, x, self.net.unary(OP.RELU_0_TO_1, gate))
        shift = self.constant(3.0 if self.random.random() < 0.8 else 2.5)
        product = self.net.binary(OP.MUL, self.net.unary(OP.RELU6, self.net.binary(OP.ADD, x, shift)), x)
        return product if form == 2 else self.net.binary(OP.MUL, product, self.constant(1 / 6))

    def gate(self, x: Tensor) -> Tensor:
        if self.random.random() < 0.3:
            return self.net.squeeze_excite(x, "dense")
        return self.net.squeeze_excite(x, str(self.pick("hard", "conv")))

    def residual(self, x: Tensor) -> Tensor:
        code = (OP.ADD, OP.MUL, OP.SUB)[self.random.integers(3)]
        same = [other for other in self.maps if other.shape == x.shape]
        return self.net.binary(code, x, same[self.random.integers(len(same))])

    def transpose(self, x: Tensor, order: list[int]) -> Tensor:
        shape = [x.shape[axis] for axis in order]
        return self.net.add(
            OP.TRANSPOSE, [x, self.net.constant(np.array(order, np.int32))], shape, options("Transpose")
        )

    def island(self, x: Tensor) -> Tensor:
        y = self.transpose(x, [0, 3, 1, 2])
        for _ in range(self.random.integers(1, 4)):
            form = self.random.integers(5)
            if form == 0:
                y = self.net.unary(OP.LOGISTIC, y)
            elif form == 1:
                y = self.net.binary(OP.MUL, y, self.constant(self.random.uniform(0.5, 1.5, (y.shape[1], 1, 1))))
            elif form == 2:
                gate = self.net.mean(y, keep=True, axes=(2, 3))
                y = self.net.binary(OP.MUL, y, self.net.unary(OP.LOGISTIC, gate))
            elif form == 3:
                y = self.net.binary(OP.ADD, self.net.unary(OP.TANH, y), y)
            else:
                self.done.append(self.net.mean(y, axes=(2, 3)))
        return self.transpose(y, [0, 2, 3, 1])

    def transposes(self, x: Tensor) -> Tensor:
        y = self.transpose(x, [0, 2, 1, 3])
        return self.transpose(y, [[0, 2, 1, 3], [0, 1, 2, 3]][self.random.integers(2)])

    def reshapes(self, x: Tensor) -> Tensor:
        y = self.net.reshape(x, (1, int(np.prod(x.shape))))
        y = self.net.unary(OP.TANH, y) if self.random.random() < 0.5 else y
        return self.net.reshape(y, x.shape)

    def shuffle(self, x: Tensor) -> Tensor:
        if x.shape[1] > 10:
            return x
        x = self.net.pointwise(x, 8)
        x = self.net.unary(OP.RELU, x) if self.random.random() < 0.5 else x
        _, h, w, c = x.shape
        if self.random.random() < 0.4:
            order = self.net.constant(self.random.permutation(c).astype(np.int32))
            return self.net.depth_to_space(self.net.add(OP.GATHER, [x, order], x.shape, options("Gather", axis=3)))
        y = self.transpose(self.net.reshape(x, (1, h, w, c // 4, 2, 2)), [0, 1, 4, 2, 5, 3])
        return self.net.reshape(y, (1, 2 * h, 2 * w, c // 4))

    def unary(self, x: Tensor) -> Tensor:
        return self.net.unary((OP.LOGISTIC, OP.TANH, OP.ABS, OP.NEG)[self.random.integers(4)], x)

    def pool(self, x: Tensor) -> Tensor:
        if x.shape[1] == x.shape[2] > 1 and self.random.random() < 0.5:
            pooled = self.net.pool(OP.AVERAGE_POOL_2D, x, x.shape[1])
            self.done.append(pooled)
            return x
        if min(x.shape[1:3]) < 4:
            return x  # windows of 1x1: the interpreter itself is wrong about those behind a clamp
        return self.net.pool(
            OP.AVERAGE_POOL_2D if self.random.random() < 0.5 else OP.MAX_POOL_2D, x, min(x.shape[1:3]) // 2
        )

    def tails(self) -> None:
        """One to three outputs."""
        for _ in range(self.random.integers(1, 4)):
            x = self.map()
            form = self.random.integers(7)
            if form == 6:
                y = self.net.unary(OP.HARD_SWISH, self.net.reshape(self.net.mean(x), (1, x.shape[3], 1, 1)))
                y = self.net.pointwise(self.net.reshape(y, (1, 1, 1, x.shape[3])), 6)
                self.done.append(self.net.add(OP.SOFTMAX, [y], y.shape, options("Softmax", beta=1.0)))
            elif form == 0:
                self.done.append(x)
            elif form == 1:
                self.done.append(self.net.dense(self.net.mean(x), 5))
            else:
                y = self.net.pointwise(self.net.mean(x, keep=True), 6, activation=int(self.random.integers(4)))
                y = self.net.unary(OP.HARD_SWISH, y) if form > 3 else y
                y = self.affine(y) if form == 5 else y
                self.done.append(self.net.reshape(y, (1, 6)) if form != 3 else y)
        unique = [tensor for tensor in dict.fromkeys(self.done) if tensor not in self.net.graph.inputs]
        self.net.output(*(unique or [self.net.unary(OP.ABS, self.map())]))
