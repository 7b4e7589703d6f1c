"""LiteRT.js in headless Chromium as a runtime: right numbers, times in turns, and failures that stay apart."""

from pathlib import Path

import pytest
from graphs import classifier

from sparsetorch.cli import main
from sparsetorch.errors import CannotObserveError
from sparsetorch.runtime import chromium
from sparsetorch.runtime.model_io import outputs_of, read_outputs, relative_error
from sparsetorch.runtime.reference import references
from sparsetorch.runtime.worker import ModelJob, Timing
from sparsetorch.tflite import Storage, encode, save


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Dense, sparse and int8-stored sparse: one network."""
    made = []
    for number, values in enumerate((None, "float32", "int8")):
        model = classifier(size=64)
        if values is not None:
            encode(model, storage=Storage(values))
        made.append(tmp_path / f"{number}.tflite")
        save(model, made[-1])
    return made


def test_numbers_and_times(files: list[Path], tmp_path: Path) -> None:
    jobs = [ModelJob.read(path, sets=2) for path in files]
    rounds: list[int] = []
    found = chromium.run_litert(jobs, tmp_path, Timing(4, 1), rounds.append)
    assert list(found.parts) == ["Chromium", "LiteRT.js"]
    assert rounds == [1, 2, 3, 4]
    assert [sorted(one) for one in found.rounds] == [[0, 1, 2]] * 4
    for job, model, reference in zip(jobs, found.models, references(jobs, tmp_path), strict=True):
        assert model.failure is None
        assert model.init_ms is not None
        assert model.init_ms > 0
        assert len(model.outputs) == 2
        for outputs, expected in zip(model.outputs, reference.outputs, strict=True):
            assert relative_error(read_outputs(outputs_of(job.model), outputs), expected) < 1e-5


def test_a_broken_file_does_not_take_the_others_with_it(files: list[Path], tmp_path: Path) -> None:
    jobs = [ModelJob.read(path, sets=1) for path in files[:2]]
    jobs[0].path.write_bytes(b"\x18\x00\x00\x00TFL3" + bytes(100))
    found = chromium.run_litert(jobs, tmp_path)
    assert found.models[0].failure
    assert found.models[1].failure is None
    assert found.models[1].outputs


def test_bench_in_chromium(files: list[Path], tmp_path: Path) -> None:
    import json

    words = ["bench", *map(str, files[:2]), "--runtime", "chromium", "--runs", "3", "--threads", "2", "--quiet"]
    assert main([*words, "--json", str(tmp_path / "b.json")]) == 0
    found = json.loads((tmp_path / "b.json").read_text())["runtimes"]["chromium"]
    assert found["shows_sparse_path"]
    assert "threads" in found["version"]
    assert [row["label"] for row in found["rows"]] == ["dense float32", "sparse float32"]
    assert found["rows"][1]["ratio"]["low"] > 0


def test_a_browser_that_is_none(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [ModelJob.read(files[0], sets=1)]
    monkeypatch.setenv(chromium.VARIABLE, str(tmp_path / "none"))
    with pytest.raises(CannotObserveError, match="no program that can be run"):
        chromium.run_litert(jobs, tmp_path)
    monkeypatch.setenv(chromium.VARIABLE, "/bin/false")
    with pytest.raises(CannotObserveError, match="node ended with exit code 1"):
        chromium.run_litert(jobs, tmp_path)
