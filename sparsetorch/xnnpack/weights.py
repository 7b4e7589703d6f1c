"""Zeros of a weight, and which sparse kernel XNNPACK would pick for it, without unpacking it where that can be helped."""

from typing import Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.model import Tensor, element_count
from sparsetorch.tflite.sparse import coordinates

_FLOAT16 = schema.TensorType.FLOAT16


def _stored_mask(tensor: Tensor) -> npt.NDArray[np.bool_]:
    """Which stored values are not zero once they are numbers: an integer equal to its zero point is a zero."""
    values = tensor.stored()
    zero: Any = 0
    points = None if tensor.quantization is None else tensor.quantization.zeroPoint
    if values.dtype.kind in "iu" and points is not None and not isinstance(points, int) and len(points) == 1:
        zero = points[0]
    return np.asarray(values != zero, np.bool_)


def count_zeros(tensor: Tensor) -> tuple[int, int]:
    """Parameters and exact zeros (either sign) of a constant, dense or sparse."""
    if tensor.data is None or tensor.dtype is None:
        return element_count(tensor.shape), 0
    params = element_count(tensor.shape)
    return params, params - int(np.count_nonzero(_stored_mask(tensor)))


def kernel_block(tensor: Tensor, half_compute: bool | None = None) -> int:
    """Output channels that XNNPACK's sparse kernel handles at once for a 1x1 weight: 4, 2 or 1.

    Blocks of 4 (2) consecutive output channels at one input channel are used if at least 90 % of the places in blocks with a
    non-zero are non-zeros. float16 compute has the 1-channel kernel only; float16 weights of a float32 layer are unpacked and use
    the float32 kernels. XNNPACK 75db3c0 src/operators/convolution-nchw.c, xnn_create_convolution2d_nchw_f32_f16.

    Args:
        tensor: the stored weight.
        half_compute: whether the layer computes in float16; None takes that from the stored type.
    """
    if tensor.type == _FLOAT16 if half_compute is None else half_compute:
        return 1
    rows, columns = _nonzeros(tensor)
    outputs, inputs = tensor.shape[0], tensor.shape[-1]

    def counts(block: int) -> tuple[int, int]:
        inside = rows < outputs // block * block
        return int(inside.sum()), np.unique(rows[inside] // block * inputs + columns[inside]).size

    nonzeros4, blocks4 = counts(4)
    nonzeros2, blocks2 = counts(2)
    if nonzeros4 * 5 >= blocks4 * 18:
        return 4
    return 2 if nonzeros2 * 5 >= blocks2 * 9 else 1


def _nonzeros(tensor: Tensor) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Output and input channels of a 1x1 weight's non-zeros. Memory goes with what is stored, not with the shape."""
    mask = _stored_mask(tensor)
    if tensor.sparsity is not None:
        places = coordinates(tensor)
        return places[0][mask], places[-1][mask]
    rows, columns = np.nonzero(mask.reshape(tensor.shape[0], -1))
    return rows, columns
