"""The study's script at a tiny setting."""

import csv
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "notebooks" / "studies" / "differential" / "run.py"


@pytest.fixture(scope="module")
def study() -> ModuleType:
    specification = importlib.util.spec_from_file_location("differential_study", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_every_network_in_every_runtime(study: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--seeds", "4", "--first", "4", "--emulate-every", "4", "--output", str(tmp_path / "r.csv")]
    assert study.main(words) == 0
    rows = list(csv.DictReader((tmp_path / "r.csv").open()))
    assert [(row["engine"], row["seed"]) for row in rows] == [
        *(("tfjs-tflite", str(seed)) for seed in range(4, 8)),
        *(("LiteRT.js", str(seed)) for seed in range(4, 8)),
        ("emulated", "4"),
    ]
    assert {row["agrees"] for row in rows} == {"1"}
    assert "4 agree, 0 do not" in capsys.readouterr().out


def test_the_committed_table() -> None:
    rows = list(csv.DictReader((SCRIPT.parent / "results.csv").open()))
    assert len({row["seed"] for row in rows}) == 2000
    explained = {"1313", "1322", "1473"}  # see the README beside the table
    assert {row["seed"] for row in rows if row["agrees"] != "1"} == explained
