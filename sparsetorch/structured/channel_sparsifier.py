"""The loop of channel pruning: what `sparsetorch.masking.sparsifier.Sparsifier` is for weights, for channel groups.

Same calls at the same moments, so that `SparseTraining` and a loop without Lightning drive either. The schedule's sparsity is
the share of channels, counted over all groups that the policy picks.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from sparsetorch.errors import BadInputError
from sparsetorch.masking import masks
from sparsetorch.masking.sparsifier import Update
from sparsetorch.sparsify.abcpruner import ABCPruner
from sparsetorch.sparsify.algorithm import Algorithm
from sparsetorch.sparsify.chex import CHEX, least_counts
from sparsetorch.sparsify.distribution import Distribution, Uniform
from sparsetorch.sparsify.hrank import HRank
from sparsetorch.sparsify.magnitude import Magnitude
from sparsetorch.sparsify.mask import keep_top, number_kept
from sparsetorch.sparsify.pattern import Channel
from sparsetorch.sparsify.per_layer import Global
from sparsetorch.sparsify.policy import AllWeights, Policy, weight_layers
from sparsetorch.sparsify.schedule import Schedule
from sparsetorch.structured.channel_masks import ChannelMasks
from sparsetorch.structured.chex_update import chex_update, structure_scores
from sparsetorch.structured.feature_ranks import RankCollector
from sparsetorch.structured.groups import Group, channel_groups, prunable
from sparsetorch.structured.slicing import filters_of


class ChannelSparsifier:
    """Masks on the channel groups of `module` that `policy` picks, and the rule that changes them.

    A group is picked where the policy picks every convolution and linear layer that makes its channels. Depthwise layers go
    along. Channels pruned already (a second training, a loaded checkpoint) stay pruned.

    Args:
        module: any network; masks are attached to its layers at once.
        algorithm: CHEX; Magnitude, which prunes the channels of smallest norm; HRank, those of lowest feature-map rank; or
            ABCPruner, whose structure is searched before the training.
        schedule: when and how sparse; `resolve` it first, so that every step is a number.
        policy: which layers.
        distribution: how much of each group, of Magnitude and HRank: Uniform (keeps the first layer's group dense), Global, or
            PerLayer by the names of groups. CHEX and ABCPruner decide themselves.
        pattern: the input's shape.
        seed: of the sampling; the same on every rank.

    Raises:
        BadInputError: where the network has no such group, or algorithm, pattern and distribution do not go together.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        algorithm: Algorithm,
        schedule: Schedule,
        policy: Policy | None = None,
        distribution: Distribution | None = None,
        pattern: Channel | None = None,
        seed: int = 0,
    ) -> None:
        self.module = module
        self.algorithm = algorithm
        self.schedule = schedule
        self.distribution = Uniform() if distribution is None else distribution
        self.pattern = Channel() if pattern is None else pattern
        self.seed = seed
        self.skipped_updates = 0
        """Updates left out because a weight was not finite."""
        if not isinstance(algorithm, CHEX | Magnitude | HRank | ABCPruner):
            raise BadInputError(
                f"algorithm: found {type(algorithm).__name__} with the pattern Channel, needed CHEX, HRank, ABCPruner or "
                "Magnitude; drop and grow by gradients works on single weights and blocks"
            )
        if isinstance(algorithm, CHEX | ABCPruner) and self.distribution != Uniform():
            raise BadInputError(
                f"distribution: found {self.distribution}, but {type(algorithm).__name__} shares channels out itself; "
                "leave it out"
            )
        if isinstance(algorithm, HRank) and isinstance(self.distribution, Global):
            raise BadInputError(
                "distribution: found Global, but feature maps of different sizes have ranks that cannot be compared; needed "
                "Uniform or PerLayer"
            )
        groups = self._pick(policy or AllWeights())
        self.groups = {group.name: group for group in groups}
        first = next(iter(weight_layers(module)))
        self.first_group = next(
            (group.name for group in groups if first in {m.module for m in group.of_role("out")}), None
        )
        self._check()
        self.ranks = RankCollector(module, groups) if isinstance(algorithm, HRank) else None
        self.channels = ChannelMasks(
            module, groups, remember=isinstance(algorithm, CHEX) and algorithm.regrow != "none"
        )
        if "torch._dynamo" in sys.modules:
            torch.compiler.reset()

    def _pick(self, policy: Policy) -> list[Group]:
        picked = policy.select(self.module)
        groups = [
            group
            for group in channel_groups(self.module, self.pattern.input_shape)
            if all(member.module in picked for member in group.of_role("out"))
        ]
        return prunable(groups)

    def _check(self) -> None:
        self._counts_exist()
        if isinstance(self.algorithm, CHEX):
            structure_scores(self.module, list(self.groups.values()), {}, self.algorithm.structure)
        elif not isinstance(self.algorithm, ABCPruner):
            self.distribution.check(self._shapes(), self.schedule.target_sparsity())

    def _counts_exist(self) -> None:
        total = sum(group.channels for group in self.groups.values())
        kept = number_kept(total, self.schedule.target_sparsity())
        floor = self.algorithm.floor if isinstance(self.algorithm, CHEX) else 0.0
        least = sum(least_counts({name: group.channels for name, group in self.groups.items()}, floor).values())
        if kept < least:
            raise BadInputError(
                f"sparsity: {self.schedule.target_sparsity():g} of {total} channels keeps {kept}, which would empty some of the "
                f"{len(self.groups)} channel groups, or go below their floor ({least} in all); lower it, or leave layers out by "
                "the policy"
            )

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: (group.channels, 1) for name, group in self.groups.items()}

    @property
    def layers(self) -> dict[str, nn.Module]:
        """The masked layers by module path."""
        return self.channels.layers

    @property
    def sparsity(self) -> float:
        """The share of pruned channels over all groups."""
        return self.channels.sparsity

    def layer_sparsity(self) -> dict[str, float]:
        """The share of pruned channels per group."""
        return {name: 1.0 - float(kept.float().mean()) for name, kept in self.channels.keep.items()}

    def start(self) -> None:
        """The update due at step 0, where there is one."""
        if self.schedule.is_update_step(0):
            self.update(0, [])

    def shortfall(self) -> dict[str, tuple[float, float]]:
        """What is less sparse than the schedule's final sparsity asks, each with (reached, needed)."""
        target = self.schedule.target_sparsity()
        if isinstance(self.algorithm, CHEX | ABCPruner) or isinstance(self.distribution, Global):
            total = sum(group.channels for group in self.groups.values())
            kept = sum(int(keep.sum()) for keep in self.channels.keep.values())
            return {} if kept <= number_kept(total, target) else {"all channels": (self.sparsity, target)}
        reached = self.layer_sparsity()
        wanted = self.distribution.allocate(self._shapes(), target, first_layer=self.first_group or "")
        return {
            name: (reached[name], sparsity)
            for name, sparsity in wanted.items()
            if int(self.channels.keep[name].sum()) > max(number_kept(self.groups[name].channels, sparsity), 1)
        }

    def state_dict(self) -> dict[str, Any]:
        """What the module's own state dict, which holds the masks, does not."""
        state = {"skipped_updates": self.skipped_updates, "memory": dict(self.channels.memory or {})}
        return state if self.ranks is None else state | {"ranks": self.ranks.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`; the module has its masks back by now."""
        self.skipped_updates = int(state.get("skipped_updates", 0))
        if self.channels.memory is not None:
            values = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
            self.channels.memory = {
                key: value.to(values[key if key in values else f"{key}_orig"].device).clone()
                for key, value in state.get("memory", {}).items()
            }
        if self.ranks is not None and "ranks" in state:
            self.ranks.load_state_dict(state["ranks"])
        self.channels.read()

    def rest(self) -> None:
        """Between trainings: the network can be copied (the `weight` of a forward is no leaf)."""
        if self.ranks is not None:
            self.ranks.detach()
        for layer in self.layers.values():
            masks.refresh(layer)

    def before_backward(self, step: int) -> None:
        """Before the forward of any micro-batch of step `step`: look at feature maps, where an update by them is near."""
        if self.ranks is None or not isinstance(self.algorithm, HRank):
            return
        near = any(self.schedule.is_update_step(ahead) for ahead in range(step, step + self.algorithm.batches))
        if near and not self.ranks.attached:
            self.ranks.attach()
        elif not near:
            self.ranks.detach()

    def before_optimizer_step(self, step: int, parameters: Iterable[nn.Parameter] | None = None) -> None:
        """Nothing: channels are chosen by weights alone."""

    def after_optimizer_step(self, step: int, optimizers: Iterable[Optimizer]) -> Update | None:
        """After optimizer step `step`: the update, where one is due. None where none is or none was possible."""
        self.channels.hold()
        if not self.schedule.is_update_step(step):
            return None
        weights = map(masks.original_of, self.layers.values())
        if not all(bool(torch.isfinite(weight).all()) for weight in weights):
            self.skipped_updates += 1
            return None
        return self.update(step, optimizers)

    def update(self, step: int, optimizers: Iterable[Optimizer]) -> Update:
        """Choose channels as the algorithm says for `step`, and change the masks."""
        sparsity = self.schedule.sparsity_at(step)
        if isinstance(self.algorithm, CHEX):
            keep = chex_update(
                self.channels,
                self.algorithm,
                sparsity,
                self.schedule.progress(step),
                lambda index: _generator(self.seed, step, index),
            )
        elif isinstance(self.algorithm, HRank):
            keep = self._by_rank(self.algorithm, sparsity, step)
        elif isinstance(self.algorithm, Magnitude):
            norms = {name: channel_norms(self.channels, group) for name, group in self.groups.items()}
            keep = self.highest(norms, sparsity)
        else:
            keep = {}  # the structure was searched before
        return Update(step, self.channels.set(keep, optimizers))

    def _by_rank(self, algorithm: HRank, sparsity: float, step: int) -> dict[str, Tensor]:
        if self.ranks is None or not self.ranks.seen:
            raise BadInputError(
                f"schedule: an update at step {step}, before any batch of the training; HRank looks at feature maps, so needed "
                f"a first update at step {algorithm.batches} or later (begin_step)"
            )
        scores = self.ranks.scores()
        self.ranks.detach()
        if not algorithm.one_by_one:
            return self.highest(scores, sparsity)
        over = step == getattr(self.schedule, "end_step", None)  # also where a schedule has one update alone
        due = (
            len(scores) if over else -(-self.schedule.progress(step) * len(scores) // 1)
        )  # layers whose turn it was by now
        keep = self.highest(scores, self.schedule.target_sparsity())
        return {name: kept for place, (name, kept) in enumerate(keep.items()) if place < max(due, 1)}

    def highest(self, scores: Mapping[str, Tensor], sparsity: float) -> dict[str, Tensor]:
        """The channels of highest score among the active ones, as many per group as the distribution says; at least one."""
        masked = {
            name: score.masked_fill(~self.channels.keep[name], -torch.inf).cpu() for name, score in scores.items()
        }
        if isinstance(self.distribution, Global):
            relative = {name: score / score[self.channels.keep[name]].mean() for name, score in masked.items()}
            wanted = self.distribution.allocate_by_score(relative, sparsity)
        else:
            wanted = self.distribution.allocate(self._shapes(), sparsity, first_layer=self.first_group or "")
        return {
            name: keep_top(score, max(number_kept(score.numel(), wanted[name]), 1)) & self.channels.keep[name]
            for name, score in masked.items()
        }


def channel_norms(channels: ChannelMasks, group: Group) -> Tensor:
    """Root mean square of the weights that make each channel, (C,), over all layers that make it."""
    squares = torch.zeros(group.channels, dtype=torch.float64)
    size = 0
    for member in group.of_role("out"):
        filters = filters_of(channels.restored(member.module), member.indices)
        squares += filters.square().sum(dim=1)
        size += filters.shape[1]
    return (squares / size).sqrt()


def _generator(seed: int, step: int, index: int) -> torch.Generator:
    """A random stream of its own per seed, step and group: equal on all ranks and after a resume, stored nowhere."""
    return torch.Generator().manual_seed(((seed * 1_000_003 + step) * 10_007 + index) % (1 << 62))
