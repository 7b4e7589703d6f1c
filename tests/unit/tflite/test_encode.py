"""Encoding a graph's weights: same numbers, a smaller file, and a real interpreter that agrees."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from graphs import OP, VALID, Net, classifier, options

from sparsetorch.tflite import densify, densify_model, encode, from_bytes, load, save, to_bytes

_RUN = """
import json, sys
import numpy as np
from ai_edge_litert.interpreter import Interpreter
outputs = []
for path in sys.argv[1:]:
    interpreter = Interpreter(path, num_threads=1)
    interpreter.allocate_tensors()
    details = interpreter.get_tensor_details()
    given = interpreter.get_input_details()[0]
    interpreter.set_tensor(given["index"], np.random.default_rng(5).uniform(-1, 1, given["shape"]).astype(np.float32))
    interpreter.invoke()
    outputs.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).ravel().tolist())
print(json.dumps([len(details), outputs]))
"""


def run_fresh(*paths: Path) -> list[list[float]]:
    """Outputs of each file, from one new process that also reads all tensor details."""
    done = subprocess.run([sys.executable, "-c", _RUN, *map(str, paths)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])[1]


def test_a_fresh_interpreter_gives_the_dense_numbers(tmp_path: Path) -> None:
    model = classifier()
    dense = save(model, tmp_path / "dense.tflite")
    report = encode(model)
    sparse = save(model, tmp_path / "sparse.tflite")
    save(densify_model(model), tmp_path / "twin.tflite")
    assert [entry.encoding for entry in report if entry.pointwise] == ["sparse"] * 9
    assert {(entry.encoding, entry.reason) for entry in report if not entry.pointwise} == {("dense", "has no zeros")}
    assert sparse < dense
    given, encoded, twin = run_fresh(*(tmp_path / f"{name}.tflite" for name in ("dense", "sparse", "twin")))
    assert np.std(given) > 1e-3
    np.testing.assert_allclose(encoded, given, rtol=1e-5, atol=1e-6)
    assert twin == given


def test_a_weight_of_zeros_runs(tmp_path: Path) -> None:
    net = Net(sparsity=1.0)
    net.output(net.mean(net.pointwise(net.stem(net.input(8, 3)), 32)))
    model = net.model()
    save(model, tmp_path / "dense.tflite")
    assert [entry.sparsity for entry in encode(model) if entry.pointwise] == [1]
    save(model, tmp_path / "sparse.tflite")
    given, encoded = run_fresh(tmp_path / "dense.tflite", tmp_path / "sparse.tflite")
    np.testing.assert_allclose(encoded, given, rtol=1e-6)


def test_the_weight_keeps_its_name_and_values() -> None:
    model = classifier()
    before = {tensor.name: tensor.array() for tensor in model.tensors if tensor.name.endswith("expand.weight")}
    encode(model)
    loaded = from_bytes(to_bytes(model))
    after = {tensor.name: tensor for tensor in loaded.tensors if tensor.name in before}
    assert len(before) == 4
    for name, values in before.items():
        assert densify(after[name]).tobytes() == values.tobytes()
        unpack = [operator for operator in loaded.graphs[0].operators if operator.inputs[0] is after[name]]
        assert [(operator.code, operator.version) for operator in unpack] == [(OP.DENSIFY, 1)]
        assert unpack[0].outputs[0].name == f"{name}/densified"


def test_encoding_twice_changes_nothing() -> None:
    model = classifier()
    encode(model)
    once = to_bytes(model)
    assert {entry.reason for entry in encode(model) if entry.pointwise} == {"already encoded"}
    assert to_bytes(model) == once


def test_minus_zero_counts_as_zero() -> None:
    net = Net(sparsity=0.9)
    weight = net.weights((32, 1, 1, 32), 0.9)
    values = weight.array().copy()
    values[values == 0] = -0.0
    weight.data = np.frombuffer(values.tobytes(), np.uint8)
    net.output(net.conv(net.input(4, 32), 32, 1, weight=weight))
    encode(net.model())
    assert not np.signbit(densify(weight)[densify(weight) == 0]).any()
    assert weight.stored().size == np.count_nonzero(values)


def test_a_tensor_that_would_grow_stays_dense_and_is_reported() -> None:
    net = Net(sparsity=0.1)
    net.output(net.pointwise(net.input(4, 32), 32, name="layer.weight"))
    (entry,) = encode(net.model())
    assert (entry.encoding, entry.bytes, entry.dense_bytes) == ("dense", 4096, 4096)
    assert entry.reason is not None
    assert entry.reason.startswith("would grow from 4096 to 4")


def test_the_reported_bytes_are_about_what_the_file_saves() -> None:
    model = classifier(size=64)
    dense = len(to_bytes(model))
    report = encode(model)
    saved = sum(entry.dense_bytes - entry.bytes for entry in report)
    assert abs(dense - len(to_bytes(model)) - saved) < 60 * len(report)


def test_a_weight_of_two_convolutions_is_encoded_once() -> None:
    net = Net()
    weight = net.weights((32, 1, 1, 32), 0.9, "twice.weight")
    x = net.input(4, 32)
    net.output(net.conv(net.conv(x, 32, 1, weight=weight), 32, 1, weight=weight))
    model = net.model()
    assert [entry.encoding for entry in encode(model)] == ["sparse"]
    codes = [operator.code for operator in model.graphs[0].operators]
    assert codes == [OP.DENSIFY, OP.CONV_2D, OP.CONV_2D]
    assert from_bytes(to_bytes(model)).graphs[0].operators[2].inputs[1].name == "twice.weight/densified"


def test_tensors_that_share_a_buffer_do_not_change_each_other() -> None:
    net = Net()
    first, second = net.weights((32, 1, 1, 32), 0.9, "first.weight"), net.tensor((32, 1, 1, 32), name="second.weight")
    second.data = first.data
    x = net.input(4, 32)
    net.output(net.conv(net.conv(x, 32, 1, weight=first), 32, 1, weight=second))
    model = from_bytes(to_bytes(net.model()))
    one, two = (next(t for t in model.tensors if t.name == f"{name}.weight") for name in ("first", "second"))
    assert one.data is two.data
    encode(model, lambda tensor: tensor.name == "first.weight")
    assert one.sparsity is not None
    assert two.sparsity is None
    assert densify(one).tobytes() == two.array().tobytes()


def test_a_weight_that_something_else_reads_stays_dense() -> None:
    net = Net()
    weight = net.weights((32, 1, 1, 32), 0.9)
    net.output(net.conv(net.input(4, 32), 32, 1, weight=weight), net.unary(OP.ABS, weight))
    assert encode(net.model())[0].reason == "also read by something other than a layer of its kind"


def test_selection_is_reported() -> None:
    report = encode(classifier(), lambda tensor: tensor.name != "head.weight")
    assert [(entry.name, entry.reason) for entry in report if entry.encoding == "dense" and entry.pointwise] == [
        ("head.weight", "not selected")
    ]


def test_layers_of_every_kind_are_stored_sparse_where_that_is_smaller(tmp_path: Path) -> None:
    net = Net()
    x = net.conv(net.input(8, 3), 32, 3, sparsity=0.9, name="conv.weight")
    chosen = options("DepthwiseConv2D", padding=VALID, strideH=1, strideW=1, depthMultiplier=1)
    weight = net.weights((1, 3, 3, 32), 0.99, "depthwise.weight")
    x = net.add(OP.DEPTHWISE_CONV_2D, [x, weight, net.bias(32)], (1, 4, 4, 32), chosen)
    pooled = net.mean(x)
    weight = net.weights((50, 32), 0.9, "dense.weight")
    net.output(net.add(OP.FULLY_CONNECTED, [pooled, weight, net.bias(50)], (1, 50), options("FullyConnected")))
    model = net.model()
    save(model, tmp_path / "dense.tflite")
    entries = {entry.name: entry.encoding for entry in encode(model)}
    assert entries == {"conv.weight": "sparse", "depthwise.weight": "sparse", "dense.weight": "sparse"}
    save(model, tmp_path / "sparse.tflite")
    given, encoded = run_fresh(tmp_path / "dense.tflite", tmp_path / "sparse.tflite")
    np.testing.assert_allclose(encoded, given, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 3), (2, 5, 7), (3, 1, 1, 4)])
def test_the_twin_of_a_dense_model_is_equal(shape: tuple[int, ...]) -> None:
    net = Net()
    net.output(net.unary(OP.ABS, net.constant(np.ones(shape, np.float32))))
    model = net.model()
    assert to_bytes(densify_model(model)) == to_bytes(model)


def test_the_twin_leaves_the_encoded_model_alone(tmp_path: Path) -> None:
    model = classifier()
    dense = to_bytes(model)
    encode(model)
    save(model, tmp_path / "m.tflite")
    loaded = load(tmp_path / "m.tflite")
    before = to_bytes(loaded)
    twin = densify_model(loaded)
    assert to_bytes(loaded) == before
    assert all(operator.code != schema.BuiltinOperator.DENSIFY for operator in twin.graphs[0].operators)
    assert len(to_bytes(twin)) == len(dense)
