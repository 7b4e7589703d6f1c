"""The search of `ABCPruner` inside a training: structures are judged by short trainings of compact copies of the module."""

import copy
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from sparsetorch.callbacks.resume import random_state, set_random_state
from sparsetorch.errors import BadInputError
from sparsetorch.files import write_atomically
from sparsetorch.masking import masks, own_copy
from sparsetorch.sparsify.abcpruner import ABCPruner, Colony, Structure, advance, is_over
from sparsetorch.sparsify.mask import keep_top, number_kept
from sparsetorch.structured.channel_masks import ChannelMasks
from sparsetorch.structured.channel_sparsifier import ChannelSparsifier, channel_norms
from sparsetorch.structured.compact import make_compact


def search_structure(trainer: pl.Trainer, pl_module: pl.LightningModule, sparsifier: ChannelSparsifier) -> Colony:
    """Search, and prune the module to the best structure found. The state file is written after every evaluation.

    Weights, random state and data of the training that follows are as they were, but for what is pruned.

    Raises:
        BadInputError: with several processes and an unfinished search; without validation data or its metric; or where the state
            file belongs to another network.
    """
    settings = sparsifier.algorithm
    assert isinstance(settings, ABCPruner)
    path = Path(settings.state_file or Path(trainer.default_root_dir) / "abcpruner.json")
    colony = Colony.from_json(path.read_text()) if path.is_file() else Colony()
    sizes = [group.channels for group in sparsifier.groups.values()]
    if colony.best and len(colony.best) != len(sizes):
        raise BadInputError(
            f"state_file: {path} has structures of {len(colony.best)} layers, and this network has {len(sizes)}"
        )
    if not is_over(colony, settings) and trainer.world_size > 1:
        raise BadInputError(
            f"ABCPruner: the search works with one process, found {trainer.world_size}; run it with devices: 1 first, and then "
            f"give its file as state_file ({path})"
        )
    norms = {name: channel_norms(sparsifier.channels, group) for name, group in sparsifier.groups.items()}
    wanted = number_kept(sum(sizes), sparsifier.schedule.target_sparsity())

    def fit(structure: Structure, draws: random.Random) -> tuple[Structure, float]:
        structure = within(structure, sizes, wanted, draws)
        return structure, _fitness(trainer, pl_module, sparsifier, keep_of(structure, norms), settings, draws)

    total = settings.food_sources * (1 + 2 * settings.cycles)
    with _bar(trainer) as bar, _undisturbed():
        task = bar.add_task("ABCPruner", total=total, completed=colony.evaluations)
        while not is_over(colony, settings):
            before = colony.evaluations
            colony = advance(colony, settings, len(sizes), sparsifier.seed, fit)
            if colony.evaluations > before:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, colony.to_json().encode())
                bar.update(task, advance=1, description=f"ABCPruner, best {settings.monitor} {colony.best_fitness:.4f}")
        write_atomically(path, colony.to_json().encode())
    sparsifier.channels.set(keep_of(colony.best, norms))
    return colony


def keep_of(structure: Structure, norms: dict[str, Tensor]) -> dict[str, Tensor]:
    """The channels that a structure keeps, by group: those of largest norm, at least one."""
    return {
        name: keep_top(norm, channels_kept(norm.numel(), tenths))
        for tenths, (name, norm) in zip(structure, norms.items(), strict=True)
    }


def channels_kept(channels: int, tenths: int) -> int:
    """How many of a layer's channels so many tenths keep; at least one."""
    return max(channels * tenths // 10, 1)


def within(structure: Structure, sizes: list[int], wanted: int, draws: random.Random) -> Structure:
    """The structure with tenths taken from random layers until at most `wanted` channels are kept.

    Raises:
        BadInputError: where even one tenth everywhere keeps more.
    """
    tenths = list(structure)
    while sum(map(channels_kept, sizes, tenths)) > wanted:
        above = [layer for layer, own in enumerate(tenths) if own > 1]
        if not above:
            least = 1 - sum(channels_kept(size, 1) for size in sizes) / sum(sizes)
            raise BadInputError(
                f"schedule: one tenth of every layer's channels prunes {least:.1%}, short of the sparsity asked"
            )
        tenths[draws.choice(above)] -= 1
    return tuple(tenths)


def _fitness(
    trainer: pl.Trainer,
    pl_module: pl.LightningModule,
    sparsifier: ChannelSparsifier,
    keep: dict[str, Tensor],
    settings: ABCPruner,
    draws: random.Random,
) -> float:
    """The metric after a short training of a compact copy."""
    for layer in sparsifier.layers.values():
        masks.refresh(layer)
    # The callbacks of the module, this one among them, stay out of the copy.
    candidate = own_copy(pl_module)
    candidate.configure_callbacks = lambda: []  # type: ignore[method-assign]
    ChannelMasks(candidate, list(sparsifier.groups.values())).set(keep)
    shape = sparsifier.pattern.input_shape
    make_compact(candidate, shape)
    torch.manual_seed(draws.randrange(1 << 62))
    judge = pl.Trainer(
        max_epochs=settings.fitness_epochs,
        limit_train_batches=settings.fitness_batches or trainer.limit_train_batches,
        limit_val_batches=trainer.limit_val_batches or 1.0,
        check_val_every_n_epoch=settings.fitness_epochs,
        num_sanity_val_steps=0,
        accelerator="cpu" if trainer.strategy.root_device.type == "cpu" else "auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    datamodule = getattr(trainer, "datamodule", None)
    if datamodule is not None:
        judge.fit(candidate, datamodule=copy.copy(datamodule))
    else:
        train, val = trainer.fit_loop._data_source, trainer.fit_loop.epoch_loop.val_loop._data_source
        judge.fit(
            candidate, train.dataloader(), val.dataloader() if val.instance is not None and val.is_defined() else None
        )
    metrics = judge.callback_metrics
    if settings.monitor not in metrics:
        raise BadInputError(
            f"monitor: found no metric {settings.monitor!r} after validation, only {', '.join(sorted(metrics)) or 'none'}; "
            "needed validation data and the name of a metric that is logged there"
        )
    return float(metrics[settings.monitor])


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Random states as before afterwards, and no announcements of the short trainings."""
    state = random_state()
    logger = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        set_random_state(state)


def _bar(trainer: pl.Trainer) -> Any:
    console = Console(stderr=True)
    hidden = trainer.progress_bar_callback is None or not console.is_terminal or not trainer.is_global_zero
    return Progress(console=console, disable=hidden, transient=True)
