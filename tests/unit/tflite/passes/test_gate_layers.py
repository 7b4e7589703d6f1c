"""Gates written with linear layers join the cluster; classifiers stay fully connected."""

import pytest
from graphs import OP, Net, classifier
from repairs import Repaired, difference

from sparsetorch.tflite import encode, from_bytes, to_bytes
from sparsetorch.tflite.passes import repair
from sparsetorch.xnnpack import verify


@pytest.mark.parametrize("gate", ["dense", "hard", "conv"])
def test_every_gate_is_eligible_after_repair(gate: str) -> None:
    model = classifier(gate=gate)
    before = from_bytes(to_bytes(model))
    repair(model)
    encode(model)
    assert difference(before, model) < 1e-5
    verdict = verify(model)
    assert verdict.eligible
    assert verdict.expected_spmm == 11


def test_its_layers_are_1x1_convolutions_without_a_reshape() -> None:
    net = Net(sparsity=0)
    net.output(net.pointwise(net.squeeze_excite(net.pointwise(net.input(5, 3), 8), "dense"), 4))
    done = Repaired(net)
    assert done.names == ["CONV_2D", "MEAN", "CONV_2D", "CONV_2D", "LOGISTIC", "MUL", "CONV_2D"]


def test_an_operand_of_two_dimensions_gets_four() -> None:
    net = Net(sparsity=0)
    x = net.pointwise(net.input(5, 3), 8)
    net.output(net.pointwise(net.binary(OP.MUL, x, net.unary(OP.LOGISTIC, net.dense(net.mean(x), 8))), 4))
    done = Repaired(net)
    assert "FULLY_CONNECTED" not in done.names
    assert "RESHAPE" not in done.names


def test_a_classifier_stays() -> None:
    net = Net(sparsity=0)
    net.output(net.dense(net.unary(OP.RELU, net.dense(net.mean(net.pointwise(net.input(5, 3), 8)), 8)), 4))
    done = Repaired(net)
    assert done.names == ["CONV_2D", "MEAN", "FULLY_CONNECTED", "FULLY_CONNECTED"]


def test_a_decoder_stays() -> None:
    net = Net(sparsity=0)
    y = net.dense(net.mean(net.pointwise(net.input(5, 3), 8)), 16)
    net.output(net.pointwise(net.reshape(y, (1, 2, 2, 4)), 3))
    assert "FULLY_CONNECTED" in Repaired(net).names
