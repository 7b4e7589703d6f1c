"""Constants as numbers: reading them, and giving an operator new ones without touching what others read."""

from typing import Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.model import Graph, Operator, Tensor
from sparsetorch.tflite.passes.links import constant, is_float

Array = npt.NDArray[np.float32]
Wide = npt.NDArray[np.float64]


def floats(tensor: Tensor | None) -> Array | None:
    """The values of a dense float32 constant, or None."""
    if tensor is None or tensor.data is None or tensor.sparsity is not None or not is_float(tensor):
        return None
    return tensor.array()


def integers(tensor: Tensor | None) -> list[int] | None:
    """The values of an integer constant (axes, paddings, a shape ...), flat, or None."""
    if tensor is None or tensor.data is None or tensor.type_name not in ("int32", "int64"):
        return None
    return [int(number) for number in tensor.stored()]


def scalar(tensor: Tensor | None) -> float | None:
    """The value of a float constant with one element, or None."""
    values = floats(tensor)
    return float(values.ravel()[0]) if values is not None and values.size == 1 else None


def per_channel(tensor: Tensor | None, beside: Tensor) -> Wide | None:
    """A constant that is broadcast over all dimensions but the last of `beside`: its 1 or C values, or None."""
    values = floats(tensor)
    if values is None or values.ndim > len(beside.shape) or values.size != (values.shape[-1] if values.ndim else 1):
        return None
    if values.size not in (1, beside.shape[-1] if beside.shape else 1):
        return None
    return values.astype(np.float64).ravel()


def rounded(values: Wide) -> Array | None:
    """float32 values, or None where one of them overflows."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    return narrow if np.isfinite(narrow).all() else None


def set_constant(graph: Graph, operator: Operator, index: int, values: npt.NDArray[Any], name: str) -> None:
    """Give an operator another constant operand. Its name stays, for it is how a layer is found; `name` is for a new operand.

    A tensor that other operators read as well is left to them, and one that holds these values already is not touched.
    """
    old = operator.inputs[index] if index < len(operator.inputs) else None
    operator.inputs = [*operator.inputs, *[None] * (index + 1 - len(operator.inputs))]
    values = np.ascontiguousarray(values)
    data = np.frombuffer(values.tobytes(), np.uint8)
    if old is None or not _is_private(graph, operator, old):
        if old is not None and old.shape == values.shape and old.data is not None and np.array_equal(old.data, data):
            return
        operator.inputs[index] = constant(graph, values, name if old is None else old.name)
        return
    old.data = data
    if old.shape != values.shape:
        old.shape, old.fields = values.shape, schema.TensorT()


def _is_private(graph: Graph, operator: Operator, tensor: Tensor) -> bool:
    used = sum(other.inputs.count(tensor) for other in graph.operators)
    return used == 1 and not any(output is tensor for output in graph.outputs)


def non_unit(shape: tuple[int, ...]) -> int:
    """How many dimensions are not 1."""
    return sum(size != 1 for size in shape)
