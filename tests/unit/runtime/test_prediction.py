"""Operator names sorted into kinds, and the counts that the rules predict for graphs whose operators are known."""

import pytest
from graphs import classifier

from sparsetorch.runtime.observation import Counts
from sparsetorch.runtime.prediction import computes_in_integers, count_operators, encoded_pointwise, predict
from sparsetorch.tflite import Storage, encode
from sparsetorch.xnnpack.revisions import XNNPACK_2023_06, XNNPACK_2026_08, Revision

REVISIONS = (XNNPACK_2023_06, XNNPACK_2026_08)


def test_names_of_a_sparse_mobilenet() -> None:
    names = {
        "Convolution (NCHW, F32) Conv2D HWC2CHW": 1,
        "Convolution (NCHW, F32) DWConv": 17,
        "Convolution (NCHW, F32) SPMM": 34,
        "Add (ND, F32)": 10,
        "Global Average Pooling (NCW, F32)": 1,
        "Fully Connected (NC, F32) GEMM": 1,
    }
    assert count_operators(names) == Counts(spmm=34, entries=1, depthwise=17, channels_last=1)


def test_a_dense_network_in_old_and_new_words() -> None:
    """Since 2025 a channels-last 1x1 convolution is called a fully-connected layer: the kind is the same."""
    old = {"Convolution (NHWC, F32) IGEMM": 1, "Convolution (NHWC, F32) DWConv": 17, "Convolution (NHWC, F32) GEMM": 34}
    new = {
        "Convolution (NHWC, F32) IGEMM": 1,
        "Convolution (NHWC, F32) DWConv": 17,
        "Fully Connected (NC, F32) GEMM": 34,
    }
    assert count_operators(old) == count_operators(new) == Counts(0, 0, 0, 52)


def test_other_operators_count_nowhere() -> None:
    assert count_operators({"Add (ND)": 3, "Deconvolution (NHWC, F32) GEMM": 1, "Mean (ND) Reduce2": 2}) == Counts(
        0, 0, 0, 0
    )


@pytest.mark.parametrize("revision", REVISIONS, ids=lambda revision: revision.name[:15])
@pytest.mark.parametrize("values", ["float32", "float16", "int8"])
def test_every_convolution_of_an_encoded_network(revision: Revision, values: str) -> None:
    """Stem, nine 1x1, four depthwise, one fully-connected layer."""
    model = classifier()
    encode(model, storage=Storage(values))
    found = predict(model, revision)
    assert found.counts == Counts(spmm=9, entries=1, depthwise=4, channels_last=1)
    assert (found.taken, found.unsafe) == (True, ())
    assert encoded_pointwise(model, revision) == 9
    assert not computes_in_integers(model)


@pytest.mark.parametrize("revision", REVISIONS, ids=lambda revision: revision.name[:15])
def test_the_same_not_encoded(revision: Revision) -> None:
    found = predict(classifier(), revision)
    assert found.counts == Counts(0, 0, 0, 15)
    assert not found.taken
    assert encoded_pointwise(classifier(), revision) == 0
