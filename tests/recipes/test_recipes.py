"""Every recipe is a test: its header says what a user needs, and it trains two steps."""

import re
from pathlib import Path

import pytest
import torch
from idx_files import write_fashion_mnist
from torch.utils.data import TensorDataset

from sparsetorch.callbacks import sparsity_monitor
from sparsetorch.cli import main
from sparsetorch.data import CIFAR10, ImageNet

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes").rglob("*.yaml"))


def test_no_recipe_is_missed() -> None:
    assert len(RECIPES) == 30


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_recipe_says_what_it_is(recipe: Path) -> None:
    header = re.match(r"(?:#.*\n)+", recipe.read_text())
    assert header is not None
    for word in ("Settings:", "Launch:", "Expect:", str(recipe.relative_to(ROOT))):
        assert word in header.group(), word


class StandIn:
    """In the place of data sets that are no part of this package: a few random images in the shape of theirs."""

    def __init__(self, pixels: int, classes: int) -> None:
        generator = torch.Generator().manual_seed(0)
        images = torch.rand(8, 3, pixels, pixels, generator=generator)
        self.set = TensorDataset(images, torch.randint(0, classes, (8,), generator=generator))

    def __call__(self) -> tuple[TensorDataset, TensorDataset]:
        return self.set, self.set


SMALLER = {
    "resnet56_cifar10": ["--model.init_args.network.init_args.depth=8"],
    "resnet50_imagenet": ["--model.init_args.network.init_args.layers=[1, 1, 1, 1]"],
    "mobilenetv1_imagenet": ["--model.init_args.network.init_args.width=0.25"],
    "mobilenetv2_imagenet": ["--model.init_args.network.init_args.width_mult=0.25"],
}
"""A network of the same kind, for time."""


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_recipe_trains_two_steps(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--config", str(recipe), "--run_dir", str(tmp_path / "run"), "--quiet", "--trainer.accelerator=cpu"]
    words += ["--trainer.max_epochs=1", "--trainer.limit_train_batches=2", "--trainer.limit_val_batches=1"]
    if recipe.parent.name == "fashion_mnist":  # whose files are no part of this package
        write_fashion_mnist(tmp_path / "data", train=420)
        words += [f"--data.init_args.root={tmp_path / 'data'}", "--data.init_args.val_size=20"]
    monkeypatch.setattr(
        sparsity_monitor, "write_plots", lambda *_: []
    )  # half of the time; they have tests of their own
    monkeypatch.setattr(CIFAR10, "open_sets", StandIn(32, 10))
    monkeypatch.setattr(ImageNet, "open_sets", StandIn(64, 1000))
    if recipe.parent.name.endswith(("cifar10", "imagenet")):
        words += ["--data.init_args.num_workers=0", "--data.init_args.batch_size=4"]
    words += SMALLER.get(recipe.parent.name, [])
    text = recipe.read_text()
    if recipe.parent.name.endswith("imagenet"):
        words += ["--model.init_args.optimizer.init_args.lr=0.001"]  # four random images and the paper's rate give nan
    if "    weights:" in text:  # a checkpoint that another training leaves
        words += ["--model.init_args.weights=null"]
    if "class_path: sparsetorch.ABCPruner" in text:
        words += ["--sparsity.algorithm.init_args.food_sources=2", "--sparsity.algorithm.init_args.cycles=1"]
        words += ["--sparsity.algorithm.init_args.fitness_epochs=1"]
        if recipe.parent.name == "digits":
            words += ["--model.init_args.network.init_args.inverted_residual_setting=[[1, 8, 1, 1], [2, 8, 1, 2]]"]
    if recipe.name == "hrank_plus_50.yaml":
        words += ["--sparsity.schedule.init_args.steps=[[2, 0.5]]"]
    if recipe.parent.name == "resnet56_cifar10" and recipe.name == "hrank_50.yaml":
        words += ["--sparsity.schedule.init_args.schedule.init_args.begin_step=1"]  # epochs; there is one
        words += ["--sparsity.schedule.init_args.schedule.init_args.end_step=1"]
    assert main(["fit", *words, "--json", str(tmp_path / "summary.json")]) == 0
    assert (tmp_path / "run" / "checkpoints" / "last.ckpt").is_file()
