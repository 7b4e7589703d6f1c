"""Networks with one thing changed: taken, not taken, or unsafe.

Every row was run on ai-edge-litert 2.3.0 without AVX, where XNNPACK takes its sparse path: the number of sparse matrix
multiplications, and whether the numbers were right, are what that runtime showed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graphs import OP, Net, classifier, options

from sparsetorch.tflite import Tensor, encode
from sparsetorch.xnnpack import Verdict, verify

TAKEN, NOT_TAKEN, UNSAFE = "taken", "not taken", "unsafe"


def tail(make: Callable[[Net, Tensor], Tensor]) -> dict[str, Any]:
    return {"tail": make}


def unary(code: int, **fields: Any) -> dict[str, Any]:
    chosen = options("LeakyRelu", **fields) if fields else (None, 0)
    return {"activation": lambda net, x: net.unary(code, x, chosen)}


def flat(net: Net, x: Tensor) -> Tensor:
    return net.dense(net.reshape(x, (1, x.shape[1] * x.shape[2] * x.shape[3])), 10)


ROWS: dict[str, tuple[dict[str, Any], str, int, set[str]]] = {
    "ok": ({}, TAKEN, 9, set()),
    "kernel_5": ({"kernel": 5}, TAKEN, 9, set()),
    "bilinear": ({"middle": lambda net, x: net.resize(x)}, TAKEN, 9, set()),
    "squeeze_excite_convolutions": ({"gate": "conv"}, TAKEN, 11, set()),
    "relu": (unary(OP.RELU), TAKEN, 9, set()),
    "hard_swish": (unary(OP.HARD_SWISH), TAKEN, 9, set()),
    "leaky_relu": (unary(OP.LEAKY_RELU, alpha=0.1), TAKEN, 9, set()),
    "silu": ({"activation": lambda net, x: net.binary(OP.MUL, x, net.unary(OP.LOGISTIC, x))}, TAKEN, 9, set()),
    "mean_keep_reshape_dense": (
        tail(lambda net, x: net.dense(net.reshape(net.mean(x, keep=True), (1, 64)), 10)),
        TAKEN,
        9,
        set(),
    ),
    "depth_to_space": (tail(lambda net, x: net.depth_to_space(net.pointwise(x, 12))), TAKEN, 10, set()),
    "mean_keep": (tail(lambda net, x: net.mean(x, keep=True)), TAKEN, 9, set()),
    "exp": ({"middle": lambda net, x: net.unary(OP.EXP, x)}, TAKEN, 9, set()),
    "tanh": ({"middle": lambda net, x: net.unary(OP.TANH, x)}, TAKEN, 9, set()),
    "constant_first": (
        {"middle": lambda net, x: net.binary(OP.MUL, net.constant(np.full((1, 1, 1, 24), 1.5, np.float32)), x)},
        TAKEN,
        9,
        set(),
    ),
    "mean_of_width_and_height": (tail(lambda net, x: net.dense(net.mean(x, axes=(2, 1)), 10)), TAKEN, 9, set()),
    "sum": (tail(lambda net, x: net.dense(net.mean(x, code=OP.SUM), 10)), TAKEN, 9, set()),
    "large_dense_layer": (tail(lambda net, x: net.dense(net.mean(x), 4000)), TAKEN, 9, set()),
    "dense_layer_keeps_dimensions": (tail(lambda net, x: net.dense(net.mean(x), 10, keep=True)), TAKEN, 9, set()),
    "sparsity_60": ({"sparsity": 0.6}, NOT_TAKEN, 0, {"two-thirds"}),
    "large_dense_layer_in_the_cluster": (
        tail(lambda net, x: net.dense(net.mean(x), 4000, keep=True)),
        NOT_TAKEN,
        0,
        {"two-thirds"},
    ),
    "stem_same": ({"stem_same": True}, NOT_TAKEN, 0, {"entry-padding"}),
    "same_everywhere": ({"stem_same": True, "same": True}, NOT_TAKEN, 0, {"entry-padding", "same-padding"}),
    "flatten": (tail(flat), NOT_TAKEN, 0, {"unsupported-operator", "no-exit"}),
    "average_pool": (
        tail(lambda net, x: flat(net, net.pool(OP.AVERAGE_POOL_2D, x, x.shape[1]))),
        NOT_TAKEN,
        0,
        {"unsupported-operator", "no-exit"},
    ),
    "no_tail": (tail(lambda net, x: x), NOT_TAKEN, 0, {"no-exit"}),
    "squeeze_excite_dense": ({"gate": "dense"}, NOT_TAKEN, 0, {"unsupported-operator"}),
    "hard_sigmoid_alone": ({"gate": "hard"}, NOT_TAKEN, 0, {"not-delegated"}),
    "hard_sigmoid_behind_a_clean_gate": (
        {"gate": "hard", "middle": lambda net, x: net.block(x, 24, gate="conv")},
        UNSAFE,
        9,
        {"unsafe-layout", "not-delegated"},
    ),
    "depthwise_same": ({"same": True}, UNSAFE, 0, {"unsafe-layout", "same-padding"}),
    "max_pool": (
        {"middle": lambda net, x: net.pool(OP.MAX_POOL_2D, x, 2)},
        UNSAFE,
        4,
        {"unsafe-layout", "unsupported-operator"},
    ),
    "mean_keep_convolution": (
        tail(lambda net, x: net.reshape(net.pointwise(net.mean(x, keep=True), 10), (1, 10))),
        UNSAFE,
        9,
        {"unsafe-layout"},
    ),
    "mean_keep_dense_keep": (
        tail(lambda net, x: net.dense(net.mean(x, keep=True), 10, keep=True)),
        UNSAFE,
        9,
        {"unsafe-layout"},
    ),
    "mean_keep_logistic": (
        tail(lambda net, x: net.unary(OP.LOGISTIC, net.mean(x, keep=True))),
        UNSAFE,
        9,
        {"unsafe-layout"},
    ),
    "mean_keep_add": (
        tail(lambda net, x: net.binary(OP.ADD, net.mean(x, keep=True), net.mean(x, keep=True))),
        UNSAFE,
        9,
        {"unsafe-layout"},
    ),
    "mean_keep_squeeze": (
        tail(
            lambda net, x: net.dense(
                net.add(OP.SQUEEZE, [net.mean(x, keep=True)], (1, 64), options("Squeeze", squeezeDims=[1, 2])), 10
            )
        ),
        UNSAFE,
        9,
        {"unsafe-shape"},
    ),
    "mean_keep_hard_sigmoid": (tail(lambda net, x: net.unary(OP.RELU_0_TO_1, net.mean(x, keep=True))), TAKEN, 9, set()),
    "mean_keep_convolution_logistic": (
        tail(lambda net, x: net.reshape(net.unary(OP.LOGISTIC, net.pointwise(net.mean(x, keep=True), 40)), (1, 40))),
        TAKEN,
        10,
        set(),
    ),
    "mean_keep_softmax": (
        tail(lambda net, x: net.unary(OP.SOFTMAX, net.mean(x, keep=True), options("Softmax", beta=1.0))),
        UNSAFE,
        9,
        {"unsafe-layout"},
    ),
    "mean_keep_gate_without_convolution": (
        {"middle": lambda net, x: net.binary(OP.MUL, x, net.mean(x, keep=True))},
        UNSAFE,
        9,
        {"unsafe-layout"},
    ),
    "constant_second": (
        {"middle": lambda net, x: net.binary(OP.MUL, x, net.constant(np.full((1, 1, 1, 24), 1.5, np.float32)))},
        UNSAFE,
        4,
        {"unsafe-layout", "constant-operand"},
    ),
    "depthwise_7x7": ({"middle": lambda net, x: net.depthwise(x, 7)}, UNSAFE, 4, {"unsafe-layout", "depthwise-kernel"}),
    "dense_3x3": ({"middle": lambda net, x: net.conv(net.pad(x), 24, 3)}, UNSAFE, 4, {"unsafe-layout", "entry-stride"}),
    "mean_channels": (tail(lambda net, x: net.mean(x, axes=(3,))), TAKEN, 9, set()),
    "padded_pointwise": (
        {"middle": lambda net, x: net.pointwise(net.pad(x), 24)},
        UNSAFE,
        4,
        {"unsafe-layout", "unsupported-operator"},
    ),  # the PAD stays, since today's 1x1 convolutions are fully-connected nodes
    "mean_rows": (tail(lambda net, x: net.mean(x, axes=(1,))), UNSAFE, 9, {"unsafe-layout"}),
}


def verdict_of(**changes: Any) -> Verdict:
    model = classifier(**changes)
    encode(model)
    return verify(model)


@pytest.mark.parametrize("name", ROWS)
def test_row(name: str) -> None:
    changes, expected, spmm, rules = ROWS[name]
    verdict = verdict_of(**changes)
    found = UNSAFE if verdict.unsafe else TAKEN if verdict.eligible else NOT_TAKEN
    assert (found, verdict.expected_spmm) == (expected, spmm)
    assert rules <= {reason.rule for reason in verdict.reasons}
    assert bool(verdict.reasons) == (expected != TAKEN)
    assert all(target.unsafe == (expected == UNSAFE) for target in verdict.targets.values())


def test_every_breaker_is_listed_with_its_module() -> None:
    verdict = verdict_of(sparsity=0.5, stem_same=True, same=True, tail=flat)
    found = {(reason.rule, reason.module) for reason in verdict.reasons}
    assert {
        ("entry-padding", "stem"),
        ("same-padding", "features.1.depthwise"),
        ("same-padding", "features.3.depthwise"),
        ("unsupported-operator", None),
        ("no-exit", "head"),
        ("two-thirds", None),
    } <= found


def test_reasons_say_where_what_and_how() -> None:
    (reason,) = (reason for reason in verdict_of(stem_same=True).reasons)
    assert reason.operator == "CONV_2D"
    assert reason.tensor == "stem.weight"
    assert reason.found == "SAME padding at stride 2x2"
    assert reason.required == "1 pixel on all four sides"
    assert "padding=kernel_size//2" in reason.fix


def test_what_lies_behind_the_exit_is_nobodys_business() -> None:
    def odd_tail(net: Net, x: Tensor) -> Tensor:
        y = net.dense(net.mean(x), 10)
        return net.add(
            OP.ARG_MAX, [y, net.constant(net.random.integers(1, 2, 1).astype("int32"))], (1,), options("ArgMax")
        )

    verdict = verdict_of(tail=odd_tail)
    assert verdict.eligible
    assert verdict.reasons == ()
