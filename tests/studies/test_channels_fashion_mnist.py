"""The scripts of the study on channels at a tiny setting, on files made here, and the results that are committed."""

import csv
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from idx_files import write_fashion_mnist

FOLDER = Path(__file__).parents[2] / "notebooks" / "studies" / "channels_fashion_mnist"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module
    for name in ("run", "structures", "network"):
        sys.modules.pop(name, None)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_exploration_ends_in_networks_of_one_cost(
    scripts: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_fashion_mnist(tmp_path / "data")
    words = ["--root", str(tmp_path / "data"), "--output", str(tmp_path / "out"), "--seeds", "1"]
    words += ["--epochs", "2", "--batch-size", "8", "--steps-per-epoch", "4", "--update-every", "2", "--inner", "8"]
    methods = ["dense", "one_shot_late", "no_regrow", "chex"]
    run = scripts("run")
    run.main([*words, "--methods", *methods])
    found = rows(tmp_path / "out" / "exploration.csv")
    assert [row["method"] for row in found] == methods
    assert {row["channel_sparsity"] for row in found if row["method"] != "dense"} == {"0.75"}
    assert len({row["macs"] for row in found if row["method"] != "dense"}) == 1
    assert "| CHEX | 0.750" in capsys.readouterr().out
    run.main([*words, "--methods", *methods])  # what is there is not run again
    assert rows(tmp_path / "out" / "exploration.csv") == found


def test_structures_run_every_method(scripts: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_fashion_mnist(tmp_path / "data", train=100)
    words = [
        "--root",
        str(tmp_path / "data"),
        "--output",
        str(tmp_path / "out"),
        "--work",
        str(tmp_path),
        "--seeds",
        "1",
    ]
    words += ["--dense-epochs", "1", "--batch-size", "8", "--steps-per-epoch", "6", "--width", "10"]
    words += ["--food-sources", "2", "--cycles", "1", "--fitness-batches", "1"]
    structures = scripts("structures")
    structures.main(words)
    found = {row["method"]: row for row in rows(tmp_path / "out" / "structures.csv")}
    assert list(found) == list(structures.METHODS)
    assert found["hrank"]["macs"] == found["random"]["macs"]
    macs = [int(found[name]["macs"]) for name in ("abcpruner", "random_structure")]
    assert abs(macs[1] - macs[0]) <= 0.05 * macs[0]
    assert "| HRankPlus | 0.500" in capsys.readouterr().out


def test_the_readme_shows_what_the_results_say(scripts: Any) -> None:
    readme = (FOLDER / "README.md").read_text()
    run = scripts("run")
    assert run.summary(run.read_csv(FOLDER / "exploration.csv")) in readme
    found = rows(FOLDER / "structures.csv")
    assert len(found) == 15
    for method in ("hrank", "random", "abcpruner", "random_structure"):
        assert ", ".join(f"{float(row['accuracy']):.2f}" for row in found if row["method"] == method) in readme
