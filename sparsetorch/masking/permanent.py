"""Masks made permanent: plain modules whose weights hold the zeros."""

import copy
from typing import TypeVar

import torch
from torch import nn
from torch.nn.utils import prune

from sparsetorch.masking.masks import WEIGHT, mask_of, masked_layers, original_of, refresh

M = TypeVar("M", bound=nn.Module)

_HOLDERS = ("_trainer", "_fabric")
"""Where a LightningModule keeps what trains it; pytorch_lightning 2.6, core/module.py."""


def make_permanent(module: M) -> M:
    """Bake every mask inside `module` into its weights and remove the masks, in place.

    The parameter objects stay the same; masked entries are exactly +0.0.
    """
    for layer in masked_layers(module).values():
        with torch.no_grad():
            original_of(layer).masked_fill_(~mask_of(layer), 0.0)
        prune.remove(layer, WEIGHT)
    return module


def permanent_copy(module: M) -> M:
    """A deep copy with its masks made permanent; `module` itself is left as it is.

    `copy.deepcopy` alone fails on a masked module after a forward with gradients (its `weight` is not a leaf).
    """
    for layer in masked_layers(module).values():
        refresh(layer)
    return make_permanent(own_copy(module))


def own_copy(module: M) -> M:
    """A deep copy that shares the trainer of a LightningModule in training, and with it its data and its processes.

    The trainer is kept from being copied wherever it is reached: an optimizer's factory from a configuration, for one, holds the
    command line that made both.
    """
    held = [inner.__dict__.get(name) for inner in module.modules() for name in _HOLDERS]
    return copy.deepcopy(module, {id(holder): holder for holder in held if holder is not None})
