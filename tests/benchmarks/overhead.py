"""The overhead table: every figure of "Speed and memory", measured in one run on this machine.

    OMP_NUM_THREADS=1 python tests/benchmarks/overhead.py            # writes overhead.md beside this file
    OMP_NUM_THREADS=1 python tests/benchmarks/overhead.py --steps 20 --rigl-torch FOLDER

FOLDER is where `pip install --no-deps --target FOLDER rigl-torch` has put that package; without it, the comparison is
with Lightning's ModelPruning alone.
"""

import argparse
import importlib
import logging
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torchvision
from torch import Tensor, nn

from sparsetorch import ERK, ConstantSparsity, Global, Magnitude, RigL, SparseTraining, StepList, Uniform
from sparsetorch.masking.sparsifier import Sparsifier
from sparsetorch.models import ImageClassifier
from sparsetorch.sparsify.policy import AllWeights

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measure import (
    amortised,
    held_bytes,
    lightning_pruning,
    lightning_steps,
    loop_steps,
    masking_seconds,
    mobilenet,
    overhead,
    train_plainly,
)

UPDATE_EVERY = 10
"""In the timed trainings, so that updates are seen too; the amortised figure is for one in a hundred."""


def rigl_callback(module: pl.LightningModule) -> list[pl.Callback]:
    """RigL at 90 %."""
    return [SparseTraining(RigL(), ConstantSparsity(0.9, end_step=-1, update_every=UPDATE_EVERY), distribution=ERK())]


def step_overhead(steps: int) -> dict[str, float]:
    """Lightning steps of MobileNetV2 (width 0.5, 32x32, batch 128): RigL against no callback, step by step in turn."""
    plain, ours = lightning_steps(mobilenet, [lambda module: [], rigl_callback], steps=steps, batch_size=128, pixels=32)
    # The schedule ends with the training, so the last step has an update too.
    between, update = overhead(plain, ours, lambda step: step % UPDATE_EVERY == 0 or step == steps)
    return {
        "plain_ms": 1e3 * statistics.median(plain),
        "between": between,
        "update": update,
        "amortised": amortised(between, update),
    }


def extra_bytes_per_weight(make: Callable[[], nn.Module], pixels: int) -> dict[str, float]:
    """Bytes held beyond those of the same training without masks, per prunable weight, each measured between updates."""
    batch, label = torch.rand(8, 3, pixels, pixels), torch.randint(0, 10, (8,))

    def held(sparse: bool) -> tuple[list[int], int]:
        network = make()
        weights = sum(layer.weight.numel() for layer in AllWeights().select(network).values())  # type: ignore[operator, union-attr]
        schedule = ConstantSparsity(0.9, begin_step=3, end_step=1000, update_every=100)
        sparsifier = Sparsifier(network, algorithm=RigL(), schedule=schedule) if sparse else None
        if sparsifier is not None:
            sparsifier.start()
        bytes_held = []
        loop = train_plainly(network, batch, label, sparsifier)
        for step in range(1, 6):
            next(loop)
            if step in (2, 3, 5):  # before an update, right after it, and two steps on
                bytes_held.append(held_bytes())
        return bytes_held, weights

    plain, weights = held(False)
    sparse, _ = held(True)
    names = ("before an update", "right after it", "two steps later")
    return {name: (ours - theirs) / weights for name, ours, theirs in zip(names, sparse, plain, strict=True)}


def update_seconds(network: nn.Module, batch: Tensor, label: Tensor, updates: int) -> tuple[float, float]:
    """Median seconds of a RigL update at 90 %, the dense gradient's part included, and of a plain step of that loop."""
    schedule = ConstantSparsity(0.9, begin_step=2, end_step=10_000, update_every=2)
    sparsifier = Sparsifier(network, algorithm=RigL(), schedule=schedule)
    sparsifier.start()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for step in range(1, 2 * updates + 3):
        sparsifier.before_backward(step)
        started = time.perf_counter()
        nn.functional.cross_entropy(network(batch), label).backward()
        taken = time.perf_counter() - started
        started = time.perf_counter()
        sparsifier.before_optimizer_step(step)
        update = time.perf_counter() - started
        started = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad()
        taken += time.perf_counter() - started
        started = time.perf_counter()
        changed = sparsifier.after_optimizer_step(step, [optimizer])
        update += time.perf_counter() - started
        if step > 2:
            seconds[changed is not None].append(update if changed is not None else taken)
    return statistics.median(seconds[True]), statistics.median(seconds[False])


def update_nanoseconds(inputs: int, outputs: int, updates: int) -> float:
    """Nanoseconds per parameter of a RigL update of one linear layer."""
    layer = nn.Sequential(nn.Linear(inputs, outputs, bias=False))
    seconds, _ = update_seconds(layer, torch.rand(4, inputs), torch.zeros(4, dtype=torch.long), updates)
    return 1e9 * seconds / (inputs * outputs)


def resnet_update(batch_size: int, updates: int) -> tuple[float, float]:
    """Seconds of a RigL update of ResNet-50 and of a plain training step at 224x224."""
    batch, label = torch.rand(batch_size, 3, 224, 224), torch.zeros(batch_size, dtype=torch.long)
    return update_seconds(torchvision.models.resnet50(), batch, label, updates)


def magnitude_seconds(use_global: bool, repeats: int) -> tuple[float, float]:
    """Median seconds to prune MobileNetV2 0.5 by magnitude: `Sparsifier.update`, ModelPruning.apply_pruning.

    Both prune a tenth of what is left each time, from masks with a tenth of zeros on: the same masks at every turn.
    """
    network = mobilenet()
    sparsifier = Sparsifier(
        network,
        algorithm=Magnitude(),
        schedule=StepList([(turn, 1 - 0.9 ** (turn + 1)) for turn in range(repeats + 1)]),
        distribution=Global() if use_global else Uniform(first_layer_dense=False),
    )
    sparsifier.update(0, [])
    theirs = lightning_pruning(ImageClassifier(mobilenet(), 10), use_global=use_global, amount=0.1)
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(1, repeats + 1):
        for run, mine in zip(
            (partial(sparsifier.update, turn, []), partial(theirs.apply_pruning, 0.1)), seconds, strict=True
        ):
            started = time.perf_counter()
            run()
            mine.append(time.perf_counter() - started)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


def lightning_pruning_overhead(steps: int) -> tuple[float, float]:
    """Step ratios to a plain Lightning training, MobileNetV2 0.5, batch 128: ours, and ModelPruning with its masks on."""
    plain, ours, theirs = lightning_steps(
        mobilenet,
        [lambda module: [], rigl_callback, lambda module: [lightning_pruning(module, use_global=False)]],
        steps=steps,
        batch_size=128,
        pixels=32,
    )
    between, _ = overhead(plain, ours, lambda step: step % UPDATE_EVERY == 0 or step == steps)
    return between, overhead(plain, theirs, lambda step: False)[0]


def rigl_torch_comparison(steps: int) -> dict[str, tuple[float, float]]:
    """ResNet-18 at 64x64, batch 32, uniform 90 %, plain PyTorch loops in turn: (ours, rigl-torch) against plain.

    ResNet-18, since rigl-torch prunes depthwise convolutions too and ours does not: here both prune the same layers.
    """
    batch, label = torch.rand(32, 3, 64, 64), torch.randint(0, 10, (32,))

    def make() -> nn.Module:
        torch.manual_seed(0)
        return torchvision.models.resnet18(num_classes=10)

    ours = make()
    schedule = ConstantSparsity(0.9, begin_step=UPDATE_EVERY, end_step=10_000, update_every=UPDATE_EVERY)
    sparsifier = Sparsifier(ours, algorithm=RigL(), schedule=schedule)
    sparsifier.start()
    loops = [
        train_plainly(make(), batch, label, None),
        train_plainly(ours, batch, label, sparsifier),
        _train_by_rigl_torch(make(), batch, label),
    ]
    plain, mine, theirs = loop_steps(loops, steps)

    def is_update(step: int) -> bool:
        return step % UPDATE_EVERY == 0

    pairs = list(zip(overhead(plain, mine, is_update), overhead(plain, theirs, is_update), strict=True))
    return {"between": pairs[0], "update": pairs[1]}


def _train_by_rigl_torch(network: nn.Module, batch: Tensor, label: Tensor) -> Iterator[None]:
    """The loop of rigl-torch's own README."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    package: Any = importlib.import_module("rigl_torch.RigL")
    pruner = package.RigLScheduler(
        network, optimizer, dense_allocation=0.1, T_end=10_000, delta=UPDATE_EVERY, ignore_linear_layers=False
    )
    while True:
        nn.functional.cross_entropy(network(batch), label).backward()
        if pruner():
            optimizer.step()
        optimizer.zero_grad()
        yield


def report(steps: int, rigl_torch: bool) -> str:
    """Measure everything and write it down as Markdown."""
    step, masking = step_overhead(steps), masking_seconds(mobilenet())
    memory = {
        "MobileNetV2, width 0.5": extra_bytes_per_weight(mobilenet, 32),
        "ResNet-18": extra_bytes_per_weight(partial(torchvision.models.resnet18, num_classes=10), 32),
    }
    sizes = {"1 M": (1000, 1000, 9), "10 M": (5000, 2000, 5), "100 M": (10_000, 10_000, 3)}
    nanoseconds = {name: update_nanoseconds(*size) for name, size in sizes.items()}
    update, plain = resnet_update(batch_size=8, updates=3)
    lines = [
        "# Overhead of sparse training",
        "",
        "Written by `tests/benchmarks/overhead.py`. Ratios are of steps that lie side by side in one process, medians "
        f"over {steps} steps; machine: {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, "
        f"torch {torch.__version__}, {torch.get_num_threads()} thread(s), float32.",
        "",
        "| what | measured | goal |",
        "|---|---|---|",
        f"| Lightning step, RigL 90 %, no update, against no callback ({step['plain_ms']:.0f} ms) | "
        f"{step['between']:.3f} | at most 1.03 |",
        f"| the same, a step with an update | {step['update']:.3f} | |",
        f"| the same, amortised, an update every 100 steps | {step['amortised']:.3f} | at most 1.05 |",
    ]
    lines.append(
        f"| masks by themselves (both products of every layer, all calls) against that step, ms: {1e3 * masking:.2f} | "
        f"{1 + 1e3 * masking / step['plain_ms']:.3f} | at most 1.03 |"
    )
    for name, held in memory.items():
        for when, size in held.items():
            lines.append(f"| {name}: extra bytes per prunable weight, {when} | {size:.2f} | at most 5 |")
    for name, value in nanoseconds.items():
        lines.append(f"| RigL update of one layer of {name} weights, ns per weight | {value:.1f} | linear |")
    lines += [
        f"| RigL update of ResNet-50 ({update:.2f} s) against a plain step (batch 8, 224x224: {plain:.2f} s) | "
        f"{update / plain:.2f} | at most 2 |",
        "",
        "The Lightning steps are MobileNetV2, width 0.5, 32x32, batch 128.",
        "",
        "## Against other packages",
        "",
        "| work | this package | the other |",
        "|---|---|---|",
    ]
    ours, theirs = lightning_pruning_overhead(steps)
    lines.append(f"| step against no callback, masks on: ModelPruning (Lightning) | {ours:.3f} | {theirs:.3f} |")
    for use_global, name in ((False, "per layer"), (True, "one threshold")):
        ours, theirs = magnitude_seconds(use_global, repeats=9)
        lines.append(
            f"| pruning MobileNetV2 0.5 by magnitude, {name}, ms: ModelPruning | {1e3 * ours:.1f} | {1e3 * theirs:.1f} |"
        )
    if rigl_torch:
        for when, (ours, theirs) in rigl_torch_comparison(min(steps, 31)).items():
            text = "no update" if when == "between" else "with an update"
            lines.append(
                f"| RigL step of ResNet-18 (64x64, batch 32), {text}, against plain PyTorch: rigl-torch | "
                f"{ours:.3f} | {theirs:.3f} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and write overhead.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100, help="steps of each timed training")
    parser.add_argument("--rigl-torch", type=Path, help="folder that holds the package rigl_torch")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".md"))
    told = parser.parse_args()
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    if told.rigl_torch is not None:
        sys.path.insert(0, str(told.rigl_torch))
    text = report(told.steps, told.rigl_torch is not None)
    print(text)
    told.output.write_text(text)


if __name__ == "__main__":
    main()
