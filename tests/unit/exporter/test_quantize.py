"""Quantization after training: ranges by hand, both modes close to the float file, and what cannot be is said."""

import json
from pathlib import Path

import numpy as np
import pytest
from graphs import OP, Net, classifier
from tflite_run import outputs, random_inputs

import sparsetorch
from sparsetorch.cli import main
from sparsetorch.errors import BadInputError
from sparsetorch.exporter.accuracy import top1
from sparsetorch.exporter.calibrate import Range, activation_ranges
from sparsetorch.tflite import encode, load, save


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    save(classifier(), tmp_path / "dense.tflite")
    return tmp_path / "dense.tflite"


@pytest.fixture
def images() -> list[np.ndarray]:
    return [np.random.default_rng(seed).normal(size=(1, 32, 32, 3)).astype(np.float32) for seed in range(8)]


def one_relu(folder: Path) -> Path:
    net = Net()
    net.output(net.unary(OP.RELU, net.input(2, 1)))
    save(net.model(), folder / "relu.tflite")
    return folder / "relu.tflite"


def test_ranges_by_hand(tmp_path: Path) -> None:
    file = one_relu(tmp_path)
    given = [np.array(v, np.float32).reshape(1, 2, 2, 1) for v in ([-4, 1, 2, 3], [-1, 0, 0, 10])]
    found = activation_ranges(file, given)
    assert found["input0"] == Range(-4.0, 10.0)
    assert found[load(file).graphs[0].outputs[0].name] == Range(0.0, 10.0)
    # The 75th percentile of -4, 1, 2, 3 is 2.25, of -1, 0, 0, 10 it is 2.5: 2.375 on average.
    quarter = activation_ranges(file, given, percentile=75)["input0"]
    assert (quarter.low, quarter.high) == pytest.approx(((-0.25 - 0.25) / 2, (2.25 + 2.5) / 2))


@pytest.mark.parametrize("mode", ["full-int8", "dynamic-int8"])
@pytest.mark.parametrize("percentile", [100.0, 99.9])
def test_a_quantized_file_is_close_and_small(
    mode: str, percentile: float, dense: Path, images: list[np.ndarray], tmp_path: Path
) -> None:
    out = tmp_path / "out.tflite"
    made = sparsetorch.quantize(dense, out, mode, images=images, percentile=percentile)
    assert made.bytes == out.stat().st_size < 0.55 * dense.stat().st_size
    inputs = random_inputs(load(dense))
    wanted, found = outputs(load(dense), *inputs)[0], outputs(out.read_bytes(), *inputs)[0]
    assert found.dtype == np.float32
    assert np.corrcoef(wanted.ravel(), found.ravel())[0, 1] > 0.98
    types = {tensor.type_name for tensor in load(out).tensors}
    assert "int8" in types
    assert made.left_float == ()
    assert bool(made.ranges) is (mode == "full-int8")


def test_an_integer_file_has_no_sparse_path_and_verify_says_so(
    dense: Path, images: list[np.ndarray], tmp_path: Path
) -> None:
    sparsetorch.quantize(dense, tmp_path / "out.tflite", images=images)
    verdict = sparsetorch.verify(tmp_path / "out.tflite")
    assert not verdict.eligible
    assert verdict.expected_spmm == 0


def test_a_sparse_file_is_unpacked_first(dense: Path, images: list[np.ndarray], tmp_path: Path) -> None:
    model = load(dense)
    encode(model)
    save(model, tmp_path / "sparse.tflite")
    one = sparsetorch.quantize(dense, tmp_path / "a.tflite", images=images)
    two = sparsetorch.quantize(tmp_path / "sparse.tflite", tmp_path / "b.tflite", images=images)
    assert one.bytes == pytest.approx(two.bytes, rel=0.01)


def test_accuracy_counts_hits(tmp_path: Path) -> None:
    net = Net()
    net.output(net.mean(net.input(2, 3)))  # the class is the channel with the largest mean
    save(net.model(), tmp_path / "m.tflite")
    image = np.zeros((4, 3, 2, 2), np.float32)
    for index, channel in enumerate((0, 1, 2, 2)):
        image[index, channel] = 1.0
    batches = [(image[:2], np.array([0, 1])), (image[2:], np.array([2, 0]))]
    assert top1(tmp_path / "m.tflite", batches) == (0.75, 4)
    assert top1(tmp_path / "m.tflite", batches, limit=2) == (1.0, 2)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda file, out: sparsetorch.quantize(file, out, "int4"), "mode: found 'int4'"),
        (lambda file, out: sparsetorch.quantize(file, out), "calibration: found no image"),
        (
            lambda file, out: sparsetorch.quantize(file, out, images=[np.zeros((1, 8, 8, 3), np.float32)]),
            "found an image of",
        ),
        (lambda file, out: sparsetorch.quantize(file, out, images=[], percentile=20), "percentile: found 20"),
        (lambda file, out: sparsetorch.quantize(file, out.parent / "no" / "x.tflite"), "does not exist"),
    ],
)
def test_bad_input_is_told(call: object, told: str, dense: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=told):
        call(dense, tmp_path / "out.tflite")  # type: ignore[operator]
    assert not (tmp_path / "out.tflite").exists()


def test_the_command_calibrates_on_a_file_of_images(
    dense: Path, images: list[np.ndarray], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "images.npy", np.concatenate(images).transpose(0, 3, 1, 2))
    out = tmp_path / "out.tflite"
    words = [
        "quantize",
        str(dense),
        "-o",
        str(out),
        "--images",
        str(tmp_path / "images.npy"),
        "--json",
        str(tmp_path / "r.json"),
    ]
    assert main(words) == 0
    assert json.loads((tmp_path / "r.json").read_text())["bytes"] == out.stat().st_size
    assert "no sparse path" in capfd.readouterr().out
    assert main(["quantize", str(dense), "-o", str(out)]) == 2
    assert main(["quantize", str(dense), "-o", str(out), "--images", str(dense)]) == 1
