"""Build small TFLite graphs for tests, operator by operator, without TensorFlow.

    net = Net()
    x = net.stem(net.input(96, 3), 16)
    net.output(net.mean(net.pointwise(x, 32)))
    model = net.model()

Layout NHWC, batch 1, float32. Weights are random, seeded, and zero in the asked share of the 1x1 convolutions.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite import Graph, Model, Operator, Tensor

OP, KIND = schema.BuiltinOperator, schema.TensorType
_NUMPY = {
    np.dtype(np.float32): KIND.FLOAT32,
    np.dtype(np.int32): KIND.INT32,
    np.dtype(np.int8): KIND.INT8,
    np.dtype(np.float16): KIND.FLOAT16,
}
SAME, VALID = schema.Padding.SAME, schema.Padding.VALID


def options(name: str, **fields: Any) -> tuple[Any, int]:
    """The schema's options object and its type number: `options("Conv2D", strideH=2)`."""
    made = getattr(schema, f"{name}OptionsT")()
    for key, value in fields.items():
        assert hasattr(made, key), key
        setattr(made, key, value)
    return made, getattr(schema.BuiltinOptions, f"{name}Options")


class Net:
    """A graph under construction. Every method appends an operator and returns its output."""

    def __init__(self, sparsity: float = 0.85, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.sparsity = sparsity
        self.graph = Graph([], [], [], [], "main")
        self.count = 0

    def model(self) -> Model:
        return Model([self.graph], description="built by tests/graphs.py")

    def tensor(self, shape: Sequence[int], kind: int = KIND.FLOAT32, name: str | None = None) -> Tensor:
        self.count += 1
        made = Tensor(name or f"value{self.count}", tuple(int(size) for size in shape), kind)
        self.graph.tensors.append(made)
        return made

    def constant(self, values: Any, name: str | None = None) -> Tensor:
        array = np.asarray(values)
        made = self.tensor(array.shape, _NUMPY[array.dtype], name)
        made.data = np.frombuffer(array.tobytes(), np.uint8)
        return made

    def input(self, size: int, channels: int, width: int | None = None) -> Tensor:
        """`size` is the height, and the width as well where none is given."""
        made = self.tensor((1, size, width or size, channels), name=f"input{len(self.graph.inputs)}")
        self.graph.inputs.append(made)
        return made

    def output(self, *tensors: Tensor) -> None:
        self.graph.outputs.extend(tensors)

    def add(
        self,
        code: int,
        inputs: Sequence[Tensor | None],
        shape: Sequence[int],
        chosen: tuple[Any, int] = (None, 0),
        kind: int = KIND.FLOAT32,
    ) -> Tensor:
        result = self.tensor(shape, kind)
        self.graph.operators.append(Operator(code, list(inputs), [result], *chosen))
        return result

    def weights(self, shape: Sequence[int], sparsity: float = 0.0, name: str | None = None) -> Tensor:
        fan_in = int(np.prod(shape[1:]))
        values = self.random.normal(0, np.sqrt(2 / fan_in / (1.05 - sparsity)), shape).astype(np.float32)
        zeros = round(sparsity * values.size)
        values.ravel()[np.argsort(np.abs(values).ravel())[:zeros]] = 0
        return self.constant(values, name)

    def bias(self, channels: int) -> Tensor:
        return self.constant(self.random.normal(0, 0.1, channels).astype(np.float32))

    def pad(self, x: Tensor, amount: int = 1) -> Tensor:
        paddings = self.constant(np.array([[0, 0], [amount, amount], [amount, amount], [0, 0]], np.int32))
        shape = (1, x.shape[1] + 2 * amount, x.shape[2] + 2 * amount, x.shape[3])
        return self.add(OP.PAD, [x, paddings], shape, options("Pad"))

    def conv(
        self, x: Tensor, channels: int, kernel: int, stride: int = 1, padding: int = VALID, sparsity: float = 0.0,
        name: str | None = None, activation: int = 0, weight: Tensor | None = None, dilation: int = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        weight = weight or self.weights((channels, kernel, kernel, x.shape[3] // groups), sparsity, name)
        shape = (1, *_sizes(x, kernel, stride, padding, dilation), channels)
        chosen = options(
            "Conv2D", padding=padding, strideH=stride, strideW=stride, fusedActivationFunction=activation,
            dilationHFactor=dilation, dilationWFactor=dilation,
        )  # fmt: skip
        return self.add(OP.CONV_2D, [x, weight, self.bias(channels)], shape, chosen)

    def stem(self, x: Tensor, channels: int = 16, same: bool = False) -> Tensor:
        """3x3, stride 2, RELU6."""
        source = x if same else self.pad(x)
        return self.conv(source, channels, 3, 2, SAME if same else VALID, activation=3, name="stem.weight")

    def pointwise(self, x: Tensor, channels: int, sparsity: float | None = None, **chosen: Any) -> Tensor:
        return self.conv(x, channels, 1, sparsity=self.sparsity if sparsity is None else sparsity, **chosen)

    def depthwise(
        self,
        x: Tensor,
        kernel: int = 3,
        stride: int = 1,
        same: bool = False,
        name: str | None = None,
        dilation: int = 1,
    ) -> Tensor:
        if not same and (stride > 1 or dilation > 1):
            x, padding = self.pad(x, kernel // 2), VALID
        else:
            padding = SAME
        chosen = options(
            "DepthwiseConv2D", padding=padding, strideH=stride, strideW=stride, depthMultiplier=1, fusedActivationFunction=3,
            dilationHFactor=dilation, dilationWFactor=dilation,
        )  # fmt: skip
        shape = (1, *_sizes(x, kernel, stride, padding, dilation), x.shape[3])
        weight = self.weights((1, kernel, kernel, x.shape[3]), name=name)
        return self.add(OP.DEPTHWISE_CONV_2D, [x, weight, self.bias(x.shape[3])], shape, chosen)

    def unary(self, code: int, x: Tensor, chosen: tuple[Any, int] = (None, 0)) -> Tensor:
        return self.add(code, [x], x.shape, chosen)

    def binary(self, code: int, x: Tensor, y: Tensor) -> Tensor:
        chosen = options({OP.ADD: "Add", OP.MUL: "Mul", OP.SUB: "Sub", OP.DIV: "Div"}.get(code, "MaximumMinimum"))
        return self.add(code, [x, y], np.broadcast_shapes(x.shape, y.shape), chosen)

    def mean(self, x: Tensor, keep: bool = False, axes: Sequence[int] = (1, 2), code: int = OP.MEAN) -> Tensor:
        kept = [1 if index in axes else size for index, size in enumerate(x.shape)]
        shape = kept if keep else [size for index, size in enumerate(x.shape) if index not in axes]
        return self.add(code, [x, self.constant(np.array(axes, np.int32))], shape, options("Reducer", keepDims=keep))

    def pool(self, code: int, x: Tensor, size: int) -> Tensor:
        chosen = options("Pool2D", padding=VALID, strideH=size, strideW=size, filterHeight=size, filterWidth=size)
        return self.add(code, [x], (1, x.shape[1] // size, x.shape[2] // size, x.shape[3]), chosen)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        return self.add(
            OP.RESHAPE, [x, self.constant(np.array(shape, np.int32))], shape, options("Reshape", newShape=list(shape))
        )

    def dense(self, x: Tensor, channels: int, keep: bool = False) -> Tensor:
        weight = self.weights((channels, x.shape[-1]))
        shape = (*x.shape[:-1], channels) if keep else (int(np.prod(x.shape[:-1])), channels)
        return self.add(
            OP.FULLY_CONNECTED, [x, weight, self.bias(channels)], shape, options("FullyConnected", keepNumDims=keep)
        )

    def resize(self, x: Tensor, factor: int = 2) -> Tensor:
        height, width = x.shape[1] * factor, x.shape[2] * factor
        size = self.constant(np.array([height, width], np.int32))
        return self.add(
            OP.RESIZE_BILINEAR,
            [x, size],
            (1, height, width, x.shape[3]),
            options("ResizeBilinear", halfPixelCenters=True),
        )

    def depth_to_space(self, x: Tensor, block: int = 2) -> Tensor:
        shape = (1, x.shape[1] * block, x.shape[2] * block, x.shape[3] // block**2)
        return self.add(OP.DEPTH_TO_SPACE, [x], shape, options("DepthToSpace", blockSize=block))

    def squeeze_excite(self, x: Tensor, gate: str) -> Tensor:
        """`conv`: 1x1 convolutions and LOGISTIC; `dense`: fully connected; `hard`: RELU_0_TO_1 instead of LOGISTIC."""
        channels = x.shape[3]
        if gate == "dense":
            y = self.dense(self.dense(self.mean(x), 8), channels)
            y = self.reshape(self.unary(OP.LOGISTIC, y), (1, 1, 1, channels))
        else:
            y = self.pointwise(self.pointwise(self.mean(x, keep=True), 8, activation=1), channels)
            y = self.unary(OP.RELU_0_TO_1 if gate == "hard" else OP.LOGISTIC, y)
        return self.binary(OP.MUL, x, y)

    def block(
        self, x: Tensor, width: int, stride: int = 1, same: bool = False, kernel: int = 3, gate: str | None = None,
        activation: Callable[["Net", Tensor], Tensor] | None = None,
    ) -> Tensor:  # fmt: skip
        """Expand 4 times, depthwise, project, add where shapes allow."""
        self.blocks = getattr(self, "blocks", 0) + 1
        path = f"features.{self.blocks}"
        fused = 3 if activation is None else 0
        y = self.pointwise(x, x.shape[3] * 4, name=f"{path}.expand.weight", activation=fused)
        y = y if activation is None else activation(self, y)
        y = self.depthwise(y, kernel, stride, same, name=f"{path}.depthwise.weight")
        y = y if gate is None else self.squeeze_excite(y, gate)
        y = self.pointwise(y, width, name=f"{path}.project.weight")
        return self.binary(OP.ADD, x, y) if stride == 1 and x.shape[3] == width else y


def _sizes(x: Tensor, kernel: int, stride: int, padding: int, dilation: int = 1) -> tuple[int, int]:
    def size(length: int) -> int:
        reach = (kernel - 1) * dilation + 1
        return -(-length // stride) if padding == SAME else (length - reach) // stride + 1

    return size(x.shape[1]), size(x.shape[2])


def classifier(
    sparsity: float = 0.85, size: int = 32, stem_same: bool = False, same: bool = False, kernel: int = 3, gate: str | None = None,
    middle: Callable[[Net, Tensor], Tensor] | None = None, tail: Callable[[Net, Tensor], Tensor] | None = None,
    activation: Callable[[Net, Tensor], Tensor] | None = None, seed: int = 0,
) -> Model:  # fmt: skip
    """Stem, four inverted bottlenecks (stride 2, 1, 2, 1), a 1x1 head, MEAN, FULLY_CONNECTED. Not encoded.

    Nine 1x1 convolutions, two more with a `gate` in the third block. `same`: SAME padding in the stride-2 blocks.
    """
    net = Net(sparsity, seed)
    x = net.stem(net.input(size, 3), same=stem_same)
    x = net.block(net.block(x, 24, 2, same, kernel, activation=activation), 24, kernel=kernel, activation=activation)
    x = x if middle is None else middle(net, x)
    x = net.block(x, 32, 2, same, kernel, gate, activation)
    x = net.block(x, 32, kernel=kernel, activation=activation)
    x = net.pointwise(x, 64, name="head.weight", activation=3)
    net.output((tail or (lambda net, x: net.dense(net.mean(x), 10)))(net, x))
    return net.model()
