"""Every recipe is a test: its header says what a user needs, and it trains two steps."""

import re
from pathlib import Path

import pytest
from idx_files import write_fashion_mnist

from sparsetorch.cli import main

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes").rglob("*.yaml"))


def test_no_recipe_is_missed() -> None:
    assert len(RECIPES) == 15


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_recipe_says_what_it_is(recipe: Path) -> None:
    header = re.match(r"(?:#.*\n)+", recipe.read_text())
    assert header is not None
    for word in ("Settings:", "Launch:", "Expect:", str(recipe.relative_to(ROOT))):
        assert word in header.group(), word


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_recipe_trains_two_steps(recipe: Path, tmp_path: Path) -> None:
    words = ["--config", str(recipe), "--run_dir", str(tmp_path / "run"), "--quiet", "--trainer.accelerator=cpu"]
    words += ["--trainer.max_epochs=1", "--trainer.limit_train_batches=2", "--trainer.limit_val_batches=1"]
    if recipe.parent.name == "fashion_mnist":  # whose files are no part of this package
        write_fashion_mnist(tmp_path / "data", train=420)
        words += [f"--data.init_args.root={tmp_path / 'data'}", "--data.init_args.val_size=20"]
    assert main(["fit", *words, "--json", str(tmp_path / "summary.json")]) == 0
    assert (tmp_path / "run" / "checkpoints" / "last.ckpt").is_file()
