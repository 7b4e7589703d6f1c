"""A copy of a module in training: its own weights, and the one trainer."""

import threading
from functools import partial

import torch
from torch import nn

from sparsetorch.masking import own_copy, permanent_copy


class InTraining(nn.Module):
    """Reaches what trains it as a LightningModule does, and by its optimizer's factory."""

    def __init__(self, trainer: object) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self._trainer = trainer
        self.make_optimizer = partial(torch.optim.SGD, {"command line": {"trainer": trainer}})


def test_the_trainer_is_shared_however_it_is_reached() -> None:
    trainer = threading.Lock()  # like a trainer of several processes, nothing that can be copied
    module = InTraining(trainer)
    for copied in (own_copy(module), permanent_copy(module)):
        assert copied.make_optimizer.args[0]["command line"]["trainer"] is trainer
        assert copied.layer.weight is not module.layer.weight
        assert torch.equal(copied.layer.weight, module.layer.weight)
    assert module._trainer is trainer
