"""Networks, disks and users that an export meets: one sentence each, and nothing half-written."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from graphs import classifier
from torch import Tensor, nn

import sparsetorch
from sparsetorch.errors import BadInputError, WrongNumbersError
from sparsetorch.exporter import pipeline
from sparsetorch.exporter.conversion_errors import conversion_failure
from sparsetorch.tflite import to_bytes


class Layer(nn.Module):
    """A convolution, then whatever `kind` names, in a submodule `odd`."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.odd = Odd(kind)

    def forward(self, image: Tensor) -> object:
        return self.odd(self.conv(image))


class Odd(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> object:
        if self.kind == "by value":
            return x * 2 if x.sum() > 0 else x
        odd = {
            "svd": lambda: torch.linalg.svdvals(x),
            "bessel": lambda: torch.special.bessel_j0(x),
            "complex": lambda: torch.complex(x, x),
            "dynamic": lambda: x[x > 0],
            "nested": lambda: {"boxes": {"left": x}},
            "acosh": lambda: torch.acosh(x.abs() + 2),
        }
        return odd[self.kind]()


class TwoInputs(nn.Module):
    def forward(self, image: Tensor, other: Tensor) -> Tensor:
        return image + other


@pytest.mark.parametrize(
    ("make", "shape", "told"),
    [
        (lambda: Layer("svd"), (3, 8, 8), r"aten\._linalg_svd, in odd, has no ONNX form\. Replace it"),
        (lambda: Layer("bessel"), (3, 8, 8), r"bessel_j0, in odd, has no ONNX form"),
        (
            lambda: Layer("by value"),
            (3, 8, 8),
            r"branches on values: test_bad_networks\.py, line \d+: return x \* 2 if",
        ),
        (lambda: Layer("complex"), (3, 8, 8), "output_0 is complex; return its real and imaginary parts"),
        (lambda: Layer("dynamic"), (3, 8, 8), "the size of output_0 depends on the values of the input"),
        (lambda: Layer("nested"), (3, 8, 8), "returns dict; needed a tensor"),
        (lambda: nn.Embedding(4, 4), (3, 8, 8), "takes one float32 input of that shape"),
        (TwoInputs, (3, 8, 8), r"missing 1 required positional argument: 'other'.*takes one float32 input"),
        (lambda: nn.Conv2d(3, 4, 1), (3, -1, 8), r"input shape: found \(3, -1, 8\), needed C,H,W"),
        (lambda: nn.Conv3d(3, 4, 1), (3, 4, 4, 4, 4), "input shape: found"),
        (lambda: nn.Linear(2**15, 2**15, device="meta"), (3, 8, 8), "4.3 GB of float32 weights; a .tflite holds less"),
    ],
)
def test_a_network_that_cannot_be_exported(
    make: object, shape: tuple[int, ...], told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadInputError, match=told) as error:
        sparsetorch.export(make(), tmp_path / "m.tflite", shape)  # type: ignore[operator]
    assert "\x1b" not in str(error.value)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr().err == "", "the tracer's pages are kept back"


def test_an_operator_without_tflite_form_is_named_with_its_layer(tmp_path: Path) -> None:
    """TensorFlow would take it as a Flex operator, which mobile runtimes do not know."""
    with pytest.raises(BadInputError, match=r"of Acosh in odd \(.*\)\. Replace it"):
        sparsetorch.export(Layer("acosh"), tmp_path / "m.tflite", (3, 8, 8))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        ("Traceback\nModuleNotFoundError: No module named 'onnx2tf'\n", "onnx2tf is not installed"),
        ("\x1b[31mERROR:\x1b[0m The trace log is below.\nKeyError: 'x'\n\nadvice\n", "this network: KeyError: 'x'"),
        ("", "it ended without a word"),
    ],
)
def test_what_the_converter_prints_becomes_a_sentence(printed: str, told: str) -> None:
    assert told in conversion_failure(printed)


@contextlib.contextmanager
def small_disk() -> Iterator[None]:
    """A disk that takes no file over 20,000 bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_while_tracing(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Conv2d(3, 100, 1), nn.Conv2d(100, 100, 1))
    with (
        small_disk(),
        pytest.raises(BadInputError, match=r"model\.onnx: cannot be written \(File too large\); TMPDIR names"),
    ):
        sparsetorch.export(network, tmp_path / "m.tflite", (3, 8, 8))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_at_the_end_leaves_what_was_there(tmp_path: Path) -> None:
    source, target = tmp_path / "m.tflite", tmp_path / "out.tflite"
    source.write_bytes(to_bytes(classifier()))
    target.write_bytes(b"before")
    with small_disk(), pytest.raises(BadInputError, match=r"cannot be written \(File too large\)"):
        sparsetorch.encode(source, target, storage=sparsetorch.Storage(dense_values="float32"))
    assert target.read_bytes() == b"before"
    assert {path.name for path in tmp_path.iterdir()} == {"m.tflite", "out.tflite"}


def test_a_model_that_fails_takes_its_twin_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin is right, the model is not: neither is written over what was there."""
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU())
    right = pipeline.check_numbers
    calls: list[Path] = []

    def second_is_wrong(file: Path, *arguments: object) -> list[float]:
        calls.append(file)
        if len(calls) == 2:
            raise WrongNumbersError("output 0 differs")
        return right(file, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline, "check_numbers", second_is_wrong)
    (tmp_path / "m.tflite").write_bytes(b"model before")
    (tmp_path / "m.dense.tflite").write_bytes(b"twin before")
    with pytest.raises(WrongNumbersError, match="output 0 differs"):
        sparsetorch.export(network, tmp_path / "m.tflite", (3, 8, 8), dense_twin=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "m.tflite": b"model before",
        "m.dense.tflite": b"twin before",
    }


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_export_leaves_nothing(sent: signal.Signals, code: int, tmp_path: Path) -> None:
    """While the converter works: no file, no temporary folder, no process stays."""
    temporary, results = tmp_path / "tmp", tmp_path / "results"
    temporary.mkdir()
    results.mkdir()
    words = ["export", "--model", "torchvision.models:squeezenet1_1", "--input-shape", "3,64,64"]
    export = subprocess.Popen(
        [sys.executable, "-m", "sparsetorch", *words, "-o", str(results / "m.tflite")],
        env=dict(os.environ, TMPDIR=str(temporary)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background job ignores ctrl-C, and what it starts inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    while not list(temporary.glob("sparsetorch-*/0.onnx")):
        assert export.poll() is None, export.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    export.send_signal(sent)
    _, told = export.communicate(timeout=60)
    assert export.returncode == code
    assert "Traceback" not in told
    assert list(results.iterdir()) == []
    assert list(temporary.glob("sparsetorch-*")) == []
    assert not [pid for pid in Path("/proc").glob("[0-9]*") if _works_in(pid, temporary)], "a process lives on"


def _works_in(process: Path, folder: Path) -> bool:
    try:
        return Path(os.readlink(process / "cwd")).is_relative_to(folder)
    except OSError:
        return False
