"""Weight averaging (EMA, SWA) of a sparse network: averages are masked where they are used, not at every step.

An average of weights whose masks changed is not sparse, and an average of boolean masks is their union. Lightning's
`WeightAveraging` uses its averages in three places (validation, checkpoints, the end of the training), and just before each
of them they are given the network's current masks.
"""

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import WeightAveraging

from sparsetorch.callbacks.channels import AnySparsifier
from sparsetorch.errors import BadInputError
from sparsetorch.masking import masks


def check_order(trainer: pl.Trainer, sparse_training: pl.Callback) -> None:
    """Refuse a weight averaging that copies the network before it has its masks.

    Raises:
        BadInputError: where one comes before `sparse_training`.
    """
    for callback in _callbacks(trainer):
        if callback is sparse_training:
            return
        if isinstance(callback, WeightAveraging):
            raise BadInputError(
                f"callbacks: {type(callback).__name__} comes before SparseTraining and would average a network without its "
                "masks; list SparseTraining first"
            )


def mask_averages(trainer: pl.Trainer, sparsifier: AnySparsifier) -> None:
    """Give every averaged copy of the network the network's current masks."""
    for callback in _callbacks(trainer):
        average = getattr(callback, "_average_model", None) if isinstance(callback, WeightAveraging) else None
        if average is None:
            continue
        for name, layer in masks.masked_layers(average.module).items():
            current = masks.mask_of(sparsifier.module.get_submodule(name))
            with torch.no_grad():
                masks.mask_of(layer).copy_(current)
                masks.original_of(layer).masked_fill_(~masks.mask_of(layer), 0.0)


def _callbacks(trainer: pl.Trainer) -> list[pl.Callback]:
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]  # set by Lightning's connector
    return callbacks
