"""Clamps: exact where XNNPACK has the interval, moved into the neighbours where they can take it up, else left with a reason."""

import numpy as np
import pytest
from graphs import OP, SAME, Net
from repairs import Repaired, outputs

from sparsetorch.tflite.passes import clamps, fuse_activations, repair

ONLY = (clamps.PASS, fuse_activations.PASS)
RELU, RELU_N1_TO_1, RELU6 = 1, 2, 3


def clamped(net: Net, lo: float | None, hi: float | None, activation: int = 0, kernel: int = 1) -> None:
    """1x1 convolution, MINIMUM, MAXIMUM, convolution."""
    x = net.pointwise(net.input(6, 4), 4, 0, activation=activation)
    for code, bound in ((OP.MINIMUM, hi), (OP.MAXIMUM, lo)):
        x = x if bound is None else net.binary(code, x, net.constant(np.float32(bound)))
    net.output(net.conv(x, 3, kernel, padding=SAME))


def test_relu_0_to_1_of_a_gate_is_two_clamps_bit_for_bit() -> None:
    net = Net(sparsity=0)
    net.output(net.pointwise(net.squeeze_excite(net.pointwise(net.input(5, 3), 8), "hard"), 4))
    weights = [tensor.array().tobytes() for tensor in net.graph.tensors if tensor.data is not None]
    done = Repaired(net, tolerance=0)
    assert done.names == ["CONV_2D", "MEAN", "CONV_2D", "CONV_2D", "RELU_N1_TO_1", "MUL", "CONV_2D"]
    assert done.activation(3) == RELU
    kept = [tensor.array().tobytes() for tensor in done.model.graphs[0].tensors if tensor.data is not None]
    assert kept == weights  # not one weight is touched
    assert done.notes[0].operator == "RELU_0_TO_1"


@pytest.mark.parametrize("position", ["alone", "shared", "output"])
def test_relu_0_to_1_goes_wherever_it_stands(position: str) -> None:
    net = Net(sparsity=0)
    x = net.pointwise(net.input(5, 3), 4)
    y = net.unary(OP.RELU_0_TO_1, x)
    outputs = {"alone": [net.unary(OP.ABS, y)], "shared": [net.unary(OP.ABS, y), x], "output": [y]}[position]
    net.output(*outputs)
    done = Repaired(net, tolerance=0)
    assert "RELU_0_TO_1" not in done.names
    assert [tensor.name for tensor in done.model.graphs[0].outputs] == [tensor.name for tensor in outputs]


@pytest.mark.parametrize(
    ("lo", "hi", "activation"),
    [(0, None, RELU), (0, 6, RELU6), (-1, 1, RELU_N1_TO_1), (-3, 3, RELU_N1_TO_1), (0, 2.5, RELU6), (-0.5, 1.5, RELU6),
     (-0.25, None, RELU), (None, 0.5, RELU)],
)  # fmt: skip
def test_a_clamp_becomes_one_fused_activation(lo: float | None, hi: float | None, activation: int) -> None:
    net = Net(sparsity=0)
    clamped(net, lo, hi)
    done = Repaired(net, passes=ONLY)
    assert done.names == ["CONV_2D", "CONV_2D"]
    assert done.activation(0) == activation


def test_worked_by_hand() -> None:
    """x = 2 u + 1, clamped to [-0.5, 1.5], then 4 y - 3: RELU6 of 3 x + 1.5 = 6 u + 4.5, then 4/3 v - 5."""
    net = Net()
    x = net.input(2, 1)
    first = net.conv(x, 1, 1, weight=net.constant(np.full((1, 1, 1, 1), 2, np.float32)))
    net.graph.operators[-1].inputs[2] = net.constant(np.array([1], np.float32))
    y = net.binary(
        OP.MAXIMUM, net.binary(OP.MINIMUM, first, net.constant(np.float32(1.5))), net.constant(np.float32(-0.5))
    )
    net.output(net.conv(y, 1, 1, weight=net.constant(np.full((1, 1, 1, 1), 4, np.float32))))
    net.graph.operators[-1].inputs[2] = net.constant(np.array([-3], np.float32))
    done = Repaired(net)
    (_, weight, bias), (_, weight2, bias2) = (operator.inputs for operator in done.operators)
    assert (weight.array().item(), bias.array().item()) == (6, 4.5)
    assert (weight2.array().item(), bias2.array().item()) == pytest.approx((4 / 3, -5))


@pytest.mark.parametrize(
    ("lo", "hi", "activation", "left"),
    [(None, 6, RELU, [RELU6]), (None, 1, RELU, [RELU]), (None, 2, RELU, [RELU6]), (None, 8, RELU6, [RELU6]),
     (-1, None, RELU6, [RELU6]), (0, None, RELU_N1_TO_1, [RELU])],
)  # fmt: skip
def test_the_fused_activation_before_a_clamp_is_part_of_it(
    lo: float | None, hi: float | None, activation: int, left: list[int]
) -> None:
    net = Net(sparsity=0)
    clamped(net, lo, hi, activation)
    done = Repaired(net, passes=ONLY)
    assert done.activation(0) == left[0]
    assert done.names in (["CONV_2D", "CONV_2D"], ["CONV_2D", "RELU_N1_TO_1", "CONV_2D"])


def test_a_run_of_clamps_is_one() -> None:
    net = Net(sparsity=0)
    x = net.pointwise(net.input(5, 3), 4)
    x = net.binary(OP.MINIMUM, net.unary(OP.RELU6, x), net.constant(np.float32(7)))
    net.output(net.unary(OP.ABS, net.binary(OP.MAXIMUM, x, net.constant(np.float32(-7)))))
    assert Repaired(net, tolerance=0, passes=ONLY).names == ["CONV_2D", "ABS"]


def test_a_factor_passes_what_a_shift_does_not() -> None:
    for lo, repaired in ((0, True), (-1, False)):
        net = Net(sparsity=0)
        clamped(net, lo, 3, kernel=3)  # SAME: zeros are put around the clamped value
        done = Repaired(net, passes=ONLY)
        assert ("MINIMUM" not in done.names) is repaired
        assert any("a shift does not pass through padding" in why for why in done.refused) is not repaired


def test_what_stays_and_why() -> None:
    def first(net: Net):
        return net.binary(OP.MINIMUM, net.pointwise(net.input(5, 3), 4), net.constant(np.float32(2)))

    net = Net(sparsity=0)
    net.output(first(net))
    assert "is an output of the graph" in Repaired(net).refused[0]
    net = Net(sparsity=0)
    y = first(net)
    net.output(net.pointwise(y, 2), net.unary(OP.ABS, net.graph.operators[0].outputs[0]))
    assert "is also used elsewhere" in Repaired(net).refused[0]
    net = Net(sparsity=0)
    net.output(net.pointwise(net.binary(OP.MINIMUM, net.input(5, 3), net.constant(np.float32(2))), 2))
    assert "comes from outside the graph" in Repaired(net).refused[0]
    net = Net(sparsity=0)
    net.output(net.pointwise(net.unary(OP.LOGISTIC, first(net)), 2))
    assert "does not pass through LOGISTIC" in Repaired(net).refused[0]


def test_bounds_per_channel_are_no_clamp() -> None:
    net = Net(sparsity=0)
    x = net.pointwise(net.input(5, 3), 2)
    net.output(net.pointwise(net.binary(OP.MINIMUM, x, net.constant(np.array([1, 2], np.float32))), 2))
    assert Repaired(net, tolerance=0).names == ["CONV_2D", "MINIMUM", "CONV_2D"]


def test_an_empty_interval_is_left_alone() -> None:
    net = Net(sparsity=0)
    clamped(net, 3, 2)
    done = Repaired(net, tolerance=0)
    assert "always gives the same value" in done.refused[0]


def test_zeros_stay_zeros_when_a_factor_moves() -> None:
    net = Net(sparsity=0.9)
    x = net.pointwise(net.input(6, 32), 32)
    net.output(
        net.pointwise(
            net.binary(OP.MAXIMUM, net.binary(OP.MINIMUM, x, net.constant(np.float32(3))), net.constant(np.float32(0))),
            8,
        )
    )
    model = net.model()
    before = [
        tensor.array() == 0 for tensor in model.tensors if tensor.shape[1:3] == (1, 1) and tensor.data is not None
    ]
    assert any(note.applied for note in repair(model))
    after = [tensor.array() == 0 for tensor in model.tensors if tensor.shape[1:3] == (1, 1) and tensor.data is not None]
    assert len(before) == len(after) == 2
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(before, after, strict=True))
    assert np.isfinite(outputs(model)[0]).all()
