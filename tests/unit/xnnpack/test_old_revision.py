"""XNNPACK of 2023 and its delegate: what differs from today, each case as npm's @tensorflow/tfjs-tflite showed it."""

import pytest
from graphs import OP, Net, classifier

from sparsetorch.runtime.observation import Counts
from sparsetorch.runtime.prediction import predict
from sparsetorch.tflite import Model, Tensor, encode
from sparsetorch.xnnpack.analysis import analyse
from sparsetorch.xnnpack.partition import plan
from sparsetorch.xnnpack.revisions import XNNPACK_2023_06, XNNPACK_2026_08, Revision
from sparsetorch.xnnpack.subgraph import Kind


def refused(code: int, revision: Revision, axes: tuple[int, ...] | None = None) -> bool:
    net = Net()
    x = net.input(8, 4)
    net.output(net.unary(code, x) if axes is None else net.mean(x, axes=axes, code=code))
    return bool(plan(net.model().graphs[0], revision).refused)


@pytest.mark.parametrize("name", ["COS", "EXP", "GELU", "LOG", "RSQRT", "SIN", "TANH"])
def test_operators_that_only_today_takes(name: str) -> None:
    assert refused(getattr(OP, name), XNNPACK_2023_06)
    assert not refused(getattr(OP, name), XNNPACK_2026_08)


@pytest.mark.parametrize("name", ["ABS", "ELU", "HARD_SWISH", "LOGISTIC", "RELU6", "SQRT", "SQUARE"])
def test_operators_that_both_take(name: str) -> None:
    assert not refused(getattr(OP, name), XNNPACK_2023_06)


@pytest.mark.parametrize(
    ("name", "axes", "taken"),
    [
        ("MEAN", (1, 2), True),
        ("MEAN", (2, 1), True),
        ("MEAN", (2,), True),
        ("MEAN", (1,), False),
        ("MEAN", (3,), False),
        ("MEAN", (1, 2, 3), False),
        ("MEAN", (-2, -3), False),
        ("SUM", (1, 2), False),
        ("REDUCE_MAX", (1, 2), False),
    ],
)
def test_reductions(name: str, axes: tuple[int, ...], taken: bool) -> None:
    assert refused(getattr(OP, name), XNNPACK_2023_06, axes) != taken
    assert not refused(getattr(OP, name), XNNPACK_2026_08, axes)


def encoded(middle: object) -> Model:
    model = classifier(middle=middle)  # type: ignore[arg-type]
    encode(model)
    return model


@pytest.mark.parametrize("code", [OP.ADD, OP.MUL])
def test_a_value_that_is_read_twice(code: int) -> None:
    """ADD and MUL of a value with itself stay in the cluster; today MUL does, as a square."""
    model = encoded(lambda net, x: net.binary(code, x, x))
    assert predict(model, XNNPACK_2023_06).counts == Counts(9, 1, 4, 1)
    assert predict(model, XNNPACK_2026_08).taken == (code == OP.MUL)


def test_a_clamp_melts_into_what_is_before_it() -> None:
    """It is no reader of its own then: the convolution returns the clamped value, and stays channels last."""

    def returned(net: Net, x: Tensor) -> Tensor:
        clamped = net.unary(OP.RELU6, net.pointwise(x, 24))
        net.output(clamped)
        return clamped

    model = encoded(returned)
    for revision in (XNNPACK_2023_06, XNNPACK_2026_08):
        assert predict(model, revision).counts == Counts(4, 1, 2, 9)


def test_padding_melts_into_a_1x1_convolution_which_today_is_a_fully_connected_layer() -> None:
    model = encoded(lambda net, x: net.pointwise(net.pad(x), 24))
    for revision, pads in ((XNNPACK_2023_06, 0), (XNNPACK_2026_08, 1)):
        kinds = [node.kind for part in analyse(model.graphs[0], revision).parts for node in part.graph.nodes]
        assert kinds.count(Kind.PAD) == pads
