"""Store weights small: zeros left out (sparse encoding), values as float32, float16 or int8.

XNNPACK hears of sparsity only through a constant that DENSIFY unpacks, or DENSIFY and then DEQUANTIZE (LiteRT f674577,
tflite/delegates/xnnpack/xnnpack_delegate.cc, `PrepareOpsToDelegate`). So `encode` turns

    weight -> CONV_2D    into    weight, sparse [int8] -> DENSIFY -> [DEQUANTIZE ->] weight/unpacked -> CONV_2D
                         or      weight, dense [int8]            ->  [DEQUANTIZE ->] weight/unpacked -> CONV_2D

A layer with float16 weights gets a float16 bias as well: with a float32 one, XNNPACK of LiteRT 2.1 computes garbage and that of
TensorFlow 2.19 does not load (seen; TensorFlow's converter always writes both). Other biases stay float32.

The weight keeps its name: it is how a layer is found again. Every kind of layer is stored in the smallest form, whichever
that is; zeros gain time in 1x1 convolutions alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.cluster import cluster
from sparsetorch.tflite.layouts import encode_smallest
from sparsetorch.tflite.model import Graph, Model, Operator, Tensor
from sparsetorch.tflite.sparse import densify, packed_size
from sparsetorch.tflite.split import split_fully_connected
from sparsetorch.tflite.storage import Storage, Stored, store

Array = npt.NDArray[Any]
_OP = schema.BuiltinOperator
OUTPUT_AXIS = {_OP.CONV_2D: 0, _OP.FULLY_CONNECTED: 0, _OP.DEPTHWISE_CONV_2D: 3}
"""The axis of a weight's output channels."""
_RANK = {_OP.CONV_2D: 4, _OP.FULLY_CONNECTED: 2, _OP.DEPTHWISE_CONV_2D: 4}
_DENSIFIED, _UNPACKED = "/densified", "/unpacked"
_OPERATOR_BYTES = 120
"""What an operator and its output tensor add to a file, about: two tables, two index vectors; the name comes on top."""
_SCALE_BYTES = 12
"""Scale and zero point of one channel."""
_VERSIONS = {schema.TensorType.FLOAT16: 3, schema.TensorType.INT8: 5}
"""Of DEQUANTIZE: 3 knows float16, 5 a scale per channel (LiteRT f674577 tflite/tools/versioning/op_version.cc)."""


@dataclass(frozen=True)
class EncodedTensor:
    """What became of one weight."""

    name: str
    shape: tuple[int, ...]
    layer: str
    """`CONV_2D`, `DEPTHWISE_CONV_2D` or `FULLY_CONNECTED`."""
    sparsity: float
    """Share of zeros, 0 to 1, after rounding."""
    encoding: str
    """`sparse` or `dense`."""
    values: str
    """`float32`, `float16` or `int8`."""
    bytes: int
    """Bytes in the file now: values, index vectors, scales, metadata, and the operators that unpack it."""
    dense_bytes: int
    """Bytes as a dense float32 constant."""
    reason: str | None = None
    """Why it is not sparse-encoded; None where it is."""

    @property
    def pointwise(self) -> bool:
        """Whether it belongs to a 1x1 convolution, whose zeros XNNPACK can use."""
        return self.layer == "CONV_2D" and self.shape[1:3] == (1, 1)


def encode(
    model: Model, should_encode: Callable[[Tensor], bool] | None = None, storage: Storage | None = None
) -> list[EncodedTensor]:
    """Store the float32 weights of convolutions and fully-connected layers as small as they go, in place.

    A weight that sparse encoding would not make smaller stays dense, and one that something else reads too is left alone.
    -0.0 becomes +0.0, which no arithmetic with finite numbers can tell apart. Encoding twice changes nothing.

    Args:
        model: edited in place; bytes that tensors share are not touched, only replaced.
        should_encode: asked for each candidate whether zeros may be left out; None: of all.
        storage: what values are stored as; None: float32.

    Returns:
        one entry for each weight, in execution order.

    Raises:
        BadInputError: values that cannot be stored so.
    """
    chosen = Storage() if storage is None else storage
    report: list[EncodedTensor] = []
    for graph in model.graphs:
        if chosen.split and should_encode is None:
            split_fully_connected(graph)
        seen: set[Tensor] = set()
        makers = {output: operator for operator in graph.operators for output in operator.outputs}
        for operator in list(graph.operators):
            weight = _weight(operator, makers)
            if weight is None or weight in seen:
                continue
            seen.add(weight)
            report.append(_encode_weight(graph, operator, weight, should_encode, chosen))
    return report


def _weight(operator: Operator, makers: dict[Tensor, Operator]) -> Tensor | None:
    """The constant behind a layer's weights, unpacked already or not."""
    if operator.code not in OUTPUT_AXIS or len(operator.inputs) < 2:
        return None
    weight = operator.inputs[1]
    while weight is not None and weight in makers and makers[weight].code in (_OP.DENSIFY, _OP.DEQUANTIZE):
        weight = makers[weight].inputs[0]
    if weight is None or weight.data is None or 0 in weight.shape or len(weight.shape) != _RANK[operator.code]:
        return None
    packed = operator.inputs[1] is not weight
    return weight if packed or weight.type == schema.TensorType.FLOAT32 else None


def _encode_weight(
    graph: Graph,
    layer: Operator,
    weight: Tensor,
    should_encode: Callable[[Tensor], bool] | None,
    storage: Storage,
) -> EncodedTensor:
    axis = OUTPUT_AXIS[layer.code]
    if layer.inputs[1] is not weight:
        return _already(layer, weight)
    original = weight.array()
    original = np.where(original == 0, np.float32(0), original)
    reason: str | None = None
    if any(output is weight for output in graph.outputs) or not all(
        operator.code == layer.code and operator.inputs[1] is weight and operator.inputs.count(weight) == 1
        for operator in graph.consumers(weight)
    ):
        reason = "also read by something other than a layer of its kind"
        return _entry(layer, weight, original, "dense", "float32", original.nbytes, reason)
    if storage.clusters is not None:
        original = cluster(original, storage.clusters)
        weight.data = np.frombuffer(np.ascontiguousarray(original).tobytes(), np.uint8)
    if should_encode is not None and not should_encode(weight):
        reason = "not selected"
    dense = store(original, storage.dense, axis)
    dense_size = min(_size(layer, weight, dense.type, dense.values.nbytes, 0), original.nbytes)
    sparse = dense if storage.dense == storage.values else store(original, storage.values, axis)
    least = _least_size(sparse.values)
    sparse_size = _size(layer, weight, sparse.type, least, 1)
    if reason is None and sparse_size < dense_size:
        values, parameters = encode_smallest(sparse.values)
        sparse_size = _size(layer, weight, sparse.type, values.nbytes + packed_size(parameters), 1)
    if reason is None and sparse_size < dense_size:
        weight.data, weight.sparsity = np.frombuffer(values.tobytes(), np.uint8), parameters
        _unpack(graph, weight, sparse, densified=True)
        return _entry(layer, weight, sparse.values, "sparse", storage.values, sparse_size, None, original.nbytes)
    reason = reason or (
        f"would grow from {dense_size} to {sparse_size} bytes or more" if (sparse.values == 0).any() else "has no zeros"
    )
    if dense_size == original.nbytes:
        return _entry(layer, weight, original, "dense", "float32", dense_size, reason)
    weight.data = np.frombuffer(np.ascontiguousarray(dense.values).tobytes(), np.uint8)
    _unpack(graph, weight, dense, densified=False)
    return _entry(layer, weight, dense.values, "dense", storage.dense, dense_size, reason, original.nbytes)


def _least_size(values: Array) -> int:
    """Bytes that no layout goes below: the values that are not zero, and an index for each four of them."""
    stored = int(np.count_nonzero(values))
    return stored * values.itemsize + stored // 4


def _size(layer: Operator, weight: Tensor, stored_type: int, size: int, operators: int) -> int:
    """Bytes in the file: values and metadata, scales, and the operators that unpack them."""
    operators += stored_type != schema.TensorType.FLOAT32
    name = len(weight.name.encode("utf-8", "surrogateescape")) + len(_DENSIFIED)
    channels = weight.shape[OUTPUT_AXIS[layer.code]] if stored_type == schema.TensorType.INT8 else 0
    return size + _SCALE_BYTES * channels + operators * (_OPERATOR_BYTES + name)


def _unpack(graph: Graph, weight: Tensor, stored: Stored, densified: bool) -> None:
    """Put the operators behind a stored weight that make it a float32 constant again, and let its readers read that."""
    position = graph.operators.index(graph.consumers(weight)[0])
    float32 = schema.TensorType.FLOAT32
    # What DENSIFY reads is bytes to it: the scales stand at its result, from which DEQUANTIZE takes them.
    weight.type, weight.quantization = stored.type, None if densified else stored.quantization
    steps: list[Operator] = []
    value = weight
    if densified:
        value = Tensor(weight.name + _DENSIFIED, weight.shape, stored.type, quantization=stored.quantization)
        made, kind = schema.DensifyOptionsT(), schema.BuiltinOptions.DensifyOptions
        steps.append(Operator(_OP.DENSIFY, [weight], [value], made, kind, version=1))
    if stored.type != float32:
        unpacked = Tensor(weight.name + _UNPACKED, weight.shape, float32)
        made, kind = schema.DequantizeOptionsT(), schema.BuiltinOptions.DequantizeOptions
        steps.append(Operator(_OP.DEQUANTIZE, [value], [unpacked], made, kind, version=_VERSIONS[stored.type]))
        value = unpacked
    layers = graph.consumers(weight)
    graph.replace_input(weight, value)
    steps[0].inputs = [weight]
    graph.tensors += [step.outputs[0] for step in steps]
    graph.operators[position:position] = steps
    if stored.type == schema.TensorType.FLOAT16:
        for layer in layers:
            _store_bias(graph, layer)


def _store_bias(graph: Graph, layer: Operator) -> None:
    """Make a layer's float32 bias a float16 constant that DEQUANTIZE unpacks."""
    bias = layer.inputs[2] if len(layer.inputs) > 2 else None
    if bias is None or bias.data is None or bias.type != schema.TensorType.FLOAT32:
        return
    stored = store(bias.array(), "float16")
    small = Tensor(bias.name, bias.shape, stored.type, data=np.frombuffer(stored.values.tobytes(), np.uint8))
    unpacked = Tensor(bias.name + _UNPACKED, bias.shape)
    made, kind = schema.DequantizeOptionsT(), schema.BuiltinOptions.DequantizeOptions
    step = Operator(_OP.DEQUANTIZE, [small], [unpacked], made, kind, version=_VERSIONS[stored.type])
    graph.tensors += [small, unpacked]
    graph.operators.insert(graph.operators.index(layer), step)
    layer.inputs = [*layer.inputs[:2], unpacked]
    if not graph.consumers(bias) and not any(output is bias for output in graph.outputs):
        graph.tensors = [tensor for tensor in graph.tensors if tensor is not bias]


def _entry(
    layer: Operator,
    weight: Tensor,
    values: Array,
    encoding: str,
    stored_as: str,
    size: int,
    reason: str | None,
    dense_bytes: int | None = None,
) -> EncodedTensor:
    return EncodedTensor(
        name=weight.name,
        shape=weight.shape,
        layer=layer.name,
        sparsity=float(np.mean(values == 0)),
        encoding=encoding,
        values=stored_as,
        bytes=size,
        dense_bytes=values.nbytes if dense_bytes is None else dense_bytes,
        reason=reason,
    )


def _already(layer: Operator, weight: Tensor) -> EncodedTensor:
    """The entry of a weight that a DENSIFY or DEQUANTIZE unpacks."""
    sparse = weight.sparsity is not None
    values = densify(weight) if sparse else weight.array()
    held = (0 if weight.data is None else weight.data.size) + (packed_size(weight.sparsity) if sparse else 0)
    size = _size(layer, weight, weight.type, held, int(sparse))
    encoding = "sparse" if sparse else "dense"
    return _entry(layer, weight, values, encoding, weight.type_name, size, "already encoded", 4 * values.size)
