"""MobileNetV2 at full size: all 34 1x1 convolutions sparse in every runtime that can show it, in seconds."""

import resource
from pathlib import Path

import pytest
from mobilenet_v2 import mobilenet_v2

import sparsetorch
from sparsetorch.tflite import encode, save


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mobilenet") / "mobilenet_v2.tflite"
    model = mobilenet_v2()
    encode(model)
    save(model, path)
    return path


def processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def test_in_webassembly_within_five_seconds(file: Path) -> None:
    """Processor time, which a busy machine leaves alone."""
    began = processor_seconds()
    seen = sparsetorch.verify(file, observe=["wasm"]).observed["wasm"]
    assert processor_seconds() - began < 5
    assert (seen.taken, seen.spmm, seen.disagreements) == (True, 34, ())
    assert seen.operators["Convolution (NCHW, F32) DWConv"] == 17
    assert seen.max_rel_error is not None
    assert seen.max_rel_error < 1e-5


def test_on_an_emulated_processor(file: Path) -> None:
    seen = sparsetorch.verify(file, observe=["emulated"]).observed["emulated"]
    assert (seen.taken, seen.spmm, seen.disagreements) == (True, 34, ())
