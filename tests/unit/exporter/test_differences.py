"""What counts as a difference: by hand, and that NaN never passes for right."""

from pathlib import Path

import numpy as np
import pytest
from graphs import OP, Net
from tflite_run import random_inputs

import sparsetorch
from sparsetorch.errors import WrongNumbersError
from sparsetorch.exporter.interpreter import compare_files, relative_difference
from sparsetorch.exporter.numeric_check import Reference, check_numbers
from sparsetorch.tflite import save


def test_by_hand() -> None:
    assert relative_difference(np.array([1.0, 2.5]), np.array([1.0, 2.0])) == 0.25
    assert relative_difference(np.array([0.5]), np.array([0.0])) == 0.5  # nothing to be relative to
    assert relative_difference(np.zeros(3), np.zeros(3)) == 0.0
    assert relative_difference(np.zeros((0,)), np.zeros((0,))) == 0.0
    assert relative_difference(np.zeros(2), np.zeros(3)) == np.inf


@pytest.mark.parametrize(
    ("found", "wanted"), [(np.nan, 1.0), (1.0, np.nan), (np.nan, np.nan), (np.inf, 1.0), (1.0, -np.inf)]
)
def test_what_is_not_a_number_is_infinitely_wrong(found: float, wanted: float) -> None:
    assert relative_difference(np.array([0.0, found]), np.array([0.0, wanted])) == np.inf


def test_infinite_values_equal_themselves() -> None:
    assert relative_difference(np.array([np.inf, 1.5]), np.array([np.inf, 1.0])) == 0.5


def nan_file(folder: Path) -> Path:
    """Gives NaN for every negative input: a square root."""
    net = Net()
    net.output(net.unary(OP.SQRT, net.input(2, 1)))
    save(net.model(), folder / "nan.tflite")
    return folder / "nan.tflite"


def test_a_file_that_gives_nan_differs_from_pytorch_and_from_another_file(tmp_path: Path) -> None:
    """`max(0.0, nan)` is 0.0 in Python: a comparison by running maximum lets NaN through."""
    file = nan_file(tmp_path)
    image = -np.ones((1, 1, 2, 2), np.float32)
    for wanted in (np.ones((1, 1, 2, 2), np.float32), np.zeros((1, 1, 2, 2), np.float32)):
        with pytest.raises(WrongNumbersError, match="output 0 by inf"):
            check_numbers(file, Reference((image,), ((wanted,),)))
    assert compare_files(file, file, [[image.transpose(0, 2, 3, 1)]]) == [np.inf]


def test_a_file_that_gives_nan_is_not_encoded(tmp_path: Path) -> None:
    net = Net()
    net.output(net.pointwise(net.unary(OP.SQRT, net.input(2, 8)), 64))
    model = net.model()
    save(model, tmp_path / "in.tflite")
    assert random_inputs(model)[0].min() < 0
    with pytest.raises(WrongNumbersError, match="differs from what it was by inf"):
        sparsetorch.encode(tmp_path / "in.tflite", tmp_path / "out.tflite")
    assert not (tmp_path / "out.tflite").exists()
