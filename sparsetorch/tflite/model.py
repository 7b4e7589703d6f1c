"""A TFLite model as linked Python objects: operators hold tensors, tensors hold bytes, and no index is left to keep in step.

The flatbuffer refers to tensors, buffers and operator codes by position. Every edit of such a file is a hunt for
positions that moved; here an edit replaces an object, and `sparsetorch.tflite.write` counts positions once, at the end.
Fields that this package never looks at (shape signatures, variable flags, custom options ...) stay in the schema object
they came in, `fields`, and are written back untouched.

Format: LiteRT f674577, tflite/converter/schema/schema.fbs, through the generated `ai_edge_litert.schema_py_generated`.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.errors import BadInputError

Bytes = npt.NDArray[np.uint8]

TYPE_NAMES: dict[int, str] = {
    value: name.lower() for name, value in vars(schema.TensorType).items() if not name.startswith("_")
}
"""Schema tensor type -> the name people use, such as `float32`."""

OPERATOR_NAMES: dict[int, str] = {
    value: name for name, value in vars(schema.BuiltinOperator).items() if not name.startswith("_")
}
"""Schema operator code -> its name, such as `CONV_2D`."""

_DTYPES: dict[int, type] = {
    schema.TensorType.FLOAT32: np.float32,
    schema.TensorType.FLOAT16: np.float16,
    schema.TensorType.INT32: np.int32,
    schema.TensorType.UINT8: np.uint8,
    schema.TensorType.INT64: np.int64,
    schema.TensorType.BOOL: np.bool_,
    schema.TensorType.INT16: np.int16,
    schema.TensorType.COMPLEX64: np.complex64,
    schema.TensorType.INT8: np.int8,
    schema.TensorType.FLOAT64: np.float64,
    schema.TensorType.COMPLEX128: np.complex128,
    schema.TensorType.UINT64: np.uint64,
    schema.TensorType.UINT32: np.uint32,
    schema.TensorType.UINT16: np.uint16,
    schema.TensorType.BFLOAT16: np.uint16,  # numpy has no bfloat16: its bits
}
_PER_BYTE = {schema.TensorType.INT4: 2, schema.TensorType.INT2: 4}


def element_count(shape: tuple[int, ...]) -> int:
    """Number of elements of a shape, in Python's unbounded integers (a damaged file must not overflow)."""
    count = 1
    for size in shape:
        count *= size
    return count


@dataclass(eq=False, slots=True)
class Tensor:
    """One tensor: constant when `data` is there, otherwise computed, or fed from outside."""

    name: str
    shape: tuple[int, ...]
    type: int = schema.TensorType.FLOAT32
    data: Bytes | None = None
    """The stored bytes, a read-only view of the file where it came from one. Replace it, never write into it: tensors
    that share a buffer share this object."""
    quantization: Any = None
    sparsity: Any = None
    """`SparsityParametersT` of a sparse-encoded constant, else None."""
    fields: Any = field(default_factory=schema.TensorT)

    @property
    def type_name(self) -> str:
        """`float32`, `int8`, ..."""
        return TYPE_NAMES.get(self.type, f"type {self.type}")

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The numpy type of one element, or None for strings, resources and packed 2- and 4-bit integers."""
        found = _DTYPES.get(self.type)
        return None if found is None else np.dtype(found)

    @property
    def dense_bytes(self) -> int | None:
        """Bytes that the tensor takes when every element is stored; None for a type without a fixed size."""
        count = element_count(self.shape)
        if self.type in _PER_BYTE:
            return -(-count // _PER_BYTE[self.type])
        return None if self.dtype is None else count * self.dtype.itemsize

    def stored(self) -> npt.NDArray[Any]:
        """The stored elements, one-dimensional: all of a dense constant, or the kept ones of a sparse constant.

        Raises:
            BadInputError: no constant, a type without a numpy equal, or a byte count that no whole element fits.
        """
        if self.data is None or self.dtype is None:
            raise BadInputError(f"tensor {self.name!r} is no numeric constant: it holds no {self.type_name} values.")
        if self.data.size % self.dtype.itemsize:
            raise BadInputError(
                f"tensor {self.name!r} holds {self.data.size} bytes; {self.type_name} needs a multiple of "
                f"{self.dtype.itemsize}. The file is damaged: convert it again."
            )
        return np.frombuffer(self.data, dtype=self.dtype)

    def array(self) -> npt.NDArray[Any]:
        """The values of a dense constant in its shape.

        Raises:
            BadInputError: not a dense numeric constant of the size its shape asks for.
        """
        values = self.stored()
        if self.sparsity is not None or values.size != element_count(self.shape):
            raise BadInputError(f"tensor {self.name!r} is not a dense constant of shape {list(self.shape)}.")
        return values.reshape(self.shape)


@dataclass(eq=False, slots=True)
class Operator:
    """One node of a graph. `None` among the inputs is an optional operand that is left out."""

    code: int
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    options: Any = None
    options_type: int = 0
    version: int = 1
    custom_code: str | None = None
    intermediates: list[Tensor] = field(default_factory=list)
    fields: Any = field(default_factory=schema.OperatorT)

    @property
    def name(self) -> str:
        """`CONV_2D`; for a custom operator its own name."""
        if self.code == schema.BuiltinOperator.CUSTOM:
            return self.custom_code or "CUSTOM"
        return OPERATOR_NAMES.get(self.code, f"operator {self.code}")


@dataclass(eq=False, slots=True)
class Graph:
    """A subgraph. `tensors` keeps the file's order; tensors that operators bring along are appended when written."""

    tensors: list[Tensor]
    inputs: list[Tensor]
    outputs: list[Tensor]
    operators: list[Operator]
    name: str | None = None
    fields: Any = field(default_factory=schema.SubGraphT)

    def consumers(self, tensor: Tensor) -> list[Operator]:
        """The operators that read `tensor`, in execution order."""
        return [operator for operator in self.operators if any(value is tensor for value in operator.inputs)]

    def replace_input(self, old: Tensor, new: Tensor) -> None:
        """Let every operator that reads `old` read `new`."""
        for operator in self.operators:
            operator.inputs = [new if value is old else value for value in operator.inputs]


@dataclass(eq=False, slots=True)
class Signature:
    """A named entry point: argument names of one graph's tensors."""

    key: str | None
    graph: Graph
    inputs: list[tuple[str | None, Tensor]]
    outputs: list[tuple[str | None, Tensor]]


@dataclass(eq=False, slots=True)
class Model:
    """A whole file. The first graph is the main one."""

    graphs: list[Graph]
    signatures: list[Signature] = field(default_factory=list)
    metadata: list[tuple[str | None, Bytes | None]] = field(default_factory=list)
    metadata_buffers: list[Bytes | None] = field(default_factory=list)
    """The deprecated unnamed metadata of old files."""
    description: str | None = None
    version: int = 3
    fields: Any = field(default_factory=schema.ModelT)

    @property
    def tensors(self) -> Iterator[Tensor]:
        """Every listed tensor of every graph."""
        return (tensor for graph in self.graphs for tensor in graph.tensors)

    def copy(self) -> "Model":
        """A model whose graphs can be edited without changing this one. The bytes are not copied."""
        memo: dict[int, Any] = {}
        for graph in self.graphs:
            for tensor in [*graph.tensors, *(value for operator in graph.operators for value in operator.outputs)]:
                for constant in (tensor.data, tensor.quantization, tensor.sparsity, tensor.fields):
                    memo[id(constant)] = constant
            for operator in graph.operators:
                for kept in (operator.options, operator.fields, *(value.data for value in operator.inputs if value)):
                    memo[id(kept)] = kept
        for data in [*(data for _, data in self.metadata), *self.metadata_buffers]:
            memo[id(data)] = data
        memo[id(self.fields)] = self.fields
        return copy.deepcopy(self, memo)
