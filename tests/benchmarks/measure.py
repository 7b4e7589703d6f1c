"""How the overhead of sparse training is measured: interleaved steps, paired ratios, storages counted by address."""

import gc
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import pytorch_lightning as pl
import torch
import torchvision
from pytorch_lightning.callbacks import ModelPruning
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from sparsetorch import ConstantSparsity, RigL
from sparsetorch.masking import mask_of
from sparsetorch.masking.sparsifier import Sparsifier
from sparsetorch.models import ImageClassifier
from sparsetorch.sparsify.policy import AllWeights

T = TypeVar("T")

WARM_UP = 5


class SameBatch(Dataset[tuple[Tensor, Tensor]]):
    """One random batch, again and again: no time goes into data."""

    def __init__(self, size: int, pixels: int, steps: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.image = torch.rand(size, 3, pixels, pixels, generator=generator)
        self.label = torch.randint(0, 10, (size,), generator=generator)
        self.steps = steps

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.image, self.label


class Turn(pl.Callback):
    """Lets several trainings take one step each in turn, and times every step from one `on_train_batch_end` to the next.

    A step so includes everything that Lightning and the callbacks before this one do. Steps that lie side by side see
    the same machine: what disturbs it disturbs all, and their ratio stays.
    """

    def __init__(self, steps: int, mine: threading.Semaphore, next_one: threading.Semaphore) -> None:
        self.steps, self.mine, self.next_one = steps, mine, next_one
        self.seconds: list[float] = []
        self._started = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Wait for the first turn."""
        self.mine.acquire()
        self._started = time.perf_counter()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """The step is over: hand on, and wait for the next turn."""
        self.seconds.append(time.perf_counter() - self._started)
        self.next_one.release()
        if trainer.global_step < self.steps:
            self.mine.acquire()
        self._started = time.perf_counter()


Setup = Callable[[pl.LightningModule], Sequence[pl.Callback]]


def lightning_steps(
    make: Callable[[], nn.Module], setups: Sequence[Setup], *, steps: int, batch_size: int, pixels: int
) -> list[list[float]]:
    """Seconds of every step of one training per setup, all trained side by side, one step each in turn.

    Args:
        make: makes the network; called once per setup.
        setups: each gives the callbacks of its training, from the module.
        steps: optimizer steps of each.
        batch_size: images per step.
        pixels: height and width of the images.
    """
    turns = [threading.Semaphore(index == 0) for index in range(len(setups))]
    callbacks = [Turn(steps, turn, next_one) for turn, next_one in zip(turns, [*turns[1:], turns[0]], strict=True)]
    errors: list[BaseException] = []

    def fit(setup: Setup, turn: Turn, module: pl.LightningModule) -> None:
        try:
            trainer = pl.Trainer(
                max_steps=steps,
                callbacks=[*setup(module), turn],
                accelerator="cpu",
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
            )
            trainer.fit(module, DataLoader(SameBatch(batch_size, pixels, steps), batch_size=None))
        except BaseException as error:
            errors.append(error)
            for other in callbacks:  # nobody waits for a turn that never comes
                other.mine.release(steps)

    threads = []
    for setup, turn in zip(setups, callbacks, strict=True):
        torch.manual_seed(0)
        optimizer = partial(torch.optim.SGD, lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4)
        threads.append(
            threading.Thread(target=fit, args=(setup, turn, ImageClassifier(make(), 10, optimizer=optimizer)))
        )
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [turn.seconds for turn in callbacks]


def loop_steps(loops: Sequence[Iterator[None]], steps: int) -> list[list[float]]:
    """Seconds of every step of several plain loops, each a generator that yields after a step, one step each in turn."""
    seconds: list[list[float]] = [[] for _ in loops]
    for _ in range(steps):
        for loop, mine in zip(loops, seconds, strict=True):
            started = time.perf_counter()
            next(loop)
            mine.append(time.perf_counter() - started)
    return seconds


def overhead(plain: Sequence[float], other: Sequence[float], is_update: Callable[[int], bool]) -> tuple[float, float]:
    """How much longer a step of `other` takes than one of `plain`, as ratios of steps side by side.

    Args:
        plain: seconds of step 1, 2, ...
        other: the same of the training compared.
        is_update: whether the masks change after a step of `other`.

    Returns:
        The median ratio over steps without an update, and over steps with one (nan where there is none).
    """
    ratios: dict[bool, list[float]] = {False: [], True: []}
    for step, (ours, theirs) in enumerate(zip(other, plain, strict=True), start=1):
        if step > WARM_UP:
            ratios[is_update(step)].append(ours / theirs)
    return statistics.median(ratios[False]), statistics.median(ratios[True]) if ratios[True] else float("nan")


def amortised(between: float, update: float, update_every: int = 100) -> float:
    """The mean ratio where one step in `update_every` has an update."""
    return (between * (update_every - 1) + update) / update_every


def mobilenet() -> nn.Module:
    """MobileNetV2 of width 0.5 for ten classes."""
    return torchvision.models.MobileNetV2(num_classes=10, width_mult=0.5)


def lightning_pruning(module: pl.LightningModule, *, use_global: bool, amount: float = 0.9) -> ModelPruning:
    """Lightning's own callback on the weights that `AllWeights` picks, its masks on already."""
    pruning = ModelPruning(
        "l1_unstructured",
        parameters_to_prune=[(layer, "weight") for layer in AllWeights().select(module).values()],
        use_global_unstructured=use_global,
        amount=amount,
        apply_pruning=False,
        use_lottery_ticket_hypothesis=False,
    )
    pruning.setup(pl.Trainer(logger=False, enable_checkpointing=False, accelerator="cpu"), module, "fit")
    pruning.apply_pruning(amount)
    return pruning


def masking_seconds(network: nn.Module, repeats: int = 30) -> float:
    """Median seconds that masks add to a step, measured by themselves: both products of every layer, and the three calls.

    The noise of a whole step is larger than this; set against a plain step, it tells what the ratio must be.
    """
    sparsifier = Sparsifier(network, algorithm=RigL(), schedule=ConstantSparsity(0.9, begin_step=10**6, end_step=10**7))
    sparsifier.start()
    layers = list(sparsifier.layers.values())
    gradients = [torch.rand_like(mask_of(layer), dtype=torch.float32) for layer in layers]
    seconds = []
    for step in range(1, repeats + 1):
        started = time.perf_counter()
        sparsifier.before_backward(step)
        for layer, gradient in zip(layers, gradients, strict=True):
            for hook in layer._forward_pre_hooks.values():
                hook(layer, ())
            layer.get_parameter("weight_orig").grad = None
            layer.weight.backward(gradient)  # type: ignore[operator, union-attr]
        sparsifier.before_optimizer_step(step)
        sparsifier.after_optimizer_step(step, [])
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def holds(measure: Callable[[], T], bound: Callable[[T], bool], tries: int = 3) -> bool:
    """Whether a bound on a time holds in one of several measurements, each printed.

    What else the machine does only ever adds to a time, and now to the one, now to the other of two that are compared. A
    bound that the code breaks is broken every time.
    """
    for _ in range(tries):
        found = measure()
        print(f"\n{found}")
        if bound(found):
            return True
    return False


def held_bytes() -> int:
    """Bytes of all storages that any tensor of this process holds, each counted once."""
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if isinstance(thing, Tensor):
            storage = thing.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def train_plainly(network: nn.Module, batch: Tensor, label: Tensor, sparsifier: Sparsifier | None) -> Iterator[None]:
    """A plain PyTorch loop, with or without a Sparsifier; yields after every step, gradients freed."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    step = 0
    while True:
        step += 1
        if sparsifier is not None:
            sparsifier.before_backward(step)
        loss = nn.functional.cross_entropy(network(batch), label)
        loss.backward()
        if sparsifier is not None:
            sparsifier.before_optimizer_step(step)
        optimizer.step()
        optimizer.zero_grad()
        del loss
        if sparsifier is not None:
            sparsifier.after_optimizer_step(step, [optimizer])
        yield
