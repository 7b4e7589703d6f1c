"""The check when `fit` starts: one line, and the training is the same with and without it."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from training import Plain, loader, trainer

from sparsetorch import ConstantSparsity, Conv1x1, RigL, SparseTraining
from sparsetorch.callbacks.training_check import TrainingCheck, check_line
from sparsetorch.cli import main

RECIPE = Path(__file__).parents[3] / "recipes" / "digits" / "rigl_90.yaml"


def fit(folder: Path, *words: str) -> dict[str, torch.Tensor]:
    options = ["--config", str(RECIPE), "--run_dir", str(folder), "--trainer.accelerator=cpu", "--trainer.max_epochs=1"]
    options += ["--trainer.limit_train_batches=2", "--trainer.limit_val_batches=1"]
    assert main(["fit", *options, *words]) == 0
    state: dict[str, torch.Tensor] = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    return state


def test_the_training_is_the_same_with_and_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And a plan below two thirds is told."""
    low = "--sparsity.schedule.init_args.sparsity=0.5"
    checked = fit(tmp_path / "one", low)
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("check: ")]
    plain = fit(tmp_path / "two", low, "--check=false")
    assert "check: " not in capsys.readouterr().err
    assert checked.keys() == plain.keys()
    assert all(torch.equal(checked[key], plain[key]) for key in plain)
    assert len(told) == 1
    assert "will not take XNNPACK's sparse path" in told[0]
    assert "a sparsity of 0.667 over the 14 layers that the policy prunes" in told[0]


def test_nothing_is_said_of_an_eligible_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(tmp_path / "run")
    assert "check: " not in capsys.readouterr().err


def test_two_processes_say_it_once_and_train_on(tmp_path: Path) -> None:
    words = [
        "--config",
        str(RECIPE),
        "--run_dir",
        str(tmp_path / "run"),
        "--trainer.accelerator=cpu",
        "--trainer.devices=2",
    ]
    words += ["--trainer.strategy=ddp", "--trainer.max_epochs=1", "--trainer.limit_train_batches=2"]
    words += ["--trainer.limit_val_batches=1", "--sparsity.schedule.init_args.sparsity=0.5"]
    done = subprocess.run(
        [sys.executable, "-m", "sparsetorch", "fit", *words], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("check: the trained network will not take") == 1
    assert (tmp_path / "run" / "checkpoints" / "last.ckpt").is_file()


def plain_fit(folder: Path) -> TrainingCheck:
    """Linear layers on rows of ten numbers: nothing that a check of images could look at."""
    looked = TrainingCheck()
    sparse = SparseTraining(RigL(), ConstantSparsity(0.5))
    trainer(folder, max_steps=2, callbacks=[sparse, looked]).fit(Plain(), loader())
    return looked


def test_an_input_that_is_no_image_is_skipped(tmp_path: Path) -> None:
    assert plain_fit(tmp_path).told == "skipped (the shape of one image is not known)"


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnx" else find(name))
    assert plain_fit(tmp_path).told == "skipped (onnx is not installed)"


def test_a_dense_training_is_left_alone(tmp_path: Path) -> None:
    looked = TrainingCheck()
    trainer(tmp_path, max_steps=1, callbacks=[looked]).fit(Plain(), loader())
    assert looked.told is None


class Untraceable(torch.nn.Module):
    """Its way depends on the values."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x) if x.sum() > 0 else self.conv(-x)


def test_what_cannot_be_traced_is_skipped_and_nothing_is_raised() -> None:
    training = SparseTraining(RigL(), ConstantSparsity(0.9), policy=Conv1x1())
    told = check_line(Untraceable(), (3, 8, 8), training)
    assert told is not None
    assert told.startswith("skipped (")
