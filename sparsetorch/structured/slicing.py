"""Layers with fewer channels: weights, biases, batch-norm statistics and masks cut to the indices that stay."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from sparsetorch.masking.masks import WEIGHT, is_masked, mask_of, original_of, refresh

Weights = nn.modules.conv._ConvNd | nn.Linear


def out_first(weight: Tensor, layer: nn.Module) -> Tensor:
    """A view of a layer's weight with output channels first and input channels second, transposed convolutions too."""
    return weight.transpose(0, 1) if getattr(layer, "transposed", False) else weight


def filters_of(rows: Tensor, indices: Sequence[Sequence[int]]) -> Tensor:
    """What makes each channel of a group in one layer: (C, fan-in), float64, on the processor.

    Args:
        rows: the layer's weight, output channels first (`out_first`).
        indices: for each channel of the group, its own output channels in this layer.
    """
    rows = rows.detach().double().cpu()
    return rows.reshape(len(rows), -1)[torch.tensor(indices)].flatten(1)


@dataclass
class Cut:
    """The indices of one layer that go."""

    out: set[int] = field(default_factory=set)
    """Rows: output channels."""
    inputs: set[int] = field(default_factory=set)
    """Slices: input channels."""
    channel: set[int] = field(default_factory=set)
    """Channels of a layer that has one value or filter per channel."""


def cut_layer(layer: nn.Module, cut: Cut) -> None:
    """Cut a layer in place. Its parameters become new objects, so an optimizer that held them has to be made again.

    Args:
        layer: convolution, transposed convolution, linear, batch-norm or PReLU; a mask of this package may be on.
        cut: what goes; at least one index of each kind must stay.
    """
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        stay = _rest(layer.num_features, cut.channel)
        for name in ("weight", "bias"):
            _cut_parameter(layer, name, stay, 0)
        for name in ("running_mean", "running_var"):
            buffer = getattr(layer, name)
            if buffer is not None:
                setattr(layer, name, buffer[stay].clone())
        layer.num_features = len(stay)
    elif isinstance(layer, nn.PReLU):
        if layer.num_parameters > 1:
            stay = _rest(layer.num_parameters, cut.channel)
            _cut_parameter(layer, WEIGHT, stay, 0)
            layer.num_parameters = len(stay)
    elif isinstance(layer, nn.Linear):
        rows, columns = _rest(layer.out_features, cut.out), _rest(layer.in_features, cut.inputs)
        _cut_weight(layer, rows, columns)
        layer.out_features, layer.in_features = len(rows), len(columns)
    elif isinstance(layer, nn.modules.conv._ConvNd):
        if cut.channel:  # depthwise
            stay = _rest(layer.out_channels, cut.channel)
            _cut_weight(layer, stay, None)
            layer.in_channels = layer.out_channels = layer.groups = len(stay)
        else:
            rows, columns = _rest(layer.out_channels, cut.out), _rest(layer.in_channels, cut.inputs)
            _cut_weight(layer, rows, columns)
            layer.out_channels, layer.in_channels = len(rows), len(columns)
    else:
        raise TypeError(f"{type(layer).__name__} cannot be cut")


def _rest(size: int, gone: set[int]) -> list[int]:
    stay = [index for index in range(size) if index not in gone]
    if not stay:
        raise ValueError("a layer would be left without a channel")
    return stay


def _cut_weight(layer: nn.Module, rows: Sequence[int], columns: Sequence[int] | None) -> None:
    """Weight (through its mask) and bias of a convolution or linear layer."""
    out_dim, in_dim = (1, 0) if getattr(layer, "transposed", False) else (0, 1)
    name = WEIGHT
    if is_masked(layer):
        mask = _select(_select(mask_of(layer), rows, out_dim), columns, in_dim)
        setattr(layer, f"{WEIGHT}_mask", mask.clone())
        name = f"{WEIGHT}_orig"
    _cut_parameter(layer, name, rows, out_dim)
    if columns is not None:
        _cut_parameter(layer, name, columns, in_dim)
    _cut_parameter(layer, "bias", rows, 0)
    if is_masked(layer):
        if bool(mask_of(layer).all()):
            prune.remove(layer, WEIGHT)  # nothing is masked any more
        else:
            refresh(layer)


def _select(tensor: Tensor, stay: Sequence[int] | None, dim: int) -> Tensor:
    if stay is None or len(stay) == tensor.shape[dim]:
        return tensor
    return tensor.index_select(dim, torch.tensor(stay, device=tensor.device))


def _cut_parameter(layer: nn.Module, name: str, stay: Sequence[int], dim: int) -> None:
    parameter = getattr(layer, name)
    if parameter is None or len(stay) == parameter.shape[dim]:
        return
    with torch.no_grad():
        smaller = nn.Parameter(_select(parameter.detach(), stay, dim).clone(), parameter.requires_grad)
    setattr(layer, name, smaller)
    if name == f"{WEIGHT}_orig":
        assert original_of(layer) is smaller
