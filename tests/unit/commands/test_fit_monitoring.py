"""`sparsetorch fit` brings the monitor and ends with the table of costs."""

from pathlib import Path

import pytest

from sparsetorch.cli import main

RECIPE = Path(__file__).parents[3] / "recipes" / "digits" / "rigl_90.yaml"
SHORT = ["--trainer.accelerator=cpu", "--trainer.max_epochs=1", "--trainer.limit_train_batches=2"]


def fit(folder: Path, *words: str) -> int:
    options = ["--config", str(RECIPE), "--run_dir", str(folder), "--trainer.limit_val_batches=1", *SHORT]
    return main(["fit", *options, *words])


def test_the_table_follows_the_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(tmp_path / "run") == 0
    out = capsys.readouterr().out
    summary, _, table = out.partition("what it costs")
    assert "run folder" in summary
    assert "network.features.8.0" in table
    assert "3.633 M" in table.splitlines()[-2]
    assert (tmp_path / "run" / "sparsity_over_time.svg").is_file()
    words = ["--config", str(RECIPE), "--ckpt_path", str(tmp_path / "run" / "checkpoints" / "last.ckpt"), *SHORT[:1]]
    assert main(["test", *words, "--trainer.limit_test_batches=1"]) == 0
    assert "SparsityMonitor" not in capsys.readouterr().err  # no warning of a callback that is missing


def test_a_machine_gets_json_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(tmp_path / "run", "--json", "-") == 0
    out = capsys.readouterr().out
    assert out.startswith("{")
    assert "what it costs" not in out
    assert '"dense_macs": 3633152' in out


def test_a_monitor_of_the_recipe_takes_the_place_of_ours(tmp_path: Path) -> None:
    own = ["--trainer.callbacks+=sparsetorch.callbacks.SparsityMonitor", "--trainer.callbacks.plots=false"]
    assert fit(tmp_path / "run", "--quiet", *own) == 0
    assert (tmp_path / "run" / "sparsity.csv").is_file()
    assert not list((tmp_path / "run").glob("*.png"))
