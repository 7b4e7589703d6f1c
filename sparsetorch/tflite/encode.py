"""Write the zeros of 1x1 convolution weights as sparse tensors, and back.

XNNPACK hears of sparsity only through a constant that a DENSIFY operator unpacks (LiteRT f674577,
tflite/delegates/xnnpack/xnnpack_delegate.cc, `PrepareOpsToDelegate`). So `encode` turns

    weight -> CONV_2D        into        weight, sparse -> DENSIFY -> weight/densified -> CONV_2D

and leaves the numbers as they are. The weight keeps its name: it is how a layer is found again.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.model import Graph, Model, Operator, Tensor
from sparsetorch.tflite.sparse import densify, encode_csr, packed_size

_CONV, _DENSIFY = schema.BuiltinOperator.CONV_2D, schema.BuiltinOperator.DENSIFY
_SUFFIX = "/densified"
_OPERATOR_BYTES = 120
"""What DENSIFY and its output tensor add to a file, about: two tables, two index vectors; the name comes on top."""


@dataclass(frozen=True)
class EncodedTensor:
    """What became of one 1x1 convolution weight."""

    name: str
    shape: tuple[int, ...]
    sparsity: float
    """Share of zeros, 0 to 1."""
    encoding: str
    """`sparse` or `dense`."""
    bytes: int
    """Bytes in the file now: values, index vectors, metadata, and the DENSIFY operator."""
    dense_bytes: int
    reason: str | None = None
    """Why it stayed as it was; None where it was encoded now."""


def encode(model: Model, should_encode: Callable[[Tensor], bool] | None = None) -> list[EncodedTensor]:
    """Sparse-encode the float32 weights of a model's 1x1 convolutions, in place.

    A weight that would grow stays dense, and so does one that something other than a convolution reads. -0.0 becomes +0.0,
    which no arithmetic with finite numbers can tell apart. Encoding twice changes nothing.

    Args:
        model: edited in place; bytes that tensors share are not touched, only replaced.
        should_encode: asked for each candidate; None encodes all.

    Returns:
        one entry for each 1x1 convolution weight, in execution order.
    """
    report: list[EncodedTensor] = []
    for graph in model.graphs:
        seen: set[Tensor] = set()
        producers = {output: operator for operator in graph.operators for output in operator.outputs}
        for operator in list(graph.operators):
            if operator.code != _CONV or len(operator.inputs) < 2 or operator.inputs[1] is None:
                continue
            weight = operator.inputs[1]
            producer = producers.get(weight)
            if producer is not None and producer.code == _DENSIFY and producer.inputs[0] is not None:
                weight = producer.inputs[0]
            if weight in seen or not _is_pointwise(weight):
                continue
            seen.add(weight)
            report.append(_encode_weight(graph, weight, should_encode))
    return report


def _is_pointwise(weight: Tensor) -> bool:
    constant = weight.data is not None and weight.type == schema.TensorType.FLOAT32
    return constant and len(weight.shape) == 4 and weight.shape[1:3] == (1, 1) and 0 not in weight.shape


def _encode_weight(graph: Graph, weight: Tensor, should_encode: Callable[[Tensor], bool] | None) -> EncodedTensor:
    dense = densify(weight) if weight.sparsity is not None else weight.array()
    values, parameters = encode_csr(np.where(dense == 0, np.float32(0), dense))
    name_bytes = len(weight.name.encode("utf-8", "surrogateescape")) + len(_SUFFIX)
    size = values.nbytes + packed_size(parameters) + _OPERATOR_BYTES + name_bytes
    sparsity = float(np.mean(dense == 0))

    def stays(reason: str, encoding: str = "dense") -> EncodedTensor:
        now = size if encoding == "sparse" else dense.nbytes
        return EncodedTensor(weight.name, weight.shape, sparsity, encoding, now, dense.nbytes, reason)

    if weight.sparsity is not None:
        return stays("already encoded", "sparse")
    if should_encode is not None and not should_encode(weight):
        return stays("not selected")
    if any(output is weight for output in graph.outputs) or not all(
        operator.code == _CONV and operator.inputs[1] is weight and operator.inputs.count(weight) == 1
        for operator in graph.consumers(weight)
    ):
        return stays("also read by something other than a convolution")
    if size >= dense.nbytes:
        return stays(f"would grow from {dense.nbytes} to {size} bytes")
    weight.data = np.frombuffer(values.tobytes(), np.uint8)
    weight.sparsity = parameters
    densified = Tensor(weight.name + _SUFFIX, weight.shape, weight.type)
    position = graph.operators.index(graph.consumers(weight)[0])
    graph.replace_input(weight, densified)
    graph.tensors.append(densified)
    graph.operators.insert(
        position,
        Operator(
            _DENSIFY, [weight], [densified], schema.DensifyOptionsT(), schema.BuiltinOptions.DensifyOptions, version=1
        ),
    )
    return EncodedTensor(weight.name, weight.shape, sparsity, "sparse", size, dense.nbytes)


def densify_model(model: Model) -> Model:
    """The dense twin: the same numbers, every sparse tensor dense, no DENSIFY. `model` stays as it is.

    Raises:
        BadInputError: damaged sparsity metadata.
    """
    twin = model.copy()
    for graph in twin.graphs:
        for operator in [operator for operator in graph.operators if operator.code == _DENSIFY]:
            weight, output = operator.inputs[0], operator.outputs[0]
            if weight is None or weight.data is None:
                continue
            if weight.sparsity is not None:
                weight.data = np.frombuffer(np.ascontiguousarray(densify(weight)).tobytes(), np.uint8)
                weight.sparsity = None
            graph.replace_input(output, weight)
            graph.outputs = [weight if value is output else value for value in graph.outputs]
            graph.operators.remove(operator)
            graph.tensors = [tensor for tensor in graph.tensors if tensor is not output]
            for signature in twin.signatures:
                signature.outputs = [(name, weight if value is output else value) for name, value in signature.outputs]
    return twin
