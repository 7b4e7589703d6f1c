"""A partition as XNNPACK sees it when it decides on layouts: after the delegate has defined nodes, and after fusion.

What changes on the way from TFLite operators to XNNPACK nodes, in this order:

1. SAME padding becomes explicit padding at stride 1, and stays a flag otherwise. XNNPACK 75db3c0
   src/subgraph/convolution-2d.c xnn_define_convolution_2d, src/subgraph/depthwise-convolution-2d.c.
2. FULLY_CONNECTED without `keep_num_dims` gets a reshape before it, which is a node of its own, and has no static shape. LiteRT
   f674577 tflite/delegates/xnnpack/xnnpack_delegate.cc VisitFullyConnectedNode.
3. Zero PAD over H and W melts into the convolution behind it, if nothing else reads the padded value and the convolution does
   not pad by itself with the SAME flag. Since 2025 a plain 1x1 convolution is a fully-connected node by then, and takes none in.
   XNNPACK 75db3c0 src/subgraph.c xnn_subgraph_fusion, src/subgraph/convolution-2d.c.
4. Clamps melt into the convolution or pooling before them, and scalar minima and maxima become clamps (newer revisions).
   XNNPACK 75db3c0 src/subgraph.c xnn_subgraph_optimize_common_subgraphs.
5. Nodes whose results nobody reads are dropped. XNNPACK 75db3c0 src/subgraph.c xnn_subgraph_clean_up.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.model import Operator, Tensor, element_count
from sparsetorch.xnnpack.delegate import BINARY, CLAMPS, REDUCTIONS, UNARY
from sparsetorch.xnnpack.partition import Partition, Plan
from sparsetorch.xnnpack.revisions import Revision

_OP, _TYPE = schema.BuiltinOperator, schema.TensorType


class Kind(Enum):
    """XNNPACK's node types, as far as the layout decision tells them apart."""

    CONVOLUTION = "convolution"
    DEPTHWISE = "depthwise convolution"
    FULLY_CONNECTED = "fully connected"
    UNARY = "unary"
    BINARY = "binary"
    REDUCTION = "reduction"
    DEPTH_TO_SPACE = "depth to space"
    RESIZE_BILINEAR = "bilinear resize"
    POOLING = "pooling"
    PAD = "pad"
    RESHAPE = "reshape"
    OTHER = "other"


@dataclass(eq=False)
class Value:
    """An XNNPACK value. `shape` is the TFLite one, H and W before the channels."""

    tensor: Tensor
    shape: tuple[int, ...]
    static: bool
    external_input: bool = False
    external_output: bool = False

    @property
    def is_float(self) -> bool:
        return self.tensor.type in (_TYPE.FLOAT32, _TYPE.FLOAT16)

    @property
    def has_extent(self) -> bool:
        """Whether NHWC and NCHW order its elements differently."""
        return len(self.shape) == 4 and self.shape[1] * self.shape[2] > 1 and self.shape[3] > 1


@dataclass(frozen=True)
class Padding:
    """Explicit padding in pixels."""

    top: int = 0
    right: int = 0
    bottom: int = 0
    left: int = 0

    def __add__(self, other: "Padding") -> "Padding":
        return Padding(
            self.top + other.top, self.right + other.right, self.bottom + other.bottom, self.left + other.left
        )

    def __str__(self) -> str:
        return f"top {self.top}, right {self.right}, bottom {self.bottom}, left {self.left}"


@dataclass(frozen=True)
class Window:
    """The geometry of a convolution; pairs are (height, width)."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: Padding
    same: bool
    """Whether the padding still is TensorFlow's SAME, computed when the operator runs."""
    groups: int = 1
    group_input_channels: int = 1
    multiplier: int = 1


@dataclass(eq=False)
class Node:
    """An XNNPACK node. `operator` is the TFLite operator that it comes from."""

    kind: Kind
    operator: Operator
    inputs: list[Value]
    outputs: list[Value]
    window: Window | None = None
    axes: tuple[int, ...] = ()

    @property
    def computed(self) -> list[Value]:
        """The inputs that are no constants."""
        return [value for value in self.inputs if not value.static]

    @property
    def is_pointwise(self) -> bool:
        """A convolution that only mixes channels: 1x1, or its equal, a fully-connected layer."""
        return self.kind is Kind.FULLY_CONNECTED or (
            self.kind is Kind.CONVOLUTION and self.window is not None and self.window.kernel == (1, 1)
        )


@dataclass(eq=False)
class Subgraph:
    """The nodes of one partition in execution order."""

    nodes: list[Node] = field(default_factory=list)
    sparse_hint: bool = False
    sources: dict[Tensor, Tensor] = field(default_factory=dict)

    def consumers(self, value: Value) -> list[Node]:
        """Each node that reads `value`, once."""
        return [node for node in self.nodes if any(read is value for read in node.inputs)]


def build(partition: Partition, plan: Plan, revision: Revision) -> Subgraph:
    """The XNNPACK subgraph that a partition becomes in a revision."""
    values: dict[Tensor, Value] = {}

    def value(tensor: Tensor) -> Value:
        if tensor not in values:
            values[tensor] = Value(
                tensor,
                tensor.shape,
                static=tensor.data is not None or tensor in plan.sources,
                external_input=tensor in partition.inputs,
                external_output=tensor in partition.outputs,
            )
        return values[tensor]

    graph = Subgraph(sparse_hint=partition.sparse_hint, sources=plan.sources)
    for operator in partition.operators:
        inputs = [value(tensor) for tensor in _operands(operator)]
        outputs = [value(tensor) for tensor in operator.outputs]
        if operator.code == _OP.FULLY_CONNECTED and not getattr(operator.options, "keepNumDims", False):
            channels = inputs[1].shape[1]
            flat = Value(inputs[0].tensor, (element_count(inputs[0].shape) // max(channels, 1), channels), static=False)
            graph.nodes.append(Node(Kind.RESHAPE, operator, [inputs[0]], [flat]))
            inputs[0] = flat
        graph.nodes.append(_node(operator, inputs, outputs, revision))
    _fuse_pads(graph, revision)
    if revision.folds_clamps:
        _fold_clamps(graph, revision)
    _drop_dead(graph)
    return graph


_PARAMETER_OPERANDS = frozenset(
    {
        *REDUCTIONS,
        _OP.PAD,
        _OP.RESHAPE,
        _OP.RESIZE_BILINEAR,
        _OP.TRANSPOSE,
        _OP.EXPAND_DIMS,
        _OP.SLICE,
        _OP.STRIDED_SLICE,
    }
)


def _operands(operator: Operator) -> list[Tensor]:
    """The inputs that become XNNPACK values; axes, paddings and shapes become parameters instead."""
    if operator.code in _PARAMETER_OPERANDS:
        return [tensor for tensor in operator.inputs[:1] if tensor is not None]
    return [tensor for tensor in operator.inputs if tensor is not None]


def _node(operator: Operator, inputs: list[Value], outputs: list[Value], revision: Revision) -> Node:
    code = operator.code
    if code in (_OP.CONV_2D, _OP.DEPTHWISE_CONV_2D):
        kind = Kind.CONVOLUTION if code == _OP.CONV_2D else Kind.DEPTHWISE
        return Node(kind, operator, inputs, outputs, _window(operator, inputs))
    if code in REDUCTIONS:
        axes = operator.inputs[1]
        rank = len(inputs[0].shape)
        numbers = () if axes is None or axes.data is None else tuple(int(axis) % max(rank, 1) for axis in axes.stored())
        compatible = code in revision.reductions and not (revision.pools_only and len(numbers) == 1)
        kind = Kind.REDUCTION if compatible else Kind.OTHER
        return Node(kind, operator, inputs, outputs, axes=numbers)
    if code in (_OP.MAXIMUM, _OP.MINIMUM) and revision.scalar_clamps:
        scalars = [value for value in inputs if value.static and element_count(value.shape) == 1]
        rest = [value for value in inputs if value not in scalars]
        if len(rest) == 1 and len(scalars[0].shape) <= len(rest[0].shape):
            return Node(Kind.UNARY, operator, rest, outputs)
    if code == _OP.MUL and revision.squares and inputs[0] is inputs[1]:
        return Node(Kind.UNARY, operator, inputs[:1], outputs)
    if code in UNARY and (revision.unary is None or code in revision.unary):
        return Node(Kind.UNARY, operator, inputs, outputs)
    if code in BINARY:
        return Node(Kind.BINARY, operator, inputs, outputs)
    kinds = {
        _OP.FULLY_CONNECTED: Kind.FULLY_CONNECTED,
        _OP.DEPTH_TO_SPACE: Kind.DEPTH_TO_SPACE,
        _OP.RESIZE_BILINEAR: Kind.RESIZE_BILINEAR,
        _OP.AVERAGE_POOL_2D: Kind.POOLING,
        _OP.MAX_POOL_2D: Kind.POOLING,
        _OP.PAD: Kind.PAD,
        _OP.RESHAPE: Kind.RESHAPE,
    }
    return Node(kinds.get(code, Kind.OTHER), operator, inputs, outputs)


def _window(operator: Operator, inputs: list[Value]) -> Window:
    options, weight, source = operator.options, inputs[1].shape, inputs[0].shape
    stride = (getattr(options, "strideH", 1), getattr(options, "strideW", 1))
    dilation = (getattr(options, "dilationHFactor", 1), getattr(options, "dilationWFactor", 1))
    kernel = (weight[1], weight[2])
    same = getattr(options, "padding", schema.Padding.VALID) == schema.Padding.SAME
    padding = Padding()
    if same and stride == (1, 1):
        height, width = (kernel[0] - 1) * dilation[0], (kernel[1] - 1) * dilation[1]
        padding = Padding(height // 2, width - width // 2, height - height // 2, width // 2)
        same = False
    if operator.code == _OP.DEPTHWISE_CONV_2D:
        return Window(kernel, stride, dilation, padding, same, multiplier=getattr(options, "depthMultiplier", 1))
    groups = source[3] // weight[3] if weight[3] else 1
    return Window(kernel, stride, dilation, padding, same, groups, weight[3])


def _fuse_pads(graph: Subgraph, revision: Revision) -> None:
    for node in list(graph.nodes):
        padding = _spatial_padding(node) if node.kind is Kind.PAD else None
        if padding is None or node.outputs[0].external_output:
            continue
        consumers = graph.consumers(node.outputs[0])
        if len(consumers) != 1 or consumers[0].window is None or consumers[0].window.same:
            continue
        window = consumers[0].window
        if revision.fully_connected and _is_fully_connected(consumers[0], window):
            continue
        consumers[0].window = replace(window, padding=window.padding + padding)
        consumers[0].inputs[0] = node.inputs[0]
        graph.nodes.remove(node)


def _is_fully_connected(node: Node, window: Window) -> bool:
    """Whether recent revisions define a convolution as a fully-connected node, which takes no padding in.

    XNNPACK 75db3c0 src/subgraph/convolution-2d.c, xnn_define_convolution_2d.
    """
    plain = window.kernel == window.stride == (1, 1) and window.padding == Padding() and window.groups == 1
    channels = node.inputs[0].shape[-1] + node.outputs[0].shape[-1]
    return node.kind is Kind.CONVOLUTION and plain and channels > 2


def _spatial_padding(node: Node) -> Padding | None:
    """The padding of a PAD over H and W of a float tensor, or None. PAD always pads with zeros."""
    amounts = node.operator.inputs[1]
    if amounts is None or amounts.data is None or len(node.inputs[0].shape) != 4 or not node.inputs[0].is_float:
        return None
    (batch, height, width, channels) = amounts.stored().reshape(-1, 2).tolist()
    if any(batch) or any(channels):
        return None
    return Padding(top=height[0], right=width[1], bottom=height[1], left=width[0])


_CLAMPING = frozenset({Kind.CONVOLUTION, Kind.DEPTHWISE, Kind.FULLY_CONNECTED, Kind.POOLING})


_ARITHMETIC = frozenset({_OP.ADD, _OP.SUB, _OP.MUL, _OP.DIV})


def _fold_clamps(graph: Subgraph, revision: Revision) -> None:
    producers = {output: node for node in graph.nodes for output in node.outputs}
    for node in list(graph.nodes):
        if not _is_clamp(node):
            continue
        source = node.inputs[0]
        producer = producers.get(source)
        readers = len(graph.consumers(source)) + source.external_output
        if producer is None or readers > 1:
            continue
        arithmetic = revision.folds_into_arithmetic and producer.operator.code in _ARITHMETIC
        if not (arithmetic or producer.kind in _CLAMPING or _is_clamp(producer)):
            continue
        producer.outputs = [node.outputs[0]]
        producers[node.outputs[0]] = producer
        graph.nodes.remove(node)


def _is_clamp(node: Node) -> bool:
    return node.kind is Kind.UNARY and node.operator.code in CLAMPS | {_OP.MAXIMUM, _OP.MINIMUM}


def _drop_dead(graph: Subgraph) -> None:
    while True:
        read = {value for node in graph.nodes for value in node.inputs}
        kept = [node for node in graph.nodes if _is_read(node.outputs, read)]
        if len(kept) == len(graph.nodes):
            return
        graph.nodes = kept


def _is_read(outputs: Iterable[Value], read: set[Value]) -> bool:
    return any(value.external_output or value in read for value in outputs)
