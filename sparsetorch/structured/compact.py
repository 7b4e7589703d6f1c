"""Compaction: channels that are pruned in a network are removed from it, with everything coupled to them.

A channel is pruned where removing it changes nothing (effective weights, masks applied, `== 0` only):

1. no layer reads it: the slice of every consumer is zero, whatever the producers make; or
2. it is zero itself: every producer's row and bias is zero, or the batch-norm that follows the producer has gamma and beta
   zero; so is every other batch-norm on the way; and all operators it passes keep zero at zero.

What was removed is then compared with what was masked, on a random input. Where a group's removal changes the output or
the network no longer runs (a forward with sizes written into it), this group stays masked and the result says why.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from sparsetorch.analysis.accounting import effective_weight
from sparsetorch.masking.masks import masked_layers, refresh
from sparsetorch.masking.permanent import own_copy
from sparsetorch.structured.groups import Group, channel_groups, guess_input_shape
from sparsetorch.structured.slicing import Cut, cut_layer, out_first
from sparsetorch.structured.trace import KEEP_ZERO

M = TypeVar("M", bound=nn.Module)

TOLERANCE = 1e-5
"""Largest difference of outputs, relative to the largest output, that still counts as equal (float32)."""


@dataclass(frozen=True)
class Compaction:
    """What was removed and what was not."""

    removed: dict[str, int]
    """Channels removed, by group."""
    kept: dict[str, str]
    """Groups with pruned channels that could not be removed, and why; they are still masked."""
    parameters: tuple[int, int]
    """Parameters before and after."""
    difference: float
    """Largest difference of the outputs before and after, relative to the largest output."""

    def __str__(self) -> str:
        before, after = self.parameters
        text = f"removed {sum(self.removed.values())} channels of {len(self.removed)} groups: {before:,} parameters to {after:,}"
        return text + "".join(f"\n{name} stays masked: {why}" for name, why in self.kept.items())


def make_compact(module: M, input_shape: Sequence[int] | None = None) -> M:
    """Remove pruned channels from a network, in place; see `compact`. Warns of every group that has to stay masked.

    Parameters of layers that shrink become new objects: an optimizer has to be made again.
    """
    shape = guess_input_shape(module) if input_shape is None else tuple(input_shape)
    report, cuts = _decide(module, channel_groups(module, shape), shape)
    for name, why in report.kept.items():
        warnings.warn(f"make_compact: the channels of {name} stay masked: {why}", stacklevel=2)
    _apply(module, cuts)
    return module


def compact(module: M, input_shape: Sequence[int] | None = None) -> tuple[M, Compaction]:
    """A copy of a network without its pruned channels, and what was removed; the network itself stays as it is.

    Args:
        module: any network that `channel_groups` takes; masks may be on.
        input_shape: of one input, without the batch; None as in `channel_groups`.

    Raises:
        BadInputError: the network does not run on such an input.
    """
    shape = guess_input_shape(module) if input_shape is None else tuple(input_shape)
    report, cuts = _decide(module, channel_groups(module, shape), shape)
    smaller = _copy(module)
    _apply(smaller, cuts)
    return smaller, report


def pruned_channels(module: nn.Module, group: Group) -> Tensor:
    """Which channels of a group are pruned: boolean, one per channel. The first one always counts as alive where all are."""
    unread = torch.ones(group.channels, dtype=torch.bool)
    for member in group.of_role("in"):
        layer = module.get_submodule(member.module)
        read = out_first(effective_weight(layer), layer).transpose(0, 1).flatten(1).ne(0).any(dim=1).cpu()
        unread &= ~_any_of(read, member.indices)
    return unread | _zero_channels(module, group)


def _zero_channels(module: nn.Module, group: Group) -> Tensor:
    """Which channels are zero wherever they are read."""
    zero = torch.ones(group.channels, dtype=torch.bool)
    if not set(group.operators) - {"View", "ReshapeAlias", "UnsafeView", "Cat"} <= KEEP_ZERO:
        return ~zero
    for member in group.members:
        layer = module.get_submodule(member.module)
        if member.role == "in" or member.normalized:
            continue
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            if not layer.affine:
                return torch.zeros_like(zero)
            alive = layer.weight.detach().ne(0) | layer.bias.detach().ne(0)
        elif isinstance(layer, nn.PReLU):
            continue
        else:
            weight = out_first(effective_weight(layer), layer)
            if member.role == "channel":  # a depthwise convolution keeps zero at zero but for its bias
                alive = torch.zeros(len(weight), dtype=torch.bool)
            else:
                alive = weight.reshape(len(weight), -1).ne(0).any(dim=1)
            bias = getattr(layer, "bias", None)
            alive = alive if bias is None else alive.to(bias.device) | bias.detach().ne(0)
        zero &= ~_any_of(alive.cpu(), member.indices)
    return zero


def _has_zero_rows(module: nn.Module, group: Group) -> bool:
    """Whether a producer of a group that cannot be followed has zeros in a whole row."""
    weights = [effective_weight(module.get_submodule(member.module)) for member in group.of_role("out")]
    return any(bool((weight.reshape(len(weight), -1) == 0).all(dim=1).any()) for weight in weights)


def _any_of(flags: Tensor, indices: Sequence[Sequence[int]]) -> Tensor:
    """By channel, whether any of its own indices is flagged."""
    return flags[torch.tensor(indices, dtype=torch.long)].any(dim=1)


def _decide(module: nn.Module, groups: Sequence[Group], shape: tuple[int, ...]) -> tuple[Compaction, dict[str, Cut]]:
    """What to cut, every removal proven on a copy."""
    gone: dict[str, Tensor] = {}
    kept: dict[str, str] = {}
    found = {group.name: group for group in groups}
    for group in groups:
        if group.why_not is not None:
            if _has_zero_rows(module, group):
                kept[group.name] = group.why_not
            continue
        pruned = pruned_channels(module, group)
        if bool(pruned.all()):
            kept[group.name] = "all its channels are pruned; one of them stays, since a layer needs at least one"
            pruned[0] = False
        gone[group.name] = pruned
    gone = {name: pruned for name, pruned in gone.items() if bool(pruned.any())}
    difference, problem = _try(module, found, gone, shape)
    if problem is not None:
        for name in list(gone):  # one by one: which group is it?
            _, why = _try(module, found, {name: gone[name]}, shape)
            if why is not None:
                kept[name] = why
                del gone[name]
        difference, problem = _try(module, found, gone, shape)
        if problem is not None:
            kept |= dict.fromkeys(gone, f"groups that can go alone cannot go together: {problem}")
            gone, difference = {}, 0.0
    cuts = _cuts(found, gone)
    before = sum(parameter.numel() for parameter in module.parameters())
    smaller = _copy(module)
    _apply(smaller, cuts)
    after = sum(parameter.numel() for parameter in smaller.parameters())
    removed = {name: int(pruned.sum()) for name, pruned in gone.items()}
    return Compaction(removed, kept, (before, after), difference), cuts


def _try(
    module: nn.Module, groups: Mapping[str, Group], gone: Mapping[str, Tensor], shape: tuple[int, ...]
) -> tuple[float, str | None]:
    """The relative difference that a removal makes, and what is wrong with it."""
    masked = _copy(module).eval()
    smaller = _copy(masked)
    parameter = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
    image = torch.randn(2, *shape, generator=torch.Generator().manual_seed(1)).to(parameter.device, parameter.dtype)
    try:
        _apply(smaller, _cuts(groups, gone))
        with torch.no_grad():
            ours, theirs = _flat(smaller(image)), _flat(masked(image))
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        return 0.0, f"without them the network does not run ({(str(error) or type(error).__name__).splitlines()[0]})"
    if ours.shape != theirs.shape:
        return 0.0, f"without them the output has {ours.numel()} values in place of {theirs.numel()}"
    largest = float(theirs.abs().max()) if theirs.numel() else 0.0
    difference = float((ours - theirs).abs().max()) / max(largest, 1e-12)
    allowed = TOLERANCE if parameter.dtype in (torch.float32, torch.float64) else 1e-2
    return (
        difference,
        None if difference <= allowed else f"without them the output differs by {difference:.2g} of its largest",
    )


def _flat(output: object) -> Tensor:
    if isinstance(output, Tensor):
        return output.detach().double().reshape(-1)
    values = (
        list(output.values()) if isinstance(output, dict) else list(output) if isinstance(output, list | tuple) else []
    )
    return torch.cat([_flat(value) for value in values])


def _cuts(groups: Mapping[str, Group], gone: Mapping[str, Tensor]) -> dict[str, Cut]:
    cuts: dict[str, Cut] = {}
    for name, pruned in gone.items():
        for member in groups[name].members:
            cut = cuts.setdefault(member.module, Cut())
            {"out": cut.out, "in": cut.inputs, "channel": cut.channel}[member.role].update(member.of(pruned))
    return cuts


def _apply(module: nn.Module, cuts: Mapping[str, Cut]) -> None:
    for name, cut in cuts.items():
        cut_layer(module.get_submodule(name), cut)


def _copy(module: M) -> M:
    for layer in masked_layers(module).values():
        refresh(layer)
    return own_copy(module)
