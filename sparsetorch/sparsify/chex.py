"""CHEX, CHannel EXploration: prune and regrow whole channels while training.

Hou et al., "CHEX: CHannel EXploration for CNN Model Compression", CVPR 2022 (arXiv 2203.15794). At every update, with
`X` a matrix of one column per channel (its filter), `S` the sparsity and `d_t = d0 / 2 * (1 + cos(pi * progress))`:

1. one threshold over |batch-norm gamma| of all layers decides how many channels each layer keeps, at S and at S - d_t;
2. of the active channels those of highest leverage score stay: the squared norm of row j of the top-k right singular vectors
   of X, k the number kept (column subset selection);
3. among all others, channels regrow with the values they last had, drawn without replacement with the softmax of the norm of
   the part of column j orthogonal to the span of the kept columns.

At the end d_t is 0, so that the channel sparsity is exactly S. Everything here works on the Gram matrix `X.T @ X` (C, C) in
float64: C is at most a few thousand where a column has tens of thousands of entries, and its eigenvectors are the right
singular vectors of X.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.algorithm import Algorithm
from sparsetorch.sparsify.mask import check_sparsity, keep_top, number_kept
from sparsetorch.sparsify.pattern import Pattern

RANK_TOLERANCE = 1e-12
"""Eigenvalues of a Gram matrix below this share of the largest, times its size, count as zero."""


def gram(columns: Tensor) -> Tensor:
    """`X.T @ X` in float64, (C, C), of a matrix (fan-in, C) with one column per channel."""
    wide = columns.detach().double()
    return wide.T @ wide


def leverage_scores(gram_matrix: Tensor, count: int) -> Tensor:
    """Leverage score of every column, (C,), in [0, 1]: how much of it lies in the best subspace of dimension `count`.

    Where the columns have a smaller rank than `count` (a fan-in below the number of channels, say), singular vectors beyond
    the rank are not defined by the matrix: those up to the rank are used, and equal scores are then told apart by index.

    Args:
        gram_matrix: (C, C), symmetric.
        count: dimension k of the subspace, the number of columns that will be kept.
    """
    values, vectors = torch.linalg.eigh(gram_matrix)
    rank = int((values > _zero(values)).sum())
    top = vectors[:, len(values) - min(count, rank) :]
    return top.square().sum(dim=1)


def residual_norms(gram_matrix: Tensor, kept: Tensor) -> Tensor:
    """Norm of the part of every column that is orthogonal to the span of the kept columns, (C,); 0 for those.

    Args:
        gram_matrix: (C, C), symmetric.
        kept: boolean, (C,).
    """
    norms = gram_matrix.diagonal().clone()
    if bool(kept.any()):
        inside, across = gram_matrix[kept][:, kept], gram_matrix[kept][:, ~kept]
        lower, info = torch.linalg.cholesky_ex(inside)
        pivots = lower.diagonal().square()
        if int(info) == 0 and float(pivots.min()) > 1e-9 * float(pivots.max()):
            explained = torch.linalg.solve_triangular(lower, across, upper=False).square().sum(dim=0)
        else:  # the kept columns are dependent
            values, vectors = torch.linalg.eigh(inside)
            real = values > _zero(values)
            explained = (vectors[:, real].T @ across).square().div(values[real].unsqueeze(1)).sum(dim=0)
        norms[~kept] -= explained
        norms[kept] = 0.0
    return norms.clamp_min(0.0).sqrt()


def sample_channels(score: Tensor, candidates: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw exactly `count` candidates without replacement, each time with the softmax of the scores of those left.

    By the Gumbel trick: the `count` highest of score + Gumbel noise are such a draw, also where a softmax would be 0 in
    floating point. Drawn on the processor, so that every rank and every device gets the same.

    Args:
        score: (C,).
        candidates: boolean, (C,).
        count: 0 to the number of candidates.
        generator: of the processor.

    Returns:
        Boolean, (C,).
    """
    if count > int(candidates.sum()):
        raise ValueError(f"count: found {count}, needed at most {int(candidates.sum())}, the number of candidates")
    uniform = torch.rand(score.shape, generator=generator, dtype=torch.float64).clamp_(1e-300, 1 - 1e-16)
    noisy = score.detach().double().cpu() - torch.log(-torch.log(uniform))
    return keep_top(noisy.masked_fill(~candidates.cpu(), -torch.inf), count) & candidates.cpu()


def least_counts(sizes: Mapping[str, int], floor: float) -> dict[str, int]:
    """The fewest channels that every layer keeps: the share `floor` of its own, rounded down, and at least one."""
    return {name: max(int(floor * size + 1e-9), 1) for name, size in sizes.items()}


def channel_counts(scores: Mapping[str, Tensor], sparsity: float, floor: float = 0.0) -> dict[str, int]:
    """How many channels every layer keeps under one threshold over all scores; a least count each, and exact in total.

    Channels of equal score are taken from all layers in proportion: those that rank higher within their own layer come
    first. Batch-norm gammas that are all 1, as at the start, therefore prune every layer alike and none away.

    Args:
        scores: (C,) per layer, such as |gamma|; a channel that is pruned already has a score below all others.
        sparsity: share of all channels to prune, in [0, 1).
        floor: share of its own channels that a layer keeps whatever its scores are; see `least_counts`.

    Raises:
        BadInputError: where the least counts are more than the channels to keep.
    """
    check_sparsity(sparsity)
    total = sum(score.numel() for score in scores.values())
    wanted = number_kept(total, sparsity)
    counts = least_counts({name: score.numel() for name, score in scores.items()}, floor)
    if wanted < sum(counts.values()):
        raise BadInputError(
            f"sparsity: {sparsity:g} of {total} channels keeps {wanted}, but the {len(scores)} layers or groups need "
            f"{sum(counts.values())}, at least one each and the floor of {floor:g}; lower "
            "either, or leave layers out by the policy"
        )
    least = dict(counts)
    free = {name: score.detach().double().cpu().numpy() for name, score in scores.items()}
    while free:
        budget = wanted - sum(count for name, count in counts.items() if name not in free)
        found = _under_one_threshold(free, budget)
        short = [name for name, count in found.items() if count < least[name]]
        if not short:
            return counts | found
        for name in short:  # these keep their least, and the others share the rest
            del free[name]
    return counts


def _under_one_threshold(scores: Mapping[str, np.ndarray], budget: int) -> dict[str, int]:
    places = []
    for score in scores.values():
        rank = np.empty(len(score))
        rank[np.argsort(-score, kind="stable")] = np.arange(len(score))
        places.append((rank + 0.5) / len(score))
    layer = np.repeat(np.arange(len(scores)), [len(score) for score in scores.values()])
    order = np.lexsort((np.concatenate(places), -np.concatenate(list(scores.values()))))
    taken = np.bincount(layer[order[:budget]], minlength=len(scores))
    return {name: int(count) for name, count in zip(scores, taken, strict=True)}


def regrow_share(regrow_fraction: float, progress: float) -> float:
    """`d_t`, the share of all channels that may regrow `progress` (0 to 1) of the way: `d0 / 2 * (1 + cos(pi * progress))`."""
    return regrow_fraction / 2 * (1 + math.cos(math.pi * progress)) if progress < 1.0 else 0.0


def _zero(values: Tensor) -> float:
    return max(float(values.max()), 0.0) * RANK_TOLERANCE * max(len(values), 1)


class ChannelAlgorithm(Algorithm):
    """An algorithm that looks at all channel groups of a network together, not at one layer's entries."""

    starts_sparse: ClassVar[bool] = False

    def update(
        self, mask: Tensor, weight: Tensor, growth: Tensor | None, sparsity: float, progress: float, pattern: Pattern
    ) -> Tensor:
        """Never called: `sparsetorch.structured.ChannelSparsifier` drives such an algorithm."""
        raise TypeError(f"{type(self).__name__} works on channel groups, not on the entries of one layer")


@dataclass(frozen=True)
class CHEX(ChannelAlgorithm):
    """Channel exploration. Training starts dense; the schedule's sparsity is the share of channels that are pruned at its end.

    `ConstantSparsity` is the paper's schedule: the final sparsity S throughout, with fewer channels pruned (S - d_t) while
    channels still regrow.
    """

    regrow_fraction: float = 0.2
    """Share of all channels that may regrow at the first update (d0); falls to 0 along a cosine."""
    structure: Literal["batch_norm", "l1"] = "batch_norm"
    """What the threshold over all layers looks at: |gamma|, or, for networks without batch-norm, the mean |w| of a channel's
    filters relative to that of all active channels of its layer."""
    floor: float = 0.0
    """Share of its own channels that every layer keeps whatever its scores are, at least one. Where gammas have hardly moved
    from 1, as in short trainings, their small differences between layers would cut whole layers down to one channel."""
    regrow: Literal["orthogonal", "none"] = "orthogonal"
    """`none` is the control without exploration: as many channels at every step, but a pruned one never comes back."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.regrow_fraction <= 1.0:
            raise BadInputError(f"regrow_fraction: found {self.regrow_fraction!r}, needed a share in [0, 1]")
        if not 0.0 <= self.floor < 1.0:
            raise BadInputError(f"floor: found {self.floor!r}, needed a share in [0, 1)")
        if self.structure not in ("batch_norm", "l1"):
            raise BadInputError(f"structure: found {self.structure!r}, needed batch_norm or l1")
        if self.regrow not in ("orthogonal", "none"):
            raise BadInputError(f"regrow: found {self.regrow!r}, needed orthogonal or none")
