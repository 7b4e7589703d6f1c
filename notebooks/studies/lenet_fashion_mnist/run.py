"""LeNet-300-100 on Fashion-MNIST at 98 % sparsity: does choosing where weights grow help?

    python notebooks/studies/lenet_fashion_mnist/run.py --output notebooks/studies/lenet_fashion_mnist

RigL, SET and Static start from the same random masks (Erdos-Renyi-kernel) and take the same steps; they differ only in
where weights grow. Gradual magnitude pruning, which starts dense, and the dense network stand beside them. Settings were
chosen on the validation images with other seeds (`--evaluate-on val --seeds 101 102`); the README says how.
"""

import argparse
import csv
import logging
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path

import pytorch_lightning as pl
import torch

from sparsetorch import ERK, SET, ConstantSparsity, Magnitude, PolynomialDecay, RigL, SparseTraining, Static
from sparsetorch.data import FashionMNIST
from sparsetorch.data.fashion_mnist import DEBIAN_ROOT
from sparsetorch.models import ImageClassifier, LeNet300100

METHODS = ("dense", "magnitude", "rigl", "set", "static")
LABELS = dict(zip(METHODS, ("dense", "gradual magnitude", "RigL", "SET", "static"), strict=True))


@dataclass(frozen=True)
class Protocol:
    """What all methods share."""

    sparsity: float = 0.98
    """Share of zeros over the three linear layers."""
    epochs: int = 10
    """Passes over the 55 000 training images."""
    batch_size: int = 128
    """Images per step."""
    lr: float = 0.1
    """Learning rate at the first step; falls to 0 along a cosine."""
    weight_decay: float = 1e-4
    """Of the optimizer, SGD with Nesterov momentum 0.9."""
    drop_fraction: float = 0.3
    """Of RigL and SET at the first update; falls to 0 along a cosine."""
    update_every: int = 400
    """Steps between two updates of the masks, until 75 % of the training."""


@dataclass(frozen=True)
class Run:
    """One training."""

    method: str
    seed: int
    steps: int
    sparsity: float
    accuracy: float
    cpu_seconds: float
    """Of the process, evaluation included."""


def sparse_training(method: str, protocol: Protocol, seed: int) -> SparseTraining | None:
    """The callback of a method; None for the dense network."""
    constant = ConstantSparsity(protocol.sparsity, update_every=protocol.update_every)
    gradual = PolynomialDecay(protocol.sparsity, begin_step=0.1, update_every=protocol.update_every)
    callbacks: dict[str, Callable[[], SparseTraining | None]] = {
        "dense": lambda: None,
        "magnitude": lambda: SparseTraining(Magnitude(), gradual, distribution=ERK(), seed=seed),
        "rigl": lambda: SparseTraining(RigL(protocol.drop_fraction), constant, distribution=ERK(), seed=seed),
        "set": lambda: SparseTraining(SET(protocol.drop_fraction), constant, distribution=ERK(), seed=seed),
        "static": lambda: SparseTraining(Static(), constant, distribution=ERK(), seed=seed),
    }
    return callbacks[method]()


def train(method: str, seed: int, protocol: Protocol, root: str, evaluate_on: str, limit: float | int = 1.0) -> Run:
    """Train once and evaluate the last weights once, on the `val` or the `test` images."""
    started = time.process_time()
    pl.seed_everything(seed)
    data = FashionMNIST(root=root, batch_size=protocol.batch_size, val_size=5000 if limit == 1.0 else 20)
    module = ImageClassifier(
        LeNet300100(),
        num_classes=10,
        optimizer=partial(
            torch.optim.SGD, lr=protocol.lr, momentum=0.9, nesterov=True, weight_decay=protocol.weight_decay
        ),
        lr_scheduler=partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=protocol.epochs),
        sparsity=sparse_training(method, protocol, seed),
    )
    trainer = pl.Trainer(
        max_epochs=protocol.epochs,
        limit_train_batches=limit,
        limit_val_batches=0,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, data)
    steps = trainer.global_step
    trainer.limit_val_batches = 1.0
    evaluate = trainer.validate if evaluate_on == "val" else trainer.test
    (metrics,) = evaluate(module, data, verbose=False)
    weights = [layer.weight for layer in (module.network.fc1, module.network.fc2, module.network.fc3)]
    zeros = sum(int((weight == 0).sum()) for weight in weights) / sum(weight.numel() for weight in weights)
    accuracy = 100 * metrics[f"{evaluate_on}_acc"]
    return Run(method, seed, steps, round(zeros, 4), round(accuracy, 2), round(time.process_time() - started, 1))


def summary(runs: Sequence[Run]) -> str:
    """A Markdown table: mean, standard deviation over seeds, and every seed."""
    lines = ["| method | sparsity | mean | standard deviation | per seed |", "|---|---|---|---|---|"]
    for method in METHODS:
        mine = [run for run in runs if run.method == method]
        if not mine:
            continue
        accuracies = [run.accuracy for run in mine]
        spread = f"{statistics.stdev(accuracies):.2f}" if len(accuracies) > 1 else "-"
        seeds = ", ".join(f"{accuracy:.2f}" for accuracy in accuracies)
        lines.append(
            f"| {LABELS[method]} | {mine[0].sparsity:.3f} | {statistics.mean(accuracies):.2f} | {spread} | {seeds} |"
        )
    return "\n".join(lines)


def plot(runs: Sequence[Run], path: Path, protocol: Protocol, evaluate_on: str) -> None:
    """Every run as a dot, the mean of each method as a bar, written as PNG or SVG by the name's ending."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
    shown = [method for method in METHODS if any(run.method == method for run in runs)]
    for row, method in enumerate(shown):
        accuracies = [run.accuracy for run in runs if run.method == method]
        axes.plot(accuracies, [row] * len(accuracies), "o", color="tab:blue", alpha=0.6)
        axes.plot([statistics.mean(accuracies)] * 2, [row - 0.3, row + 0.3], color="black")
    axes.set_yticks(range(len(shown)), [LABELS[method] for method in shown])
    axes.invert_yaxis()
    axes.set_xlabel(f"{evaluate_on} accuracy (%)")
    axes.set_title(f"LeNet-300-100, Fashion-MNIST, {100 * protocol.sparsity:g} % sparse (bar: mean)")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def write_csv(runs: Sequence[Run], path: Path) -> None:
    """One line per run."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Run)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(run) for run in runs)


def main(arguments: Sequence[str] | None = None) -> list[Run]:
    """Run the study. Returns every run, method by method within each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for results.csv and accuracy.png")
    parser.add_argument("--root", default=DEBIAN_ROOT, help="folder of the Fashion-MNIST files")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--evaluate-on", choices=("val", "test"), default="test")
    parser.add_argument("--steps-per-epoch", type=int, default=None, help="fewer than there are, to try the script")
    for field in fields(Protocol):
        name = "--" + field.name.replace("_", "-")
        parser.add_argument(name, type=type(field.default), default=field.default)
    told = parser.parse_args(arguments)
    protocol = Protocol(**{field.name: getattr(told, field.name) for field in fields(Protocol)})

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=".*no `val_dataloader`.*|.*validation_step.*")
    told.output.mkdir(parents=True, exist_ok=True)
    print(f"{protocol}; torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.processor()}")
    limit = 1.0 if told.steps_per_epoch is None else told.steps_per_epoch
    runs = []
    for seed in told.seeds:
        for method in told.methods:
            runs.append(train(method, seed, protocol, told.root, told.evaluate_on, limit))
            print(runs[-1], flush=True)
    write_csv(runs, told.output / "results.csv")
    plot(runs, told.output / "accuracy.png", protocol, told.evaluate_on)
    print(summary(runs))
    return runs


if __name__ == "__main__":
    main()
