"""The shape of one input of the network being trained, for what has to run it once."""

from typing import Any

import pytorch_lightning as pl
from torch import Tensor

from sparsetorch.callbacks.resume import random_state, set_random_state


def input_shape_of(trainer: pl.Trainer, pl_module: pl.LightningModule) -> tuple[int, ...] | None:
    """Of one input, without the batch: from `example_input_array`, or from the training data; None where neither is there."""
    example = pl_module.example_input_array
    return tuple(example.shape[1:]) if isinstance(example, Tensor) else _of_training_data(trainer)


def _of_training_data(trainer: pl.Trainer) -> tuple[int, ...] | None:
    """Of the first training sample's first tensor; None where there is no data yet. Leaves the random states as they are."""
    state = random_state()
    try:
        source = trainer.fit_loop._data_source
        loader = source.dataloader() if source.instance is not None and source.is_defined() else None
        dataset = getattr(loader, "dataset", None)
        sample = None if dataset is None else dataset[0]
    except (AttributeError, NotImplementedError, TypeError, IndexError, KeyError):
        return None
    finally:
        set_random_state(state)
    found = first_tensor(sample)
    return None if found is None else tuple(found.shape)


def first_tensor(batch: Any) -> Tensor | None:
    """The first tensor in a batch or sample, however it is nested."""
    if isinstance(batch, Tensor):
        return batch
    values = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, list | tuple) else ()
    return next((found for found in map(first_tensor, values) if found is not None), None)
