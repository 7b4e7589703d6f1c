"""HRank: keep the channels whose feature maps have the highest rank.

Lin et al., "HRank: Filter Pruning using High-Rank Feature Map", CVPR 2020 (arXiv 2002.10179). The rank of a channel's output
map hardly depends on the image, so the mean over a few batches (5 of 128 images) ranks channels well. HRank prunes one layer
after another with training in between; HRankPlus prunes all layers at once and then trains.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.chex import ChannelAlgorithm

CHUNK_BYTES = 32 * 2**20
"""Feature maps are worked on in pieces of at most this size, so that ranks need no memory that grows with the batch."""


def feature_map_ranks(maps: Tensor) -> Tensor:
    """Mean rank of every channel's map over a batch, (C,), float64.

    The rank is the number of singular values above `max(H, W) * eps` of the largest, in float32.

    Args:
        maps: (N, C, H, W).
    """
    n, c, height, width = maps.shape
    total = torch.zeros(c, dtype=torch.float64)
    images = max(1, CHUNK_BYTES // max(c * height * width * 4, 1))
    for part in maps.detach().float().split(images):
        if height == 1 or width == 1:
            ranks = part.flatten(2).ne(0).any(dim=2).double()
        else:
            ranks = torch.linalg.matrix_rank(part).double()
        total += ranks.sum(dim=0).cpu()
    return total / n


@dataclass(frozen=True)
class HRank(ChannelAlgorithm):
    """Prune the channels of lowest feature-map rank, seen in the training batches before each update. Starts dense.

    HRankPlus is one update: `StepList([[5, 0.5]])` looks at 5 batches, prunes all layers at once, and trains on. Share channels
    out over layers by the distribution: Uniform, or PerLayer by the names of groups.
    """

    batches: int = 5
    """Training batches before an update whose feature maps count."""
    one_by_one: bool = False
    """HRank: layers reach their sparsity one after another, the first at the first update and the last at the schedule's end.
    Otherwise all follow the schedule (HRankPlus)."""

    def __post_init__(self) -> None:
        if isinstance(self.batches, bool) or self.batches < 1:
            raise BadInputError(f"batches: found {self.batches!r}, needed at least 1")
