"""Outputs in the file's order and as real numbers, whatever a runtime calls them."""

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from graphs import KIND, OP, Net

from sparsetorch.errors import BadInputError
from sparsetorch.exporter.interpreter import random_inputs
from sparsetorch.runtime.model_io import Output, outputs_of, read_outputs, relative_error
from sparsetorch.tflite import Model, Tensor


def two_outputs() -> Model:
    net = Net()
    x = net.input(2, 3)
    net.output(net.unary(OP.ABS, x), net.unary(OP.NEG, x))
    return net.model()


def written(folder: Path, name: str, values: np.ndarray) -> Output:
    file = folder / f"{name}.bin"
    values.tofile(file)
    return Output(name, values.dtype.name, file)


def test_by_name_where_names_are_the_files(tmp_path: Path) -> None:
    slots = outputs_of(two_outputs())
    first, second = np.arange(12, dtype=np.float32), -np.arange(12, dtype=np.float32)
    one, two = (
        written(tmp_path, slot.tensor.name, values) for slot, values in zip(slots, (first, second), strict=True)
    )
    found = read_outputs(slots, [two, one])
    assert found is not None
    np.testing.assert_array_equal(found, [first, second])


def test_by_position_otherwise(tmp_path: Path) -> None:
    found = read_outputs(
        outputs_of(two_outputs()), [written(tmp_path, name, np.full(12, i, np.float32)) for i, name in enumerate("ab")]
    )
    assert found is not None
    assert [values[0] for values in found] == [0, 1]


def test_other_sizes_match_nothing(tmp_path: Path) -> None:
    slots = outputs_of(two_outputs())
    twelve, eleven = (written(tmp_path, f"o{size}", np.zeros(size, np.float32)) for size in (12, 11))
    assert read_outputs(slots, [twelve]) is None
    assert read_outputs(slots, [twelve, eleven]) is None
    assert relative_error(None, [np.zeros(12)]) == float("inf")


def test_quantized_values_become_numbers(tmp_path: Path) -> None:
    quantization = schema.QuantizationParametersT()
    quantization.scale, quantization.zeroPoint = np.array([0.5], np.float32), np.array([-2])
    net = Net()
    made = Tensor("q", (3,), KIND.INT8, quantization=quantization)
    net.graph.tensors.append(made)
    net.output(made)
    found = read_outputs(outputs_of(net.model()), [written(tmp_path, "q", np.array([-2, 0, 4], np.int8))])
    assert found is not None
    np.testing.assert_array_equal(found[0], [0.0, 1.0, 3.0])


def test_an_output_of_nans_is_infinitely_wrong() -> None:
    assert relative_error([np.array([np.nan, 1.0])], [np.array([1.0, 1.0])]) == float("inf")


def test_integers_cover_their_range_and_unsized_inputs_are_refused() -> None:
    net = Net()
    tensor = net.tensor((1, 8, 8, 3), KIND.INT8)
    (values,) = random_inputs([tensor], 1)[0]
    assert (values.dtype, values.min() < -100, values.max() > 100) == (np.int8, True, True)
    with pytest.raises(BadInputError, match="no fixed size"):
        random_inputs([net.tensor((0, 8), KIND.FLOAT32)], 1)
