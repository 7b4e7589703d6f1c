"""One short training and one conversion for all tests of this folder."""

import json
from pathlib import Path

import pytest
from digits_road import Road

from sparsetorch.cli import main

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def road(tmp_path_factory: pytest.TempPathFactory) -> Road:
    """Six epochs of recipes/digits/rigl_90.yaml, exported with its dense twin."""
    folder = tmp_path_factory.mktemp("road")
    recipe = str(ROOT / "recipes" / "digits" / "rigl_90.yaml")
    words = ["--config", recipe, "--run_dir", str(folder / "run"), "--trainer.accelerator=cpu", "--quiet"]
    assert main(["fit", *words, "--trainer.max_epochs=6", "--json", str(folder / "fit.json")]) == 0
    checkpoint = folder / "run" / "checkpoints" / "last.ckpt"
    model = folder / "digits.tflite"
    words = ["--checkpoint", str(checkpoint), "-o", str(model), "--dense-twin", "--quiet"]
    assert main(["export", *words, "--json", str(folder / "export.json")]) == 0
    return Road(
        folder / "run",
        checkpoint,
        model,
        folder / "digits.dense.tflite",
        json.loads((folder / "fit.json").read_text()),
        json.loads((folder / "export.json").read_text()),
    )
