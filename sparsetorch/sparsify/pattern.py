"""In which shape zeros come: a pattern groups the entries of a weight into units that are kept or dropped whole.

An algorithm sees only units: it pools scores into one number per unit, decides, and spreads the decision back. How many
units a sparsity leaves, and under which constraint they are chosen, is the pattern's too. A weight has PyTorch's shape,
(out, in) or (out, in, height, width).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.mask import keep_top, number_kept, random_mask


class Pattern(ABC):
    """Groups entries into units."""

    @abstractmethod
    def pool(self, score: Tensor) -> Tensor:
        """One score per unit, 1-D, from a non-negative score per entry (the shape of the weight)."""

    @abstractmethod
    def spread(self, units: Tensor, like: Tensor) -> Tensor:
        """The mask per entry, of the shape of `like`, from a mask per unit."""

    def select(self, score: Tensor, sparsity: float) -> Tensor:
        """The mask of the units of highest score that `sparsity` leaves; ties are broken by index."""
        return keep_top(score, number_kept(score.numel(), sparsity))

    def fill(self, kept: Tensor, growth: Tensor, sparsity: float) -> Tensor:
        """`kept`, and beside it the units of highest `growth`, up to what `sparsity` leaves."""
        missing = number_kept(kept.numel(), sparsity) - int(kept.sum())
        return kept | keep_top(growth.masked_fill(kept, -torch.inf), max(missing, 0))

    def random(self, like: Tensor, sparsity: float, generator: torch.Generator) -> Tensor:
        """A random mask per entry with exactly the units that `sparsity` leaves; the same on every device."""
        units = self.pool(torch.zeros(like.shape)).numel()
        chosen = random_mask((units,), number_kept(units, sparsity), generator)
        return self.spread(chosen, torch.empty(like.shape)).to(like.device)

    def is_reached(self, mask: Tensor, sparsity: float) -> bool:
        """Whether a mask is at least as sparse as `sparsity` asks."""
        active = self.pool(mask.float()) > 0
        return int(active.sum()) <= number_kept(active.numel(), sparsity)

    def check_fits(self, name: str, shape: Sequence[int], sparsity: float) -> None:
        """Refuse a layer that the pattern cannot shape.

        Raises:
            BadInputError: naming the layer, its shape, and what is needed.
        """


@dataclass(frozen=True)
class Unstructured(Pattern):
    """Every entry is a unit of its own."""

    def pool(self, score: Tensor) -> Tensor:
        """The scores themselves, flat."""
        return score.reshape(-1)

    def spread(self, units: Tensor, like: Tensor) -> Tensor:
        """The mask in the shape of the weight."""
        return units.reshape(like.shape)


@dataclass(frozen=True)
class Block(Pattern):
    """1xN blocks: `size` consecutive output channels at one input channel and kernel position (Lin et al., "1xN Pattern for
    Pruning Convolutional Neural Networks", TPAMI 2022). A block's score is the sum of its entries' |w|.

    Where `size` does not divide the output channels, the last block is shorter. XNNPACK packs a 1x1 convolution for
    its 2- or 4-channel sparse kernel where such blocks are at least 90 % full.
    """

    size: int = 4
    """Output channels per block (N)."""
    rearrange: bool = False
    """Sort the channels of the network by the strength of their filters before training, so that strong ones share blocks;
    see `sparsetorch.structured.rearrange`. For networks that are trained already: a random one has no strong filters."""

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or self.size < 1:
            raise BadInputError(f"size: found {self.size!r}, needed a number of output channels, at least 1")

    def pool(self, score: Tensor) -> Tensor:
        """The sum over each block."""
        padded = torch.nn.functional.pad(score.reshape(len(score), -1), (0, 0, 0, -len(score) % self.size))
        return padded.reshape(-1, self.size, padded.shape[1]).sum(dim=1).reshape(-1)

    def spread(self, units: Tensor, like: Tensor) -> Tensor:
        """Every entry of a block as its unit."""
        rows = units.reshape(-(-len(like) // self.size), -1)
        return rows.repeat_interleave(self.size, dim=0)[: len(like)].reshape(like.shape)


@dataclass(frozen=True)
class NM(Pattern):
    """N:M sparsity: of every `m` consecutive input channels at one output channel and kernel position, `n` are kept.

    The final sparsity is therefore 1 - n/m, and the schedule has to say so; on the way there, every group loses its
    entries in step. Drop and grow drops by magnitude over the whole layer and grows where a group has room.
    """

    n: int = 2
    """Entries kept of each group."""
    m: int = 4
    """Input channels in a group."""

    def __post_init__(self) -> None:
        if not 0 < self.n <= self.m:
            raise BadInputError(f"n, m: found {self.n}:{self.m}, needed 0 < n <= m, such as 2:4")

    def pool(self, score: Tensor) -> Tensor:
        """The scores, groups of `m` side by side."""
        return score.reshape(len(score), score.shape[1], -1).transpose(1, 2).reshape(-1)

    def spread(self, units: Tensor, like: Tensor) -> Tensor:
        """Back in the order of the weight."""
        out, channels = like.shape[:2]
        return units.reshape(out, -1, channels).transpose(1, 2).reshape(like.shape)

    def select(self, score: Tensor, sparsity: float) -> Tensor:
        """The highest scores of every group."""
        groups = score.reshape(-1, self.m)
        order = groups.argsort(dim=1, descending=True, stable=True)
        chosen = torch.zeros_like(groups, dtype=torch.bool)
        chosen.scatter_(1, order[:, : self._kept(sparsity)], True)
        return chosen.reshape(-1)

    def fill(self, kept: Tensor, growth: Tensor, sparsity: float) -> Tensor:
        """`kept`, and beside it the highest `growth` of every group that has room."""
        return self.select(growth.masked_fill(kept, torch.inf), sparsity)

    def random(self, like: Tensor, sparsity: float, generator: torch.Generator) -> Tensor:
        """Random entries, as many in every group."""
        units = self.select(torch.rand(like.numel(), generator=generator), sparsity)
        return self.spread(units, torch.empty(like.shape)).to(like.device)

    def is_reached(self, mask: Tensor, sparsity: float) -> bool:
        """Whether no group keeps more than it may."""
        return int(self.pool(mask).reshape(-1, self.m).sum(dim=1).max()) <= self._kept(sparsity)

    def check_fits(self, name: str, shape: Sequence[int], sparsity: float) -> None:
        """The input channels have to divide into groups, and the sparsity has to be the pattern's."""
        if sparsity == 0.0:
            return
        if shape[1] % self.m:
            raise BadInputError(
                f"pattern: {name} has {shape[1]} input channels (shape {tuple(shape)}), needed a multiple of {self.m} for "
                f"{self.n}:{self.m} sparsity; leave the layer out with policy ByName(exclude=[...])"
            )
        if abs(sparsity - (1 - self.n / self.m)) > 1e-9:
            raise BadInputError(
                f"pattern: {name} is to be {sparsity:.4g} sparse, but {self.n}:{self.m} sparsity is "
                f"{1 - self.n / self.m:.4g}; needed that sparsity in the schedule, and the distribution Uniform"
            )

    def _kept(self, sparsity: float) -> int:
        return number_kept(self.m, sparsity)


@dataclass(frozen=True)
class Channel(Pattern):
    """Whole output channels, pruned together with everything coupled to them (`sparsetorch.structured`).

    Goes with `CHEX` and `Magnitude`. A schedule's sparsity is then the share of channels, not of weights: half of the channels
    leave about a quarter of the weights. As a pattern of one layer alone, a unit is a row of its weight.
    """

    input_shape: Sequence[int] | None = None
    """Of one input, without the batch, to find what is coupled; None: that of `example_input_array` or of the training data."""

    def pool(self, score: Tensor) -> Tensor:
        """The sum over each row."""
        return score.reshape(len(score), -1).sum(dim=1)

    def spread(self, units: Tensor, like: Tensor) -> Tensor:
        """Every entry of a row as its unit."""
        return units.reshape(-1, *[1] * (like.ndim - 1)).expand(like.shape).clone()
