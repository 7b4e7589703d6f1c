"""The two-thirds rule, the hint, partitions, targets: worked out by hand."""

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from graphs import KIND, OP, Net, classifier

from sparsetorch.errors import BadInputError, UsageError
from sparsetorch.tflite import Model, Operator, Tensor, encode, encode_csr
from sparsetorch.xnnpack import TARGETS, Verdict, verify
from sparsetorch.xnnpack.partition import plan
from sparsetorch.xnnpack.weights import count_zeros, kernel_block


def sparse(net: Net, values: np.ndarray, name: str = "layer.weight") -> Tensor:
    """A sparse-encoded weight behind DENSIFY, however little that saves."""
    kept, parameters = encode_csr(values.astype(np.float32))
    weight = net.constant(values.astype(np.float32), name)
    weight.data, weight.sparsity = np.frombuffer(kept.tobytes(), np.uint8), parameters
    return net.add(OP.DENSIFY, [weight], weight.shape)


def with_zeros(shape: tuple[int, int], zeros: int) -> np.ndarray:
    values = np.ones(shape[0] * shape[1])
    values[:zeros] = 0
    return np.random.default_rng(0).permutation(values).reshape(shape[0], 1, 1, shape[1])


def chain(*weights: np.ndarray) -> Model:
    net = Net()
    x = net.stem(net.input(8, 3), weights[0].shape[3])
    for number, values in enumerate(weights):
        x = net.conv(x, values.shape[0], 1, weight=sparse(net, values, f"layer{number}.weight"))
    net.output(net.mean(x))
    return net.model()


@pytest.mark.parametrize(("zeros", "eligible"), [(64, False), (65, True)])
def test_exactly_two_thirds_is_off(zeros: int, eligible: bool) -> None:
    verdict = verify(chain(with_zeros((12, 8), zeros)))
    assert verdict.eligible is eligible
    if not eligible:
        (reason,) = verdict.reasons
        assert reason.found.startswith("64 of 96 weights")
        assert reason.required.endswith("at least 65")
        assert reason.fix.startswith("1 more zeros")


def test_the_rule_is_for_the_cluster_not_for_the_layer() -> None:
    verdict = verify(chain(with_zeros((20, 10), 80), with_zeros((40, 20), 720)))
    (cluster,) = verdict.clusters
    assert verdict.eligible
    assert verdict.expected_spmm == 2
    assert (cluster.params, cluster.zeros, cluster.convs_1x1) == (1000, 800, 2)
    assert cluster.entry == "stem.weight"
    assert [layer.sparsity for layer in verdict.layers if "layer" in layer.tensor] == [0.4, 0.9]


def test_zeros_without_encoding_set_no_hint() -> None:
    verdict = verify(classifier())
    assert not verdict.eligible
    assert not verdict.unsafe
    (reason,) = verdict.reasons
    assert reason.rule == "not-encoded"
    assert "zeros present, not encoded: the hint is not set" in reason.found


def test_one_encoded_weight_is_hint_enough() -> None:
    model = classifier()
    encode(model, lambda tensor: tensor.name == "head.weight")
    verdict = verify(model)
    assert verdict.eligible
    assert verdict.expected_spmm == 9


def test_a_weight_off_the_path_is_said() -> None:
    net = Net()
    x = net.mean(net.pointwise(net.stem(net.input(16, 3)), 64))
    y = net.reshape(x, (1, 1, 1, 64))
    net.output(net.pointwise(y, 64, name="classifier.weight"))
    model = net.model()
    encode(model)
    verdict = verify(model)
    assert not verdict.eligible
    assert verdict.expected_spmm == 1
    assert ("off-path", "classifier") in {(reason.rule, reason.module) for reason in verdict.reasons}


def test_a_graph_without_pointwise_convolutions_is_said() -> None:
    net = Net()
    net.output(net.mean(net.stem(net.input(8, 3))))
    assert {reason.rule for reason in verify(net.model()).reasons} == {"no-pointwise"}


def integer_twin() -> Model:
    """Every float tensor of a classifier made int8: what full-integer quantization leaves."""
    model = classifier()
    for tensor in model.tensors:
        if tensor.type == KIND.FLOAT32:
            tensor.type = KIND.INT8
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale = np.array([0.1], np.float32)
            if tensor.data is not None:
                tensor.data = np.zeros(tensor.dense_bytes, np.uint8)
    return model


def test_integer_compute_is_said() -> None:
    verdict = verify(integer_twin())
    assert not verdict.eligible
    assert not verdict.unsafe
    found = [reason for reason in verdict.reasons if reason.rule == "integer-compute"]
    assert len(found) > 9
    assert "float" in found[0].fix


def stored_as_int8(dequantize: bool) -> Model:
    model = classifier()
    encode(model)
    graph = model.graphs[0]
    for operator in [operator for operator in graph.operators if operator.code == OP.DENSIFY]:
        weight, dense = operator.inputs[0], operator.outputs[0]
        assert weight is not None
        weight.data = np.maximum(1, np.abs(weight.stored() * 10)).astype(np.int8).view(np.uint8)
        weight.quantization = dense.quantization = schema.QuantizationParametersT()
        weight.quantization.scale = np.array([0.1], np.float32)
        weight.quantization.zeroPoint = np.array([0], np.int64)
        weight.type = dense.type = KIND.INT8
        if dequantize:
            real = Tensor(f"{dense.name}/float", dense.shape)
            graph.replace_input(dense, real)
            graph.operators.insert(graph.operators.index(operator) + 1, Operator(OP.DEQUANTIZE, [dense], [real]))
    return model


def test_int8_storage_with_float_compute_keeps_the_path() -> None:
    verdict = verify(stored_as_int8(dequantize=True))
    assert verdict.eligible
    assert verdict.expected_spmm == 9
    layer = next(layer for layer in verdict.layers if layer.module == "head")
    assert (layer.values, layer.encoding) == ("int8", "sparse")


def test_sparse_int8_without_dequantize_does_not_load() -> None:
    verdict = verify(stored_as_int8(dequantize=False))
    assert verdict.unsafe
    assert "unpacked-integer-weights" in {reason.rule for reason in verdict.reasons}


def test_epochs_are_greedy_and_outputs_cross_them() -> None:
    """CPU operators cut the chain: conv | RELU_0_TO_1 | conv; the side branch is dealt into the first part."""
    net = Net()
    x = net.stem(net.input(8, 3))
    y = net.unary(OP.RELU_0_TO_1, net.pointwise(x, 16))
    z = net.pointwise(y, 16)
    side = net.unary(OP.RELU, x)
    net.output(net.binary(OP.ADD, z, side))
    found = plan(net.graph)
    first, second = found.partitions
    assert [operator.name for operator in first.operators] == ["PAD", "CONV_2D", "CONV_2D", "RELU"]
    assert [operator.name for operator in second.operators] == ["CONV_2D", "ADD"]
    assert side in first.outputs
    assert side in second.inputs
    assert [operator.name for operator in found.refused] == ["RELU_0_TO_1"]


@pytest.mark.parametrize("second", ["pad is read twice", "conv is SAME"])
def test_pad_melts_only_into_its_only_reader(second: str) -> None:
    net = Net()
    image = net.input(8, 3)
    padded = net.pad(image)
    x = net.conv(padded, 16, 3, 2)
    net.output(net.mean(net.pointwise(x, 64)))
    model = net.model()
    encode(model)
    assert verify(model).eligible
    if second == "pad is read twice":
        net.output(net.unary(OP.RELU, padded))
    else:
        model.graphs[0].operators[1].options.padding = schema.Padding.SAME
    verdict = verify(model)
    assert not verdict.eligible
    assert "entry-padding" in {reason.rule for reason in verdict.reasons}


def test_a_value_that_leaves_the_cluster_kills_it() -> None:
    model = classifier()
    encode(model)
    graph = model.graphs[0]
    inner = next(operator for operator in graph.operators if operator.name == "ADD").outputs[0]
    graph.outputs.append(inner)
    verdict = verify(model)
    assert not verdict.eligible
    assert "value-leaves" in {reason.rule for reason in verdict.reasons}


def test_a_bias_is_needed() -> None:
    model = classifier()
    encode(model)
    conv = next(
        operator
        for operator in model.graphs[0].operators
        if operator.outputs[0] is model.graphs[0].outputs[0] or operator.name == "CONV_2D"
    )
    conv.inputs[2] = None
    assert "not-delegated" in {reason.rule for reason in verify(model).reasons}


def test_operators_out_of_order_are_refused() -> None:
    model = classifier()
    graph = model.graphs[0]
    graph.operators[1].inputs[0] = graph.outputs[0]
    with pytest.raises(BadInputError, match="reads a tensor that is never written before it"):
        verify(model)


@pytest.mark.parametrize(
    ("mask", "block"),
    [
        (np.ones((8, 4)), 4),
        (np.repeat([[1, 0, 0, 1]], 8, axis=0), 4),
        (np.repeat([[1, 0], [0, 1]], [2, 2], axis=0), 2),
        (np.array([[1, 0], [0, 1], [1, 0], [0, 1]]), 1),
        (np.ones((3, 4)), 4),  # no whole block of 4: the source's 0 >= 0 picks the 4-channel kernel
        (np.zeros((4, 4)), 4),
    ],
)
def test_kernel_blocks(mask: np.ndarray, block: int) -> None:
    net = Net()
    values = mask.astype(np.float32).reshape(mask.shape[0], 1, 1, mask.shape[1])
    assert kernel_block(net.constant(values)) == block
    assert kernel_block(net.constant(values.astype(np.float16))) == 1


def test_zeros_of_both_signs_count() -> None:
    net = Net()
    assert count_zeros(net.constant(np.array([0.0, -0.0, 1, np.nan, 1e-45], np.float32))) == (5, 2)


def verdict_for(*targets: str) -> Verdict:
    model = classifier()
    encode(model)
    return verify(model, targets)


@pytest.mark.parametrize("target", TARGETS)
def test_targets(target: str) -> None:
    verdict = verdict_for(target)
    off = target in ("x86", "tflite-micro")
    assert verdict.targets[target].eligible is not off
    assert bool(verdict.targets[target].why_not) is off
    assert verdict.unsafe is (target == "tflite-micro")


def test_one_target_that_is_off_makes_the_answer_no() -> None:
    verdict = verdict_for("arm64", "x86")
    assert verdict.targets["arm64"].eligible
    assert not verdict.eligible
    assert [reason.rule for reason in verdict.reasons] == ["target"]
    assert "AVX" in verdict.reasons[0].found


def test_an_unknown_target_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"unknown target 'arm'\. Targets: arm64, arm32, wasm, x86, x86-noavx"):
        verdict_for("arm")


def test_the_revision_is_named() -> None:
    assert "XNNPACK 75db3c0" in verdict_for("wasm").revision


def test_revisions_that_disagree_make_the_answer_no_and_are_named() -> None:
    """MINIMUM with a scalar became a clamp in late 2025 only."""
    model = classifier(
        activation=lambda net, x: net.binary(OP.MINIMUM, x, net.constant(np.full((1, 1, 1, 1), 6, np.float32)))
    )
    encode(model)
    verdict = verify(model)
    assert not verdict.eligible
    assert verdict.reasons
    assert all("[XNNPACK 8b9dff7 (2025-10)]" in reason.found for reason in verdict.reasons)
