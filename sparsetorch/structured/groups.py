"""Channel groups: which rows, columns and per-channel values of which layers have to go together.

A channel cannot be removed from one layer alone. What a residual add sums must lose it in both terms, a batch-norm and a
depthwise convolution carry it along, a concatenation shifts it, a flatten makes many inputs of a linear layer out of it, and
every consumer loses a slice of its weight. A group lists all of that for the channels that some layer produces; channel j is
the same channel in every member. The couplings are found by the torch-pruning library's dependency graph (Fang et al.,
"DepGraph: Towards Any Structural Pruning", CVPR 2023), out of one forward of the network.

The graph takes an operator that it does not know for an element-wise one. Here the operators a group's channels pass are
named, and a group that passes one outside `CHANNELWISE` gets a reason in `why_not` instead of a guess.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from sparsetorch.errors import BadInputError
from sparsetorch.masking import evaluating

Role = Literal["out", "in", "channel"]


@dataclass(frozen=True)
class Member:
    """One layer's part in a group."""

    module: str
    """Module path, as in `named_modules`."""
    role: Role
    """`out`: rows of the weight and entries of the bias, which make the channel; `in`: slices of the weight, which read it;
    `channel`: a value or filter per channel on the way (batch-norm, depthwise convolution, PReLU)."""
    indices: tuple[tuple[int, ...], ...]
    """By channel of the group, the layer's own indices of it: one each, or several inputs of a linear layer after a flatten."""
    normalized: bool = False
    """Of an `out` member: whether its output goes into a batch-norm of this group and nowhere else."""

    def of(self, chosen: Tensor) -> list[int]:
        """The layer's own indices of the channels where a boolean per channel is True."""
        return [index for channel in torch.nonzero(chosen).reshape(-1).tolist() for index in self.indices[channel]]


@dataclass(frozen=True)
class Group:
    """Channels that live and die together."""

    channels: int
    """How many there are."""
    members: tuple[Member, ...]
    """All layers that make, carry or read them, in definition order."""
    operators: tuple[str, ...] = ()
    """Names of the other operators they pass, sorted."""
    why_not: str | None = None
    """Why they cannot be pruned, or None where they can."""

    @property
    def name(self) -> str:
        """The path of the first layer that makes the channels."""
        return next(member.module for member in self.members if member.role == "out")

    def of_role(self, *roles: Role) -> list[Member]:
        """The members of some roles."""
        return [member for member in self.members if member.role in roles]


def channel_groups(module: nn.Module, input_shape: Sequence[int] | None = None) -> list[Group]:
    """All channel groups of a network, in the order of their first producers.

    Args:
        module: any network of convolutions, linear layers and batch-norms; masks may be on. Its forward runs once in eval mode;
            mode, parameters, gradients and random state stay as they are.
        input_shape: of one input, without the batch. None: `example_input_array` or a guess, see `guess_input_shape`.

    Returns:
        Every output channel of every convolution and linear layer that takes part in the output, in exactly one group.

    Raises:
        BadInputError: the network does not run on such an input.
    """
    from sparsetorch.structured.trace import trace  # torch-pruning is imported where it is needed

    return trace(module, guess_input_shape(module) if input_shape is None else tuple(input_shape))


def prunable(groups: Sequence[Group]) -> list[Group]:
    """Those without a `why_not`.

    Raises:
        BadInputError: where there is none, with every reason.
    """
    found = [group for group in groups if group.why_not is None]
    if not found:
        reasons = (
            "; ".join(f"{group.name}: {group.why_not}" for group in groups) or "it has no convolution or linear layer"
        )
        raise BadInputError(f"the network has no channel group that can be pruned. {reasons}")
    return found


def guess_input_shape(module: nn.Module) -> tuple[int, ...]:
    """The shape of one input, without the batch: from `example_input_array`, or the first of a few sizes that the network takes.

    Raises:
        BadInputError: where none fits.
    """
    example = getattr(module, "example_input_array", None)
    if isinstance(example, Tensor):
        return tuple(example.shape[1:])
    first = next((layer for layer in module.modules() if isinstance(layer, nn.Conv2d | nn.Linear)), None)
    if isinstance(first, nn.Linear):
        sizes: list[tuple[int, ...]] = [
            (first.in_features,),
            (1, int(first.in_features**0.5), int(first.in_features**0.5)),
        ]
    elif isinstance(first, nn.Conv2d):
        sizes = [(first.in_channels, size, size) for size in (32, 64, 224, 28, 96, 299)]
    else:
        sizes = []
    parameter = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
    with evaluating(module), torch.no_grad(), torch.random.fork_rng(devices=[]):
        for size in sizes:
            try:
                module(torch.zeros(2, *size, dtype=parameter.dtype, device=parameter.device))
            except (RuntimeError, ValueError, TypeError, IndexError):
                continue
            return size
    raise BadInputError(
        f"input_shape: {type(module).__name__} runs on none of the shapes tried ({', '.join(map(str, sizes)) or 'none'}); "
        "give the shape of one input without the batch, such as (3, 224, 224)"
    )
