"""Optimizer slots: every per-weight buffer of an optimizer (momentum, exp_avg, exp_avg_sq, max_exp_avg_sq, ...)."""

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


def clear_slots(optimizer: Optimizer, parameter: nn.Parameter, keep: Tensor) -> None:
    """Set every slot of `parameter` to 0 where `keep` is False.

    A slot is any state tensor of the parameter's shape, whatever its name, so that optimizers not known here are covered.

    Args:
        optimizer: holds the parameter, or does not (then nothing happens).
        parameter: a parameter of any shape.
        keep: boolean, the shape of the parameter.
    """
    for slot in optimizer.state.get(parameter, {}).values():
        if isinstance(slot, Tensor) and slot.shape == parameter.shape and slot.ndim > 0:
            with torch.no_grad():
                slot.masked_fill_(~keep.to(slot.device), 0)
