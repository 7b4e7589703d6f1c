"""Which loop a `SparseTraining` drives, of weights or of channels, and its schedule in optimizer steps."""

import math
from typing import Any

import pytorch_lightning as pl

from sparsetorch.callbacks.input_shape import input_shape_of
from sparsetorch.errors import BadInputError
from sparsetorch.masking.sparsifier import Sparsifier
from sparsetorch.sparsify.algorithm import Algorithm
from sparsetorch.sparsify.chex import ChannelAlgorithm
from sparsetorch.sparsify.epochs import InEpochs
from sparsetorch.sparsify.pattern import Channel, Pattern, Unstructured
from sparsetorch.sparsify.schedule import Schedule
from sparsetorch.structured.channel_sparsifier import ChannelSparsifier

AnySparsifier = Sparsifier | ChannelSparsifier


def make_sparsifier(
    trainer: pl.Trainer, pl_module: pl.LightningModule, algorithm: Algorithm, pattern: Pattern, **options: Any
) -> AnySparsifier:
    """The loop for this algorithm and pattern, its masks attached.

    Raises:
        BadInputError: where they do not go together, or the input's shape is not known.
    """
    if isinstance(algorithm, ChannelAlgorithm) and pattern == Unstructured():
        pattern = Channel()
    if isinstance(algorithm, ChannelAlgorithm) and not isinstance(pattern, Channel):
        raise BadInputError(f"pattern: found {pattern} with {type(algorithm).__name__}, needed Channel, or none at all")
    if not isinstance(pattern, Channel):
        return Sparsifier(pl_module, algorithm=algorithm, pattern=pattern, **options)
    if pattern.input_shape is None:
        pattern = Channel(input_shape_of(trainer, pl_module))
    return ChannelSparsifier(pl_module, algorithm=algorithm, pattern=pattern, **options)


def in_steps(schedule: Schedule, trainer: pl.Trainer, total_steps: float) -> Schedule:
    """A schedule in optimizer steps, whether it was given in these or in epochs.

    Raises:
        BadInputError: in epochs, where their number is not known.
    """
    if not isinstance(schedule, InEpochs):
        return schedule
    epochs = trainer.max_epochs or 0
    if epochs > 0 and not math.isinf(total_steps) and trainer.max_steps == -1:
        return schedule.in_steps(total_steps / epochs)
    trainer.fit_loop.setup_data()  # a training of a given number of steps has not looked at its data yet
    batches = trainer.num_training_batches
    if math.isinf(batches):
        raise BadInputError(
            "schedule: InEpochs needs to know how long an epoch is, and the training data has no length"
        )
    return schedule.in_steps(math.ceil(batches / trainer.accumulate_grad_batches))
