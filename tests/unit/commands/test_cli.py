"""The command line: what a user sees at once, and one clear message for every mistake."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sparsetorch.cli import COMMANDS, main

RECIPE = Path(__file__).parents[3] / "recipes" / "digits" / "rigl_90.yaml"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "sparsetorch", *words], capture_output=True, text=True, check=False)


def one_message(capfd: pytest.CaptureFixture[str], command: str) -> str:
    """The one line on standard error."""
    captured = capfd.readouterr()
    lines = [line for line in captured.err.splitlines() if line.strip()]
    assert len(lines) == 1, captured.err
    assert lines[0].startswith(f"sparsetorch {command}: error: ")
    assert "Traceback" not in captured.out + captured.err
    return lines[0]


def test_help_names_every_command_and_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {command} " in text for command in COMMANDS)
    assert "4 observed otherwise than predicted" in text


def test_help_and_verify_help_load_nothing_heavy() -> None:
    script = """
import sys
from sparsetorch.cli import main
for words in (["--help"], ["verify", "--help"], ["export", "--help"], ["--version"]):
    main(words)
heavy = sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "tensorflow", "pytorch_lightning", "sklearn"})
sys.exit(f"loaded {heavy}" if heavy else 0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_command_and_an_unknown_one_are_usage_errors(capfd: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    capfd.readouterr()
    assert main(["verfiy"]) == 2
    assert "unknown command 'verfiy'" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--sparsity.schedule.init_args.sparsity=1.0"], 1, "sparsity: found 1.0, needed a share of zeros in [0, 1)"),
        (["--sparsity.schedule.init_args.sparsity=-0.1"], 1, "sparsity: found -0.1"),
        (["--trainer.max_epohcs=3"], 2, "Did you mean trainer.max_epochs?"),
        (["--sparsity.algorithm.init_args.drop_fractoin=0.2"], 2, "Did you mean drop_fraction?"),
        (["--sparsity.schedule.init_args.end_step=9999"], 1, "the training has only 800 optimizer steps"),
        (["--model.init_args.network.class_path=torchvision.models.MobileNetV9"], 2, "no attribute 'MobileNetV9'"),
        (["--ckpt_path=nowhere.ckpt"], 1, "--ckpt_path: found no file 'nowhere.ckpt'"),
        (["--trainer.max_epochs=many"], 2, "trainer.max_epochs"),
    ],
)
def test_a_mistake_in_a_training_command_is_one_message(
    words: list[str], code: int, told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert main(["fit", "--config", str(RECIPE), "--run_dir", str(folder), *words]) == code
    assert told in one_message(capfd, "fit")
    assert not folder.exists()  # nothing half-written


def test_a_mistyped_key_in_a_recipe_is_one_message(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for wrong, right in (("drop_fraction", "drop_fractoin"), ("update_every", "update_evry"), ("policy", "polizy")):
        recipe = tmp_path / "recipe.yaml"
        recipe.write_text(RECIPE.read_text().replace(f"{wrong}:", f"{right}:"))
        assert main(["fit", "--config", str(recipe), "--run_dir", str(tmp_path / "run")]) == 2
        message = one_message(capfd, "fit")
        assert right in message
        assert f"Did you mean {wrong}" in message


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["fit"], 2, "found no recipe"),
        (["fit", "--config", "nowhere.yaml"], 1, "found no file 'nowhere.yaml'"),
        (["export", "-o", "x.tflite"], 2, "needed either --checkpoint C or --model M"),
        (["export", "-o", "x.tflite", "--checkpoint", "nowhere.ckpt"], 1, "nowhere.ckpt: no such file"),
        (
            ["export", "-o", "x.tflite", "--model", "torchvision.models:nope", "--input-shape", "3,8,8"],
            1,
            "no callable",
        ),
        (
            ["export", "-o", "x.tflite", "--model", "no.such.module:f", "--input-shape", "3,8,8"],
            1,
            "cannot be imported",
        ),
        (
            ["export", "-o", "x.tflite", "--model", "resnet18", "--input-shape", "3,8,8"],
            1,
            "needed dotted.path:callable",
        ),
        (
            ["export", "-o", "x.tflite", "--model", "torch:zeros", "--model-args", "[1]", "--input-shape", "3,8,8"],
            1,
            "JSON",
        ),
        (["export", "-o", "x.tflite", "--model", "builtins:dict", "--input-shape", "3,8,8"], 1, "needed an nn.Module"),
        (["export", "-o", "x.tflite", "--model", "torch.nn:Identity"], 1, "shape of its input is not known"),
        (
            ["export", "-o", "no/dir/x.tflite", "--model", "torch.nn:Identity", "--input-shape", "3,8,8"],
            1,
            "does not exist",
        ),
        (["export", "-o", "x.tflite", "--model", "torch.nn:Identity", "--input-shape", "8,8"], 1, "needed C,H,W"),
    ],
)
def test_a_mistake_in_the_words_is_one_message(
    words: list[str],
    code: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == code
    assert told in one_message(capfd, words[0])
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_no_checkpoints_are_one_message_each(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    foreign = tmp_path / "foreign.ckpt"
    import torch

    cases = {
        "empty.ckpt": b"",
        "text.ckpt": b"this is no checkpoint\n" * 10,
        "truncated.ckpt": None,
        "foreign.ckpt": None,
        "no_recipe.ckpt": None,
    }
    torch.save({"weight": torch.ones(2)}, foreign)
    torch.save({"state_dict": {"weight": torch.ones(2)}}, tmp_path / "no_recipe.ckpt")
    (tmp_path / "truncated.ckpt").write_bytes(foreign.read_bytes()[:-200])
    told = {"foreign.ckpt": "found no state_dict", "no_recipe.ckpt": "does not say which model"}
    for name, content in cases.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        assert main(["export", "--checkpoint", str(tmp_path / name), "-o", str(tmp_path / "x.tflite")]) == 1
        assert told.get(name, "is no") in one_message(capfd, "export")
        assert not (tmp_path / "x.tflite").exists()


def test_a_checkpoint_that_would_run_code_is_not_loaded(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import torch

    class Hostile:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (Path(tmp_path, "ran"),))  # type: ignore[return-value]

    torch.save({"state_dict": {}, "payload": Hostile()}, tmp_path / "hostile.ckpt")
    assert main(["export", "--checkpoint", str(tmp_path / "hostile.ckpt"), "-o", str(tmp_path / "x.tflite")]) == 1
    assert "could run code" in one_message(capfd, "export")
    assert not (tmp_path / "ran").exists()


def test_weights_of_another_architecture_name_the_keys(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import torch

    torch.save(torch.nn.Linear(4, 5).state_dict(), tmp_path / "w.pt")
    words = ["export", "--model", "torch.nn:Linear", "--model-args", '{"in_features": 4, "out_features": 3}']
    words += ["--weights", str(tmp_path / "w.pt"), "--input-shape", "3,8,8", "-o", str(tmp_path / "x.tflite")]
    assert main(words) == 1
    assert "other shapes for weight, bias" in one_message(capfd, "export")


def test_json_goes_to_standard_output_alone(tmp_path: Path) -> None:
    words = ["--config", str(RECIPE), "--trainer.fast_dev_run=1", "--run_dir", str(tmp_path / "run"), "--json", "-"]
    done = run("fit", *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sparsity"]["total"] == pytest.approx(0.9, abs=1e-3)
