"""Tails behind the global mean: fully connected. Gates, whose values meet a map again, are no tails."""

from collections.abc import Callable

import numpy as np
import pytest
from graphs import OP, Net, classifier, options
from repairs import Repaired, difference

from sparsetorch.tflite import Tensor, encode, from_bytes, to_bytes
from sparsetorch.tflite.passes import repair
from sparsetorch.xnnpack import verify


def flat(net: Net, x: Tensor) -> Tensor:
    return net.reshape(net.pointwise(net.mean(x, keep=True), 10), (1, 10))


def straight(net: Net, x: Tensor) -> Tensor:
    return net.pointwise(net.mean(x, keep=True), 10)


def squeezed(net: Net, x: Tensor) -> Tensor:
    return net.add(OP.SQUEEZE, [straight(net, x)], (1, 10), options("Squeeze", squeezeDims=[1, 2]))


def mobile(net: Net, x: Tensor) -> Tensor:
    y = net.unary(OP.HARD_SWISH, net.pointwise(net.mean(x, keep=True), 32))
    return net.unary(OP.LOGISTIC, net.reshape(net.pointwise(y, 10), (1, 10)))


def pooled(net: Net, x: Tensor) -> Tensor:
    return net.reshape(net.pointwise(net.pool(OP.AVERAGE_POOL_2D, x, x.shape[1]), 10), (1, 10))


def swished(net: Net, x: Tensor) -> Tensor:
    return net.dense(net.unary(OP.HARD_SWISH, net.mean(x, keep=True)), 10)


def summed(net: Net, x: Tensor) -> Tensor:
    y = net.mean(x, keep=True)
    z = net.binary(OP.ADD, net.pointwise(y, 64), y)
    return net.pointwise(
        net.binary(OP.MUL, z, net.constant(np.random.default_rng(0).random((1, 1, 1, 64), np.float32))), 10
    )


def dropped(net: Net, x: Tensor) -> Tensor:
    """As onnx2tf 2.x writes it: every shape there is."""
    y = net.unary(OP.HARD_SWISH, net.reshape(net.mean(x), (1, 64, 1, 1)))
    y = net.reshape(net.pointwise(net.reshape(y, (1, 1, 1, 64)), 10), (1, 10, 1, 1))
    return net.reshape(net.unary(OP.LOGISTIC, y), (1, 10))


def mixed(net: Net, x: Tensor) -> Tensor:
    y = net.dense(net.mean(x, keep=True), 16, keep=True)
    y = net.add(OP.SOFTMAX, [net.pointwise(y, 10)], (1, 1, 1, 10), options("Softmax", beta=1.0))
    return net.reshape(y, (1, 10))


TAILS = [dropped, mixed, flat, straight, squeezed, mobile, pooled, swished, summed]


@pytest.mark.parametrize("tail", TAILS)
def test_every_tail_becomes_safe_and_eligible(tail: Callable[[Net, Tensor], Tensor]) -> None:
    model = classifier(tail=tail)
    before = from_bytes(to_bytes(model))
    naive = model.copy()
    encode(naive)
    assert not verify(naive).eligible
    repair(model)
    assert difference(before, model) < 1e-5
    encode(model)
    assert difference(before, model) < 1e-5
    verdict = verify(model)
    assert verdict.eligible
    assert not verdict.unsafe
    assert verdict.expected_spmm == 9
    names = [operator.name for operator in model.graphs[0].operators]
    behind = names[names.index("MEAN") + 1 :]
    assert "CONV_2D" not in behind


def test_worked_by_hand() -> None:
    net = Net()
    net.output(
        net.unary(OP.ABS, net.pointwise(net.mean(net.pointwise(net.input(4, 3), 2), keep=True), 5, name="head.weight"))
    )
    done = Repaired(net)
    assert done.names == ["CONV_2D", "MEAN", "FULLY_CONNECTED", "ABS", "RESHAPE"]
    assert [operator.outputs[0].shape for operator in done.operators[1:]] == [(1, 2), (1, 5), (1, 5), (1, 1, 1, 5)]
    assert done.operators[2].inputs[1].shape == (5, 2)
    assert done.operators[2].inputs[1].name == "head.weight"


def test_a_mean_that_is_the_output_drops_and_restores_its_dimensions() -> None:
    net = Net()
    net.output(net.mean(net.pointwise(net.input(4, 3), 2), keep=True))
    done = Repaired(net, tolerance=0)
    assert done.names == ["CONV_2D", "MEAN", "RESHAPE"]
    assert not done.operators[1].options.keepDims


@pytest.mark.parametrize("gate", ["conv", "dense"])
def test_a_gate_is_no_tail(gate: str) -> None:
    net = Net()
    net.output(net.pointwise(net.squeeze_excite(net.pointwise(net.input(4, 3), 4), gate), 2))
    done = Repaired(net)
    assert "mean_tail" not in done.applied
    assert "FULLY_CONNECTED" not in done.names


def test_a_gate_that_also_ends_in_an_output_is_no_tail() -> None:
    net = Net()
    x = net.pointwise(net.input(4, 3), 4)
    gate = net.unary(OP.LOGISTIC, net.pointwise(net.mean(x, keep=True), 4))
    net.output(net.binary(OP.MUL, x, gate), net.reshape(gate, (1, 4)))
    assert "mean_tail" not in Repaired(net).applied


@pytest.mark.parametrize("right", ["reshaped", "flattened", "dropped"])
def test_what_is_right_already_stays(right: str) -> None:
    net = Net()
    x = net.pointwise(net.input(4, 3), 4)
    y = {"reshaped": lambda: net.reshape(net.mean(x, keep=True), (1, 4)), "flattened": lambda: net.mean(x, keep=True),
         "dropped": lambda: net.mean(x)}[right]()  # fmt: skip
    net.output(net.dense(y, 5))
    assert Repaired(net, tolerance=0).notes == ()


@pytest.mark.parametrize("axes", [(1,), (1, 2, 3), (3,)])
def test_a_mean_over_other_axes_is_no_tail(axes: tuple[int, ...]) -> None:
    net = Net()
    net.output(net.unary(OP.ABS, net.mean(net.pointwise(net.input(4, 3), 4), keep=True, axes=axes)))
    assert "mean_tail" not in Repaired(net).applied


def test_what_does_not_work_on_two_dimensions_gets_four_back() -> None:
    net = Net()
    y = net.pointwise(net.mean(net.pointwise(net.input(4, 3), 4), keep=True), 4)
    begin, end = (net.constant(np.array(values, np.int32)) for values in ([0, 0, 0, 1], [1, 1, 1, 2]))
    net.output(net.add(OP.SLICE, [y, begin, end], (1, 1, 1, 2), options("Slice")), net.reshape(y, (1, 4)))
    done = Repaired(net)
    assert done.names == ["CONV_2D", "MEAN", "FULLY_CONNECTED", "RESHAPE", "SLICE", "RESHAPE"]
    assert done.operators[3].outputs[0].shape == (1, 1, 1, 4)


def test_a_convolution_with_groups_stays() -> None:
    net = Net()
    y = net.mean(net.pointwise(net.input(4, 3), 4), keep=True)
    net.output(net.reshape(net.conv(y, 4, 1, groups=2), (1, 4)))
    assert "FULLY_CONNECTED" not in Repaired(net).names
