"""Channels of a small residual network on Fashion-MNIST: does it help to explore them while training?

    python notebooks/studies/channels_fashion_mnist/run.py --output notebooks/studies/channels_fashion_mnist

CHEX against the same without regrowing, in two ways, and against one-shot channel pruning, in two ways; all take the same
steps and end with the same number of channels, which all cost the same. The dense network stands beside them. Settings were
chosen on validation images with other seeds (`--evaluate-on val --seeds 101`); the README says how.
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
from typing import Literal

import pytorch_lightning as pl
import torch
from network import INNER, Bottlenecks

from sparsetorch import CHEX, ByName, Channel, ConstantSparsity, Magnitude, SparseTraining, StepList, Uniform, account, compact
from sparsetorch.data import FashionMNIST
from sparsetorch.data.fashion_mnist import DEBIAN_ROOT
from sparsetorch.models import ImageClassifier

METHODS = ("dense", "one_shot_late", "one_shot_early", "at_once", "no_regrow", "chex")
LABELS = {
    "dense": "dense",
    "one_shot_late": "one-shot by L2 norm, when CHEX updates last",
    "one_shot_early": "one-shot by L2 norm, after a tenth of the training",
    "at_once": "CHEX with a regrow factor of 0: all pruned at the first update",
    "no_regrow": "CHEX's counts, but what is pruned never comes back",
    "chex": "CHEX",
}


@dataclass(frozen=True)
class Protocol:
    """What all methods share."""

    sparsity: float = 0.75
    """Share of the channels inside blocks that are pruned at the end."""
    epochs: int = 8
    """Passes over the 55 000 training images."""
    batch_size: int = 128
    """Images per step."""
    lr: float = 0.1
    """Learning rate at the first step; falls to 0 along a cosine."""
    weight_decay: float = 5e-4
    """Of the optimizer, SGD with Nesterov momentum 0.9."""
    regrow_fraction: float = 0.3
    """Of CHEX, at the first update."""
    update_every: int = 429
    """Steps between two updates of CHEX, an epoch, until `until`."""
    until: float = 0.72
    """Share of the training at which CHEX updates for the last time, and late one-shot pruning prunes."""
    early: float = 0.1
    """Share of the training after which early one-shot pruning prunes."""
    floor: float = 0.1875
    """Least share of a block's channels that CHEX keeps: 3 of 16."""
    blocks: int = 3
    width: int = 16
    inner: int = 16
    """Of the network, see network.py."""


@dataclass(frozen=True)
class Run:
    """One training."""

    method: str
    seed: int
    steps: int
    channel_sparsity: float
    parameters: int
    """Of the compact network."""
    macs: int
    """Multiply-accumulates of one image, of the compact network."""
    accuracy: float
    """Of the compact network."""
    cpu_seconds: float
    """Of the process, evaluation included."""


def sparse_training(method: str, protocol: Protocol, seed: int) -> SparseTraining | None:
    """The callback of a method; None for the dense network."""
    schedule = ConstantSparsity(protocol.sparsity, end_step=protocol.until, update_every=protocol.update_every)
    inner, uniform = ByName(INNER), Uniform(first_layer_dense=False)

    def one_shot(share: float) -> SparseTraining:
        return SparseTraining(
            Magnitude(), StepList([[share, protocol.sparsity]]), inner, uniform, Channel(), seed
        )

    def exploring(regrow_fraction: float, regrow: Literal["orthogonal", "none"] = "orthogonal") -> SparseTraining:
        return SparseTraining(CHEX(regrow_fraction, floor=protocol.floor, regrow=regrow), schedule, inner, seed=seed)

    callbacks: dict[str, Callable[[], SparseTraining | None]] = {
        "dense": lambda: None,
        "one_shot_late": lambda: one_shot(protocol.until),
        "one_shot_early": lambda: one_shot(protocol.early),
        "at_once": lambda: exploring(0.0),
        "no_regrow": lambda: exploring(protocol.regrow_fraction, "none"),
        "chex": lambda: exploring(protocol.regrow_fraction),
    }
    return callbacks[method]()


def train(method: str, seed: int, protocol: Protocol, root: str, evaluate_on: str, limit: float | int = 1.0) -> Run:
    """Train once, compact, and evaluate once, on the `val` or the `test` images."""
    started = time.process_time()
    pl.seed_everything(seed)
    data = FashionMNIST(root=root, batch_size=protocol.batch_size, val_size=5000 if limit == 1.0 else 20)
    network = Bottlenecks(protocol.blocks, protocol.width, protocol.inner)
    sparse = sparse_training(method, protocol, seed)
    steps = protocol.epochs * (55000 // protocol.batch_size if limit == 1.0 else int(limit))
    module = ImageClassifier(
        network,
        num_classes=10,
        optimizer=partial(
            torch.optim.SGD, lr=protocol.lr, momentum=0.9, nesterov=True, weight_decay=protocol.weight_decay
        ),
        lr_scheduler=partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=steps),
        lr_interval="step",
        sparsity=sparse,
    )
    options = {
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = pl.Trainer(max_epochs=protocol.epochs, limit_train_batches=limit, limit_val_batches=0, **options)
    trainer.fit(module, data)
    reached = 0.0 if sparse is None else sparse.sparsifier.sparsity
    smaller, report = compact(module.network, (1, 28, 28))
    if report.kept:
        raise RuntimeError(str(report))
    costs = account(smaller, (1, 28, 28))
    judge = pl.Trainer(**options)
    evaluate = judge.validate if evaluate_on == "val" else judge.test
    (metrics,) = evaluate(ImageClassifier(smaller, num_classes=10), data, verbose=False)
    return Run(
        method,
        seed,
        trainer.global_step,
        round(reached, 4),
        costs.parameters,
        costs.dense_macs or 0,
        round(100 * metrics[f"{evaluate_on}_acc"], 2),
        round(time.process_time() - started, 1),
    )


def summary(runs: Sequence[Run]) -> str:
    """A Markdown table: means, standard deviation over seeds, and every seed."""
    head = "| method | channels pruned | parameters | MACs (k) | accuracy, mean | standard deviation | per seed |"
    lines = [head, "|---|---|---|---|---|---|---|"]
    for method in METHODS:
        mine = [run for run in runs if run.method == method]
        if not mine:
            continue
        accuracies = [run.accuracy for run in mine]
        spread = f"{statistics.stdev(accuracies):.2f}" if len(accuracies) > 1 else "-"
        seeds = ", ".join(f"{accuracy:.2f}" for accuracy in accuracies)
        parameters = statistics.mean(run.parameters for run in mine)
        macs = statistics.mean(run.macs for run in mine) / 1000
        lines.append(
            f"| {LABELS[method]} | {mine[0].channel_sparsity:.3f} | {parameters:,.0f} | {macs:.0f} | "
            f"{statistics.mean(accuracies):.2f} | {spread} | {seeds} |"
        )
    return "\n".join(lines)


def read_csv(path: Path) -> list[Run]:
    """The runs of an earlier start, if there was one."""
    if not path.is_file():
        return []
    kinds = {field.name: field.type for field in fields(Run)}
    with path.open() as file:
        return [Run(**{key: kinds[key](value) for key, value in row.items()}) for row in csv.DictReader(file)]


def write_csv(runs: Sequence[Run], path: Path) -> None:
    """One line per run."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Run)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(run) for run in runs)


def quiet() -> None:
    """Lightning's remarks off the screen."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=".*no `val_dataloader`.*|.*validation_step.*")


def main(arguments: Sequence[str] | None = None) -> list[Run]:
    """Run what exploration.csv does not hold yet, of the methods and seeds asked for. Returns every run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for exploration.csv")
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
    quiet()
    told.output.mkdir(parents=True, exist_ok=True)
    print(f"{protocol}; torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.processor()}")
    limit = 1.0 if told.steps_per_epoch is None else told.steps_per_epoch
    table = told.output / "exploration.csv"
    runs = read_csv(table)
    for seed in told.seeds:
        for method in told.methods:
            if (method, seed) in {(run.method, run.seed) for run in runs}:
                continue
            new = train(method, seed, protocol, told.root, told.evaluate_on, limit)
            print(new, flush=True)
            runs = sorted([*runs, new], key=lambda run: (run.seed, METHODS.index(run.method)))
            write_csv(runs, table)
    print(summary(runs))
    return runs


if __name__ == "__main__":
    main()
