"""Files of TensorFlow's own converter: the verdict on each, and that its sparse encoding is read bit for bit.

The networks are in `tests/tensorflow_graphs.py`: the rows of a table that spikes on real runtimes gave.
"""

from pathlib import Path

import numpy as np
import pytest
from tensorflow_files import EXPECTED

from sparsetorch.tflite import decode, densify, densify_model, encode, encode_csr, from_bytes, load, to_bytes
from sparsetorch.xnnpack import verify


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_the_verdict(tensorflow_files: Path, name: str) -> None:
    verdict = verify(tensorflow_files / f"{name}.tflite", ["arm64", "wasm"])
    found = "unsafe" if verdict.unsafe else "taken" if verdict.eligible else "not taken"
    assert (found, verdict.expected_spmm) == EXPECTED[name]
    assert bool(verdict.reasons) == (found != "taken")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_its_sparse_tensors_are_read_bit_for_bit(tensorflow_files: Path, name: str) -> None:
    model = load(tensorflow_files / f"{name}.tflite")
    sparse = [tensor for tensor in model.tensors if tensor.sparsity is not None]
    assert len(sparse) >= 9
    for tensor in sparse:
        dense = densify(tensor)
        assert 0.5 < np.mean(dense == 0) < 0.95
        if name != "int8":  # an int8 zero may have been -0.0 or a small number: it has one spelling only
            values, _ = encode_csr(dense)
            assert values.tobytes() == tensor.stored()[tensor.stored() != 0].tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EXPECTED if name != "int8"])
def test_decoded_and_encoded_again_every_value_is_the_same(tensorflow_files: Path, name: str) -> None:
    """Their CSR over the last dimension and ours over the shorter one, or in blocks, hold the same bits."""
    model = load(tensorflow_files / f"{name}.tflite")
    theirs = {tensor.name: densify(tensor) for tensor in model.tensors if tensor.sparsity is not None}
    plain = decode(model)
    assert all(tensor.sparsity is None for tensor in plain.tensors)
    encode(plain)
    ours = {tensor.name: tensor for tensor in from_bytes(to_bytes(plain)).tensors if tensor.name in theirs}
    assert ours.keys() == theirs.keys()
    for weight, tensor in ours.items():
        # -0.0 is written as +0.0, which a graph cannot tell apart.
        dense = densify(tensor) if tensor.sparsity is not None else tensor.array()
        same = theirs[weight].astype(dense.dtype)  # float16 becomes float32 again, which changes no value
        assert np.array_equal(dense, same), weight
        assert dense[dense != 0].tobytes() == same[dense != 0].tobytes()


@pytest.mark.slow
def test_the_own_encoding_of_the_dense_twin_is_tensorflows(tensorflow_files: Path) -> None:
    model = load(tensorflow_files / "ok.tflite")
    theirs = {tensor.name: densify(tensor) for tensor in model.tensors if tensor.sparsity is not None}
    twin = densify_model(model)
    encode(twin)
    ours = {
        tensor.name: densify(tensor) for tensor in from_bytes(to_bytes(twin)).tensors if tensor.sparsity is not None
    }
    assert ours.keys() == theirs.keys()
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)
    assert verify(twin).expected_spmm == 9
