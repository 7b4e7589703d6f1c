"""Random small CNNs as TFLite graphs, made of what converters write: blocks, gates, activations written out, islands, tails.

    model = random_model(seed)

Every graph runs; whether XNNPACK's sparse path takes it, and whether a repair applies, is left to chance.
"""

import numpy as np
from graphs import OP, SAME, VALID, Net, options

from sparsetorch.tflite import Model, Tensor


def random_model(seed: int, breakers: float = 1.0) -> Model:
    """A network of 2 to 5 random parts on 8 to 20 pixels, with a random stem and tail; the same for the same seed.

    Args:
        seed: of everything random in it.
        breakers: how likely the oddities are, 0 (a clean network) to 1.
    """
    random = np.random.default_rng([seed, 17])
    net = Net(sparsity=float(random.choice([0.5, 0.8, 0.9])), seed=seed)
    x = net.input(int(random.integers(8, 21)), 3)
    odd = _Odd(net, random, breakers)
    if odd.chance(0.3):
        x = odd.constant(x)
    x = net.stem(x, int(random.choice([4, 8])), same=odd.chance(0.2))
    for _ in range(int(random.integers(2, 6))):
        x = odd.part(x)
    if odd.chance(0.3):
        net.output(net.pointwise(odd.activation(x), 3))
    odd.tail(x)
    return net.model()


class _Odd:
    """The random choices of one graph."""

    def __init__(self, net: Net, random: np.random.Generator, breakers: float) -> None:
        self.net, self.random, self.breakers = net, random, breakers

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share * self.breakers)

    def part(self, x: Tensor) -> Tensor:
        net, random = self.net, self.random
        kind = random.choice(["block", "pointwise", "gate", "constant", "island", "branch", "depthwise", "pad"])
        if kind == "pointwise":
            return self.activation(net.pointwise(x, int(random.choice([4, 6, 8]))))
        if kind == "gate":
            y = net.squeeze_excite(x, str(random.choice(["conv", "hard", "dense"])))
            return net.pointwise(y, x.shape[3]) if random.random() < 0.8 else y
        if kind == "constant" and self.breakers:
            return self.constant(x)
        if kind == "island" and self.breakers:
            return self.island(x)
        if kind == "branch":
            return net.binary(OP.ADD, x, net.pointwise(self.activation(net.pointwise(x, 8)), x.shape[3]))
        if kind == "pad" and self.breakers and x.shape[1] > 3:
            y = net.pad(net.pad(x)) if random.random() < 0.5 else net.pad(x)
            return net.conv(y, x.shape[3], 3, int(random.choice([1, 2])), int(random.choice([SAME, VALID])))
        stride = int(random.choice([1, 2])) if x.shape[1] > 3 else 1
        same = self.chance(0.4)
        if kind == "depthwise":
            return net.depthwise(x, int(random.choice([3, 5])), stride, same)
        return net.block(x, int(random.choice([4, 6, 8])), stride, same)

    def scalar(self, value: float) -> Tensor:
        return self.net.constant(np.array(value, np.float32))

    def constant(self, x: Tensor) -> Tensor:
        code, name = [(OP.ADD, "Add"), (OP.SUB, "Sub"), (OP.MUL, "Mul"), (OP.DIV, "Div")][self.random.integers(4)]
        shape = [(), (x.shape[-1],), (1, 1, 1, x.shape[-1])][self.random.integers(3 if len(x.shape) == 4 else 2)]
        made = self.net.constant(self.random.uniform(0.5, 2.0, shape).astype(np.float32))
        return self.net.add(code, [x, made], x.shape, options(name))

    def activation(self, x: Tensor) -> Tensor:
        net = self.net
        kind = self.random.choice(["none", "relu6", "swish", "written relu6", "written swish", "hard-tanh"])
        if kind == "relu6":
            return net.unary(OP.RELU6, x)
        if kind == "swish":
            return net.unary(OP.HARD_SWISH, x, options("HardSwish"))
        if kind == "written swish" and self.breakers:
            shifted = net.add(OP.ADD, [x, self.scalar(3.0)], x.shape, options("Add"))
            product = net.binary(OP.MUL, x, net.unary(OP.RELU6, shifted))
            return net.add(OP.MUL, [product, self.scalar(1 / 6)], x.shape, options("Mul"))
        low, high = (0.0, 6.0) if kind == "written relu6" else (-1.0, 1.0)
        if kind in ("written relu6", "hard-tanh") and self.breakers:
            y = net.add(OP.MAXIMUM, [x, self.scalar(low)], x.shape, options("MaximumMinimum"))
            return net.add(OP.MINIMUM, [y, self.scalar(high)], x.shape, options("MaximumMinimum"))
        return x

    def transpose(self, x: Tensor, permutation: list[int]) -> Tensor:
        axes = self.net.constant(np.array(permutation, np.int32))
        shape = [x.shape[axis] for axis in permutation]
        return self.net.add(OP.TRANSPOSE, [x, axes], shape, options("Transpose"))

    def island(self, x: Tensor) -> Tensor:
        y = self.transpose(x, [0, 3, 1, 2])
        y = (
            self.net.binary(OP.MUL, y, self.net.unary(OP.LOGISTIC, y))
            if self.random.random() < 0.3
            else self.activation(y)
        )
        y = self.transpose(y, [0, 2, 3, 1])
        return self.net.binary(OP.ADD, x, y) if self.random.random() < 0.3 else y

    def tail(self, x: Tensor) -> None:
        net, random = self.net, self.random
        kind = random.choice(["dense", "keep", "conv", "average", "flatten", "shuffle", "landmarks", "transposed"])
        if kind == "shuffle":
            y = net.pointwise(x, 8)
            six = net.reshape(y, (1, *y.shape[1:3], 2, 2, 2))
            net.output(net.reshape(self.transpose(six, [0, 1, 4, 2, 5, 3]), (1, 2 * y.shape[1], 2 * y.shape[2], 2)))
        elif kind == "conv":
            y = self.activation(net.pointwise(net.mean(x, keep=True), 6))
            y = net.pointwise(y, 5)
            net.output(net.reshape(y, (1, 5)) if random.random() < 0.7 else y)
        elif kind == "average" and x.shape[1] == x.shape[2]:
            net.output(net.dense(net.pool(OP.AVERAGE_POOL_2D, x, x.shape[1]), 5))
        elif kind == "flatten":
            net.output(net.dense(net.reshape(x, (1, int(np.prod(x.shape)))), 5))
        elif kind == "landmarks":
            pooled = net.mean(x)
            net.output(net.dense(pooled, 6), net.unary(OP.LOGISTIC, net.dense(pooled, 1)))
        elif kind == "transposed":
            net.output(net.dense(net.mean(self.transpose(x, [0, 3, 1, 2]), axes=(2, 3)), 5))
        else:
            net.output(net.dense(net.mean(x, keep=bool(kind == "keep")), 5))
