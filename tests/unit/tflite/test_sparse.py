"""The codec: lossless both ways, smallest index types, and no trust in metadata."""

import re

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sparsetorch.errors import BadInputError
from sparsetorch.tflite import Tensor, densify, encode_csr
from sparsetorch.tflite.layouts import encode_smallest

INDEX = schema.SparseIndexVector
KINDS = {
    np.dtype(np.float32): schema.TensorType.FLOAT32,
    np.dtype(np.float16): schema.TensorType.FLOAT16,
    np.dtype(np.int8): schema.TensorType.INT8,
}


def stored(values: np.ndarray, parameters: object, shape: tuple[int, ...]) -> Tensor:
    data = np.frombuffer(values.tobytes(), np.uint8)
    return Tensor("weight", shape, KINDS[values.dtype], data, sparsity=parameters)


def round_trip(dense: np.ndarray) -> np.ndarray:
    values, parameters = encode_csr(dense)
    return densify(stored(values, parameters, dense.shape))


def level(size: int | None = None, segments: object = None, indices: object = None) -> object:
    made = schema.DimensionMetadataT()
    if size is not None:
        made.denseSize = size
        return made
    made.format = schema.DimensionType.SPARSE_CSR
    for name, numbers in (("arraySegments", segments), ("arrayIndices", indices)):
        vector = schema.Int32VectorT()
        vector.values = np.array(numbers, np.int32)
        setattr(made, name, vector)
        setattr(made, f"{name}Type", INDEX.Int32Vector)
    return made


def parameters(order: list[int], block_map: list[int], *levels: object) -> object:
    made = schema.SparsityParametersT()
    made.traversalOrder, made.blockMap, made.dimMetadata = order, block_map, list(levels)
    return made


def test_worked_by_hand() -> None:
    """[[0 5 0] [0 0 0] [7 0 8]]: segments 0 1 1 3, columns 1 0 2."""
    values, made = encode_csr(np.array([[0, 5, 0], [0, 0, 0], [7, 0, 8]], np.float32))
    assert values.tolist() == [5, 7, 8]
    assert made.dimMetadata[0].denseSize == 3
    assert made.dimMetadata[1].arraySegments.values.tolist() == [0, 1, 1, 3]
    assert made.dimMetadata[1].arrayIndices.values.tolist() == [1, 0, 2]
    assert made.blockMap.tolist() == []
    assert made.traversalOrder.tolist() == [0, 1]


@settings(max_examples=150, deadline=None)
@given(
    arrays.arrays(
        st.sampled_from([np.float32, np.float16, np.int8]),
        arrays.array_shapes(min_dims=1, max_dims=4, max_side=6),
    )
)
def test_every_bit_survives(dense: np.ndarray) -> None:
    assert round_trip(dense).tobytes() == dense.tobytes()
    for over_first in (False, True):
        values, made = encode_csr(dense, over_first=over_first)
        assert densify(stored(values, made, dense.shape)).tobytes() == dense.tobytes()


def test_the_direction_with_the_smaller_indices_is_taken() -> None:
    """Of 4 x 300, indices over the 4 take a byte each and over the 300 two."""
    dense = np.zeros((4, 300), np.float32)
    for row in range(4):
        dense[row, row % 2 :: 2] = 1.0  # no two neighbours: blocks do not help
    assert encode_smallest(dense)[1].traversalOrder.tolist() == [1, 0]
    assert encode_smallest(dense.T.copy())[1].traversalOrder.tolist() == [0, 1]


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_sparse_arrays_survive(data: st.DataObject) -> None:
    """Drawn as bits: +0, -0, NaN, both infinities, two denormals, 1.5."""
    bits = st.sampled_from([0, 0x80000000, 0x7FC00000, 0x7F800000, 0xFF800000, 1, 0x00012345, 0x3FC00000])
    shape = data.draw(arrays.array_shapes(min_dims=1, max_dims=4, max_side=8))
    dense = data.draw(arrays.arrays(np.uint32, shape, elements=bits, fill=st.just(0))).view(np.float32)
    assert round_trip(dense).tobytes() == dense.tobytes()


def test_signalling_nan_and_minus_zero_survive() -> None:
    bits = np.array([[0x7F800001, 0x80000000, 0, 1]], np.uint32)
    assert round_trip(bits.view(np.float32)).view(np.uint32).tolist() == bits.tolist()


def test_an_array_of_zeros_keeps_a_value() -> None:
    values, _ = encode_csr(np.zeros((4, 1, 1, 8), np.float32))
    assert values.tolist() == [0]
    assert round_trip(np.zeros((4, 1, 1, 8), np.float32)).tolist() == np.zeros((4, 1, 1, 8)).tolist()


@pytest.mark.parametrize(
    ("columns", "expected"),
    [(256, INDEX.Uint8Vector), (257, INDEX.Uint16Vector), (65536, INDEX.Uint16Vector), (65537, INDEX.Int32Vector)],
)
def test_the_smallest_index_type_that_fits(columns: int, expected: int) -> None:
    dense = np.zeros((2, columns), np.float32)
    dense[1, -1] = dense[0, 0] = 3
    _, made = encode_csr(dense)
    assert made.dimMetadata[1].arrayIndicesType == expected
    assert made.dimMetadata[1].arraySegmentsType == INDEX.Uint8Vector
    assert round_trip(dense).tobytes() == dense.tobytes()


@pytest.mark.parametrize(
    ("count", "expected"), [(255, INDEX.Uint8Vector), (256, INDEX.Uint16Vector), (65536, INDEX.Int32Vector)]
)
def test_segments_have_a_type_of_their_own(count: int, expected: int) -> None:
    dense = np.zeros((count, 200), np.float32)
    dense[:, 7] = 1
    _, made = encode_csr(dense)
    assert made.dimMetadata[1].arraySegmentsType == expected
    assert made.dimMetadata[1].arrayIndicesType == INDEX.Uint8Vector


def test_any_traversal_order_is_read() -> None:
    """Columns first, each column sparse: the transposed matrix in CSR."""
    dense = np.array([[0, 1, 0], [2, 3, 0]], np.float32)
    made = parameters([1, 0], [], level(3), level(segments=[0, 1, 3, 3], indices=[1, 0, 1]))
    assert densify(stored(np.array([2, 1, 3], np.float32), made, (2, 3))).tolist() == dense.tolist()


def test_blocks_are_read() -> None:
    """A 4x4 matrix in 2x2 blocks, the two on the diagonal stored."""
    made = parameters([0, 1, 2, 3], [0, 1], level(2), level(segments=[0, 1, 2], indices=[0, 1]), level(2), level(2))
    values = np.arange(1, 9, dtype=np.float32)
    expected = [[1, 2, 0, 0], [3, 4, 0, 0], [0, 0, 5, 6], [0, 0, 7, 8]]
    assert densify(stored(values, made, (4, 4))).tolist() == expected


def test_two_sparse_levels_are_read() -> None:
    made = parameters([0, 1], [], level(segments=[0, 1], indices=[2]), level(segments=[0, 2], indices=[0, 3]))
    dense = np.zeros((3, 4), np.int8)
    dense[2, 0], dense[2, 3] = 5, 6
    assert densify(stored(np.array([5, 6], np.int8), made, (3, 4))).tolist() == dense.tolist()


GOOD = {"segments": [0, 1, 3], "indices": [1, 0, 2]}


@pytest.mark.parametrize(
    ("made", "shape"),
    [
        (parameters([0, 1], [], level(2), level(segments=[0, 1, 4], indices=[1, 0, 2])), (2, 3)),
        (parameters([0, 1], [], level(2), level(segments=[0, 3, 1], indices=[1, 0, 2])), (2, 3)),
        (parameters([0, 1], [], level(2), level(segments=[1, 1, 3], indices=[1, 0, 2])), (2, 3)),
        (parameters([0, 1], [], level(2), level(segments=[0, -2, 3], indices=[1, 0, 2])), (2, 3)),
        (parameters([0, 1], [], level(2), level(segments=[0, 3], indices=[1, 0, 2])), (2, 3)),
        (parameters([0, 1], [], level(2), level(segments=[0, 1, 3], indices=[1, 0, 3])), (2, 3)),
        (parameters([0, 1], [], level(2), level(segments=[0, 1, 3], indices=[1, -1, 2])), (2, 3)),
        (parameters([0, 1], [], level(2), level(segments=[0, 1, 2], indices=[1, 0])), (2, 3)),
        (parameters([0, 1], [], level(5), level(**GOOD)), (2, 3)),
        (parameters([0, 0], [], level(2), level(**GOOD)), (2, 3)),
        (parameters([0], [], level(2)), (2, 3)),
        (parameters([0, 1], [], level(2)), (2, 3)),
        (parameters([0, 1, 2], [5], level(2), level(**GOOD), level(1)), (2, 3)),
        (parameters([0, 1, 2], [0], level(2), level(**GOOD), level(0)), (2, 3)),
        (parameters([0, 1], [], level(2**30), level(2**30)), (2**30, 2**30)),
        (parameters([0, 1], [], level(2), level(**GOOD)), (2, 2**31 - 1)),
    ],
)
def test_metadata_that_contradict_themselves_are_refused(made: object, shape: tuple[int, ...]) -> None:
    with pytest.raises(BadInputError, match=r"sparse tensor 'weight' is damaged: .*Convert the model again"):
        densify(stored(np.array([5, 7, 8], np.float32), made, shape))


def test_what_cannot_be_encoded_is_said() -> None:
    with pytest.raises(BadInputError, match=re.escape("an array of shape [0, 3] cannot be sparse-encoded")):
        encode_csr(np.zeros((0, 3), np.float32))
