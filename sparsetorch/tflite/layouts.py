"""The ways in which a weight can be stored sparsely, and the smallest of them.

Unstructured zeros cost one index for each stored value, so what matters is the index: one byte if the dimension that
is compressed has at most 256 places, else two. A 1x1 weight [O,1,1,I] is therefore compressed over its inputs or over
its outputs, whichever is shorter: TFLite reads either, by `traversal_order`. Zeros in blocks, as
`sparsify.pattern.Block` prunes them, need one index a block. The numbers come out the same, and DENSIFY unpacks all
of them once, when the model is loaded.

TFLite's reader takes block dimensions only behind all others, in their own order, and dense; and it takes `block_map`
ascending. LiteRT f674577, tflite/kernels/internal/utils/sparsity_format_converter.cc `InitSparseToDenseConverter`,
tflite/core/tools/verifier.cc.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from sparsetorch.errors import BadInputError
from sparsetorch.tflite.sparse import csr_level, dense_level, index_bytes

Array = npt.NDArray[Any]
_BLOCKS = (2, 4)
_LEVEL_BYTES = 40
"""Metadata of one more level, about."""


@dataclass(frozen=True)
class Layout:
    """How the levels of a sparse tensor follow each other."""

    order: tuple[int, ...]
    """The dimensions, outermost first."""
    compressed: tuple[int, ...]
    """The dimensions that are stored as CSR; the others are dense."""
    blocks: dict[int, int] = field(default_factory=dict)
    """Dimension -> places in a block of it. Every block with a value that is not zero is stored whole."""

    @classmethod
    def csr(cls, rank: int, dimension: int = -1) -> "Layout":
        """Compress one dimension, the last by default: what TensorFlow's converter writes."""
        chosen = dimension % rank
        return cls((*(number for number in range(rank) if number != chosen), chosen), (chosen,))


def encode_levels(dense: Array, layout: Layout) -> tuple[Array, Any]:
    """Encode an array without loss.

    Everything whose bits are not those of +0 is stored, so that -0.0 and NaN survive. An array of zeros keeps one explicit
    zero: an empty buffer would make the tensor look like a computed one.

    Args:
        dense: at least one dimension, at least one element.
        layout: of as many dimensions.

    Returns:
        the stored values, one-dimensional, and the `SparsityParametersT` that places them.

    Raises:
        BadInputError: an array that has no element, or a layout that does not fit it.
    """
    rank = dense.ndim
    if rank == 0 or dense.size == 0:
        raise BadInputError(f"an array of shape {list(dense.shape)} cannot be sparse-encoded: it needs an element.")
    if sorted(layout.order) != list(range(rank)) or not {*layout.compressed, *layout.blocks} <= set(layout.order):
        raise BadInputError(f"{layout} does not fit an array of shape {list(dense.shape)}: name each dimension once.")
    for dimension, block in layout.blocks.items():
        if block < 1 or dense.shape[dimension] % block:
            raise BadInputError(f"blocks of {block} do not divide dimension {dimension} of {list(dense.shape)}.")
    blocked = sorted(layout.blocks)
    cells = _cells(dense, layout, blocked)
    kept = (cells.view(f"u{cells.itemsize}") != 0).any(axis=-1)
    if not kept.any():
        kept.reshape(-1)[0] = True
    levels, entries = [], np.zeros(1, np.int64)
    for number, dimension in enumerate(layout.order):
        size = kept.shape[number]
        if dimension in layout.compressed:
            alive = kept.any(axis=tuple(range(number + 1, rank))).reshape(-1, size)[entries]
            rows, columns = np.nonzero(alive)
            levels.append(csr_level(np.concatenate([[0], np.cumsum(alive.sum(axis=1))]), columns))
            entries = entries[rows] * size + columns
        else:
            levels.append(dense_level(size))
            entries = (entries[:, None] * size + np.arange(size)).reshape(-1)
    parameters = schema.SparsityParametersT()
    parameters.traversalOrder = np.array([*layout.order, *range(rank, rank + len(blocked))], np.int32)
    parameters.blockMap = np.array(blocked, np.int32)  # empty, not absent: interpreters crash on an absent one
    parameters.dimMetadata = levels + [dense_level(layout.blocks[dimension]) for dimension in blocked]
    return cells.reshape(-1, cells.shape[-1])[entries].reshape(-1), parameters


def encode_csr(dense: Array, over_first: bool = False) -> tuple[Array, Any]:
    """`encode_levels` over the last dimension, as TensorFlow's converter does it, or over the first."""
    return encode_levels(dense, Layout.csr(max(dense.ndim, 1), 0 if over_first else -1))


def encode_smallest(dense: Array) -> tuple[Array, Any]:
    """`encode_levels` in the smallest layout."""
    return encode_levels(dense, smallest_layout(dense))


def _cells(dense: Array, layout: Layout, blocked: list[int]) -> Array:
    """The array in the order of its levels, the places of one block together in the last axis."""
    split: list[int] = []
    axis: dict[int, int] = {}
    inner: dict[int, int] = {}
    for dimension, size in enumerate(dense.shape):
        block = layout.blocks.get(dimension, 1)
        axis[dimension] = len(split)
        split.append(size // block)
        if dimension in layout.blocks:
            inner[dimension] = len(split)
            split.append(block)
    axes = [*(axis[dimension] for dimension in layout.order), *(inner[dimension] for dimension in blocked)]
    ordered = np.ascontiguousarray(dense.reshape(split).transpose(axes))
    return ordered.reshape(*ordered.shape[: dense.ndim], -1)


def smallest_layout(values: Array) -> Layout:
    """The layout that takes the fewest bytes; TensorFlow's own, CSR over the last dimension, where none is better.

    Tried are CSR over the first and over the last dimension, plain and with blocks of 2 and 4 of either.
    """
    nonzero = values.view(f"u{values.itemsize}") != 0
    plain = Layout.csr(values.ndim)
    best, least = plain, _size(values, plain, int(np.count_nonzero(nonzero)))
    for layout, stored in _candidates(nonzero):
        size = _size(values, layout, stored)
        if size < least:
            best, least = layout, size
    return best


def _candidates(nonzero: Array) -> Iterator[tuple[Layout, int]]:
    """Layouts, each with the number of blocks that it stores."""
    rank = nonzero.ndim
    ends = [number for number in dict.fromkeys((rank - 1, 0)) if nonzero.shape[number] > 1]
    count = int(np.count_nonzero(nonzero))
    for compressed in ends:
        yield Layout.csr(rank, compressed), count
    for dimension in ends:
        for block in _BLOCKS:
            if nonzero.shape[dimension] % block:
                continue
            table = nonzero.reshape(*nonzero.shape[:dimension], -1, block, *nonzero.shape[dimension + 1 :])
            stored = int(np.count_nonzero(table.any(axis=dimension + 1)))
            for compressed in ends:
                base = Layout.csr(rank, compressed)
                yield Layout(base.order, base.compressed, {dimension: block}), stored


def _size(values: Array, layout: Layout, stored: int) -> int:
    """Bytes of values, indices and segments, about: indices are taken to reach the end of their dimension."""
    (compressed,) = layout.compressed
    sizes = [size // layout.blocks.get(number, 1) for number, size in enumerate(values.shape)]
    parents = prod(sizes) // sizes[compressed]
    block = prod(layout.blocks.values())
    entries = stored * (block * values.itemsize + index_bytes(sizes[compressed] - 1))
    return entries + (parents + 1) * index_bytes(stored) + _LEVEL_BYTES * len(layout.blocks)
