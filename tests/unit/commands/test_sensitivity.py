"""`sparsetorch sensitivity`: from a checkpoint to a recommendation that a recipe takes."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparsetorch.cli import main
from sparsetorch.commands import sensitivity

ROOT = Path(__file__).parents[3]
RECIPE = str(ROOT / "recipes" / "digits" / "dense.yaml")
FEW = ["--levels", "0.6", "--batches", "1"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    words = ["fit", "--config", RECIPE, "--run_dir", str(folder), "--quiet", "--trainer.accelerator=cpu"]
    words += ["--trainer.max_epochs=1", "--trainer.limit_train_batches=2", "--trainer.limit_val_batches=1"]
    assert main(words) == 0
    return folder / "checkpoints" / "last.ckpt"


def test_layers_are_measured_and_a_budget_becomes_a_distribution(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sensitivity", "--checkpoint", str(checkpoint), "--config", RECIPE, *FEW, "--budget", "0.6"]
    assert main([*words, "-o", str(tmp_path / "out"), "--json", str(tmp_path / "result.json")]) == 0
    assert "recommended" in capsys.readouterr().out
    result = json.loads((tmp_path / "result.json").read_text())
    sizes = {unit["name"]: unit["size"] for unit in result["units"]}
    assert len(sizes) > 10
    zeros = sum(result["recommended"][name] * size for name, size in sizes.items())
    assert zeros == pytest.approx(0.6 * sum(sizes.values()), rel=1e-3)
    for name in ("sensitivity.png", "sensitivity.svg", "sensitivity.json", "recommendation.yaml"):
        assert (tmp_path / "out" / name).stat().st_size > 100
    section = yaml.safe_load((tmp_path / "out" / "recommendation.yaml").read_text())
    recipe: dict[str, Any] = yaml.safe_load(Path(RECIPE).read_text())
    schedule = {"class_path": "sparsetorch.ConstantSparsity", "init_args": {"sparsity": 0.6}}
    recipe["sparsity"] = {"algorithm": {"class_path": "sparsetorch.Magnitude"}, "schedule": schedule, **section}
    (tmp_path / "pruned.yaml").write_text(yaml.safe_dump(recipe))
    fit = ["fit", "--config", str(tmp_path / "pruned.yaml"), "--run_dir", str(tmp_path / "run"), "--quiet"]
    fit += ["--trainer.max_epochs=1", "--trainer.limit_train_batches=2", "--trainer.limit_val_batches=1"]
    assert main(fit) == 0


def test_channel_groups_and_a_stop_on_the_way(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "sensitivity",
        "--checkpoint",
        str(checkpoint),
        "--by",
        "channels",
        "--levels",
        "0.5",
        "--batches",
        "1",
        "--quiet",
        "-o",
    ]
    assert main([*words, str(tmp_path / "straight")]) == 0
    load, left = sensitivity._load, iter(range(4))

    def tired(args: Any) -> Any:
        units, sizes, evaluate = load(args)

        def once() -> float:
            if next(left, None) is None:
                raise KeyboardInterrupt
            return evaluate()

        return units, sizes, once

    monkeypatch.setattr(sensitivity, "_load", tired)
    assert main([*words, str(tmp_path / "stopped")]) == 130
    known = json.loads((tmp_path / "stopped" / "sensitivity.json").read_text())["accuracies"]
    assert len(known) == 4
    monkeypatch.setattr(sensitivity, "_load", load)
    assert main([*words, str(tmp_path / "stopped")]) == 0
    straight, resumed = (
        json.loads((tmp_path / name / "sensitivity.json").read_text()) for name in ("straight", "stopped")
    )
    assert straight == resumed
    assert main([*words, str(tmp_path / "stopped"), "--metric", "val_loss"]) == 1
    assert "holds results of another checkpoint or of other settings" in capsys.readouterr().err


def test_what_does_not_fit_is_one_message(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sensitivity", "--checkpoint", str(checkpoint), *FEW, "-o", str(tmp_path / "out")]
    for more, message in (
        (["--levels", "0.5,1.5"], "levels: found 1.5"),
        (["--levels", "half"], "--levels: found 'half'"),
        (["--metric", "iou"], "--metric: found only val_acc, val_loss, not 'iou'"),
        (["--data-args", "{"], "--data-args: found '{'"),
    ):
        assert main([*words, *more]) == 1
        assert message in capsys.readouterr().err
