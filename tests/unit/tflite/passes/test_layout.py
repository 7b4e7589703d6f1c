"""Channels-first islands, and reshapes, as onnx2tf 2.x's flatbuffer_direct leaves them around gates."""

import numpy as np
import pytest
from graphs import OP, Net, classifier, options
from repairs import Repaired, difference

from sparsetorch.tflite import Tensor, encode, from_bytes, to_bytes
from sparsetorch.tflite.passes import layout, repair, reshapes
from sparsetorch.xnnpack import verify

FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def transpose(net: Net, x: Tensor, order: tuple[int, ...]) -> Tensor:
    shape = [x.shape[axis] for axis in order]
    return net.add(OP.TRANSPOSE, [x, net.constant(np.array(order, np.int32))], shape, options("Transpose"))


def start(net: Net) -> Tensor:
    return net.pointwise(net.input(5, 3), 4)


def test_a_pair_goes() -> None:
    net = Net()
    net.output(net.pointwise(transpose(net, transpose(net, start(net), FIRST), LAST), 2))
    assert Repaired(net, tolerance=0).names == ["CONV_2D", "CONV_2D"]


def test_two_that_are_no_pair_are_one() -> None:
    net = Net()
    net.output(transpose(net, transpose(net, start(net), FIRST), FIRST))
    done = Repaired(net, tolerance=0)
    assert done.names == ["CONV_2D", "TRANSPOSE"]
    assert done.operators[1].inputs[1].array().tolist() == [0, 2, 3, 1]


def test_elementwise_operators_are_turned_over() -> None:
    net = Net()
    x = transpose(net, start(net), FIRST)
    y = net.binary(OP.MUL, net.unary(OP.LOGISTIC, x), x)
    y = net.binary(OP.MUL, y, net.constant(np.arange(1, 5, dtype=np.float32).reshape(4, 1, 1)))
    net.output(net.pointwise(transpose(net, y, LAST), 2))
    done = Repaired(net, passes=(layout.PASS,), tolerance=0)
    assert [name for name in done.names if name != "TRANSPOSE"] == ["CONV_2D", "LOGISTIC", "MUL", "MUL", "CONV_2D"]
    assert done.operators[-2].inputs[1].shape == (1, 1, 1, 4)


def test_padding_concatenation_and_means_get_new_axes() -> None:
    net = Net()
    x = transpose(net, start(net), FIRST)
    amounts = net.constant(np.array([[0, 0], [0, 0], [1, 0], [0, 2]], np.int32))
    padded = net.add(OP.PAD, [x, amounts], (1, 4, 6, 7), options("Pad"))
    joined = net.add(
        OP.CONCATENATION, [padded, net.unary(OP.ABS, padded)], (1, 8, 6, 7), options("Concatenation", axis=1)
    )
    centred = net.binary(OP.SUB, joined, net.mean(joined, keep=True, axes=(2, 3)))
    net.output(net.pointwise(transpose(net, centred, LAST), 2), net.dense(net.mean(joined, axes=(2, 3)), 3))
    done = Repaired(net)
    assert "TRANSPOSE" not in done.names
    (pad,) = (operator for operator in done.operators if operator.name == "PAD")
    assert pad.inputs[1].array().tolist() == [[0, 0], [1, 0], [0, 2], [0, 0]]


def gate_of_flatbuffer_direct(net: Net, x: Tensor) -> Tensor:
    """Squeeze-excite with everything but the convolutions channels first."""
    turned = transpose(net, x, FIRST)
    mean = net.mean(turned, keep=True, axes=(2, 3))
    y = net.pointwise(net.reshape(mean, (1, 1, 1, x.shape[3])), 8, activation=1)
    y = transpose(net, y, FIRST)
    y = net.pointwise(transpose(net, y, LAST), x.shape[3])
    gate = net.unary(OP.LOGISTIC, net.reshape(y, (1, x.shape[3], 1, 1)))
    return transpose(net, net.binary(OP.MUL, gate, turned), LAST)


def test_the_gates_of_flatbuffer_direct_become_eligible() -> None:
    model = classifier(middle=gate_of_flatbuffer_direct)
    before = from_bytes(to_bytes(model))
    naive = model.copy()
    encode(naive)
    assert not verify(naive).eligible
    repair(model)
    encode(model)
    assert difference(before, model) < 1e-5
    assert verify(model).eligible
    assert verify(model).expected_spmm == 11
    names = [operator.name for operator in model.graphs[0].operators]
    assert not {"TRANSPOSE", "RESHAPE"} & set(names)


def test_an_island_that_ends_in_an_output_keeps_one_transpose_behind_it() -> None:
    net = Net()
    x = net.unary(OP.ABS, transpose(net, start(net), FIRST))
    net.output(x)
    done = Repaired(net, tolerance=0)
    assert done.names == ["CONV_2D", "ABS", "TRANSPOSE"]
    assert done.model.graphs[0].outputs[0].name == x.name


def test_constants_of_an_island_reach_the_weights() -> None:
    net = Net()
    x = transpose(net, start(net), FIRST)
    x = net.binary(OP.MUL, x, net.constant(np.arange(1, 5, dtype=np.float32).reshape(1, 4, 1, 1)))
    net.output(net.binary(OP.ADD, x, net.constant(np.arange(4, dtype=np.float32).reshape(4, 1, 1))))
    assert Repaired(net).names == ["CONV_2D", "TRANSPOSE"]


def test_nothing_is_turned_where_nothing_is_gained() -> None:
    net = Net()
    x, other = transpose(net, start(net), FIRST), net.input(5, 5)
    other.shape = (1, 4, 5, 5)
    net.output(net.binary(OP.ADD, x, other))
    assert Repaired(net, tolerance=0).names == ["CONV_2D", "TRANSPOSE", "ADD"]


def test_a_transpose_from_an_island_into_itself_ends() -> None:
    net = Net()
    x = start(net)
    y = net.binary(OP.SUB, transpose(net, x, (0, 2, 1, 3)), x)
    net.output(net.pointwise(net.unary(OP.TANH, y), 2))
    assert Repaired(net).names.count("TRANSPOSE") == 1


def test_a_transpose_of_ones_is_a_reshape_and_goes() -> None:
    net = Net()
    y = transpose(net, net.unary(OP.TANH, transpose(net, net.mean(start(net), keep=True), FIRST)), LAST)
    net.output(net.binary(OP.MUL, y, net.graph.operators[0].outputs[0]))
    assert Repaired(net, tolerance=0).names == ["CONV_2D", "MEAN", "TANH", "MUL"]


@pytest.mark.parametrize("code", ["SQUEEZE", "EXPAND_DIMS"])
def test_squeeze_and_expand_dims_are_reshape(code: str) -> None:
    net = Net()
    y = net.mean(start(net), keep=True)
    if code == "SQUEEZE":
        net.output(net.add(OP.SQUEEZE, [y], (1, 4), options("Squeeze", squeezeDims=[1, 2])))
    else:
        net.output(
            net.add(OP.EXPAND_DIMS, [y, net.constant(np.array(1, np.int32))], (1, 1, 1, 1, 4), options("ExpandDims"))
        )
    done = Repaired(net, tolerance=0, passes=(reshapes.PASS,))
    assert done.names == ["CONV_2D", "MEAN", "RESHAPE"]


def test_reshapes_cancel_through_unary_operators() -> None:
    net = Net()
    x = start(net)
    y = net.unary(OP.RELU6, net.unary(OP.TANH, net.reshape(x, (1, 100))))
    net.output(net.pointwise(net.reshape(y, x.shape), 2))
    assert Repaired(net, tolerance=0, passes=(reshapes.PASS,)).names == ["CONV_2D", "TANH", "RELU6", "CONV_2D"]


def test_reshapes_cancel_through_scalar_constants() -> None:
    net = Net()
    x = net.unary(OP.TANH, net.mean(start(net), keep=True))
    y = net.binary(OP.MUL, net.reshape(x, (1, 4, 1, 1)), net.constant(np.array([1 / 6], np.float32)))
    y = net.unary(OP.RELU_0_TO_1, net.binary(OP.ADD, net.constant(np.array([[0.5]], np.float32)), y))
    net.output(net.reshape(y, (1, 1, 1, 4)))
    done = Repaired(net, tolerance=0, passes=(reshapes.PASS,))
    assert done.names == ["CONV_2D", "MEAN", "TANH", "MUL", "ADD", "RELU_0_TO_1"]


def test_a_reshape_that_mixes_stays() -> None:
    net = Net()
    x = start(net)
    y = net.reshape(net.unary(OP.TANH, net.reshape(x, (1, 100))), (1, 5, 4, 5))
    net.output(net.pointwise(y, 2))
    assert Repaired(net, tolerance=0).names == ["CONV_2D", "TANH", "RESHAPE", "CONV_2D"]


def test_a_reshape_read_twice_stays_for_the_other() -> None:
    net = Net()
    x = start(net)
    y = net.reshape(x, (1, 100))
    net.output(net.pointwise(net.reshape(net.unary(OP.TANH, y), x.shape), 2), y)
    assert Repaired(net, tolerance=0).names.count("RESHAPE") == 2
