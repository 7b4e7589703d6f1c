"""TFLite's sparse encoding of a constant: its levels, and how to read them.

A sparse tensor is stored level by level (TACO's storage tree). Each level belongs to one dimension, in `traversal_order`:

1. a DENSE level of size d: every parent entry has d children, with coordinates 0 .. d-1;
2. a SPARSE_CSR level: parent p has the children `array_indices[array_segments[p] : array_segments[p + 1]]`;
3. a dimension d that is blocked appears twice, as d (the block's number) and, behind all dimensions, as `len(shape) + b`
   with `block_map[b] == d` (the place inside the block): coordinate = block number * block size + place.

The values lie in the order of the last level's entries. Any such tensor is read here; `layouts` writes them. Source:
LiteRT f674577, tflite/kernels/internal/utils/sparsity_format_converter.h, tflite/converter/schema/schema.fbs.
"""

from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.errors import BadInputError
from sparsetorch.tflite.model import Tensor, element_count

Array = npt.NDArray[Any]
_LARGEST_DENSE = 2**31  # bytes; a flatbuffer could not hold the dense tensor either


def dense_level(size: int) -> Any:
    """`DimensionMetadataT` of a level that holds all of its places."""
    level = schema.DimensionMetadataT()
    level.format, level.denseSize = schema.DimensionType.DENSE, size
    return level


def csr_level(segments: Array, indices: Array) -> Any:
    """`DimensionMetadataT` of a compressed level, with the smallest index types."""
    level = schema.DimensionMetadataT()
    level.format = schema.DimensionType.SPARSE_CSR
    level.arraySegments, level.arraySegmentsType = _index_vector(segments)
    level.arrayIndices, level.arrayIndicesType = _index_vector(indices)
    return level


_INDEX_TYPES: tuple[tuple[type, Any, int], ...] = (
    (np.uint8, schema.Uint8VectorT, schema.SparseIndexVector.Uint8Vector),
    (np.uint16, schema.Uint16VectorT, schema.SparseIndexVector.Uint16Vector),
    (np.int32, schema.Int32VectorT, schema.SparseIndexVector.Int32Vector),
)


def _index_type(largest: int) -> tuple[type, Any, int]:
    for choice in _INDEX_TYPES:
        if largest <= np.iinfo(choice[0]).max:
            return choice
    raise BadInputError(f"a sparse index of {largest} does not fit TFLite's 32-bit index vectors.")


def index_bytes(largest: int) -> int:
    """Bytes of one entry of the smallest index vector that holds `largest`."""
    return np.dtype(_index_type(largest)[0]).itemsize


def _index_vector(numbers: Array) -> tuple[Any, int]:
    """The smallest of the three index vectors that holds `numbers`."""
    dtype, vector_type, code = _index_type(int(numbers.max(initial=0)))
    vector = vector_type()
    vector.values = numbers.astype(dtype)
    return vector, code


def coordinates(tensor: Tensor) -> tuple[Array, ...]:
    """Where the stored values of a sparse tensor lie, one array per dimension, in the order of the values.

    Raises:
        BadInputError: metadata that contradict themselves, the shape, or the number of stored values.
    """
    shape, parameters = tensor.shape, tensor.sparsity
    rank = len(shape)
    order = [int(number) for number in _vector(parameters.traversalOrder)]
    block_map = [int(number) for number in _vector(parameters.blockMap)]
    levels = parameters.dimMetadata or []
    if sorted(order) != list(range(rank + len(block_map))) or len(levels) != len(order):
        raise _damaged(tensor, f"traversal order {order} and {len(levels)} levels do not fit {rank} dimensions")
    block_sizes = _block_sizes(tensor, order, block_map, levels)
    placed: dict[int, Array] = {}
    entries = 1
    for dimension, level in zip(order, levels, strict=True):
        is_block = dimension >= rank
        size = (
            block_sizes[block_map[dimension - rank]] if is_block else shape[dimension] // block_sizes.get(dimension, 1)
        )
        parents, coordinate = _expand(tensor, level, size, entries)
        placed = {done: value[parents] for done, value in placed.items()}
        placed[dimension] = coordinate
        entries = coordinate.size
    for number, dimension in enumerate(block_map):
        placed[dimension] = placed[dimension] * block_sizes[dimension] + placed[rank + number]
    if entries != tensor.stored().size:
        raise _damaged(tensor, f"the indices place {entries} values, and {tensor.stored().size} are stored")
    return tuple(placed[dimension] for dimension in range(rank))


def _block_sizes(
    tensor: Tensor, order: Sequence[int], block_map: Sequence[int], levels: Sequence[Any]
) -> dict[int, int]:
    rank, sizes = len(tensor.shape), dict[int, int]()
    for number, dimension in enumerate(block_map):
        level = levels[order.index(rank + number)]
        if not 0 <= dimension < rank or dimension in sizes or level.format != schema.DimensionType.DENSE:
            raise _damaged(tensor, f"the block map {list(block_map)} does not fit its {rank} dimensions")
        if level.denseSize < 1 or tensor.shape[dimension] % level.denseSize:
            raise _damaged(
                tensor, f"blocks of {level.denseSize} do not divide a dimension of {tensor.shape[dimension]}"
            )
        sizes[dimension] = level.denseSize
    return sizes


def _expand(tensor: Tensor, level: Any, size: int, parents: int) -> tuple[Array, Array]:
    """One level's entries: each entry's parent, and its coordinate."""
    if level.format == schema.DimensionType.DENSE:
        if level.denseSize != size:
            raise _damaged(tensor, f"a dense level has {level.denseSize} entries, and the shape asks for {size}")
        # Each entry of the last level is a stored byte or more, or leads to a CSR segment: no sound tensor has more
        # entries than that, and a damaged one must not make us allocate them.
        if parents * size > _budget(tensor):
            raise _damaged(tensor, f"the indices claim {parents * size} entries, more than the tensor stores")
        return np.repeat(np.arange(parents), size), np.tile(np.arange(size), parents)
    if level.format != schema.DimensionType.SPARSE_CSR or level.arraySegments is None or level.arrayIndices is None:
        raise _damaged(tensor, f"a level of format {level.format} has no segments or no indices")
    segments = np.asarray(_vector(level.arraySegments.values), np.int64)
    indices = np.asarray(_vector(level.arrayIndices.values), np.int64)
    if (
        segments.size != parents + 1
        or segments[0] != 0
        or segments[-1] != indices.size
        or (np.diff(segments) < 0).any()
    ):
        raise _damaged(tensor, f"{segments.size} segments do not split {indices.size} indices over {parents} parents")
    if indices.size and (indices.min() < 0 or indices.max() >= size):
        raise _damaged(tensor, f"an index of {indices.max()} lies outside a dimension of {size}")
    return np.repeat(np.arange(parents), np.diff(segments)), indices


def _budget(tensor: Tensor) -> int:
    """More entries than this no level can have: stored values, or segments of a sparse level."""
    lengths = [0 if tensor.data is None else tensor.data.size]
    for level in tensor.sparsity.dimMetadata or []:
        if level.arraySegments is not None:
            lengths.append(len(_vector(level.arraySegments.values)))
    return max(lengths)


def densify(tensor: Tensor) -> Array:
    """The dense values of a sparse constant, in its shape.

    Raises:
        BadInputError: damaged metadata, or a shape that no file could hold densely.
    """
    values = tensor.stored()
    places = coordinates(tensor)
    if element_count(tensor.shape) * values.itemsize > _LARGEST_DENSE:
        raise _damaged(tensor, f"the shape {list(tensor.shape)} is larger than any TFLite tensor")
    dense = np.zeros(tensor.shape, values.dtype)
    dense[places] = values
    return dense


def packed_size(parameters: Any) -> int:
    """Bytes that the sparsity metadata take in a file, index vectors included."""
    builder = flatbuffers.Builder(1024)
    builder.Finish(parameters.Pack(builder))
    return len(builder.Bytes) - int(builder.Head())


def _vector(values: Any) -> Any:
    return () if values is None or isinstance(values, int) else values


def _damaged(tensor: Tensor, what: str) -> BadInputError:
    return BadInputError(f"sparse tensor {tensor.name!r} is damaged: {what}. Convert the model again.")
