"""`sparsetorch encode`: files of any origin, every storage, and what must not be written."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from graphs import OP, Net, classifier
from tflite_run import outputs, random_inputs

import sparsetorch
from sparsetorch.cli import main
from sparsetorch.errors import BadInputError
from sparsetorch.files import write_atomically
from sparsetorch.tflite import Operator, load, save


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    save(classifier(), tmp_path / "dense.tflite")
    return tmp_path / "dense.tflite"


@pytest.mark.parametrize(("values", "tolerance"), [("float32", 1e-5), ("float16", 5e-3), ("int8", 5e-2)])
def test_a_file_is_encoded_and_eligible(
    values: str, tolerance: float, dense: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.tflite"
    assert main(["encode", str(dense), "-o", str(out), "--values", values, "--json", str(tmp_path / "r.json")]) == 0
    told = json.loads((tmp_path / "r.json").read_text())
    assert told["eligible"]
    assert told["expected_spmm"] == 9
    assert (
        told["sizes"]["model"]["raw"] == out.stat().st_size < told["sizes"]["original"]["raw"] == dense.stat().st_size
    )
    assert {layer["values"] for layer in told["layers"] if layer["encoding"] == "sparse"} == {values}
    before, after = load(dense), load(out)
    inputs = random_inputs(before)
    wanted = outputs(before, *inputs)[0]
    np.testing.assert_allclose(outputs(after, *inputs)[0], wanted, rtol=0, atol=tolerance * np.abs(wanted).max())
    assert "9 of 9 sparse-encoded" in capfd.readouterr().out


def test_sizes_fall_with_the_precision(dense: Path, tmp_path: Path) -> None:
    sizes = {
        values: sparsetorch.encode(
            dense, tmp_path / f"{values}.tflite", storage=sparsetorch.Storage(values)
        ).model.bytes
        for values in ("float32", "float16", "int8")
    }
    assert sizes["float32"] > sizes["float16"] > sizes["int8"]
    mixed = sparsetorch.encode(dense, tmp_path / "mixed.tflite", storage=sparsetorch.Storage("int8", "float32"))
    assert sizes["int8"] < mixed.model.bytes < sizes["float32"]


def test_an_encoded_file_can_be_encoded_again_in_another_way(dense: Path, tmp_path: Path) -> None:
    sparsetorch.encode(dense, tmp_path / "int8.tflite", storage=sparsetorch.Storage("int8"))
    again = sparsetorch.encode(tmp_path / "int8.tflite", tmp_path / "float32.tflite")
    assert again.original is not None
    assert again.original.values == "int8"
    assert again.verdict.expected_spmm == 9
    assert max(again.model.errors) <= 1e-5


def test_a_graph_is_repaired_on_the_way_and_only_if_wanted(tmp_path: Path) -> None:
    save(classifier(gate="hard"), tmp_path / "gate.tflite")
    out = str(tmp_path / "out.tflite")
    assert main(["encode", str(tmp_path / "gate.tflite"), "-o", out, "--quiet"]) == 0
    assert main(["encode", str(tmp_path / "gate.tflite"), "-o", out, "--quiet", "--no-repair"]) == 3


def test_what_a_device_would_compute_wrongly_keeps_its_zeros(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    save(classifier(same=True), tmp_path / "same.tflite")  # SAME at stride 2: silently wrong on devices
    out = tmp_path / "out.tflite"
    assert main(["encode", str(tmp_path / "same.tflite"), "-o", str(out), "--values", "int8"]) == 3
    assert "Written dense" in capfd.readouterr().out
    assert all(tensor.sparsity is None for tensor in load(out).tensors)
    assert out.stat().st_size < (tmp_path / "same.tflite").stat().st_size / 2  # int8 all the same


def test_operators_that_are_not_known_here_are_kept(tmp_path: Path) -> None:
    net = Net()
    y = net.pointwise(net.input(8, 3), 32)
    net.output(net.unary(OP.SIGN, y), net.mean(net.pointwise(y, 32)))
    save(net.model(), tmp_path / "in.tflite")
    report = sparsetorch.encode(tmp_path / "in.tflite", tmp_path / "out.tflite")
    assert max(report.model.errors) <= 1e-5
    assert "SIGN" in {operator.name for operator in load(tmp_path / "out.tflite").graphs[0].operators}


def test_a_file_that_does_not_run_cannot_be_compared(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = classifier()
    x = model.graphs[0].outputs[0]
    net = Net()
    y = net.tensor(x.shape)
    model.graphs[0].operators.append(Operator(OP.CUSTOM, [x], [y], custom_code="NoSuchThing"))
    model.graphs[0].outputs = [y]
    save(model, tmp_path / "custom.tflite")
    assert main(["encode", str(tmp_path / "custom.tflite"), "-o", str(tmp_path / "out.tflite")]) in (1, 4)
    assert "does not" in capfd.readouterr().err
    assert not (tmp_path / "out.tflite").exists()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["nowhere.tflite", "-o", "out.tflite"], 1, "does not exist"),
        (["text.tflite", "-o", "out.tflite"], 1, "text.tflite"),
        (["dense.tflite", "-o", "."], 1, "found a folder"),
        (["dense.tflite", "-o", "missing/out.tflite"], 1, "its folder missing does not exist"),
        (["dense.tflite", "-o", "pipe"], 1, "found a device, a pipe"),
        (["dense.tflite", "-o", "out.tflite", "--values", "int4"], 2, "invalid choice"),
        (["dense.tflite"], 2, "-o"),
        (["dense.tflite", "-o", "out.tflite", "--target", "toaster"], 2, "toaster"),
    ],
)
def test_a_mistake_is_one_message(
    words: list[str],
    code: int,
    told: str,
    dense: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(dense.parent)
    Path("text.tflite").write_text("not a model")
    os.mkfifo("pipe")
    assert main(["encode", *words]) == code
    error = capfd.readouterr().err
    assert told in error
    assert "Traceback" not in error
    assert not Path("out.tflite").exists()


def test_a_pipe_or_a_device_is_never_replaced_and_a_link_stays_one(tmp_path: Path) -> None:
    """A rename would put a file in its place: whoever runs as root would lose /dev/null."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInputError, match="found a device, a pipe"):
        write_atomically(tmp_path / "pipe", b"x")
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "to_pipe").symlink_to(tmp_path / "pipe")
    with pytest.raises(BadInputError, match="found a device, a pipe"):
        write_atomically(tmp_path / "to_pipe", b"x")
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"
    (tmp_path / "dangling").symlink_to("not yet")
    write_atomically(tmp_path / "dangling", b"made")
    assert (tmp_path / "not yet").read_bytes() == b"made"
