"""Layouts of sparse weights: worked by hand, without loss whatever the layout, and unpacked alike by a real interpreter."""

from collections.abc import Iterator

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from graphs import KIND, Net
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tflite_run import outputs, random_inputs

from sparsetorch.errors import BadInputError
from sparsetorch.tflite import Layout, Model, Storage, Tensor, densify, encode, encode_levels, smallest_layout

TYPES = {"float32": KIND.FLOAT32, "float16": KIND.FLOAT16, "int8": KIND.INT8}


def stored(dense: np.ndarray, layout: Layout) -> Tensor:
    values, parameters = encode_levels(dense, layout)
    data = np.frombuffer(values.tobytes(), np.uint8)
    return Tensor("weight", dense.shape, TYPES[dense.dtype.name], data, sparsity=parameters)


def test_blocks_worked_by_hand() -> None:
    """4 outputs x 3 inputs in blocks of 2 outputs; the blocks at (0, 1), (1, 0) and (1, 2) hold something."""
    dense = np.array([[0, 1, 0], [0, 2, 0], [3, 0, 0], [0, 0, 4]], np.float32)
    values, made = encode_levels(dense, Layout((0, 1), (1,), {0: 2}))
    assert values.tolist() == [1, 2, 3, 0, 0, 4]
    assert made.traversalOrder.tolist() == [0, 1, 2]
    assert made.blockMap.tolist() == [0]
    assert made.dimMetadata[0].denseSize == 2
    assert made.dimMetadata[1].arraySegments.values.tolist() == [0, 1, 3]
    assert made.dimMetadata[1].arrayIndices.values.tolist() == [1, 0, 2]
    assert made.dimMetadata[2].denseSize == 2
    assert densify(stored(dense, Layout((0, 1), (1,), {0: 2}))).tolist() == dense.tolist()


def test_two_compressed_levels_worked_by_hand() -> None:
    dense = np.zeros((3, 4), np.int8)
    dense[2, 0], dense[2, 3] = 5, 6
    values, made = encode_levels(dense, Layout((0, 1), (0, 1)))
    assert values.tolist() == [5, 6]
    assert [level.arrayIndices.values.tolist() for level in made.dimMetadata] == [[2], [0, 3]]
    assert [level.arraySegments.values.tolist() for level in made.dimMetadata] == [[0, 1], [0, 2]]


@st.composite
def arrays_and_layouts(draw: st.DrawFn) -> tuple[np.ndarray, Layout]:
    rank = draw(st.integers(1, 4))
    blocks = {dimension: draw(st.sampled_from([1, 2, 4])) for dimension in range(rank) if draw(st.booleans())}
    shape = tuple(draw(st.integers(1, 3)) * blocks.get(dimension, 1) for dimension in range(rank))
    dtype = draw(st.sampled_from([np.float32, np.float16, np.int8]))
    dense = draw(arrays.arrays(dtype, shape, fill=st.just(dtype(0))))
    order = tuple(draw(st.permutations(range(rank))))
    return dense, Layout(order, tuple(d for d in range(rank) if draw(st.booleans())), blocks)


@settings(max_examples=200, deadline=None)
@given(arrays_and_layouts())
def test_every_bit_survives_in_every_layout(case: tuple[np.ndarray, Layout]) -> None:
    """-0.0 inside a block with another value survives as well; NaN keeps its bits."""
    dense, layout = case
    assert densify(stored(dense, layout)).tobytes() == dense.tobytes()


def layouts(shape: tuple[int, ...]) -> Iterator[Layout]:
    rank = len(shape)
    for compressed in (0, rank - 1):
        plain = Layout.csr(rank, compressed)
        yield plain
        for dimension in (0, rank - 1):
            for block in (2, 4):
                yield Layout(plain.order, plain.compressed, {dimension: block})
    yield Layout(tuple(reversed(range(rank))), (0,), {0: 2, rank - 1: 4})


@pytest.mark.parametrize("fully_connected", [False, True])
@pytest.mark.parametrize("values", ["float32", "float16", "int8"])
def test_an_interpreter_unpacks_every_layout_alike(values: str, fully_connected: bool) -> None:
    """DENSIFY of the LiteRT interpreter and the XNNPACK delegate, against the plain CSR of TensorFlow's converter."""
    given_outputs = []
    for layout in layouts((64, 32) if fully_connected else (64, 1, 1, 32)):
        net = Net(0.8)
        x = net.input(4, 32)
        net.output(net.dense(net.mean(x), 64) if fully_connected else net.pointwise(x, 64))
        weight = net.graph.operators[-1].inputs[1]
        if fully_connected:
            sparse = weight.array().copy()
            sparse[np.abs(sparse) < 0.3] = 0
            weight.data = np.frombuffer(sparse.tobytes(), np.uint8)
        model = net.model()
        entries = encode(model, storage=Storage(values))
        assert [entry.encoding for entry in entries] == ["sparse"]
        again, weight.sparsity = encode_levels(densify(weight), layout)
        weight.data = np.frombuffer(again.tobytes(), np.uint8)
        given_outputs.append(outputs(model, *random_inputs(model))[0])
    assert len(given_outputs) == 11
    assert np.abs(given_outputs[0]).max() > 0.1
    assert all(np.array_equal(given_outputs[0], other) for other in given_outputs)


def test_the_smallest_layout_is_found() -> None:
    random = np.random.default_rng(0)
    unstructured = np.where(random.random((64, 1, 1, 512)) < 0.1, 1, 0).astype(np.int8)
    assert smallest_layout(unstructured) == Layout.csr(4, 0)  # 64 outputs: an index of one byte
    blocks = np.repeat(random.random((32, 1, 1, 200)) < 0.1, 4, axis=0).astype(np.float32)
    assert smallest_layout(blocks) == Layout((0, 1, 2, 3), (3,), {0: 4})
    assert smallest_layout(np.zeros((8, 8), np.float32)) == Layout.csr(2)


def test_blocks_of_four_outputs_take_a_quarter_of_the_indices() -> None:
    """A network pruned with the pattern Block(4) gets smaller by the codec alone."""
    sizes = []
    for block in (1, 4):
        net = Net()
        weight = net.weights((128, 1, 1, 128), 0)
        keep = np.random.default_rng(0).random((128 // block, 1, 1, 128)) < 0.15
        weight.data = np.frombuffer((weight.array() * np.repeat(keep, block, axis=0)).tobytes(), np.uint8)
        net.output(net.conv(net.input(4, 128), 128, 1, weight=weight))
        model: Model = net.model()
        (entry,) = encode(model, storage=Storage("int8"))
        sizes.append(entry.bytes)
        assert list(weight.sparsity.blockMap) == ([0] if block == 4 else [])
    assert sizes[1] < 0.8 * sizes[0]


def test_what_does_not_fit_is_said() -> None:
    dense = np.zeros((3, 4), np.float32)
    with pytest.raises(BadInputError, match=r"does not fit an array of shape \[3, 4\]: name each dimension once"):
        encode_levels(dense, Layout((0, 0), (1,)))
    with pytest.raises(BadInputError, match=r"blocks of 2 do not divide dimension 0 of \[3, 4\]"):
        encode_levels(dense, Layout((0, 1), (1,), {0: 2}))


def test_a_block_dimension_is_written_as_the_runtime_reads_it() -> None:
    """LiteRT's reader wants block dimensions last, in order, dense, and the block map ascending."""
    _, made = encode_levels(np.eye(8, dtype=np.float32), Layout((1, 0), (0,), {1: 4, 0: 2}))
    assert made.traversalOrder.tolist() == [1, 0, 2, 3]
    assert made.blockMap.tolist() == [0, 1]
    assert [level.format for level in made.dimMetadata[2:]] == [schema.DimensionType.DENSE] * 2
    assert [level.denseSize for level in made.dimMetadata[2:]] == [2, 4]
