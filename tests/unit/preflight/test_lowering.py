"""ONNX lowered to TFLite computes what ONNX does: LiteRT against onnxruntime, operator by operator."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tflite_run import outputs

from sparsetorch.errors import BadInputError
from sparsetorch.preflight.lowering import LOWERINGS, lower

IMAGE = (1, 6, 8, 10)
RANDOM = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return RANDOM.normal(0, 0.5, shape).astype(np.float32)


def write(
    folder: Path, nodes: list[Any], constants: dict[str, np.ndarray], shape: tuple[int, ...], results: int = 1
) -> Path:
    """A graph from "x" to "y" (or "y0", "y1", ...)."""
    names = ["y"] if results == 1 else [f"y{index}" for index in range(results)]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    path = folder / "model.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(model), str(path))
    return path


def check(path: Path, positive: bool = False) -> list[str]:
    """Both runtimes on one random input; returns the names of TFLite's operators."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).normal(0, 3, session.get_inputs()[0].shape).astype(np.float32)
    x = np.abs(x) + 0.5 if positive else x
    wanted = session.run(None, {"x": x})
    model, opaque = lower(path)
    assert opaque == ()
    found = outputs(model, last(x))
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.shape == last(theirs).shape
        np.testing.assert_allclose(ours, last(theirs), rtol=1e-5, atol=1e-5)
    return [operator.name for operator in model.graphs[0].operators]


def last(array: np.ndarray) -> np.ndarray:
    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "groups", "dilation", "wanted"),
    [
        (1, 1, 0, 1, 1, ["CONV_2D"]),
        (3, 1, 1, 1, 1, ["CONV_2D"]),  # SAME
        (3, 2, 1, 1, 1, ["PAD", "CONV_2D"]),
        (3, 1, 0, 1, 1, ["CONV_2D"]),
        (3, 1, 2, 1, 1, ["PAD", "CONV_2D"]),
        (3, 1, 2, 1, 2, ["CONV_2D"]),
        (3, 1, 1, 3, 1, ["CONV_2D"]),
        (5, 1, 2, 6, 1, ["DEPTHWISE_CONV_2D"]),
        (3, 2, 1, 6, 1, ["PAD", "DEPTHWISE_CONV_2D"]),
    ],
)
def test_convolutions(
    tmp_path: Path, kernel: int, stride: int, padding: int, groups: int, dilation: int, wanted: list[str]
) -> None:
    """SAME where the size stays at stride 1, PAD and VALID otherwise: as the real converter has it."""
    node = helper.make_node(
        "Conv", ["x", "w", "b"], ["y"], strides=[stride] * 2, pads=[padding] * 4, group=groups, dilations=[dilation] * 2
    )
    path = write(tmp_path, [node], {"w": weights(12, 6 // groups, kernel, kernel), "b": weights(12)}, IMAGE)
    assert check(path) == wanted


def test_a_convolution_without_bias_gets_one(tmp_path: Path) -> None:
    """XNNPACK's delegate takes none without."""
    path = write(tmp_path, [helper.make_node("Conv", ["x", "w"], ["y"])], {"w": weights(4, 6, 1, 1)}, IMAGE)
    check(path)
    assert lower(path)[0].graphs[0].operators[0].inputs[2] is not None


LAYERS: dict[str, tuple[dict[str, Any], dict[str, np.ndarray], tuple[int, ...]]] = {
    "Gemm": ({"transB": 1}, {"w": weights(5, 12), "b": weights(5)}, (2, 12)),
    "Gemm ": ({"alpha": 2.0, "beta": 0.5}, {"w": weights(12, 5), "b": weights(1)}, (2, 12)),
    "MatMul": ({}, {"w": weights(12, 5)}, (2, 3, 12)),
    "BatchNormalization": ({}, {"s": weights(6), "b": weights(6), "m": weights(6), "v": np.abs(weights(6))}, IMAGE),
    "ConvTranspose": ({"strides": [2, 2]}, {"w": weights(6, 4, 2, 2), "b": weights(4)}, IMAGE),
    "ConvTranspose ": ({"strides": [2, 2], "pads": [1] * 4}, {"w": weights(6, 4, 3, 3), "b": weights(4)}, IMAGE),
    "PRelu": ({}, {"s": weights(6, 1, 1)}, IMAGE),
    "LeakyRelu": ({"alpha": 0.2}, {}, IMAGE),
    "Clip": ({}, {"low": np.float32(0), "high": np.float32(6)}, IMAGE),
    "Clip ": ({}, {"low": np.float32(-0.5), "high": np.float32(2)}, IMAGE),
    "HardSigmoid": ({"alpha": 1 / 6, "beta": 0.5}, {}, IMAGE),
    "Gelu": ({}, {}, IMAGE),
    "Mish": ({}, {}, IMAGE),
    "Reciprocal": ({}, {}, IMAGE),
    "Softmax": ({"axis": 1}, {}, IMAGE),
    "Softmax ": ({"axis": -1}, {}, IMAGE),
    "LogSoftmax": ({"axis": 1}, {}, (2, 9)),
    "GlobalAveragePool": ({}, {}, IMAGE),
    "GlobalMaxPool": ({}, {}, IMAGE),
    "ReduceMean": ({"keepdims": 0}, {"axes": np.array([2, 3])}, IMAGE),
    "ReduceMean ": ({"keepdims": 1}, {"axes": np.array([-1, -2])}, IMAGE),
    "ReduceMax": ({"keepdims": 0}, {"axes": np.array([1])}, IMAGE),
    "ReduceSum": ({"keepdims": 0}, {"axes": np.array([3])}, IMAGE),
    "AveragePool": ({"kernel_shape": [2, 2], "strides": [2, 2]}, {}, IMAGE),
    "AveragePool ": ({"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1}, {}, IMAGE),
    "AveragePool  ": ({"kernel_shape": [3, 3], "pads": [1] * 4}, {}, IMAGE),
    "MaxPool": ({"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}, {}, IMAGE),
    "MaxPool ": ({"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, {}, IMAGE),
    "Flatten": ({"axis": 1}, {}, IMAGE),
    "Reshape": ({}, {"shape": np.array([1, 2, 3, 80])}, IMAGE),
    "Reshape ": ({}, {"shape": np.array([1, 3, 2, 8, 10])}, IMAGE),
    "Squeeze": ({}, {"axes": np.array([0])}, IMAGE),
    "Unsqueeze": ({}, {"axes": np.array([1])}, (3, 4, 5)),
    "Transpose": ({"perm": [0, 2, 3, 1]}, {}, IMAGE),
    "Transpose ": ({"perm": [0, 3, 1, 2]}, {}, IMAGE),
    "Transpose  ": ({"perm": [2, 0, 1]}, {}, (3, 4, 5)),
    "Slice": (
        {}, {"from": np.array([1, 0]), "to": np.array([5, 2**62]), "axes": np.array([1, 3]), "steps": np.array([1, 2])}, IMAGE,
    ),
    "Gather": ({"axis": 1}, {"i": np.array([4, 0, -1])}, IMAGE),
    "Gather ": ({"axis": 1}, {"i": np.array(2)}, IMAGE),
    "Pad": ({}, {"pads": np.array([0, 0, 1, 2, 0, 0, 3, 4])}, IMAGE),
    "Pad ": ({}, {"pads": np.array([0, 1, 0, 0, 0, 2, 0, 0]), "fill": np.float32(1.5)}, IMAGE),
    "Pad  ": ({"mode": "reflect"}, {"pads": np.array([0, 0, 1, 2, 0, 0, 3, 4])}, IMAGE),
    "DepthToSpace": ({"blocksize": 2, "mode": "CRD"}, {}, (1, 12, 3, 4)),
    "DepthToSpace ": ({"blocksize": 2, "mode": "DCR"}, {}, (1, 12, 3, 4)),
    "SpaceToDepth": ({"blocksize": 2}, {}, IMAGE),
    "Expand": ({}, {"shape": np.array([1, 6, 8, 10])}, (1, 6, 1, 1)),
    "Identity": ({}, {}, IMAGE),
}  # fmt: skip
"""Operator (blanks tell cases apart) -> attributes, constant operands, input shape."""


@pytest.mark.parametrize("case", LAYERS)
def test_operators(tmp_path: Path, case: str) -> None:
    attributes, constants, shape = LAYERS[case]
    nodes = [helper.make_node(case.strip(), ["x", *constants], ["y"], **attributes)]
    if case == "Identity":  # LiteRT runs no empty graph
        nodes = [helper.make_node("Identity", ["x"], ["z"]), helper.make_node("Relu", ["z"], ["y"])]
    check(write(tmp_path, nodes, constants, shape), positive=case in ("Reciprocal", "Mish"))


@pytest.mark.parametrize(
    "op", ["Abs", "Ceil", "Cos", "Elu", "Exp", "Floor", "HardSwish", "Neg", "Relu", "Round", "Sigmoid", "Sin", "Tanh"]
)
def test_unary_operators(tmp_path: Path, op: str) -> None:
    assert len(check(write(tmp_path, [helper.make_node(op, ["x"], ["y"])], {}, IMAGE))) == 1


@pytest.mark.parametrize("op", ["Log", "Sqrt"])
def test_unary_operators_of_positive_numbers(tmp_path: Path, op: str) -> None:
    check(write(tmp_path, [helper.make_node(op, ["x"], ["y"])], {}, IMAGE), positive=True)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
@pytest.mark.parametrize("other", [(), (6, 1, 1), (1, 6, 1, 1), (10,), (8, 1), IMAGE])
def test_broadcasting_counts_from_the_right_in_channels_first_order(
    tmp_path: Path, op: str, other: tuple[int, ...]
) -> None:
    constant = np.asarray(np.abs(weights(*other)) + 0.5, np.float32)
    check(write(tmp_path, [helper.make_node(op, ["x", "c"], ["y"])], {"c": constant}, IMAGE))


def test_computed_operands_of_different_rank(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["row"], keepdims=0),
        helper.make_node("Mul", ["x", "row"], ["y"]),
    ]
    check(write(tmp_path, nodes, {"axes": np.array([0, 1, 2])}, IMAGE))


@pytest.mark.parametrize(("sizes", "operator"), [((3, 3), "SPLIT"), ((2, 4), "SPLIT_V")])
def test_split_and_concat(tmp_path: Path, sizes: tuple[int, int], operator: str) -> None:
    nodes = [
        helper.make_node("Split", ["x", "sizes"], ["a", "b"], axis=1),
        helper.make_node("Concat", ["b", "a"], ["y"], axis=1),
    ]
    assert check(write(tmp_path, nodes, {"sizes": np.array(sizes)}, IMAGE)) == [operator, "CONCATENATION"]


@pytest.mark.parametrize(
    ("mode", "where"),
    [("linear", "half_pixel"), ("linear", "align_corners"), ("linear", "asymmetric"), ("nearest", "asymmetric")],
)
def test_resize(tmp_path: Path, mode: str, where: str) -> None:
    chosen = {"nearest_mode": "floor"} if mode == "nearest" else {}
    node = helper.make_node(
        "Resize", ["x", "", "scales"], ["y"], mode=mode, coordinate_transformation_mode=where, **chosen
    )
    check(write(tmp_path, [node], {"scales": np.array([1, 1, 2, 2], np.float32)}, IMAGE))


def test_constants_are_computed_ahead(tmp_path: Path) -> None:
    nodes = [helper.make_node("Sqrt", ["c"], ["root"]), helper.make_node("Mul", ["x", "root"], ["y"])]
    assert check(write(tmp_path, nodes, {"c": np.float32(4)}, IMAGE)) == ["MUL"]


def test_an_unknown_operator_is_opaque_and_named(tmp_path: Path) -> None:
    """The graph goes on behind it."""
    nodes = [helper.make_node("Erf", ["x"], ["e"]), helper.make_node("Relu", ["e"], ["y"])]
    model, opaque = lower(write(tmp_path, nodes, {}, IMAGE))
    assert [operator.name for operator in model.graphs[0].operators] == ["Erf", "RELU"]
    assert opaque == ("Erf: not known here",)
    assert "Erf" not in LOWERINGS


def test_a_use_that_is_not_known_is_opaque_and_leaves_nothing_behind(tmp_path: Path) -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=2)
    model, opaque = lower(write(tmp_path, [node], {}, IMAGE))
    assert [operator.name for operator in model.graphs[0].operators] == ["Softmax"]
    assert opaque == ("Softmax: Softmax over axis 2 of 4",)


def test_open_sizes_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, [helper.make_node("Relu", ["x"], ["y"])], {}, IMAGE)
    content = onnx.load(str(path))
    content.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    onnx.save(content, str(path))
    with pytest.raises(BadInputError, match="not fixed"):
        lower(path)
