"""What exporters of this field get wrong, one test per kind; all conversions of this file in one process."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from converted import AlreadyConverted
from torch import Tensor, nn

import sparsetorch
from sparsetorch.errors import BadInputError, WrongNumbersError
from sparsetorch.exporter import pipeline
from sparsetorch.exporter.interpreter import open_file, run
from sparsetorch.exporter.onnx_to_tflite import convert_all
from sparsetorch.exporter.torch_to_onnx import torch_to_onnx
from sparsetorch.tflite import load


def conv(
    inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1, act: type = nn.ReLU6
) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), act())


class Net(nn.Module):
    """Two strides, hard-swish, a gate with a hard sigmoid, and named outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 16, 3, 2, act=nn.Hardswish)
        self.wide = conv(16, 16, act=nn.Hardswish)
        self.down = conv(16, 16, 5, 2, 16, nn.Hardswish)
        self.squeeze, self.excite = nn.Conv2d(16, 8, 1), nn.Conv2d(8, 16, 1)
        self.out = conv(16, 32)
        self.one, self.two = nn.Linear(32, 5), nn.Linear(32, 2)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        x = self.down(self.wide(self.stem(image)))
        gate = nn.functional.hardsigmoid(self.excite(torch.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))
        pooled = self.out(x * gate).mean((2, 3))
        return {"classes": self.one(pooled), "offsets": self.two(pooled)}


class Confusing(nn.Module):
    """Height, width and channels are all 8, and so are the channels of every layer: nothing can be guessed from sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(8, 8, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 1, 1), nn.ReLU())

    def forward(self, image: Tensor) -> Tensor:
        return self.body(image)


CASES = {"even": (Net, (3, 32, 32)), "odd": (Net, (3, 33, 37)), "confusing": (Confusing, (8, 8, 8))}


def network(make: type, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    made: nn.Module = make()
    shape = CASES["confusing" if make is Confusing else "even"][1]
    with torch.no_grad():
        made.train()(torch.randn(8, *shape))
    return made.eval()


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("onnx")
    for name, (make, shape) in CASES.items():
        torch_to_onnx(network(make), (1, *shape), folder / f"{name}.onnx")
    return dict(zip(CASES, convert_all([folder / f"{name}.onnx" for name in CASES]), strict=True))


@pytest.fixture
def stub(converted: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> object:
    """`export` with the conversion done already."""

    def use(name: str) -> None:
        monkeypatch.setattr(pipeline, "Converter", AlreadyConverted(converted[name]))

    return use


def export(name: str, folder: Path, **options: object) -> object:
    make, shape = CASES[name]
    return sparsetorch.export(network(make), folder / "m.tflite", shape, **options)  # type: ignore[arg-type]


def test_pitfall_14_export_is_pure(stub: object, tmp_path: Path) -> None:
    stub("even")  # type: ignore[operator]
    module = network(Net).train()
    state, random = {k: v.clone() for k, v in module.state_dict().items()}, torch.get_rng_state()
    sparsetorch.export(module, tmp_path / "m.tflite", (3, 32, 32))
    assert all(torch.equal(value, module.state_dict()[name]) for name, value in state.items())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(inner.training for inner in module.modules())


def test_pitfall_15_the_batch_is_1_and_said_and_no_flex_operator_gets_through(stub: object, tmp_path: Path) -> None:
    stub("even")  # type: ignore[operator]
    export("even", tmp_path)
    model = load(tmp_path / "m.tflite")
    assert [tensor.shape for tensor in model.graphs[0].inputs] == [(1, 32, 32, 3)]
    assert not [o for o in model.graphs[0].operators if o.name.startswith("Flex") or o.custom_code]


@pytest.mark.parametrize("name", list(CASES))
def test_pitfall_16_numbers_agree_where_sizes_coincide(name: str, stub: object, tmp_path: Path) -> None:
    stub(name)  # type: ignore[operator]
    report = export(name, tmp_path)
    assert max(report.model.errors) <= 1e-5  # type: ignore[attr-defined]
    assert max(report.onnx_errors) <= 1e-5  # type: ignore[attr-defined]


def test_pitfall_16_a_wrong_graph_names_the_first_layer_that_differs(
    converted: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The converter's graph of other weights from the third convolution on."""
    right, wrong = network(Net), network(Net)
    with torch.no_grad():
        wrong.down[0].weight.mul_(torch.linspace(0.5, 1.5, 16).reshape(-1, 1, 1, 1))  # type: ignore[index]
    monkeypatch.setattr(pipeline, "Converter", AlreadyConverted(converted["even"]))
    monkeypatch.setattr(pipeline, "check_onnx", lambda *_: [])
    with pytest.raises(WrongNumbersError, match=r"the first layer that differs is down\.0 "):
        sparsetorch.export(wrong, tmp_path / "m.tflite", (3, 32, 32))
    assert not (tmp_path / "m.tflite").exists()
    del right


def test_pitfall_17_hard_swish_stays_one_operator_and_gates_are_repaired(stub: object, tmp_path: Path) -> None:
    stub("even")  # type: ignore[operator]
    report = export("even", tmp_path)
    kinds = Counter(operator.name for operator in load(tmp_path / "m.tflite").graphs[0].operators)
    assert kinds["HARD_SWISH"] == sum(isinstance(inner, nn.Hardswish) for inner in network(Net).modules())
    assert "RELU_0_TO_1" not in kinds
    assert any(note.applied for note in report.repairs)  # type: ignore[attr-defined]


def test_pitfall_18_the_written_file_has_been_loaded_and_run(stub: object, tmp_path: Path) -> None:
    stub("even")  # type: ignore[operator]
    export("even", tmp_path)
    outputs = run(open_file(tmp_path / "m.tflite"), [np.zeros((1, 32, 32, 3), np.float32)])
    assert [value.shape for value in outputs] == [(1, 5), (1, 2)]
    assert [name for name, _ in load(tmp_path / "m.tflite").signatures[0].outputs] == ["classes", "offsets"]


@pytest.mark.parametrize("name", ["even", "odd"])
def test_pitfall_19_strided_layers_are_pad_and_valid(name: str, stub: object, tmp_path: Path) -> None:
    stub(name)  # type: ignore[operator]
    export(name, tmp_path)
    operators = load(tmp_path / "m.tflite").graphs[0].operators
    strided = [o for o in operators if getattr(o.options, "strideH", 1) == 2]
    makers = {output: o for o in operators for output in o.outputs}
    assert len(strided) == 2
    for layer in strided:
        assert layer.options.padding == 1  # VALID
        assert makers[layer.inputs[0]].name == "PAD"  # type: ignore[index]


@pytest.mark.parametrize(
    ("make", "shape", "told"),
    [
        (lambda: nn.Conv3d(3, 3, 1), (3, 4, 4, 4, 4), "input shape: found"),
        (lambda: nn.Embedding(4, 4), (3, 8, 8), "does not run on an input"),
        (lambda: nn.Linear(7, 2), (3, 8, 8), "does not run on an input"),
        (lambda: _Returns("text"), (3, 8, 8), "returns str; needed a tensor"),
        (lambda: _Returns({}), (3, 8, 8), "returns nothing"),
        (lambda: _Returns(None), (3, 8, 8), "returns NoneType"),
        (lambda: _ByValue(), (3, 8, 8), "cannot be traced"),
    ],
)
def test_what_cannot_be_exported_is_one_sentence(
    make: object, shape: tuple[int, ...], told: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInputError, match=told):
        sparsetorch.export(make(), tmp_path / "m.tflite", shape)  # type: ignore[operator]
    assert list(tmp_path.iterdir()) == []


class _Returns(nn.Module):
    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value

    def forward(self, image: Tensor) -> object:
        return self.value


class _ByValue(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        return image * 2 if float(image.sum()) > 1 else image + 1
