"""Constant operands: into the layer before, into the layers behind, and never a shift through padding."""

import numpy as np
import pytest
from graphs import OP, SAME, VALID, Net, options
from repairs import Repaired

from sparsetorch.tflite import Tensor
from sparsetorch.tflite.passes import repair

NAMES = {OP.ADD: "Add", OP.SUB: "Sub", OP.MUL: "Mul", OP.DIV: "Div"}
PER_CHANNEL = np.array([0.5, 2, -1, 4], np.float32)


def constant(net: Net, code: int, x: Tensor, values: object, first: bool = False, activation: int = 0) -> Tensor:
    other = net.constant(np.asarray(values, np.float32))
    pair = [other, x] if first else [x, other]
    return net.add(code, pair, x.shape, options(NAMES[code], fusedActivationFunction=activation))


FORMS = [
    (OP.ADD, False, 3.0), (OP.ADD, True, PER_CHANNEL), (OP.SUB, False, PER_CHANNEL.reshape(1, 1, 1, 4)), (OP.SUB, True, 1.5),
    (OP.MUL, False, PER_CHANNEL), (OP.MUL, True, [2.0]), (OP.DIV, False, PER_CHANNEL), (OP.DIV, False, 4.0),
]  # fmt: skip


@pytest.mark.parametrize(("code", "first", "values"), FORMS)
@pytest.mark.parametrize("layer", ["pointwise", "conv", "depthwise", "dense"])
def test_into_the_layer_before(code: int, first: bool, values: object, layer: str) -> None:
    net = Net(sparsity=0)
    x = net.input(6, 4)
    if layer == "dense":
        x = net.dense(net.mean(x), 4)
        values = np.asarray(values, np.float32).reshape(-1)
    elif layer == "depthwise":
        net.depthwise(x, same=True)
        net.graph.operators[-1].options.fusedActivationFunction = 0
        x = net.graph.operators[-1].outputs[0]
    else:
        x = net.conv(x, 4, 3 if layer == "conv" else 1, padding=SAME)
    net.output(constant(net, code, x, values, first))
    done = Repaired(net)
    assert len(done.operators) == (2 if layer == "dense" else 1)
    assert done.applied == ["fold_constants"]


@pytest.mark.parametrize(("code", "first", "values"), FORMS)
@pytest.mark.parametrize("layer", ["pointwise", "conv", "depthwise", "dense"])
def test_into_the_layers_behind(code: int, first: bool, values: object, layer: str) -> None:
    net = Net(sparsity=0)
    x = constant(net, code, net.unary(OP.TANH, net.pointwise(net.input(6, 4), 4)), values, first)
    if layer == "dense":
        y = net.dense(x, 3)
    elif layer == "depthwise":
        y = net.depthwise(x, same=True)
        net.graph.operators[-1].options.padding = VALID
        net.graph.operators[-1].outputs[0].shape = (1, 4, 4, 4)
    else:
        y = net.conv(x, 5, 3 if layer == "conv" else 1)
    net.output(y, net.conv(x, 2, 1))  # two readers: both take it up
    done = Repaired(net)
    assert len(done.operators) == 4
    assert "fold_constants" in done.applied


def test_worked_by_hand() -> None:
    """(x - 1) * [2, 3] into y = x_0 + 10 x_1: weights [2, 30], bias -32."""
    net = Net()
    x = net.unary(OP.TANH, net.input(2, 2))
    x = constant(net, OP.MUL, constant(net, OP.SUB, x, 1), [2, 3])
    net.output(net.conv(x, 1, 1, weight=net.constant(np.array([1, 10], np.float32).reshape(1, 1, 1, 2))))
    net.graph.operators[-1].inputs[2] = net.constant(np.zeros(1, np.float32))
    done = Repaired(net)
    assert done.names == ["TANH", "CONV_2D"]
    assert done.operators[1].inputs[1].array().ravel().tolist() == [2, 30]
    assert done.operators[1].inputs[2].array().tolist() == [-32]


@pytest.mark.parametrize("explicit", [True, False])
def test_a_shift_never_passes_padding(explicit: bool) -> None:
    for code, folded in ((OP.MUL, True), (OP.ADD, False)):
        net = Net(sparsity=0)
        x = constant(net, code, net.unary(OP.TANH, net.input(6, 4)), PER_CHANNEL)
        net.output(net.conv(net.pad(x), 4, 3, 2) if explicit else net.conv(x, 4, 3, padding=SAME))
        done = Repaired(net)
        assert any(name in ("MUL", "ADD") for name in done.names) is not folded
        assert any("a shift does not pass" in why for why in done.refused) is not folded


def test_a_factor_passes_linear_operators() -> None:
    net = Net(sparsity=0)
    x = constant(net, OP.MUL, net.unary(OP.TANH, net.input(8, 4)), PER_CHANNEL)
    gate = net.unary(OP.LOGISTIC, net.pointwise(net.mean(x, keep=True), 4))
    y = net.binary(OP.MUL, net.resize(x), gate)
    net.output(net.pointwise(net.pool(OP.AVERAGE_POOL_2D, y, 2), 3))
    done = Repaired(net)
    assert done.names.count("MUL") == 1


@pytest.mark.parametrize(
    ("code", "values"), [(OP.MAX_POOL_2D, 2.0), (OP.MAX_POOL_2D, -2.0), (OP.RELU, 0.5), (OP.RELU, -1.0)]
)
def test_only_a_positive_factor_passes_what_compares(code: int, values: float) -> None:
    net = Net(sparsity=0)
    x = constant(net, OP.MUL, net.unary(OP.TANH, net.input(8, 4)), values)
    y = net.pool(code, x, 2) if code == OP.MAX_POOL_2D else net.unary(code, x)
    net.output(net.pointwise(y, 3))
    done = Repaired(net)
    assert ("MUL" in done.names) is (values < 0)


def test_above_through_a_relu_and_a_sum() -> None:
    net = Net(sparsity=0)
    x = net.input(6, 4)
    a, b = net.pointwise(x, 4, activation=1), net.pointwise(x, 4)
    net.output(net.unary(OP.TANH, constant(net, OP.MUL, net.binary(OP.ADD, a, b), [1, 2, 3, 4])))
    assert Repaired(net).names == ["CONV_2D", "CONV_2D", "ADD", "TANH"]


def test_the_operators_own_activation_stays() -> None:
    net = Net(sparsity=0)
    net.output(net.pointwise(constant(net, OP.MUL, net.pointwise(net.input(6, 4), 4), PER_CHANNEL, activation=3), 3))
    done = Repaired(net)
    assert done.names == ["CONV_2D", "CONV_2D"]
    assert done.activation(0) == 3


def test_shared_weights_are_not_changed_for_the_other_reader() -> None:
    net = Net(sparsity=0)
    x = net.input(6, 4)
    weight = net.weights((4, 1, 1, 4), name="shared.weight")
    first, second = net.conv(x, 4, 1, weight=weight), net.conv(x, 4, 1, weight=weight)
    net.output(constant(net, OP.MUL, first, 3.0), net.unary(OP.ABS, second))
    before = weight.array().copy()
    done = Repaired(net)
    assert np.array_equal(done.operators[1].inputs[1].array(), before)
    assert not np.array_equal(done.operators[0].inputs[1].array(), before)
    assert [operator.inputs[1].name for operator in done.operators[:2]] == ["shared.weight"] * 2


@pytest.mark.parametrize("why", ["output", "elsewhere", "activation", "spatial", "divided"])
def test_what_stays(why: str) -> None:
    net = Net(sparsity=0)
    x = net.unary(OP.TANH, net.pointwise(net.input(6, 4), 4))
    if why == "output":
        y = constant(net, OP.MUL, x, 2.0)
        net.output(y, net.pointwise(y, 2))
    elif why == "elsewhere":
        y = constant(net, OP.MUL, x, 2.0)
        net.output(net.pointwise(y, 2), net.unary(OP.LOGISTIC, y))
    elif why == "activation":
        net.output(net.pointwise(constant(net, OP.ADD, x, 2.0, activation=3), 2))
    elif why == "spatial":
        y = net.binary(OP.MUL, x, net.constant(np.random.default_rng(0).random((1, 6, 6, 1), np.float32)))
        net.output(net.pointwise(y, 2))
    else:
        y = net.add(OP.DIV, [net.constant(np.float32(2)), net.unary(OP.EXP, x)], x.shape, options("Div"))
        net.output(net.pointwise(y, 2))
    assert "fold_constants" not in Repaired(net).applied


def test_weights_that_would_overflow_stay() -> None:
    net = Net(sparsity=0)
    x = net.pointwise(net.unary(OP.TANH, net.input(4, 4)), 4)
    net.output(constant(net, OP.MUL, constant(net, OP.MUL, x, 1e30), 1e30))
    notes = repair(net.model())
    assert any("would overflow" in note.what for note in notes if not note.applied)


def test_a_constant_of_a_gate_gets_four_dimensions() -> None:
    net = Net(sparsity=0)
    x = net.pointwise(net.input(6, 4), 4)
    gate = constant(net, OP.ADD, net.unary(OP.LOGISTIC, net.mean(x, keep=True)), PER_CHANNEL)
    net.output(net.pointwise(net.binary(OP.MUL, x, net.unary(OP.TANH, gate)), 2))
    done = Repaired(net, tolerance=0)
    (add,) = (operator for operator in done.operators if operator.name == "ADD")
    assert add.inputs[1].shape == (1, 1, 1, 4)
