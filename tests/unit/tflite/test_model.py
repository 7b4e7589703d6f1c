"""Reading and writing: everything survives, nothing half-written, and no file breaks the reader."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from graphs import OP, Net, classifier

from sparsetorch.errors import BadInputError
from sparsetorch.tflite import Model, Operator, Signature, Tensor, encode, from_bytes, load, save, to_bytes
from sparsetorch.xnnpack import Verdict, verify


def rich_model() -> Model:
    """A model with one of everything that is easily lost."""
    net = Net()
    x = net.input(8, 3)
    y = net.pointwise(x, 4)
    state = net.tensor((1, 4), name="state")
    state.fields.isVariable = True
    state.fields.shapeSignature = [-1, 4]
    custom = Operator(OP.CUSTOM, [y, None, state], [net.tensor((1, 4))], custom_code="Mystery", version=7)
    custom.fields.customOptions = np.arange(5, dtype=np.uint8)
    custom.intermediates = [net.tensor((2, 2), name="scratch")]
    net.graph.operators.append(custom)
    quantized = net.constant(np.arange(6, dtype=np.int8).reshape(2, 3), "quantized")
    quantized.quantization = schema.QuantizationParametersT()
    quantized.quantization.scale = np.array([0.5, 0.25], np.float32)
    quantized.quantization.zeroPoint = np.array([0, 1], np.int64)
    net.output(y, custom.outputs[0])
    model = net.model()
    model.signatures = [Signature("serve", net.graph, [("image", x)], [("scores", y)])]
    model.metadata = [("min_runtime_version", np.frombuffer(b"1.5.0", np.uint8)), ("empty", None)]
    model.description = "ünïcode"
    encode(model)
    return model


def plain(value: Any, seen: dict[int, int] | None = None) -> Any:
    """A model as nested plain values; each object once, then by number."""
    seen = {} if seen is None else seen
    if isinstance(value, np.ndarray | bytes):
        return bytes(value)
    if isinstance(value, list | tuple):
        return [plain(item, seen) for item in value]
    if not hasattr(value, "__dict__") and not dataclasses.is_dataclass(value):
        return value.item() if isinstance(value, np.generic) else value
    if id(value) in seen:
        return seen[id(value)]
    seen[id(value)] = len(seen)
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name), seen) for field in dataclasses.fields(value)}
    skipped = {"buffer", "opcodeIndex", "shape", "name", "type", "inputs", "outputs", "builtinOptionsType", "version"}
    return {key: plain(item, seen) for key, item in vars(value).items() if key not in skipped and item is not None}


def test_everything_survives_a_round_trip() -> None:
    first = from_bytes(to_bytes(rich_model()))
    second = from_bytes(to_bytes(first))
    assert plain(first) == plain(second)
    assert to_bytes(first) == to_bytes(second)
    graph = first.graphs[0]
    custom = graph.operators[-1]
    assert (custom.custom_code, custom.version, custom.name) == ("Mystery", 7, "Mystery")
    assert bytes(custom.fields.customOptions) == bytes(range(5))
    assert custom.inputs[1] is None
    assert custom.inputs[2].fields.isVariable
    assert list(custom.inputs[2].fields.shapeSignature) == [-1, 4]
    assert [tensor.name for tensor in custom.intermediates] == ["scratch"]
    assert first.signatures[0].inputs == [("image", graph.inputs[0])]
    assert first.signatures[0].outputs[0][1] is graph.outputs[0]
    assert first.description == "ünïcode"
    assert [(name, None if data is None else bytes(data)) for name, data in first.metadata] == [
        ("min_runtime_version", b"1.5.0"),
        ("empty", None),
    ]
    quantized = next(tensor for tensor in graph.tensors if tensor.name == "quantized")
    assert quantized.quantization.scale.tolist() == [0.5, 0.25]
    assert quantized.array().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_name_that_is_not_utf8_survives() -> None:
    net = Net()
    net.output(net.unary(OP.ABS, net.input(2, 3)))
    net.graph.inputs[0].name = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert from_bytes(to_bytes(net.model())).graphs[0].inputs[0].name == net.graph.inputs[0].name


def test_constants_are_views_at_multiples_of_16() -> None:
    data = to_bytes(classifier())
    base = np.frombuffer(data, np.uint8).ctypes.data
    places = [tensor.data.ctypes.data - base for tensor in from_bytes(data).tensors if tensor.data is not None]
    assert len(places) > 20
    assert all(0 < place < len(data) and place % 16 == 0 for place in places)


def test_a_tensor_that_only_an_operator_knows_is_written() -> None:
    net = Net()
    x = net.input(2, 3)
    hidden = Tensor("hidden", (1, 2, 2, 3))
    net.graph.operators.append(Operator(OP.ABS, [x], [hidden]))
    net.output(hidden)
    assert from_bytes(to_bytes(net.model())).graphs[0].outputs[0].name == "hidden"


def test_old_files_with_the_8_bit_operator_code_are_read() -> None:
    raw = schema.ModelT.InitFromObj(schema.Model.GetRootAs(to_bytes(classifier()), 0))
    for code in raw.operatorCodes:
        code.builtinCode = 0
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    builder.Finish(raw.Pack(builder), b"TFL3")
    old = from_bytes(bytes(builder.Output()))
    assert [operator.name for operator in old.graphs[0].operators][:2] == ["PAD", "CONV_2D"]


def test_saving_is_whole_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    size = save(classifier(), path)
    model = load(path)
    before = path.read_bytes()
    assert len(before) == size
    encode(model)
    assert save(model, path) < size  # onto the file that the model's constants are views of
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.tflite"]
    with pytest.raises(BadInputError, match="cannot be written"):
        save(model, tmp_path / "nowhere" / "m.tflite")
    model.graphs[0].operators[0].inputs[0] = "not a tensor"  # type: ignore[call-overload]
    kept = path.read_bytes()
    with pytest.raises(AttributeError):
        save(model, path)
    assert path.read_bytes() == kept
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.tflite"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"TFL", "is not a TFLite model"),
        (b"hello, this is a text file\n", "is not a TFLite model"),
        (b"\x08\0\0\0ONNX" + bytes(100), "is not a TFLite model"),
        (b"\xff\xff\xff\xffTFL3" + bytes(100), "is a damaged TFLite model"),
        (b"\x08\0\0\0TFL3", "is a damaged TFLite model"),
        (b"\x08\0\0\0TFL3" + bytes(1000), "is a damaged TFLite model"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.tflite"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=message):
        load(path)


def test_a_directory_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"is a directory; a \.tflite file is needed"):
        load(tmp_path)
    with pytest.raises(BadInputError, match="does not exist; give the path"):
        load(tmp_path / "missing.tflite")
    with pytest.raises(BadInputError, match="does not exist"):
        load(tmp_path / "missing" / "x.tflite")


def answer(data: bytes) -> Verdict | None:
    """A verdict or a clear refusal, fast; anything else fails the test."""
    start = time.perf_counter()
    try:
        return verify(from_bytes(data))
    except BadInputError:
        return None
    finally:
        assert time.perf_counter() - start < 2


@pytest.fixture(scope="module")
def encoded() -> bytes:
    model = classifier()
    encode(model)
    return to_bytes(model)


def test_a_truncated_file_is_refused(encoded: bytes) -> None:
    points = [*range(0, 200), *range(200, len(encoded) - 1, 997), len(encoded) - 1]
    answers = [answer(encoded[:point]) for point in points]
    assert sum(verdict is not None for verdict in answers) <= 1


def test_flipped_bytes_give_a_refusal_or_a_verdict(encoded: bytes) -> None:
    random = np.random.default_rng(1)
    refused = 0
    for _ in range(300):
        damaged = bytearray(encoded)
        for place in random.integers(0, len(encoded), random.integers(1, 4)):
            damaged[place] ^= int(random.integers(1, 256))
        refused += answer(bytes(damaged)) is None
    assert 0 < refused < 300


def test_damaged_structure_gives_a_refusal_or_a_verdict(encoded: bytes) -> None:
    """The same, aimed at the tables in front of the constants, where a flip matters."""
    random = np.random.default_rng(2)
    places = [index for index in range(len(encoded)) if encoded[index] < 32]
    refused = 0
    for _ in range(300):
        damaged = bytearray(encoded)
        damaged[int(random.choice(places))] = int(random.integers(0, 256))
        refused += answer(bytes(damaged)) is None
    assert refused > 0


def test_a_list_that_claims_too_much_is_refused_at_once(encoded: bytes) -> None:
    table = schema.Model.GetRootAs(encoded, 0)._tab
    start = table.Vector(table.Offset(8)) - 4
    for claimed in (1000, 10**6, 2**31, 2**32 - 1):
        damaged = bytearray(encoded)
        damaged[start : start + 4] = claimed.to_bytes(4, "little")
        with pytest.raises(BadInputError, match="damaged TFLite model"):
            from_bytes(bytes(damaged))


def test_a_constant_of_the_wrong_size_is_refused() -> None:
    net = Net()
    weight = net.constant(np.zeros((4, 3), np.float32), "weight")
    weight.shape = (4, 4)
    net.output(net.unary(OP.ABS, weight))
    with pytest.raises(BadInputError, match=r"'weight' holds 48 bytes, and float32 of shape \[4, 4\] takes 64"):
        from_bytes(to_bytes(net.model()))


def test_an_index_out_of_range_is_refused() -> None:
    raw = schema.ModelT.InitFromObj(schema.Model.GetRootAs(to_bytes(classifier()), 0))
    import flatbuffers

    raw.subgraphs[0].operators[3].inputs = [10**6]
    builder = flatbuffers.Builder(1024)
    builder.Finish(raw.Pack(builder), b"TFL3")
    with pytest.raises(BadInputError, match="tensor number 1000000 is asked for"):
        from_bytes(bytes(builder.Output()))
