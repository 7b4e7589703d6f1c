"""Bounds checks for the flatbuffer before anything is unpacked.

The generated Python accessors trust the file: a vector length of 4 billion makes them loop, and a table that lies in a
run of zeros looks like a valid empty one. So every vector of tables that a model can have is checked first, all
elements at once: inside the file, each table with a plausible vtable, no table listed twice. That makes the later
unpacking linear in the size of the file, whatever the file says.

Rules: https://flatbuffers.dev/internals (a table starts with a signed offset to its vtable; a vtable starts with its own
size and the table's, both as uint16).
"""

from collections.abc import Iterator

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from flatbuffers.table import Table

_MODEL_VECTORS = (6, 8, 12, 16, 18, 20, 22)
"""vtable slots of Model's table vectors: operator_codes, subgraphs, buffers, metadata, signature_defs, external ones."""
_TENSORS, _OPERATORS = 4, 10
_SIGNATURE_VECTORS = (4, 6)
_SPARSITY, _VARIANTS = 16, 22
_DIMENSIONS = 8


class BoundsError(ValueError):
    """An offset of the flatbuffer points outside the file, or at something that is no table."""


def _tables(data: memoryview, table: Table, slot: int, what: str) -> Iterator[Table]:
    """The tables of the vector in `slot`, after checking all of them."""
    offset = table.Offset(slot)
    if not offset:
        return
    length, start = table.VectorLen(offset), table.Vector(offset)
    if start < 8 or start + 4 * length > len(data):
        raise BoundsError(f"the list of {what} claims {length} entries, more than the file can hold")
    at = np.arange(length, dtype=np.int64) * 4 + start
    positions = at + np.frombuffer(data, np.dtype("<u4"), length, start)
    _check_positions(data, positions, what)
    if np.unique(positions).size != length:
        raise BoundsError(f"the list of {what} names the same entry twice")
    for position in positions:
        yield Table(data, int(position))


def _check_positions(data: memoryview, positions: np.ndarray, what: str) -> None:
    size, limit = len(data), len(data) - 4
    everything = np.frombuffer(data, np.uint8)

    def read(where: np.ndarray, width: int) -> np.ndarray:
        if where.size and (where.min() < 0 or where.max() > size - width):
            raise BoundsError(f"an entry of the list of {what} lies outside the file")
        value = np.zeros(where.size, np.int64)
        for byte in range(width):
            value |= everything[where + byte].astype(np.int64) << (8 * byte)
        return value

    if positions.size and (positions.min() < 8 or positions.max() > limit):
        raise BoundsError(f"an entry of the list of {what} lies outside the file")
    relative = read(positions, 4)
    vtables = positions - np.where(relative >= 2**31, relative - 2**32, relative)
    vtable_size, table_size = read(vtables, 2), read(vtables + 2, 2)
    if ((vtable_size < 4) | (vtable_size % 2 != 0) | (table_size < 4)).any():
        raise BoundsError(f"an entry of the list of {what} is no table")
    if (vtables + vtable_size > size).any() or (positions + table_size > size).any():
        raise BoundsError(f"an entry of the list of {what} ends outside the file")


def check_bounds(data: memoryview) -> None:
    """Walk the structure of a model without unpacking it.

    Raises:
        BoundsError: with what is wrong, in words. Other exceptions of `struct` and numpy mean the same.
    """
    model = schema.Model.GetRootAs(data, 0)._tab
    _check_positions(data, np.array([model.Pos]), "models")
    lists = {slot: list(_tables(data, model, slot, "a model")) for slot in _MODEL_VECTORS}
    for graph in lists[8]:
        for tensor in _tables(data, graph, _TENSORS, "tensors"):
            sparsity = tensor.Offset(_SPARSITY)
            if sparsity:
                table = Table(data, tensor.Indirect(tensor.Pos + sparsity))
                list(_tables(data, table, _DIMENSIONS, "sparse dimensions"))
            list(_tables(data, tensor, _VARIANTS, "variant tensors"))
        list(_tables(data, graph, _OPERATORS, "operators"))
    for signature in lists[18]:
        for slot in _SIGNATURE_VECTORS:
            list(_tables(data, signature, slot, "signature arguments"))
