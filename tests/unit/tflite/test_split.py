"""Fully-connected layers in parts: the same numbers, one-byte indices, and nothing else touched."""

import numpy as np
import pytest
from graphs import OP, Net, classifier, options
from tflite_run import outputs, random_inputs

from sparsetorch.tflite import Model, Storage, encode, to_bytes
from sparsetorch.tflite.split import split_fully_connected
from sparsetorch.xnnpack import verify
from sparsetorch.xnnpack.layers import layers


def network(outputs_: int = 600, inputs: int = 300, sparsity: float = 0.85) -> Model:
    net = Net(sparsity)
    x = net.mean(net.pointwise(net.stem(net.input(16, 3)), inputs))
    weight = net.weights((outputs_, inputs), sparsity, "head.weight")
    chosen = options("FullyConnected", fusedActivationFunction=1)  # a RELU goes along with the parts
    net.output(net.add(OP.FULLY_CONNECTED, [x, weight, net.bias(outputs_)], (1, outputs_), chosen))
    return net.model()


def test_parts_compute_what_the_whole_did() -> None:
    whole, parts = network(), network()
    assert split_fully_connected(parts.graphs[0]) == 1
    names = [operator.name for operator in parts.graphs[0].operators]
    assert names[-4:] == ["FULLY_CONNECTED"] * 3 + ["CONCATENATION"]
    assert [tensor.shape for tensor in parts.graphs[0].operators[-1].inputs if tensor] == [(1, 200)] * 3
    inputs = random_inputs(whole)
    np.testing.assert_allclose(outputs(parts, *inputs)[0], outputs(whole, *inputs)[0], rtol=0, atol=1e-6)


def test_parts_keep_the_layer_s_name_and_the_sparse_path() -> None:
    model = network()
    entries = encode(model, storage=Storage("int8", split=True))
    assert [entry.name for entry in entries[-3:]] == [f"head.weight/{a}:{a + 200}" for a in (0, 200, 400)]
    assert {layer.module for layer in layers(model) if layer.tensor.startswith("head")} == {"head"}
    verdict = verify(model)
    assert verdict.eligible
    assert not verdict.unsafe
    assert verdict.expected_spmm == 1


def test_a_file_in_parts_is_smaller() -> None:
    whole, parts = network(1000, 1280), network(1000, 1280)
    encode(whole, storage=Storage("int8"))
    encode(parts, storage=Storage("int8", split=True))
    assert len(to_bytes(parts)) < len(to_bytes(whole)) - 0.9 * 0.15 * 1000 * 1280


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(network(256, 300), id="outputs fit a byte"),
        pytest.param(network(600, 256), id="inputs fit a byte"),
        pytest.param(network(sparsity=0.4), id="few zeros"),
        pytest.param(classifier(), id="small classifier"),
    ],
)
def test_layers_that_gain_nothing_stay_whole(model: Model) -> None:
    before = to_bytes(model)
    assert split_fully_connected(model.graphs[0]) == 0
    assert to_bytes(model) == before


def test_a_shared_or_packed_weight_stays_whole() -> None:
    shared = network()
    graph = shared.graphs[0]
    graph.outputs.append(graph.operators[-1].inputs[1])  # type: ignore[arg-type]
    assert split_fully_connected(graph) == 0
    packed = network()
    encode(packed)
    assert split_fully_connected(packed.graphs[0]) == 0
