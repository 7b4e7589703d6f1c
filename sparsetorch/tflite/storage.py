"""How a weight's values are stored: float32, float16, or int8 with a scale per output channel.

Computation stays in float32: a DEQUANTIZE of the constant gives it back before anything reads it, and XNNPACK unpacks it once,
when the file is loaded. So float16 and int8 here are about size, and keep the sparse path, which integer computation never has.

int8 is symmetric: w = scale_o * q, q in -127 .. 127, zero point 0, scale_o = max |w_o| / 127 (TFLite quantization
specification: weights per axis, in [-127, 127]). Rounding comes first, so what it makes zero is a zero that is left out.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.errors import BadInputError
from sparsetorch.tflite.model import Tensor

Array = npt.NDArray[Any]

VALUES: tuple[str, ...] = ("float32", "float16", "int8")
"""What values can be stored as."""
_LARGEST_INT8 = 127


@dataclass(frozen=True)
class Storage:
    """Which values are stored as what."""

    values: str = "float32"
    """Of the weights that are sparse-encoded: one of `VALUES`."""
    dense_values: str | None = None
    """Of the weights that stay dense; None: the same. Biases are float32, beside float16 weights float16."""
    clusters: int | None = None
    """Most distinct non-zero values of a weight (see `cluster`), for a smaller compressed file; None: as many as there are."""
    split: bool = False
    """Large fully-connected layers in parts whose indices fit into a byte (see `split_fully_connected`)."""

    def __post_init__(self) -> None:
        if self.clusters is not None and (isinstance(self.clusters, bool) or self.clusters < 2):
            raise BadInputError(f"clusters: found {self.clusters!r}, needed at least 2")
        for key in ("values", "dense_values"):
            if getattr(self, key) not in (*VALUES, *([None] if key == "dense_values" else [])):
                raise BadInputError(f"{key}: found {getattr(self, key)!r}, needed one of {', '.join(VALUES)}")

    @property
    def dense(self) -> str:
        """Of the weights that stay dense."""
        return self.values if self.dense_values is None else self.dense_values

    @property
    def rounds(self) -> bool:
        """Whether weights do not stay what they are."""
        return self.clusters is not None or (self.values, self.dense) != ("float32", "float32")


def main_values(tensors: Iterable[Tensor]) -> str:
    """What most bytes of constants are stored as: `float32`, `int8`, ...; `float32` where there are none."""
    held: dict[str, int] = {}
    for tensor in tensors:
        if tensor.data is not None:
            held[tensor.type_name] = held.get(tensor.type_name, 0) + tensor.data.size
    return max(held, key=lambda name: held[name], default="float32")


@dataclass(frozen=True)
class Stored:
    """Values as they go into a file."""

    values: Array
    type: int
    """The schema's tensor type."""
    quantization: Any = None
    """`QuantizationParametersT` of int8, else None."""


def store(weight: Array, values: str, axis: int = 0) -> Stored:
    """Round a float32 weight to what is stored.

    Args:
        weight: finite, any shape with at least one dimension.
        values: one of `VALUES`.
        axis: the output channels: 0 for CONV_2D and FULLY_CONNECTED, 3 for DEPTHWISE_CONV_2D.

    Raises:
        BadInputError: a weight too large for float16, or not finite.
    """
    if values == "float32":
        return Stored(weight, schema.TensorType.FLOAT32)
    if not np.isfinite(weight).all():
        raise BadInputError(f"a weight that is not finite cannot be stored as {values}; find out where it comes from")
    if values == "float16":
        with np.errstate(over="ignore"):
            half = weight.astype(np.float16)
        if not np.isfinite(half).all():
            raise BadInputError(
                f"a weight of {np.abs(weight).max():g} is too large for float16 (65504); store it as float32 or int8"
            )
        return Stored(half, schema.TensorType.FLOAT16)
    others = tuple(index for index in range(weight.ndim) if index != axis)
    largest = np.abs(weight).max(axis=others, initial=0.0)
    scale = np.where(largest > 0, largest / _LARGEST_INT8, 1.0).astype(np.float32)
    along = scale.reshape([-1 if index == axis else 1 for index in range(weight.ndim)])
    rounded = np.clip(np.rint(weight / along), -_LARGEST_INT8, _LARGEST_INT8).astype(np.int8)
    quantization = schema.QuantizationParametersT()
    quantization.scale = scale
    quantization.zeroPoint = np.zeros(len(scale), np.int64)
    quantization.quantizedDimension = axis
    return Stored(rounded, schema.TensorType.INT8, quantization)


def restore(values: Array, tensor: Tensor) -> Array:
    """The float32 numbers that DEQUANTIZE makes of dense `values` stored as `tensor` says.

    Raises:
        BadInputError: a type, or quantization parameters, that DEQUANTIZE does not know.
    """
    if tensor.type in (schema.TensorType.FLOAT32, schema.TensorType.FLOAT16):
        return values.astype(np.float32)
    parameters = tensor.quantization
    scale = _numbers(None if parameters is None else parameters.scale)
    if tensor.type not in (schema.TensorType.INT8, schema.TensorType.UINT8) or not scale.size:
        raise BadInputError(f"tensor {tensor.name!r}: {tensor.type_name} values without a scale cannot be dequantized")
    zero = _numbers(parameters.zeroPoint)
    zero = np.zeros(scale.size) if not zero.size else zero if zero.size == scale.size else np.full(scale.size, zero[0])
    if scale.size > 1:
        axis = int(parameters.quantizedDimension)
        if not 0 <= axis < values.ndim or values.shape[axis] != scale.size:
            raise BadInputError(
                f"tensor {tensor.name!r} is damaged: {scale.size} scales along axis {axis} of {list(values.shape)}"
            )
        form = [-1 if index == axis else 1 for index in range(values.ndim)]
        scale, zero = scale.reshape(form), zero.reshape(form)
    # In float32 throughout, as TFLite's kernel computes it.
    with np.errstate(over="ignore", invalid="ignore"):  # the scales of a damaged file
        return (scale.astype(np.float32) * (values.astype(np.int32) - zero.astype(np.int32))).astype(np.float32)


def _numbers(values: Any) -> Array:
    return np.zeros(0) if values is None or isinstance(values, int) else np.asarray(values)
