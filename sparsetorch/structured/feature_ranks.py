"""Feature-map ranks of channel groups by forward hooks, one batch at a time: no feature map outlives its forward.

A channel's map is what its readers see, after normalisation and activation: the input of every convolution that reads the
group, and the mean over them where a residual stream has several. Where only a linear layer reads it (a global pool in
between), it is the output of the batch-norm or convolution that makes it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from sparsetorch.masking import evaluating
from sparsetorch.sparsify.hrank import feature_map_ranks
from sparsetorch.structured.groups import Group, Member


class RankCollector:
    """Sums ranks while it is attached.

    Args:
        module: the network.
        groups: whose channels to look at.
    """

    def __init__(self, module: nn.Module, groups: Sequence[Group]) -> None:
        self.module = module
        self.groups = list(groups)
        self._sums: dict[str, Tensor] = {}
        self._seen: dict[str, int] = {}
        self._handles: list[RemovableHandle] = []

    @property
    def attached(self) -> bool:
        """Whether hooks are on."""
        return bool(self._handles)

    @property
    def seen(self) -> bool:
        """Whether any map was."""
        return any(self._seen.values())

    def state_dict(self) -> dict[str, Any]:
        """What was summed so far, and whether hooks are on."""
        return {"sums": dict(self._sums), "seen": dict(self._seen), "attached": self.attached}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        if state["attached"]:
            self.attach()
        self._sums, self._seen = dict(state["sums"]), dict(state["seen"])

    def attach(self) -> None:
        """Look at every forward from now on; sums start at zero."""
        self.detach()
        self._sums = {group.name: torch.zeros(group.channels, dtype=torch.float64) for group in self.groups}
        self._seen = dict.fromkeys(self._sums, 0)
        for group in self.groups:
            for member, reads in _places(self.module, group):
                layer = self.module.get_submodule(member.module)
                if reads:
                    self._handles.append(layer.register_forward_pre_hook(self._hook_in(group, member)))
                else:
                    self._handles.append(layer.register_forward_hook(self._hook_out(group, member)))

    def detach(self) -> None:
        """Take the hooks off; what was summed stays."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def scores(self) -> dict[str, Tensor]:
        """Mean rank per channel, (C,) by group, over all processes; zeros where no batch was seen."""
        scores = {}
        for name, total in self._sums.items():
            both = torch.cat([total, torch.tensor([float(self._seen[name])], dtype=torch.float64)])
            if torch.distributed.is_available() and torch.distributed.is_initialized():
                device = next(self.module.parameters()).device
                shared = both.to(device)
                torch.distributed.all_reduce(shared)
                both = shared.cpu()
            scores[name] = both[:-1] / both[-1].clamp_min(1.0)
        return scores

    def _hook_in(self, group: Group, member: Member) -> Any:
        def hook(_layer: nn.Module, inputs: tuple[Any, ...]) -> None:
            self._add(group, member, inputs[0])

        return hook

    def _hook_out(self, group: Group, member: Member) -> Any:
        def hook(_layer: nn.Module, _inputs: Any, output: Tensor) -> None:
            self._add(group, member, output)

        return hook

    def _add(self, group: Group, member: Member, maps: Tensor) -> None:
        own = torch.tensor([index[0] for index in member.indices], device=maps.device)
        picked = maps.detach() if len(own) == maps.shape[1] and member_is_whole(member) else maps.detach()[:, own]
        self._sums[group.name] += feature_map_ranks(picked) * len(maps)
        self._seen[group.name] += len(maps)


def member_is_whole(member: Member) -> bool:
    """Whether channel j of the group is the layer's own channel j."""
    return all(index == (channel,) for channel, index in enumerate(member.indices))


def hrank_scores(module: nn.Module, groups: Sequence[Group], batches: Iterable[Tensor]) -> dict[str, Tensor]:
    """Mean feature-map rank of every channel, (C,) by group, over batches of images (N, C, H, W), in eval mode."""
    collector = RankCollector(module, groups)
    collector.attach()
    try:
        with evaluating(module), torch.no_grad():
            for images in batches:
                module(images)
    finally:
        collector.detach()
    return collector.scores()


def _places(module: nn.Module, group: Group) -> list[tuple[Member, bool]]:
    """Where the maps of a group are seen, and whether as an input there."""
    readers = [
        member
        for member in group.of_role("in")
        if isinstance(module.get_submodule(member.module), nn.Conv2d | nn.ConvTranspose2d)
    ]
    if readers:
        return [(member, True) for member in readers]
    norms = [
        member
        for member in group.of_role("channel")
        if isinstance(module.get_submodule(member.module), nn.modules.batchnorm._BatchNorm)
    ]
    makers = norms or [
        member for member in group.of_role("out") if not isinstance(module.get_submodule(member.module), nn.Linear)
    ]
    return [(member, False) for member in makers]
