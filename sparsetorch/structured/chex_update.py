"""One update of CHEX over all channel groups of a network; the mathematics is in `sparsetorch.sparsify.chex`.

A group's channels are made by one layer or, across residual adds, by several: its matrix X then has the filters of all of
them below each other, one column per channel. Its gamma is the mean |gamma| over the batch-norms that the channels pass.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from sparsetorch.analysis.accounting import effective_weight
from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.chex import (
    CHEX,
    channel_counts,
    gram,
    leverage_scores,
    regrow_share,
    residual_norms,
    sample_channels,
)
from sparsetorch.sparsify.mask import keep_top
from sparsetorch.structured.channel_masks import ChannelMasks
from sparsetorch.structured.groups import Group
from sparsetorch.structured.slicing import filters_of, out_first


def chex_update(
    channels: ChannelMasks,
    algorithm: CHEX,
    sparsity: float,
    progress: float,
    generator: Callable[[int], torch.Generator],
) -> dict[str, Tensor]:
    """Which channels are active after the update, by group.

    Args:
        channels: the masks and the remembered values.
        algorithm: its settings.
        sparsity: S, the share of channels pruned once nothing regrows any more.
        progress: of the schedule, 0 to 1.
        generator: random stream of the group of an index.
    """
    groups = list(channels.groups.values())
    active = channels.keep
    scores = structure_scores(channels.module, groups, active, algorithm.structure)
    regrown = regrow_share(algorithm.regrow_fraction, progress)
    after = channel_counts(scores, max(sparsity - regrown, 0.0), algorithm.floor)
    kept = after if algorithm.regrow == "none" else channel_counts(scores, sparsity, algorithm.floor)
    keep = {}
    for index, group in enumerate(groups):
        was = active[group.name]
        count = min(kept[group.name], int(was.sum()))
        more = 0 if algorithm.regrow == "none" else max(after[group.name] - count, 0)
        keep[group.name] = _update_group(channels, group, was, count, more, generator(index))
    return keep


def _update_group(
    channels: ChannelMasks, group: Group, active: Tensor, count: int, more: int, generator: torch.Generator
) -> Tensor:
    """The `count` active channels of highest leverage, and `more` regrown ones."""
    if count == int(active.sum()) and more == 0:
        return active
    # Remembered values are back before anything is scored; what is active is as it was.
    matrix = sum(gram(columns_of(channels, group, member.module)) for member in group.of_role("out"))
    assert isinstance(matrix, Tensor)
    keep = active.clone()
    if count < int(active.sum()):
        leverage = leverage_scores(matrix[active][:, active], count)
        keep[active] = keep_top(leverage, count)
    more = min(more, int((~keep).sum()))
    if more:
        keep = keep | sample_channels(residual_norms(matrix, keep), ~keep, more, generator)
    return keep


def columns_of(channels: ChannelMasks, group: Group, path: str) -> Tensor:
    """The filters of the layer at `path` with all channels of the group restored: (fan-in, C), float64, on the processor."""
    member = next(member for member in group.of_role("out") if member.module == path)
    return filters_of(channels.restored(path), member.indices).T


def structure_scores(
    module: nn.Module, groups: Sequence[Group], active: Mapping[str, Tensor], structure: str
) -> dict[str, Tensor]:
    """What the threshold over all layers compares, (C,) per group: -1 where a channel is pruned, else at least 0.

    Raises:
        BadInputError: for `batch_norm`, where channels pass no batch-norm with a gamma; all such groups are named.
    """
    scores = {}
    missing = []
    for group in groups:
        found = (
            _gammas(module, group) if structure == "batch_norm" else _magnitudes(module, group, active.get(group.name))
        )
        if found is None:
            missing.append(group.name)
            continue
        kept = active.get(group.name)
        scores[group.name] = found if kept is None else found.masked_fill(~kept, -1.0)
    if missing:
        raise BadInputError(
            f"structure: CHEX compares the channels of all layers by the gamma of their batch-norm, and those of "
            f'{", ".join(missing[:5])}{" and others" if len(missing) > 5 else ""} pass none. Use CHEX(structure="l1"), which '
            "compares the mean |w| of a channel's filters relative to its layer, or leave these layers out by the policy"
        )
    return scores


def _gammas(module: nn.Module, group: Group) -> Tensor | None:
    found = []
    for member in group.of_role("channel"):
        layer = module.get_submodule(member.module)
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.affine:
            found.append(layer.weight.detach().double().abs().cpu()[torch.tensor(member.indices)].mean(dim=1))
    return torch.stack(found).mean(dim=0) if found else None


def _magnitudes(module: nn.Module, group: Group, active: Tensor | None) -> Tensor:
    total = torch.zeros(group.channels, dtype=torch.float64)
    for member in group.of_role("out"):
        layer = module.get_submodule(member.module)
        means = filters_of(out_first(effective_weight(layer), layer), member.indices).abs().mean(dim=1)
        kept = means if active is None else means[active]
        total += means / max(float(kept.mean()), 1e-30)
    return total
