"""Every repair: the graph before and after by hand, equal numbers on this machine, and where it must keep its hands off."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from graphs import OP, SAME, VALID, Net, options
from tflite_run import difference

from sparsetorch.tflite import Model, Tensor
from sparsetorch.tflite.passes import repair

ROUNDING = 1e-5


def repaired(net: Net, tolerance: float = ROUNDING) -> tuple[Model, Counter[str], list[str]]:
    """The model after all passes, its operators by name, and the notes of what was left; numbers and outputs unchanged."""
    before = net.model()
    after = before.copy()
    notes = repair(after)
    assert [t.name for t in after.graphs[0].outputs] == [t.name for t in before.graphs[0].outputs]
    assert [t.shape for t in after.graphs[0].outputs] == [t.shape for t in before.graphs[0].outputs]
    assert difference(before, after) <= tolerance
    assert not [note for note in repair(after) if note.applied]  # a fixed point
    kinds = Counter(operator.name for operator in after.graphs[0].operators)
    return after, kinds, [note.text for note in notes if not note.applied]


def scalar(net: Net, value: float) -> Tensor:
    return net.constant(np.array(value, np.float32))


def vector(net: Net, channels: int, seed: int = 7) -> Tensor:
    return net.constant(np.random.default_rng(seed).uniform(0.5, 1.5, channels).astype(np.float32))


def binary(net: Net, code: int, x: Tensor, y: Tensor) -> Tensor:
    names = {OP.ADD: "Add", OP.MUL: "Mul", OP.SUB: "Sub", OP.DIV: "Div"}
    shape = x.shape if len(x.shape) >= len(y.shape) else y.shape
    return net.add(code, [x, y], shape, options(names.get(code, "MaximumMinimum")))


def transpose(net: Net, x: Tensor, permutation: list[int]) -> Tensor:
    axes = net.constant(np.array(permutation, np.int32))
    return net.add(OP.TRANSPOSE, [x, axes], [x.shape[axis] for axis in permutation], options("Transpose"))


# -- hard-sigmoid -----------------------------------------------------------------------------------------------------


def gated(net: Net, read: Callable[[Net, Tensor, Tensor], Tensor]) -> Tensor:
    x = net.pointwise(net.input(8, 6), 8)
    gate = net.unary(OP.RELU_0_TO_1, net.pointwise(net.mean(x, keep=True), 8))
    return read(net, x, gate)


def test_a_hard_sigmoid_gate_becomes_relu6_with_the_factor_in_its_neighbours() -> None:
    net = Net()
    net.output(gated(net, lambda net, x, gate: net.pointwise(net.binary(OP.MUL, x, gate), 4, name="after.weight")))
    before = {t.name: t.array() for t in net.graph.tensors if t.name == "after.weight"}
    model, kinds, _ = repaired(net)
    assert kinds == {"CONV_2D": 3, "MEAN": 1, "MUL": 1}  # RELU6 is fused
    gate = model.graphs[0].operators[2]
    assert gate.options.fusedActivationFunction == 3
    after = next(o.inputs[1] for o in model.graphs[0].operators if o.inputs[1] and o.inputs[1].name == "after.weight")
    np.testing.assert_allclose(after.array() * 6, before["after.weight"], rtol=1e-6)
    assert np.array_equal(after.array() == 0, before["after.weight"] == 0)  # no zero is lost


def test_a_gate_read_by_two_layers_gives_both_the_factor() -> None:
    net = Net()

    def two(net: Net, x: Tensor, gate: Tensor) -> Tensor:
        y = net.binary(OP.MUL, x, gate)
        return net.binary(OP.ADD, net.pointwise(y, 4), net.pointwise(y, 4))

    net.output(gated(net, two))
    _, kinds, _ = repaired(net)
    assert "RELU_0_TO_1" not in kinds


def test_the_factor_passes_through_padding_and_the_mean() -> None:
    net = Net()
    net.output(gated(net, lambda net, x, gate: net.depthwise(net.binary(OP.MUL, x, gate), 3, 2)))
    assert "RELU_0_TO_1" not in repaired(net)[1]


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda net, x, gate: net.binary(OP.ADD, x, gate), id="a sum"),
        pytest.param(lambda net, x, gate: net.binary(OP.MUL, x, gate), id="a product that the graph returns"),
        pytest.param(lambda net, x, gate: gate, id="returned itself"),
        pytest.param(
            lambda net, x, gate: net.pointwise(net.unary(OP.LOGISTIC, net.binary(OP.MUL, x, gate)), 4),
            id="something that is not linear",
        ),
        pytest.param(
            lambda net, x, gate: net.pointwise(net.binary(OP.MUL, gate, net.binary(OP.MUL, x, gate)), 4), id="squared"
        ),
    ],
)
def test_a_gate_whose_factor_has_nowhere_to_go_stays(read: Callable[[Net, Tensor, Tensor], Tensor]) -> None:
    net = Net()
    net.output(gated(net, read))
    _, kinds, left = repaired(net)
    assert kinds["RELU_0_TO_1"] == 1
    assert any("the factor 1/6 cannot be folded" in text for text in left)


def test_a_clip_of_something_that_others_read_too_stays() -> None:
    net = Net()
    y = net.pointwise(net.input(4, 3), 8)
    net.output(net.pointwise(net.unary(OP.RELU_0_TO_1, y), 4), net.pointwise(y, 4))
    _, kinds, left = repaired(net)
    assert kinds["RELU_0_TO_1"] == 1
    assert any("not made by a convolution or linear layer of its own" in text for text in left)


# -- clamps, hard-swish -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "activation"),
    [(0.0, None, 1), (0.0, 6.0, 3), (-1.0, 1.0, 2)],
    ids=["RELU", "RELU6", "RELU_N1_TO_1"],
)
@pytest.mark.parametrize("first", [OP.MAXIMUM, OP.MINIMUM])
def test_a_clamp_written_out_is_fused(low: float, high: float | None, activation: int, first: int) -> None:
    net = Net()
    x = net.pointwise(net.input(4, 3), 8)
    limits = {OP.MAXIMUM: low, OP.MINIMUM: high}
    for code in (first, OP.MINIMUM if first == OP.MAXIMUM else OP.MAXIMUM):
        if limits[code] is not None:
            x = net.add(code, [x, scalar(net, limits[code])], x.shape, options("MaximumMinimum"))
    net.output(x)
    model, kinds, _ = repaired(net, tolerance=0)
    assert kinds == {"CONV_2D": 1}
    assert model.graphs[0].operators[0].options.fusedActivationFunction == activation


def test_other_bounds_stay() -> None:
    net = Net()
    x = net.pointwise(net.input(4, 3), 8)
    x = net.add(OP.MAXIMUM, [x, scalar(net, 0.5)], x.shape, options("MaximumMinimum"))
    net.output(net.add(OP.MINIMUM, [x, scalar(net, 2.0)], x.shape, options("MaximumMinimum")))
    assert repaired(net, 0)[1] == {"CONV_2D": 1, "MAXIMUM": 1, "MINIMUM": 1}


def test_a_value_read_before_its_clamp_stays_readable() -> None:
    net = Net()
    x = net.pointwise(net.input(4, 3), 8)
    low = net.add(OP.MAXIMUM, [x, scalar(net, 0.0)], x.shape, options("MaximumMinimum"))
    high = net.add(OP.MINIMUM, [low, scalar(net, 6.0)], x.shape, options("MaximumMinimum"))
    net.output(high, net.binary(OP.ADD, x, low))
    assert repaired(net, 0)[1]["RELU"] == 1


@pytest.mark.parametrize("form", ["x * relu6(x + 3) * (1/6)", "x * (relu6(x + 3) / 6)", "(x / 6) * relu6(3 + x)"])
def test_a_hard_swish_written_out_becomes_one(form: str) -> None:
    net = Net()
    x = net.pointwise(net.input(4, 3), 8)
    shifted = binary(net, OP.ADD, scalar(net, 3.0), x) if "3 + x" in form else binary(net, OP.ADD, x, scalar(net, 3.0))
    gate = net.unary(OP.RELU6, shifted)
    if form.endswith("(1/6)"):
        y = binary(net, OP.MUL, binary(net, OP.MUL, x, gate), scalar(net, 1 / 6))
    elif form.endswith("/ 6)"):
        y = binary(net, OP.MUL, x, binary(net, OP.DIV, gate, scalar(net, 6.0)))
    else:
        y = binary(net, OP.MUL, binary(net, OP.DIV, x, scalar(net, 6.0)), gate)
    net.output(net.pointwise(y, 4))
    assert repaired(net)[1] == {"CONV_2D": 2, "HARD_SWISH": 1}


def test_what_only_looks_like_a_hard_swish_stays() -> None:
    net = Net()
    x, other = net.pointwise(net.input(4, 3), 8), net.pointwise(net.input(4, 3), 8)
    gate = net.unary(OP.RELU6, binary(net, OP.ADD, other, scalar(net, 3.0)))
    net.output(binary(net, OP.MUL, binary(net, OP.MUL, x, gate), scalar(net, 1 / 6)))
    assert "HARD_SWISH" not in repaired(net)[1]


# -- constants --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [OP.ADD, OP.SUB, OP.MUL, OP.DIV])
@pytest.mark.parametrize("kind", ["scalar", "vector"])
@pytest.mark.parametrize("layer", ["conv", "depthwise", "dense"])
def test_a_constant_behind_a_layer_is_folded_into_it(code: int, kind: str, layer: str) -> None:
    net = Net()
    x = net.input(4, 6)
    if layer == "conv":
        y = net.conv(x, 5, 3)
    elif layer == "depthwise":
        y = net.depthwise(x, same=True)
        net.graph.operators[-1].options.fusedActivationFunction = 0
    else:
        y = net.dense(net.mean(x), 5)
    constant = scalar(net, 1.7) if kind == "scalar" else vector(net, y.shape[-1])
    net.output(net.unary(OP.LOGISTIC, binary(net, code, y, constant)))
    assert not {"ADD", "SUB", "MUL", "DIV"} & set(repaired(net)[1])


@pytest.mark.parametrize("code", [OP.ADD, OP.SUB, OP.MUL])
@pytest.mark.parametrize("layer", ["pointwise", "3x3", "depthwise", "dense"])
def test_a_constant_before_layers_is_folded_into_all_of_them(code: int, layer: str) -> None:
    net = Net()
    x = net.input(6, 5)
    shifted = binary(net, code, x, vector(net, 5))
    for _ in range(2):
        if layer == "pointwise":
            net.output(net.pointwise(shifted, 4))
        elif layer == "3x3":
            net.output(net.conv(shifted, 4, 3, 2))
        elif layer == "depthwise":
            made, kind = options("DepthwiseConv2D", padding=VALID, strideH=1, strideW=1, depthMultiplier=1)
            weight = net.weights((1, 3, 3, 5))
            net.output(net.add(OP.DEPTHWISE_CONV_2D, [shifted, weight, net.bias(5)], (1, 4, 4, 5), (made, kind)))
        else:
            net.output(net.dense(shifted, 4, keep=True))
    assert not {"ADD", "SUB", "MUL"} & set(repaired(net)[1])


def test_a_summand_is_not_folded_through_padding_and_a_factor_is() -> None:
    for code, kept in ((OP.ADD, True), (OP.MUL, False)):
        net = Net()
        net.output(net.conv(binary(net, code, net.input(6, 3), vector(net, 3)), 4, 3, 1, SAME))
        assert ({"ADD", "MUL"} & set(repaired(net)[1]) != set()) is kept


def test_a_positive_factor_passes_a_fused_relu_and_others_stay() -> None:
    for value, folded in ((2.0, True), (-2.0, False)):
        net = Net()
        y = net.pointwise(net.input(4, 3), 5, activation=1)
        net.output(net.unary(OP.LOGISTIC, binary(net, OP.MUL, y, scalar(net, value))))
        assert ("MUL" not in repaired(net)[1]) is folded


def test_a_value_that_others_read_too_is_not_changed() -> None:
    net = Net()
    y = net.pointwise(net.input(4, 3), 5)
    net.output(net.unary(OP.LOGISTIC, binary(net, OP.MUL, y, scalar(net, 3.0))), net.unary(OP.LOGISTIC, y))
    _, kinds, left = repaired(net)
    assert kinds["MUL"] == 1
    assert any("MUL with a constant stays" in text for text in left)


def test_a_map_of_constants_stays() -> None:
    net = Net()
    y = net.pointwise(net.input(4, 3), 5)
    whole = net.constant(np.random.default_rng(0).normal(size=(1, 4, 4, 5)).astype(np.float32))
    net.output(binary(net, OP.MUL, y, whole))
    assert repaired(net, 0)[1] == {"CONV_2D": 1, "MUL": 1}


# -- padding ----------------------------------------------------------------------------------------------------------


def test_pads_become_one() -> None:
    net = Net()
    net.output(net.conv(net.pad(net.pad(net.input(7, 3))), 4, 3, 2))
    assert repaired(net, 0)[1] == {"PAD": 1, "CONV_2D": 1}


@pytest.mark.parametrize(("size", "kernel", "fits"), [(9, 3, True), (8, 3, False), (9, 5, True), (8, 5, False)])
def test_same_padding_at_stride_2_is_written_out_where_it_is_equal_on_both_sides(
    size: int, kernel: int, fits: bool
) -> None:
    net = Net()
    net.output(net.depthwise(net.input(size, 4), kernel, 2, same=True))
    _, kinds, left = repaired(net, 0)
    assert kinds["PAD"] == int(fits)
    assert any("train with padding = kernel // 2" in text for text in left) is not fits


def test_a_pad_before_same_at_stride_1_becomes_valid() -> None:
    net = Net()
    net.output(net.conv(net.pad(net.input(7, 3)), 4, 3, 1, SAME))
    model, kinds, _ = repaired(net, 0)
    assert kinds == {"PAD": 1, "CONV_2D": 1}
    assert model.graphs[0].operators[-1].options.padding == VALID


def test_padding_with_another_value_stays() -> None:
    for value, name in ((0.0, "PAD"), (-1.0, "PADV2")):
        net = Net()
        amounts = net.constant(np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32))
        padded = net.add(OP.PADV2, [net.input(6, 3), amounts, scalar(net, value)], (1, 8, 8, 3), options("PadV2"))
        net.output(net.pool(OP.MAX_POOL_2D, padded, 2))
        assert repaired(net, 0)[1][name] == 1


# -- pooling, depthwise -----------------------------------------------------------------------------------------------


def test_an_average_over_the_whole_map_is_a_mean_and_one_over_a_window_is_not() -> None:
    for window, name in ((8, "MEAN"), (4, "AVERAGE_POOL_2D")):
        net = Net()
        net.output(net.pool(OP.AVERAGE_POOL_2D, net.pointwise(net.input(8, 3), 5), window))
        _, kinds, left = repaired(net)
        assert kinds[name] == 1
        assert any("is not the whole map" in text for text in left) is (window == 4)


def test_a_convolution_of_one_channel_a_group_is_depthwise() -> None:
    net = Net()
    net.output(net.conv(net.input(6, 4), 4, 3, groups=4))
    assert repaired(net)[1] == {"DEPTHWISE_CONV_2D": 1}
    net = Net()
    net.output(net.conv(net.input(6, 4), 4, 3, groups=2))
    assert repaired(net)[1] == {"CONV_2D": 1}


# -- tails ------------------------------------------------------------------------------------------------------------


def test_a_tail_of_1x1_convolutions_becomes_fully_connected() -> None:
    net = Net()
    x = net.mean(net.pointwise(net.input(8, 3), 6), keep=True)
    x = net.unary(OP.HARD_SWISH, net.pointwise(x, 12), options("HardSwish"))
    net.output(net.reshape(net.pointwise(x, 10), (1, 10)))
    model, kinds, _ = repaired(net)
    assert kinds == {"CONV_2D": 1, "MEAN": 1, "FULLY_CONNECTED": 2, "HARD_SWISH": 1}
    mean = next(operator for operator in model.graphs[0].operators if operator.name == "MEAN")
    assert not mean.options.keepDims


def test_a_tail_that_the_graph_returns_keeps_its_shape() -> None:
    net = Net()
    x = net.mean(net.pointwise(net.input(8, 3), 6), keep=True)
    net.output(net.pointwise(x, 12), net.unary(OP.LOGISTIC, x))
    _, kinds, _ = repaired(net)
    assert kinds["FULLY_CONNECTED"] == 1
    assert kinds["RESHAPE"] == 2


def test_a_gate_is_no_tail() -> None:
    net = Net()
    x = net.pointwise(net.input(8, 3), 6)
    net.output(net.mean(net.squeeze_excite(x, "conv")))
    assert "FULLY_CONNECTED" not in repaired(net)[1]


# -- layout -----------------------------------------------------------------------------------------------------------

NCHW, NHWC = [0, 3, 1, 2], [0, 2, 3, 1]


@pytest.mark.parametrize(
    "inside",
    [
        pytest.param(lambda net, x: net.unary(OP.RELU, x), id="unary"),
        pytest.param(lambda net, x: binary(net, OP.MUL, x, scalar(net, 3.0)), id="scalar"),
        pytest.param(
            lambda net, x: binary(net, OP.ADD, x, net.constant(np.arange(5, dtype=np.float32).reshape(1, 5, 1, 1))),
            id="channels",
        ),
        pytest.param(lambda net, x: net.unary(OP.LOGISTIC, net.unary(OP.RELU, x)), id="two"),
        pytest.param(
            lambda net, x: net.add(
                OP.PAD,
                [x, net.constant(np.array([[0, 0], [0, 0], [1, 2], [3, 4]], np.int32))],
                (1, 5, 7, 11),
                options("Pad"),
            ),
            id="PAD",
        ),
        pytest.param(lambda net, x: net.mean(x, keep=True, axes=(2, 3)), id="MEAN"),
    ],
)
def test_an_island_in_channels_first_layout_goes(inside: Callable[[Net, Tensor], Tensor]) -> None:
    net = Net()
    x = inside(net, transpose(net, net.pointwise(net.input(4, 3), 5), NCHW))
    net.output(net.pointwise(transpose(net, x, NHWC), 2))
    assert "TRANSPOSE" not in repaired(net)[1]


def test_islands_with_two_ways_in_go() -> None:
    net = Net()
    x, y = (transpose(net, net.pointwise(net.input(4, 3), 5), NCHW) for _ in range(2))
    joined = net.add(OP.CONCATENATION, [binary(net, OP.ADD, x, x), y], (1, 10, 4, 4), options("Concatenation", axis=1))
    net.output(net.pointwise(transpose(net, joined, NHWC), 2))
    assert "TRANSPOSE" not in repaired(net)[1]


def test_an_island_whose_value_is_read_twice_goes() -> None:
    """SiLU, x * LOGISTIC(x), as onnx2tf 2 writes it."""
    net = Net()
    x = transpose(net, net.pointwise(net.input(4, 3), 5), NCHW)
    net.output(net.pointwise(transpose(net, binary(net, OP.MUL, x, net.unary(OP.LOGISTIC, x)), NHWC), 2))
    assert "TRANSPOSE" not in repaired(net)[1]


def test_a_gate_in_channels_first_layout_comes_back_and_is_repaired() -> None:
    """A whole squeeze-excite block with a hard sigmoid written out, as onnx2tf 2 writes it."""
    net = Net()
    x = transpose(net, net.pointwise(net.input(6, 3), 8), NCHW)
    gate = net.reshape(net.mean(x, keep=True, axes=(3, 2)), (1, 1, 1, 8))
    gate = net.reshape(net.pointwise(net.pointwise(gate, 4, activation=1), 8), (1, 8, 1, 1))
    gate = binary(net, OP.ADD, binary(net, OP.MUL, gate, scalar(net, 1 / 6)), scalar(net, 0.5))
    product = net.add(OP.MUL, [net.unary(OP.RELU_0_TO_1, gate), x], x.shape, options("Mul"))
    net.output(net.mean(net.pointwise(transpose(net, product, NHWC), 4)))
    assert repaired(net)[1] == {"CONV_2D": 4, "MEAN": 2, "MUL": 1}


def test_a_transposed_value_that_cannot_be_moved_on_is_not_moved_for_some() -> None:
    net = Net()
    x = transpose(net, net.pointwise(net.input(4, 3), 4), NCHW)
    net.output(net.unary(OP.RELU, x), net.add(OP.SOFTMAX, [x], x.shape, options("Softmax", beta=1.0)))
    assert repaired(net, 0)[1]["TRANSPOSE"] == 1


def test_a_mean_over_a_transposed_map_needs_no_transpose() -> None:
    net = Net()
    net.output(net.dense(net.mean(transpose(net, net.pointwise(net.input(4, 3), 5), NCHW), axes=(2, 3)), 4))
    assert repaired(net)[1] == {"CONV_2D": 1, "MEAN": 1, "FULLY_CONNECTED": 1}


def test_reshapes_that_undo_each_other_go_and_a_real_one_stays() -> None:
    net = Net()
    x = net.reshape(net.reshape(net.pointwise(net.input(4, 3), 5), (1, 80)), (1, 4, 4, 5))
    net.output(net.reshape(net.pointwise(x, 2), (1, 32)))
    assert repaired(net, 0)[1] == {"CONV_2D": 2, "RESHAPE": 1}


def test_a_channel_shuffle_is_real() -> None:
    net = Net()
    x = net.reshape(net.pointwise(net.input(4, 3), 6), (1, 4, 4, 2, 3))
    x = net.reshape(transpose(net, x, [0, 1, 2, 4, 3]), (1, 4, 4, 6))
    net.output(net.pointwise(x, 2))
    assert repaired(net, 0)[1]["TRANSPOSE"] == 1


def test_a_transpose_that_the_graph_returns_stays() -> None:
    net = Net()
    net.output(transpose(net, net.unary(OP.RELU, transpose(net, net.input(4, 3), [0, 2, 1, 3])), NCHW))
    assert repaired(net, 0)[1]["TRANSPOSE"] == 1


# -- depth to space ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("channels", "block"), [(2, 4), (3, 2), (1, 2)])
@pytest.mark.parametrize("between", [None, OP.LOGISTIC])
def test_pixel_shuffle_becomes_depth_to_space(channels: int, block: int, between: int | None) -> None:
    net = Net()
    x = net.pointwise(net.input(3, 4), channels * block**2)
    x = x if between is None else net.unary(between, x)
    six = net.reshape(x, (1, 3, 3, channels, block, block))
    net.output(net.reshape(transpose(net, six, [0, 1, 4, 2, 5, 3]), (1, 3 * block, 3 * block, channels)))
    _, kinds, _ = repaired(net, 0)
    assert kinds["DEPTH_TO_SPACE"] == 1
    assert not {"TRANSPOSE", "RESHAPE"} & set(kinds)


def test_a_shuffle_whose_channels_cannot_be_reordered_stays() -> None:
    net = Net()
    x = net.pointwise(net.input(3, 4), 8)
    six = net.reshape(x, (1, 3, 3, 2, 2, 2))
    net.output(net.reshape(transpose(net, six, [0, 1, 4, 2, 5, 3]), (1, 6, 6, 2)), net.unary(OP.RELU, x))
    _, kinds, left = repaired(net, 0)
    assert kinds["TRANSPOSE"] == 1
    assert any("PixelShuffle stays" in text for text in left)


@pytest.mark.parametrize("between", [None, OP.LOGISTIC])
def test_a_gather_of_channels_becomes_the_order_of_the_convolution(between: int | None) -> None:
    net = Net()
    x = net.pointwise(net.input(3, 4), 8)
    x = x if between is None else net.unary(between, x)
    order = net.constant(np.array([3, 1, 0, 2, 7, 6, 5, 4], np.int32))
    gathered = net.add(OP.GATHER, [x, order], x.shape, options("Gather", axis=3))
    net.output(net.depth_to_space(gathered))
    assert "GATHER" not in repaired(net, 0)[1]


def test_a_gather_behind_something_that_others_read_stays() -> None:
    net = Net()
    x = net.pointwise(net.input(3, 4), 8)
    order = net.constant(np.array([3, 1, 0, 2, 7, 6, 5, 4], np.int32))
    net.output(net.add(OP.GATHER, [x, order], x.shape, options("Gather", axis=3)), net.unary(OP.RELU, x))
    _, kinds, left = repaired(net, 0)
    assert kinds["GATHER"] == 1
    assert any("GATHER of channels stays" in text for text in left)
