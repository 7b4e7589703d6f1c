"""Where a run stands: its random numbers and its place in the epoch's data, so that a resumed run is the straight one.

Lightning restores weights, optimizers and counters. It does not restore random states, and inside an epoch it starts a plain
DataLoader from its first batch again. Here both are restored: the epoch's order is drawn again from the random state that it
was drawn from, the batches already trained on are loaded and passed over (their augmentations draw what they drew), and the
random state of the checkpoint is put back. A loader with a `state_dict` of its own is left to Lightning.

One place is not exact: a checkpoint written after a batch that a validation follows (`every_n_train_steps` on an epoch's last
batch). Lightning leaves that validation out in the resumed run, and with it the random numbers that it would have drawn.
"""

import random
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from lightning_utilities.core.rank_zero import rank_zero_info, rank_zero_warn

RandomState = dict[str, Any]


def random_state() -> RandomState:
    """The states of torch (processor and accelerators), numpy and Python; tensors and plain types only."""
    name, keys, *rest = np.random.get_state()
    state = {
        "torch": torch.get_rng_state(),
        "numpy": (name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest),
        "python": random.getstate(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_random_state(state: RandomState) -> None:
    """Put a `random_state` back."""
    torch.set_rng_state(state["torch"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    random.setstate(state["python"])
    if "cuda" in state and torch.cuda.device_count() == len(state["cuda"]):
        torch.cuda.set_rng_state_all(state["cuda"])


class ResumePoint:
    """The random states of all processes, at the start of the epoch and now."""

    def __init__(self) -> None:
        self._epoch: RandomState | None = None
        self._order_is_drawn = False
        self._restored: dict[str, list[RandomState | None]] = {}

    def state_dict(self) -> dict[str, list[RandomState | None]]:
        """States by process; called on every one of them, as `Trainer.save_checkpoint` is."""
        return {"now": _of_all_processes(random_state()), "epoch": _of_all_processes(self._epoch)}

    def load_state_dict(self, state: Mapping[str, list[RandomState | None]]) -> None:
        """Keep what `before_data` and `before_training` will restore."""
        self._restored = dict(state)

    def before_data(self, trainer: pl.Trainer) -> None:
        """Before the training data is set up, which draws the order of the first epoch."""
        saved = len(self._restored.get("now", [])) or trainer.world_size
        if saved != trainer.world_size:
            rank_zero_warn(
                f"resume: the checkpoint is of {saved} processes and this run has {trainer.world_size}, so random numbers "
                "(dropout, order of the data) do not go on where they stopped"
            )
            self._restored = {}
        now = self._of_this_process(trainer, "now")
        if now is not None:
            set_random_state(now)
        self._epoch = random_state()
        self._order_is_drawn = True

    def begin_epoch(self) -> None:
        """Before the order of an epoch is drawn; that of a fit's first epoch has been drawn by then."""
        if not self._order_is_drawn:
            self._epoch = random_state()
        self._order_is_drawn = False

    def before_training(self, trainer: pl.Trainer) -> None:
        """Lightning has restored its counters and made the epoch's iterator: move to the batch that comes next."""
        now, epoch = self._of_this_process(trainer, "now"), self._of_this_process(trainer, "epoch")
        self._restored = {}
        progress = trainer.fit_loop.epoch_loop.batch_progress
        done: int = progress.current.processed  # type: ignore[attr-defined]  # the tracker it has for batches
        if now is None or not done:
            return
        if progress.is_last_batch:
            # Saved when the epoch was over and the hooks of its end were not: the next epoch makes an iterator of its own.
            if trainer.fit_loop.restarted_mid_epoch and progress.current.completed == done:
                set_random_state(now)
            return
        self._order_is_drawn = False  # no epoch begins before the next one
        fetcher, loaders = trainer.fit_loop._data_fetcher, trainer.fit_loop._combined_loader
        if epoch is not None and fetcher is not None and loaders is not None and not _all_stateful(loaders.flattened):
            rank_zero_info(
                f"resume: passing over the {done} batches of epoch {trainer.current_epoch} already trained on"
            )
            # Lightning says that the run will be unreliable, because it does not know of what happens here.
            warnings.filterwarnings(
                "ignore", message="You're resuming from a checkpoint that ended before the epoch ended"
            )
            for loader in loaders.flattened:
                _set_epoch(loader, trainer.current_epoch)
            set_random_state(epoch)
            self._epoch = epoch
            iter(fetcher)
            for _ in range(done):
                next(fetcher)
            fetcher.fetched = 0  # Lightning adds those of before the checkpoint itself
        set_random_state(now)

    def _of_this_process(self, trainer: pl.Trainer, when: str) -> RandomState | None:
        states = self._restored.get(when)
        return states[trainer.global_rank] if states else None


def _of_all_processes(state: RandomState | None) -> list[RandomState | None]:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [state]
    states: list[RandomState | None] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(states, state)
    return states


def _all_stateful(loaders: list[Any]) -> bool:
    return all(hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict") for loader in loaders)


def _set_epoch(loader: Any, epoch: int) -> None:
    """As Lightning does, but before the iterator is made: worker processes draw the order at once."""
    for sampler in (getattr(loader, "sampler", None), getattr(getattr(loader, "batch_sampler", None), "sampler", None)):
        set_epoch = getattr(sampler, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)
