"""Channels of a trained residual network on Fashion-MNIST: do HRank and ABCPruner choose better than chance?

    python notebooks/studies/channels_fashion_mnist/structures.py --work /tmp/abc --output notebooks/studies/channels_fashion_mnist

Every seed trains one dense network, and every method prunes a copy of it and trains on for as many steps. HRank stands
against random channels, as many in every layer: the same multiply-accumulates. ABCPruner stands against a random structure
with random channels, drawn until its multiply-accumulates are within 5 % of those that the search found.
"""

import argparse
import copy
import csv
import platform
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from run import quiet
from torch import nn

from sparsetorch import ABCPruner, Channel, ConstantSparsity, HRank, SparseTraining, StepList, Uniform, account, compact
from sparsetorch.callbacks.channel_search import channels_kept, within
from sparsetorch.data import FashionMNIST
from sparsetorch.data.fashion_mnist import DEBIAN_ROOT
from sparsetorch.models import CifarResNet, ImageClassifier
from sparsetorch.sparsify.abcpruner import random_structure
from sparsetorch.structured.channel_masks import ChannelMasks
from sparsetorch.structured.groups import channel_groups, prunable

METHODS = ("dense", "hrank", "random", "abcpruner", "random_structure")
LABELS = {
    "dense": "dense",
    "hrank": "HRankPlus",
    "random": "random channels, layers as HRankPlus",
    "abcpruner": "ABCPruner",
    "random_structure": "random structure, random channels",
}


@dataclass(frozen=True)
class Protocol:
    """What all methods share."""

    sparsity: float = 0.5
    """Share of channels pruned: of every layer by HRank, at least of all together by ABCPruner."""
    dense_epochs: int = 3
    epochs: int = 1
    """Of the training after pruning."""
    batch_size: int = 128
    lr: float = 0.1
    """Of the dense training; falls to 0 along a cosine."""
    lr_after: float = 0.02
    """Of the training after pruning; likewise."""
    weight_decay: float = 5e-4
    food_sources: int = 5
    cycles: int = 3
    fitness_batches: int = 60
    """Steps before ABCPruner judges a structure."""
    depth: int = 8
    width: int = 8


@dataclass(frozen=True)
class Run:
    """One network."""

    method: str
    seed: int
    channel_sparsity: float
    parameters: int
    macs: int
    accuracy: float
    cpu_seconds: float


class Study:
    """One seed: a dense network, and what methods make of it."""

    def __init__(self, seed: int, protocol: Protocol, root: str, evaluate_on: str, limit: float | int) -> None:
        self.seed, self.protocol, self.evaluate_on, self.limit = seed, protocol, evaluate_on, limit
        self.data = FashionMNIST(root=root, batch_size=protocol.batch_size, val_size=5000 if limit == 1.0 else 20)
        self.dense: nn.Module = nn.Identity()
        self.abc_macs = 0

    def trainer(self, **options: Any) -> pl.Trainer:
        given = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        return pl.Trainer(**given, enable_model_summary=False, limit_train_batches=self.limit, **options)

    def train(self, network: nn.Module, epochs: int, lr: float, sparse: SparseTraining | None, folder: str = ".") -> None:
        per_epoch = 55000 // self.protocol.batch_size if self.limit == 1.0 else int(self.limit)
        module = ImageClassifier(
            network,
            num_classes=10,
            optimizer=partial(
                torch.optim.SGD, lr=lr, momentum=0.9, nesterov=True, weight_decay=self.protocol.weight_decay
            ),
            lr_scheduler=partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=epochs * per_epoch),
            lr_interval="step",
            sparsity=sparse,
        )
        pl.seed_everything(self.seed)
        self.trainer(max_epochs=epochs, default_root_dir=folder, check_val_every_n_epoch=epochs).fit(module, self.data)

    def run(self, method: str, folder: Path) -> Run:
        """Prune, train on, compact, evaluate once."""
        started = time.process_time()
        protocol = self.protocol
        sparse: SparseTraining | None = None
        if method == "dense":
            pl.seed_everything(self.seed)
            network = CifarResNet(protocol.depth, in_channels=1, width=protocol.width, stem_stride=2)
            self.train(network, protocol.dense_epochs, protocol.lr, None)
            self.dense = copy.deepcopy(network)
        else:
            network = copy.deepcopy(self.dense)
            if method == "hrank":
                uniform = Uniform(first_layer_dense=False)
                schedule = StepList([[5, protocol.sparsity]])
                sparse = SparseTraining(HRank(5), schedule, distribution=uniform, pattern=Channel())
            elif method == "abcpruner":
                bees = ABCPruner(
                    food_sources=protocol.food_sources,
                    cycles=protocol.cycles,
                    fitness_epochs=1,
                    fitness_batches=protocol.fitness_batches,
                    state_file=str(folder / f"abcpruner_{self.seed}.json"),
                )
                sparse = SparseTraining(bees, ConstantSparsity(protocol.sparsity, end_step=0), seed=self.seed)
            else:
                self.prune_randomly(network, method)
            self.train(network, protocol.epochs, protocol.lr_after, sparse, str(folder))
        smaller, report = compact(network, (1, 28, 28))
        if report.kept:
            raise RuntimeError(str(report))
        costs = account(smaller, (1, 28, 28))
        if method == "abcpruner":
            self.abc_macs = costs.dense_macs or 0
        total = sum(group.channels for group in prunable(channel_groups(self.dense, (1, 28, 28))))
        left = sum(group.channels for group in prunable(channel_groups(smaller, (1, 28, 28))))
        judge = self.trainer()
        evaluate = judge.validate if self.evaluate_on == "val" else judge.test
        (metrics,) = evaluate(ImageClassifier(smaller, num_classes=10), self.data, verbose=False)
        accuracy = round(100 * metrics[f"{self.evaluate_on}_acc"], 2)
        seconds = round(time.process_time() - started, 1)
        return Run(
            method, self.seed, round(1 - left / total, 4), costs.parameters, costs.dense_macs or 0, accuracy, seconds
        )

    def prune_randomly(self, network: nn.Module, method: str) -> None:
        """Random channels: half of every layer, or of a random structure at ABCPruner's multiply-accumulates."""
        groups = prunable(channel_groups(network, (1, 28, 28)))
        sizes = [group.channels for group in groups]
        draws = random.Random(self.seed)
        if method == "random":
            counts = [size - round(self.protocol.sparsity * size) for size in sizes]
            ChannelMasks(network, groups).set(self.drawn(groups, counts, draws))
            return
        wanted = sum(sizes) - round(self.protocol.sparsity * sum(sizes))
        for _ in range(2000):
            structure = within(random_structure(len(sizes), 10, draws), sizes, wanted, draws)
            counts = [channels_kept(size, tenths) for size, tenths in zip(sizes, structure, strict=True)]
            trial = copy.deepcopy(self.dense)
            ChannelMasks(trial, groups).set(self.drawn(groups, counts, draws))
            macs = account(compact(trial, (1, 28, 28))[0], (1, 28, 28)).dense_macs or 0
            if abs(macs - self.abc_macs) <= 0.05 * self.abc_macs:
                ChannelMasks(network, groups).set(self.drawn(groups, counts, draws))
                return
        raise RuntimeError("no random structure with as many multiply-accumulates was found")

    @staticmethod
    def drawn(groups: Sequence[Any], counts: Sequence[int], draws: random.Random) -> dict[str, torch.Tensor]:
        """As many random channels of every group."""
        keep = {}
        for group, count in zip(groups, counts, strict=True):
            keep[group.name] = torch.zeros(group.channels, dtype=torch.bool)
            keep[group.name][draws.sample(range(group.channels), count)] = True
        return keep


def summary(runs: Sequence[Run]) -> str:
    """A Markdown table: means, standard deviation over seeds, and every seed."""
    lines = ["| method | channels pruned | MACs (k) | accuracy, mean | standard deviation | per seed |", "|" + "---|" * 6]
    for method in METHODS:
        mine = [run for run in runs if run.method == method]
        if not mine:
            continue
        accuracies = [run.accuracy for run in mine]
        spread = f"{statistics.stdev(accuracies):.2f}" if len(accuracies) > 1 else "-"
        seeds = ", ".join(f"{accuracy:.2f}" for accuracy in accuracies)
        pruned = statistics.mean(run.channel_sparsity for run in mine)
        macs = ", ".join(f"{run.macs / 1000:.0f}" for run in mine)
        lines.append(
            f"| {LABELS[method]} | {pruned:.3f} | {macs} | {statistics.mean(accuracies):.2f} | {spread} | {seeds} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> list[Run]:
    """Run the study. Returns every run, method by method within each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for structures.csv")
    parser.add_argument("--work", type=Path, required=True, help="folder for the states of the searches")
    parser.add_argument("--root", default=DEBIAN_ROOT, help="folder of the Fashion-MNIST files")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
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
    runs = []
    for seed in told.seeds:
        study = Study(seed, protocol, told.root, told.evaluate_on, limit)
        for method in METHODS:
            runs.append(study.run(method, told.work))
            print(runs[-1], flush=True)
            with (told.output / "structures.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, [field.name for field in fields(Run)], lineterminator="\n")
                writer.writeheader()
                writer.writerows(asdict(run) for run in runs)
    print(summary(runs))
    return runs


if __name__ == "__main__":
    main()
