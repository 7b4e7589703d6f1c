"""The study's script at a tiny setting, on files made here."""

import csv
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from idx_files import write_fashion_mnist

SCRIPT = Path(__file__).parents[2] / "notebooks" / "studies" / "lenet_fashion_mnist" / "run.py"


@pytest.fixture(scope="module")
def study() -> ModuleType:
    specification = importlib.util.spec_from_file_location("lenet_fashion_mnist", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["lenet_fashion_mnist"] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


def test_the_study_runs_every_method_with_every_seed(
    study: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_fashion_mnist(tmp_path / "data")
    words = ["--root", str(tmp_path / "data"), "--output", str(tmp_path / "out"), "--seeds", "1", "2"]
    words += ["--epochs", "2", "--batch-size", "8", "--steps-per-epoch", "4", "--update-every", "2"]
    study.main(words)
    with (tmp_path / "out" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["seed"]) for row in rows] == [
        (method, seed) for seed in ("1", "2") for method in ("dense", "magnitude", "rigl", "set", "static")
    ]
    assert {row["steps"] for row in rows} == {"8"}
    for row in rows:  # an entry just grown is zero still, so a network can hold a few zeros more than its mask
        expected = 0.0 if row["method"] == "dense" else 0.98
        assert expected <= float(row["sparsity"]) < expected + 0.01, row
    assert (tmp_path / "out" / "accuracy.png").stat().st_size > 1000
    assert "| RigL | 0.98" in capsys.readouterr().out


def test_the_committed_results_are_complete() -> None:
    with (SCRIPT.parent / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    methods = {row["method"] for row in rows}
    assert methods == {"dense", "magnitude", "rigl", "set", "static"}
    for method in methods:
        assert len({row["seed"] for row in rows if row["method"] == method}) >= 3
    assert len({row["steps"] for row in rows}) == 1
