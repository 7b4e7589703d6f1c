"""Masks by channel group: a pruned channel is exactly 0 for everything that reads it, and can come back as it was.

Of a pruned channel, the rows that make it and the slices that read it are masked (`sparsetorch.masking`), and its entries of
biases and of batch-norm gamma and beta are 0. It is then 0 after batch-norm, nothing reads it, and so no gradient reaches
anything of it: with empty optimizer slots all of that stays exactly 0.

Its most recently used values (rows, slices, biases, gamma, beta, running statistics) are remembered, entry by entry, at the
moment each entry is masked, so that two channels that meet in one weight may go and come back in any order.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from sparsetorch.masking import masks
from sparsetorch.masking.optimizer_slots import clear_slots
from sparsetorch.masking.sparsifier import LayerUpdate
from sparsetorch.structured.groups import Group, Member
from sparsetorch.structured.slicing import Weights, out_first

_VECTORS = ("bias", "running_mean", "running_var")


class ChannelMasks:
    """The masks of a network's channel groups.

    Args:
        module: any network; masks are attached at once, those it has are kept.
        groups: what may be pruned; see `groups.prunable`.
        remember: keep the most recently used values of what is masked, one value per weight.
    """

    def __init__(self, module: nn.Module, groups: Sequence[Group], remember: bool = False) -> None:
        self.module = module
        self.groups = {group.name: group for group in groups}
        self.layers: dict[str, nn.Module] = {}
        """The masked layers by module path, in definition order."""
        self._parts: dict[str, list[tuple[Group, Member]]] = {}
        for group in groups:
            for member in group.members:
                self._parts.setdefault(member.module, []).append((group, member))
        for name, layer in module.named_modules():
            if name in self._parts and isinstance(layer, Weights):
                masks.attach(layer)
                self.layers[name] = layer
        self.memory: dict[str, Tensor] | None = {} if remember else None
        """Most recently used values by the name of the parameter or buffer; None where they are not kept."""
        self.keep: dict[str, Tensor] = {}
        """By group, which channels are active: boolean, (C,), on the processor."""
        self._vectors: list[tuple[Tensor, Tensor]] = []
        self._others: dict[str, Tensor] = {}
        self.read()

    def read(self) -> None:
        """Take `keep` from the masks as they are: after a checkpoint was loaded."""
        for name, group in self.groups.items():
            member = group.of_role("out")[0]
            layer = self.layers[member.module]
            rows = (
                out_first(masks.mask_of(layer), layer)
                .reshape(out_first(masks.mask_of(layer), layer).shape[0], -1)
                .any(dim=1)
                .cpu()
            )
            self.keep[name] = rows[torch.tensor(member.indices)].any(dim=1)
        self._vectors = self._pruned_vectors()

    @property
    def sparsity(self) -> float:
        """The share of pruned channels over all groups."""
        return 1.0 - sum(int(kept.sum()) for kept in self.keep.values()) / sum(
            kept.numel() for kept in self.keep.values()
        )

    def set(self, keep: Mapping[str, Tensor], optimizers: Iterable[Optimizer] = ()) -> dict[str, LayerUpdate]:
        """Change which channels are active; what comes back has the values it last had, with empty optimizer slots.

        Args:
            keep: boolean, (C,), by group; groups left out stay as they are.
            optimizers: whose slots are emptied for everything that goes or comes.

        Returns:
            What changed in every masked layer.
        """
        optimizers = list(optimizers)
        before = self.keep
        after = before | {name: kept.cpu().bool() for name, kept in keep.items()}
        report = {}
        for path in self._parts:
            layer = self.module.get_submodule(path)
            if isinstance(layer, Weights):
                report[path] = self._set_weight(path, layer, before, after, optimizers)
            for name in (() if isinstance(layer, Weights) else (masks.WEIGHT,)) + _VECTORS:
                vector = getattr(layer, name, None)
                if isinstance(vector, Tensor) and not (isinstance(layer, nn.PReLU) and layer.num_parameters == 1):
                    # The bias of a layer belongs to the channels it makes, and so does all of a batch-norm.
                    old, new = (self._vector_mask(path, vector.numel(), state) for state in (before, after))
                    self._exchange(f"{path}.{name}", vector.data, old.to(vector.device), new.to(vector.device))
                    if isinstance(vector, nn.Parameter):
                        for optimizer in optimizers:
                            clear_slots(optimizer, vector, old & new)
        self.keep = after
        self._vectors = self._pruned_vectors()
        return {path: report[path] for path in self.layers}

    def hold(self) -> None:
        """Biases, gammas and betas of pruned channels to 0, whatever the optimizer did; masks hold the weights."""
        with torch.no_grad():
            for vector, gone in self._vectors:
                vector[gone] = 0.0

    def restored(self, path: str) -> Tensor:
        """A layer's weight as it would be with all its own channels back: (out, in, ...), slices it does not read still 0."""
        layer = self.layers[path]
        mask, weight = masks.mask_of(layer), masks.original_of(layer).detach()
        if self.memory is None or f"{path}.weight" not in self.memory:
            return out_first(weight, layer)
        columns = self._weight_mask(path, layer, self.keep, roles=("in",)).to(weight.device)
        return out_first(torch.where(mask, weight, self.memory[f"{path}.weight"]) * columns, layer)

    def _set_weight(
        self,
        path: str,
        layer: nn.Module,
        before: Mapping[str, Tensor],
        after: Mapping[str, Tensor],
        optimizers: Sequence[Optimizer],
    ) -> LayerUpdate:
        original, old = masks.original_of(layer), masks.mask_of(layer).clone()
        other = self._weight_mask(path, layer, before).to(old.device) & ~old
        if bool(other.any()):  # single weights that are masked for another reason stay masked
            self._others[path] = other | self._others.get(path, torch.zeros_like(other))
        new = self._weight_mask(path, layer, after).to(old.device)
        new = new & ~self._others[path] if path in self._others else new
        if torch.equal(new, old):
            return LayerUpdate(0, 0)
        comes = new & ~old
        remembered = self._remember(f"{path}.weight", original.data, old & ~new)
        masks.set_mask(layer, new)
        if remembered is not None:
            original.data[comes] = remembered[comes]
            masks.refresh(layer)
        stays = old & new
        for optimizer in optimizers:
            clear_slots(optimizer, original, stays)
        return LayerUpdate(dropped=int(old.sum() - stays.sum()), grown=int(comes.sum()))

    def _exchange(self, key: str, vector: Tensor, old: Tensor, new: Tensor) -> None:
        remembered = self._remember(key, vector, old & ~new)
        comes = new & ~old
        vector[~new] = 0.0 if not key.endswith("running_var") else 1.0
        if remembered is not None:
            vector[comes] = remembered[comes]

    def _remember(self, key: str, values: Tensor, goes: Tensor) -> Tensor | None:
        if self.memory is None:
            return None
        if key not in self.memory:
            self.memory[key] = torch.zeros_like(values)
        self.memory[key][goes] = values[goes]
        return self.memory[key]

    def _weight_mask(
        self, path: str, layer: nn.Module, keep: Mapping[str, Tensor], roles: Sequence[str] = ("out", "in", "channel")
    ) -> Tensor:
        """Which entries of a weight are active by the groups alone, of the weight's shape."""
        mask = torch.ones(masks.mask_of(layer).shape, dtype=torch.bool)
        rows = out_first(mask, layer)
        for group, member in self._parts[path]:
            if member.role in roles:
                gone = member.of(~keep[group.name])
                if member.role == "in":
                    rows[:, gone] = False
                else:
                    rows[gone] = False
        return mask

    def _vector_mask(self, path: str, size: int, keep: Mapping[str, Tensor]) -> Tensor:
        mask = torch.ones(size, dtype=torch.bool)
        for group, member in self._parts[path]:
            if member.role != "in":
                mask[member.of(~keep[group.name])] = False
        return mask

    def _pruned_vectors(self) -> list[tuple[Tensor, Tensor]]:
        found: list[tuple[Tensor, Tensor]] = []
        for path in self._parts:
            layer = self.module.get_submodule(path)
            for name in ("bias",) if isinstance(layer, Weights) else ("weight", "bias"):
                vector = getattr(layer, name, None)
                if isinstance(vector, nn.Parameter):
                    gone = ~self._vector_mask(path, vector.numel(), self.keep)
                    if bool(gone.any()):
                        found.append((vector, torch.nonzero(gone).reshape(-1).to(vector.device)))
        return found
