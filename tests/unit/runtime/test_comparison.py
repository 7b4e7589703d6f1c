"""Right, wrong, as predicted, otherwise: every case of one result held against rules and reference, and the exit code."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graphs import classifier

from sparsetorch.errors import BadInputError, UsageError
from sparsetorch.runtime.comparison import Comparison, compare
from sparsetorch.runtime.model_io import Output
from sparsetorch.runtime.observation import Observation
from sparsetorch.runtime.observe import exit_code, find_runtimes
from sparsetorch.runtime.reference import Reference
from sparsetorch.runtime.verify import verify
from sparsetorch.runtime.worker import ModelJob, ModelResult
from sparsetorch.tflite import encode, save
from sparsetorch.xnnpack.revisions import XNNPACK_2026_08

SPARSE = {
    "Convolution (NCHW, F32) Conv2D HWC2CHW": 1,
    "Convolution (NCHW, F32) DWConv": 4,
    "Convolution (NCHW, F32) SPMM": 9,
    "Fully Connected (NC, F32) GEMM": 1,
}
DENSE = {"Convolution (NHWC, F32) IGEMM": 1, "Convolution (NHWC, F32) DWConv": 4, "Fully Connected (NC, F32) GEMM": 10}


def result(folder: Path, error: float, operators: dict[str, int] | None) -> tuple[Reference, ModelResult]:
    expected = np.linspace(-1, 1, 10, dtype=np.float64)
    file = folder / "out.bin"
    (expected + error).astype(np.float32).tofile(file)
    return Reference([[expected]]), ModelResult(1.0, operators, [[Output("o", "float32", file)]])


def job(folder: Path, same: bool = False, dense: bool = False) -> ModelJob:
    model = classifier(same=same)
    if not dense:
        encode(model)
    save(model, folder / "model.tflite")
    return ModelJob.read(folder / "model.tflite", sets=1)


def compared(folder: Path, error: float, operators: dict[str, int] | None, **kind: bool) -> Comparison:
    return compare("engine", job(folder, **kind), *result(folder, error, operators), XNNPACK_2026_08)


def test_as_predicted(tmp_path: Path) -> None:
    found = compared(tmp_path, 1e-6, SPARSE)
    assert found.right
    assert found.disagreements == ()
    assert found.counts is not None
    assert found.counts.spmm == 9
    assert compared(tmp_path, 0.0, DENSE, dense=True).disagreements == ()


def test_a_dense_run_of_a_sparse_file(tmp_path: Path) -> None:
    (words,) = compared(tmp_path, 1e-6, DENSE).disagreements
    assert words.startswith("engine: expected 9 SPMM, 1 entry and 4 depthwise")
    assert "seen 0 SPMM" in words


def test_sparse_operators_in_a_dense_twin(tmp_path: Path) -> None:
    assert "seen 9 SPMM" in compared(tmp_path, 0.0, SPARSE, dense=True).disagreements[0]


def test_one_convolution_that_falls_out_is_enough(tmp_path: Path) -> None:
    one_less = SPARSE | {"Convolution (NCHW, F32) SPMM": 8, "Fully Connected (NC, F32) GEMM": 2}
    assert compared(tmp_path, 0.0, one_less).disagreements


@pytest.mark.parametrize(
    ("noise", "error", "right"), [(0, 2e-4, False), (1e-4, 2e-4, True), (1e-4, 5e-4, False), (1, 6e-3, False)]
)
def test_a_network_that_is_sensitive_to_the_order_of_its_sums(
    noise: float, error: float, right: bool, tmp_path: Path
) -> None:
    """Four times what another order costs is right, and never as much as a wrong layout costs."""
    reference, given = result(tmp_path, error, SPARSE)
    found = compare("engine", job(tmp_path), replace(reference, noise=noise), given, XNNPACK_2026_08)
    assert found.right == right
    assert bool(found.disagreements) != right


def test_wrong_numbers_where_right_ones_are_expected(tmp_path: Path) -> None:
    found = compared(tmp_path, 2e-4, SPARSE)
    assert not found.right
    assert found.disagreements == (
        "engine: wrong numbers (relative error 2.0e-04, allowed 1e-04), where the rules expect right ones",
    )


def test_wrong_numbers_that_the_rules_expect(tmp_path: Path) -> None:
    model = job(tmp_path, same=True)
    found = compare("engine", model, *result(tmp_path, 0.2, None), XNNPACK_2026_08)
    assert not found.right
    assert found.disagreements == ()


def test_right_numbers_where_the_rules_expect_wrong_ones(tmp_path: Path) -> None:
    found = compared(tmp_path, 0.0, None, same=True)
    assert "where the rules expect wrong ones" in found.disagreements[0]


def test_a_file_that_does_not_load(tmp_path: Path) -> None:
    reference, _ = result(tmp_path, 0.0, None)
    found = compare("engine", job(tmp_path), reference, ModelResult(failure="bad file"), XNNPACK_2026_08)
    assert (found.error, found.counts) == (None, None)
    assert found.disagreements == ("engine: no numbers at all (bad file), where the rules expect right ones",)


def test_an_engine_without_a_sparse_path_is_held_to_its_numbers(tmp_path: Path) -> None:
    for error, right in ((0.0, True), (1.0, False)):
        found = compare("host", job(tmp_path, same=True), *result(tmp_path, error, None), None)
        assert (found.right, bool(found.disagreements)) == (right, not right)


SEEN = Observation("1", True, 9, SPARSE, 1e-6, {"engine": 1e-6}, None, None)


@pytest.mark.parametrize(
    ("eligible", "changes", "code"),
    [
        (True, {}, 0),
        (True, {"wrong": ("x",)}, 4),
        (True, {"disagreements": ("x",)}, 4),
        (False, {"wrong": ("x",)}, 4),
        (False, {"taken": False}, 3),
        (False, {"taken": None}, 3),
        (True, {"taken": None}, 5),
        (True, {"taken": False}, 5),
    ],
)
def test_exit_codes(tmp_path: Path, eligible: bool, changes: dict[str, object], code: int) -> None:
    verdict = verify(job(tmp_path, dense=not eligible).path)
    observed = {"good": SEEN, "other": replace(SEEN, **changes)}  # type: ignore[arg-type]
    assert exit_code(replace(verdict, observed=observed)) == code


def test_what_can_be_asked_for() -> None:
    assert find_runtimes(["wasm", "host", "wasm"]) == ("wasm", "host")
    with pytest.raises(UsageError, match=r"unknown runtime 'toaster'. Runtimes: host, wasm, emulated"):
        find_runtimes(["wasm", "toaster"])


def test_a_model_in_memory_cannot_be_observed() -> None:
    with pytest.raises(UsageError, match="needed the path of its file"):
        verify(classifier(), observe=["wasm"])


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="does not exist"):
        verify(tmp_path / "none.tflite", observe=["wasm"])
