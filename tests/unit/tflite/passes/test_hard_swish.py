"""Hard-swish from its parts, wherever the constants went, and from two copies of one layer."""

from collections.abc import Callable

import numpy as np
import pytest
from graphs import OP, Net, options
from repairs import Repaired

from sparsetorch.tflite import Tensor

SIXTH = np.float32(1 / 6)


def number(net: Net, value: float) -> Tensor:
    return net.constant(np.float32(value))


def outside(net: Net, x: Tensor) -> Tensor:
    gate = net.unary(OP.RELU6, net.binary(OP.ADD, x, number(net, 3)))
    return net.binary(OP.MUL, net.binary(OP.MUL, x, gate), number(net, SIXTH))


def divided(net: Net, x: Tensor) -> Tensor:
    gate = net.unary(OP.RELU6, net.binary(OP.ADD, number(net, 3), x))
    return net.binary(OP.MUL, net.add(OP.DIV, [gate, number(net, 6)], x.shape, options("Div")), x)


def hard_sigmoid(net: Net, x: Tensor) -> Tensor:
    gate = net.binary(OP.ADD, net.binary(OP.MUL, x, number(net, SIXTH)), number(net, 0.5))
    return net.binary(OP.MUL, x, net.unary(OP.RELU_0_TO_1, gate))


def clip(net: Net, x: Tensor) -> Tensor:
    gate = net.binary(OP.ADD, net.binary(OP.MUL, x, number(net, SIXTH)), number(net, 0.5))
    return net.binary(OP.MUL, net.unary(OP.RELU, net.binary(OP.MINIMUM, gate, number(net, 1))), x)


def fused(net: Net, x: Tensor) -> Tensor:
    gate = net.add(OP.ADD, [x, number(net, 3)], x.shape, options("Add", fusedActivationFunction=3))
    return net.binary(OP.MUL, net.binary(OP.MUL, gate, number(net, SIXTH)), x)


def sixth_first(net: Net, x: Tensor) -> Tensor:
    gate = net.unary(OP.RELU6, net.binary(OP.ADD, x, number(net, 3)))
    return net.binary(OP.MUL, net.binary(OP.MUL, x, number(net, SIXTH)), gate)


@pytest.mark.parametrize("form", [outside, divided, hard_sigmoid, clip, fused, sixth_first])
def test_every_form_is_one_operator(form: Callable[[Net, Tensor], Tensor]) -> None:
    net = Net(sparsity=0)
    net.output(net.pointwise(form(net, net.pointwise(net.input(6, 3), 8)), 4))
    assert Repaired(net).names == ["CONV_2D", "HARD_SWISH", "CONV_2D"]


def test_a_missing_sixth_goes_into_the_next_layer() -> None:
    net = Net(sparsity=0)
    x = net.pointwise(net.input(6, 3), 8)
    y = net.binary(OP.MUL, x, net.unary(OP.RELU6, net.binary(OP.ADD, x, number(net, 3))))
    net.output(net.pointwise(y, 4, name="next"))
    before = net.graph.operators[-1].inputs[1].array().copy()
    done = Repaired(net)
    assert done.names == ["CONV_2D", "HARD_SWISH", "CONV_2D"]
    np.testing.assert_allclose(done.operators[-1].inputs[1].array(), 6 * before, rtol=1e-6)


def test_it_ends_as_an_output_where_no_factor_is_left() -> None:
    net = Net(sparsity=0)
    net.output(hard_sigmoid(net, net.pointwise(net.input(6, 3), 8)))
    assert Repaired(net).names == ["CONV_2D", "HARD_SWISH"]


@pytest.mark.parametrize(("shift", "factor", "ceiling"), [(2.5, SIXTH, 6), (3, 0.2, 6), (3, SIXTH, 5)])
def test_other_constants_are_no_hard_swish(shift: float, factor: float, ceiling: float) -> None:
    net = Net(sparsity=0)
    x = net.pointwise(net.input(6, 3), 8)
    gate = net.unary(OP.RELU, net.binary(OP.MINIMUM, net.binary(OP.ADD, x, number(net, shift)), number(net, ceiling)))
    net.output(net.binary(OP.MUL, net.binary(OP.MUL, x, gate), number(net, factor)))
    assert "HARD_SWISH" not in Repaired(net).names


def test_a_gate_of_another_value_is_no_hard_swish() -> None:
    net = Net(sparsity=0)
    x = net.pointwise(net.input(6, 3), 8)
    other = net.pointwise(x, 8)
    gate = net.unary(OP.RELU6, net.binary(OP.ADD, other, number(net, 3)))
    net.output(net.pointwise(net.binary(OP.MUL, net.binary(OP.MUL, x, gate), number(net, SIXTH)), 2))
    assert "HARD_SWISH" not in Repaired(net).names


def test_a_factor_that_nothing_takes_up_is_told() -> None:
    net = Net(sparsity=0)
    x = net.pointwise(net.input(6, 3), 8)
    net.output(net.binary(OP.MUL, x, net.unary(OP.RELU6, net.binary(OP.ADD, x, number(net, 3)))))
    done = Repaired(net)
    assert "HARD_SWISH" not in done.names
    assert any(why.startswith("6 times a hard-swish: ") for why in done.refused)


def twins(net: Net, c: float, bias: np.ndarray | None, change: float = 0.0, shared: bool = False) -> None:
    """Two copies of a layer as TensorFlow's converter leaves them, multiplied."""
    x = net.mean(net.pointwise(net.input(6, 3), 8))
    weight = net.weights((16, 8)).array()
    scaled = net.constant((c * weight + change).astype(np.float32))
    plain = net.constant(weight)
    zeros = np.zeros(16, np.float32)
    above = net.constant((zeros if bias is None else bias) + np.float32(3))
    below = None if bias is None else net.constant((c * bias).astype(np.float32))
    one = net.add(OP.FULLY_CONNECTED, [x, scaled, below], (1, 16), options("FullyConnected"))
    two = net.add(OP.FULLY_CONNECTED, [x, plain, above], (1, 16), options("FullyConnected", fusedActivationFunction=3))
    net.output(net.dense(net.binary(OP.MUL, one, two), 5))
    if shared:
        net.output(net.unary(OP.ABS, two))


@pytest.mark.parametrize("c", [1 / 6, 1.0, -0.5])
@pytest.mark.parametrize("with_bias", [True, False])
def test_two_copies_of_a_layer_become_one(c: float, with_bias: bool) -> None:
    net = Net(sparsity=0)
    twins(net, c, np.linspace(-1, 1, 16).astype(np.float32) if with_bias else None)
    assert Repaired(net).names == ["CONV_2D", "MEAN", "FULLY_CONNECTED", "HARD_SWISH", "FULLY_CONNECTED"]


def test_the_copy_that_stays_keeps_its_weight() -> None:
    net = Net(sparsity=0)
    twins(net, 1.0, None)
    one, two = (
        operator
        for operator in net.graph.operators
        if operator.name == "FULLY_CONNECTED" and operator.outputs[0].shape == (1, 16)
    )
    one.inputs[1] = two.inputs[1]  # as the converter does it: the sixth sits in the layer behind
    two.inputs[1].name = "classifier.0.weight"
    done = Repaired(net)
    assert done.operators[2].inputs[1].name == "classifier.0.weight"
    assert done.names.count("FULLY_CONNECTED") == 2


@pytest.mark.parametrize("wrong", [{"change": 0.01}, {"shared": True}])
def test_layers_that_differ_stay_two(wrong: dict[str, object]) -> None:
    net = Net(sparsity=0)
    twins(net, 1 / 6, None, **wrong)
    assert Repaired(net).names.count("FULLY_CONNECTED") == 3
