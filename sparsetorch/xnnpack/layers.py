"""One line for each weight of a model: how sparse, how stored, how large, and which kernel it would get."""

import re
from dataclasses import dataclass

from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.model import Graph, Model, Operator, Tensor
from sparsetorch.tflite.sparse import packed_size
from sparsetorch.xnnpack.weights import count_zeros, kernel_block

_OP = schema.BuiltinOperator
_WEIGHTED = frozenset({_OP.CONV_2D, _OP.DEPTHWISE_CONV_2D, _OP.FULLY_CONNECTED})
_HALF = schema.TensorType.FLOAT16
_MODULE = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*)\.weight(?:/\d+:\d+)?")  # a range of outputs: see tflite.split


@dataclass(frozen=True)
class Layer:
    """A weight, and the space it takes."""

    tensor: str
    module: str | None
    """PyTorch's module path, where the tensor is named after one."""
    shape: tuple[int, ...]
    sparsity: float
    encoding: str
    """`sparse` or `dense`."""
    values: str
    """Type of the stored values: `float32`, `float16`, `int8`."""
    kernel_block: int | None
    """Output channels at once in XNNPACK's sparse kernel; None unless it is a 1x1 convolution."""
    bytes: int
    """Values, index vectors and metadata in the file."""
    dense_bytes: int
    """The same values without sparse encoding."""


def module_of(name: str) -> str | None:
    """`features.3.conv.weight` -> `features.3.conv`; None for a name that is no PyTorch parameter's."""
    found = _MODULE.fullmatch(name)
    return found.group(1) if found else None


def unpack_sources(graph: Graph) -> dict[Tensor, Tensor]:
    """Output of a DENSIFY or DEQUANTIZE of a constant -> the constant with the bytes."""
    sources: dict[Tensor, Tensor] = {}
    for operator in graph.operators:
        if operator.code in (_OP.DENSIFY, _OP.DEQUANTIZE) and operator.inputs and operator.outputs:
            packed = operator.inputs[0]
            if packed is not None and (packed.data is not None or packed in sources):
                sources[operator.outputs[0]] = sources.get(packed, packed)
    return sources


def weight_of(operator: Operator, sources: dict[Tensor, Tensor]) -> Tensor | None:
    """The stored weight of a convolution or a fully-connected layer, or None."""
    if operator.code not in _WEIGHTED or len(operator.inputs) < 2 or operator.inputs[1] is None:
        return None
    stored = sources.get(operator.inputs[1], operator.inputs[1])
    return stored if stored.data is not None and stored.dtype is not None else None


def is_pointwise(operator: Operator) -> bool:
    """Whether an operator is a 1x1 convolution."""
    weight = operator.inputs[1] if operator.code == _OP.CONV_2D and len(operator.inputs) > 1 else None
    return weight is not None and len(weight.shape) == 4 and weight.shape[1:3] == (1, 1)


def layers(model: Model) -> tuple[Layer, ...]:
    """The weights of all convolutions and fully-connected layers, in execution order, each once."""
    found: dict[Tensor, Layer] = {}
    for graph in model.graphs:
        sources = unpack_sources(graph)
        for operator in graph.operators:
            weight = weight_of(operator, sources)
            if weight is not None and weight not in found:
                found[weight] = _layer(weight, is_pointwise(operator), operator.inputs[1])
    return tuple(found.values())


def _layer(weight: Tensor, pointwise: bool, operand: Tensor | None) -> Layer:
    params, zeros = count_zeros(weight)
    stored = 0 if weight.data is None else weight.data.size
    return Layer(
        tensor=weight.name,
        module=module_of(weight.name),
        shape=weight.shape,
        sparsity=zeros / params if params else 0.0,
        encoding="dense" if weight.sparsity is None else "sparse",
        values=weight.type_name,
        kernel_block=kernel_block(weight, operand is not None and operand.type == _HALF) if pointwise else None,
        bytes=stored if weight.sparsity is None else stored + packed_size(weight.sparsity),
        dense_bytes=weight.dense_bytes or 0,
    )
