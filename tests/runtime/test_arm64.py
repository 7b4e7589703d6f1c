"""Files on an emulated 64-bit ARM processor: the kernels that phones run. `make test-arm64`."""

import json
from pathlib import Path

import pytest
from differential import ARM64, examine, jobs_of
from mobilenet_v2 import mobilenet_v2

import sparsetorch
from sparsetorch.cli import main
from sparsetorch.tflite import encode, save

pytestmark = pytest.mark.arm64


@pytest.mark.parametrize(
    ("name", "code", "taken", "spmm"),
    [
        ("good", 0, True, 9),
        ("float16", 0, True, 9),
        ("int8", 0, True, 9),
        ("old_breaks", 0, True, 9),
        ("dense", 3, False, 0),
        ("same_stem", 3, False, 0),
        ("unsafe", 4, False, 0),
    ],
)
def test_what_phones_do(files: dict[str, Path], name: str, code: int, taken: bool, spmm: int, tmp_path: Path) -> None:
    words = ["verify", str(files[name]), "--observe", "emulated-arm64", "--quiet", "--json", str(tmp_path / "v.json")]
    assert main(words) == code
    seen = json.loads((tmp_path / "v.json").read_text())["observed"]["emulated-arm64"]
    assert (seen["taken"], seen["spmm"], seen["disagreements"]) == (taken, spmm, [])
    assert "qemu-aarch64" in seen["version"]


def test_random_networks() -> None:
    with jobs_of(range(0, 160, 8)) as (jobs, folder):
        found = {
            job.path.stem: one.comparison.disagreements
            for job, one in zip(jobs, examine(ARM64, jobs, folder), strict=True)
        }
    assert len(found) == 20
    assert {seed: words for seed, words in found.items() if words} == {}


def test_mobilenet_v2(tmp_path: Path) -> None:
    model = mobilenet_v2()
    encode(model)
    save(model, tmp_path / "m.tflite")
    seen = sparsetorch.verify(tmp_path / "m.tflite", observe=["emulated-arm64"]).observed["emulated-arm64"]
    assert (seen.taken, seen.spmm, seen.disagreements) == (True, 34, ())
