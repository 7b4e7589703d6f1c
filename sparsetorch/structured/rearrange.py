"""Filter rearrangement for 1xN blocks, applied to the network itself.

Lin et al., "1xN Pattern for Pruning Convolutional Neural Networks", TPAMI 2022 (arXiv 2105.14713): a block is N consecutive
output channels at one input channel, so it pays to have strong filters next to strong ones. Their order is free as long as
everything that carries or reads the channels is reordered with them. Here the channels of every group are sorted by the sum of
|w| of the filters that make them, and all members of the group are permuted: rows, biases, batch-norms with their statistics,
depthwise filters and every consumer's slices. The network computes what it computed before.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sparsetorch.masking import masks
from sparsetorch.sparsify.policy import AllWeights, Policy
from sparsetorch.structured.groups import Group, Member, channel_groups
from sparsetorch.structured.slicing import Weights, out_first

_VECTORS = ("bias", "running_mean", "running_var")


def rearrange_filters(
    module: nn.Module, input_shape: Sequence[int] | None = None, policy: Policy | None = None
) -> dict[str, list[int]]:
    """Sort the channels of every group by the strength of their filters, strongest first, in place.

    Parameter objects stay the same. Optimizer slots are not moved: do it before a training.

    Args:
        module: any network; masks are permuted with their weights.
        input_shape: of one input, without the batch; None as in `channel_groups`.
        policy: the layers whose filters count; a group that none of them makes keeps its order. None: all.

    Returns:
        By group, which of its former channels is where: `order[j]` is the former channel j. Groups that cannot be followed
        (a `why_not`) keep their order and are not in it.
    """
    picked = (policy or AllWeights()).select(module)
    orders = {}
    for group in channel_groups(module, input_shape):
        makers = [member for member in group.of_role("out") if member.module in picked]
        if group.why_not is not None or not makers:
            continue
        strength = sum(
            (_strength(module, member) for member in makers), torch.zeros(group.channels, dtype=torch.float64)
        )
        order = torch.argsort(strength, descending=True, stable=True)
        permute_channels(module, group, order)
        orders[group.name] = order.tolist()
    return orders


def permute_channels(module: nn.Module, group: Group, order: Tensor) -> None:
    """Put a group's former channel `order[j]` at place j, in every member."""
    with torch.no_grad():
        for member in group.members:
            layer = module.get_submodule(member.module)
            if isinstance(layer, nn.PReLU) and layer.num_parameters == 1:
                continue
            target = torch.tensor([index for own in member.indices for index in own])
            source = torch.tensor([index for channel in order.tolist() for index in member.indices[channel]])
            dim = 1 if member.role == "in" else 0
            for tensor in _weights(layer):
                view = out_first(tensor, layer) if isinstance(layer, Weights) else tensor
                here, there = target.to(view.device), source.to(view.device)
                view.index_copy_(dim, here, view.index_select(dim, there))
            for name in () if member.role == "in" else _VECTORS:
                vector = getattr(layer, name, None)
                if isinstance(vector, Tensor):
                    vector.data[target.to(vector.device)] = vector.data[source.to(vector.device)]
            if masks.is_masked(layer):
                masks.refresh(layer)


def block_fill(weight: Tensor, size: int) -> float:
    """How full the blocks of `size` output channels are: non-zeros over the entries of all blocks that hold any, 0 to 1.

    XNNPACK takes its kernel for 4 (or 2) output channels where it is at least 0.9. Rows that fill no whole block do not count.
    `sparsetorch.structured.compact` can lower it: it removes single rows that no layer reads.

    Args:
        weight: (out, in, ...).
        size: output channels of a block.
    """
    filled = weight.detach().ne(0).reshape(len(weight), -1)
    blocks = filled[: len(filled) - len(filled) % size].reshape(-1, size, filled.shape[1])
    entries = int(blocks.any(dim=1).sum()) * size
    return int(blocks.sum()) / entries if entries else 1.0


def _strength(module: nn.Module, member: Member) -> Tensor:
    layer = module.get_submodule(member.module)
    weight = masks.weight_parameter(layer).detach()
    weight = weight * masks.mask_of(layer) if masks.is_masked(layer) else weight
    sums = out_first(weight.double().abs().cpu(), layer).flatten(1).sum(dim=1)
    return sums[torch.tensor(member.indices)].sum(dim=1)


def _weights(layer: nn.Module) -> list[Tensor]:
    if masks.is_masked(layer):
        return [masks.original_of(layer).data, masks.mask_of(layer)]
    weight = getattr(layer, masks.WEIGHT, None)
    return [weight.data] if isinstance(weight, Tensor) else []
