"""What users trip over, by the number of the list of pitfalls: eligibility."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from graphs import KIND, OP, Net, classifier

from sparsetorch.cli import main
from sparsetorch.tflite import Model, Tensor, encode, encode_csr, save
from sparsetorch.xnnpack import verify
from sparsetorch.xnnpack.reasons import Reason


def flat(net: Net, x: Tensor) -> Tensor:
    return net.dense(net.reshape(x, (1, x.shape[1] * x.shape[2] * x.shape[3])), 10)


def encoded(model: Model) -> Model:
    encode(model)
    return model


def by_rule(model: Model) -> dict[str, Reason]:
    return {reason.rule: reason for reason in verify(model).reasons}


def with_zeros(net: Net, x: Tensor, channels: int, count: int, name: str) -> Tensor:
    """A sparse-encoded 1x1 convolution with exactly `count` zeros."""
    values = np.ones(channels * x.shape[3], np.float32)
    values[np.random.default_rng(0).permutation(values.size)[:count]] = 0
    weight = net.constant(values.reshape(channels, 1, 1, x.shape[3]), name)
    kept, weight.sparsity = encode_csr(weight.array())
    weight.data = np.frombuffer(kept.tobytes(), np.uint8)
    return net.conv(x, channels, 1, weight=net.add(OP.DENSIFY, [weight], weight.shape))


def two_layers(first: tuple[int, int], second: tuple[int, int] | None, stem: int) -> Model:
    net = Net()
    x = with_zeros(net, net.stem(net.input(8, 3), stem), *first, "first.weight")
    net.output(net.mean(x if second is None else with_zeros(net, x, *second, "second.weight")))
    return net.model()


def test_pitfall_23_errors_name_the_layer_what_was_found_what_is_needed_and_the_fix() -> None:
    verdict = verify(encoded(classifier(same=True)))
    reason = next(reason for reason in verdict.reasons if reason.rule == "same-padding")
    assert (reason.operator, reason.module) == ("DEPTHWISE_CONV_2D", "features.1.depthwise")
    assert "SAME" in reason.found
    assert reason.required
    assert "padding=kernel_size//2" in reason.fix


def test_pitfall_24_two_thirds_is_strict_and_for_the_whole_cluster() -> None:
    assert not verify(two_layers((12, 64), None, 8)).eligible  # 64 of 96
    assert verify(two_layers((12, 65), None, 8)).eligible  # 65 of 96
    # 40 % of 300 and 90 % of 700 are 75 % of 1000: on, though the first layer alone would be off.
    assert verify(two_layers((20, 120), (35, 630), 15)).eligible
    assert not verify(two_layers((20, 120), None, 15)).eligible


def test_pitfall_26_no_exit_names_what_is_missing_and_what_to_use() -> None:
    tails: list[Callable[[Net, Tensor], Tensor]] = [
        flat,
        lambda net, x: flat(net, net.pool(OP.AVERAGE_POOL_2D, x, x.shape[1])),
        lambda net, x: net.conv(net.resize(x), 8, 1, sparsity=0.85),
    ]
    for tail in tails:
        reason = by_rule(encoded(classifier(tail=tail)))["no-exit"]
        told = " ".join((reason.found, reason.required, reason.fix))
        assert "MEAN" in told
        assert "DEPTH_TO_SPACE" in told
        assert "pool" in reason.fix
        assert "PixelShuffle" in reason.fix


def test_pitfall_27_every_breaker_is_listed_not_the_first() -> None:
    found = verify(encoded(classifier(sparsity=0.5, stem_same=True, same=True, tail=flat))).reasons
    assert {"entry-padding", "same-padding", "no-exit", "two-thirds"} <= {reason.rule for reason in found}
    assert len([reason for reason in found if reason.rule == "same-padding"]) == 2


@pytest.mark.parametrize(("kernel", "stride"), [(7, 2), (3, 1)])
def test_pitfall_28_stems_of_resnet_and_cifar_are_said(kernel: int, stride: int) -> None:
    net = Net()
    x = net.conv(net.pad(net.input(32, 3), kernel // 2), 16, kernel, stride, name="stem.weight")
    x = net.block(x, 24, 2)
    net.output(net.dense(net.mean(net.pointwise(x, 32)), 10))
    found = [reason for reason in verify(encoded(net.model())).reasons if reason.module == "stem"]
    assert found
    assert any(f"{kernel}x{kernel}" in reason.found or f"stride {stride}" in reason.found for reason in found)


def test_pitfall_29_zeros_that_are_stored_run_at_dense_speed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(classifier(), tmp_path / "dense.tflite")
    assert main(["verify", str(tmp_path / "dense.tflite")]) == 3
    assert "zeros present, not encoded: the hint is not set" in " ".join(capsys.readouterr().out.split())


def test_pitfall_31_integer_compute_is_off_the_path_and_what_to_take_instead_is_said() -> None:
    model = classifier()
    for tensor in model.tensors:
        if tensor.type == KIND.FLOAT32:
            tensor.type, tensor.quantization = KIND.INT8, schema.QuantizationParametersT()
            tensor.quantization.scale = np.array([0.1], np.float32)
            if tensor.data is not None:
                tensor.data = np.zeros(tensor.dense_bytes or 0, np.uint8)
    reason = by_rule(model)["integer-compute"]
    assert "integer compute" in reason.found
    assert "float16" in reason.fix
    assert "int8" in reason.fix
