"""Weights stored as float16 or int8: what the rules see behind DENSIFY and DEQUANTIZE, and what runtimes get wrong there."""

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from graphs import KIND, OP, Net, classifier

from sparsetorch.tflite import Model, Operator, Storage, Tensor, encode, from_bytes, to_bytes
from sparsetorch.xnnpack import verify


def blocks_of_four() -> Model:
    net = Net()
    weight = net.weights((64, 1, 1, 64), 0, "block.weight")
    keep = np.repeat(np.random.default_rng(0).random((16, 1, 1, 64)) < 0.15, 4, axis=0)
    weight.data = np.frombuffer((weight.array() * keep).tobytes(), np.uint8)
    x = net.stem(net.input(32, 3), 64)
    net.output(net.dense(net.mean(net.conv(x, 64, 1, weight=weight)), 10))
    return net.model()


@pytest.mark.parametrize("values", ["float32", "float16", "int8"])
def test_sparsity_bytes_and_products_are_seen_through_the_chain(values: str) -> None:
    model = classifier()
    entries = {entry.name: entry for entry in encode(model, storage=Storage(values))}
    verdict = verify(from_bytes(to_bytes(model)))
    assert verdict.eligible
    assert verdict.expected_spmm == 9
    for layer in verdict.layers:
        entry = entries[layer.tensor]
        assert (layer.sparsity, layer.encoding, layer.values) == (entry.sparsity, entry.encoding, entry.values)
        assert layer.bytes <= entry.bytes
    assert {layer.values for layer in verdict.layers if layer.encoding == "sparse"} == {values}


@pytest.mark.parametrize("values", ["float32", "float16", "int8"])
def test_the_kernel_is_that_of_float32_compute_whatever_is_stored(values: str) -> None:
    """XNNPACK unpacks float16 weights of a float32 convolution and picks among its float32 kernels."""
    model = blocks_of_four()
    encode(model, storage=Storage(values))
    (layer,) = (layer for layer in verify(model).layers if layer.tensor == "block.weight")
    assert (layer.encoding, layer.values, layer.kernel_block) == ("sparse", values, 4)


def dequantize(model: Model, packed: Tensor, reader: Operator) -> Tensor:
    """A DEQUANTIZE of a constant in front of an operator."""
    result = Tensor(packed.name + "/dequantized", packed.shape)
    made = Operator(OP.DEQUANTIZE, [packed], [result], schema.DequantizeOptionsT(), 0, version=3)
    operators = model.graphs[0].operators
    operators.insert(operators.index(reader), made)
    return result


def half(bias: Tensor) -> Tensor:
    stored = bias.array().astype(np.float16)
    return Tensor(bias.name, bias.shape, KIND.FLOAT16, np.frombuffer(stored.tobytes(), np.uint8))


def head_of(model: Model) -> Operator:
    return [operator for operator in model.graphs[0].operators if operator.code == OP.CONV_2D][-1]


def test_a_float16_bias_beside_sparse_int8_weights_is_unsafe() -> None:
    """ai-edge-litert 2.1.0 and 2.3.0 load such a file and compute garbage, on x86 too."""
    model = classifier()
    encode(model, storage=Storage("int8"))
    head = head_of(model)
    head.inputs[2] = dequantize(model, half(head.inputs[2]), head)
    verdict = verify(model)
    assert verdict.unsafe
    (reason,) = (reason for reason in verdict.reasons if reason.rule == "unsafe-bias")
    assert reason.module == "head"
    assert "float16 bias beside sparse int8 weights" in reason.found


def test_a_float32_bias_beside_sparse_float16_weights_is_unsafe() -> None:
    """ai-edge-litert 2.1.0 computes garbage from it."""
    model = classifier()
    encode(model, storage=Storage("float16"))
    assert not verify(model).unsafe
    head = head_of(model)
    values = next(operator for operator in model.graphs[0].operators if head.inputs[2] in operator.outputs).inputs[0]
    plain = values.array().astype(np.float32)
    head.inputs[2] = Tensor("bias", values.shape, data=np.frombuffer(plain.tobytes(), np.uint8))
    verdict = verify(model)
    assert verdict.unsafe
    assert {reason.rule for reason in verdict.reasons} == {"unsafe-bias"}


def test_sparse_int8_weights_straight_into_a_layer_do_not_load() -> None:
    model = classifier()
    encode(model, storage=Storage("int8"))
    graph = model.graphs[0]
    head = head_of(model)
    unpack = next(operator for operator in graph.operators if head.inputs[1] in operator.outputs)
    head.inputs[1] = unpack.inputs[0]
    graph.operators.remove(unpack)
    verdict = verify(model)
    assert verdict.unsafe
    assert "unpacked-integer-weights" in {reason.rule for reason in verdict.reasons}
