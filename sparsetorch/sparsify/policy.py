"""Which weights: a policy picks the layers whose `weight` may become sparse.

Biases and normalisation are never picked. Depthwise kernels stay dense in every policy: they hold a percent of the
weights, and no runtime gains from zeros in them.
"""

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import nn

from sparsetorch.errors import BadInputError


class Policy(ABC):
    """Picks layers by their type, shape or name. `one & two` picks what both pick, `one | two` what either picks."""

    @abstractmethod
    def select(self, module: nn.Module) -> dict[str, nn.Module]:
        """The layers to sparsify by module path, in definition order."""

    def __and__(self, other: "Policy") -> "AllOf":
        return AllOf([self, other])

    def __or__(self, other: "Policy") -> "AnyOf":
        return AnyOf([self, other])


def is_depthwise(layer: nn.Module) -> bool:
    """Whether `layer` is a convolution with one input channel per group and more than one group."""
    return (
        isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d) and layer.groups > 1 and layer.groups == layer.in_channels
    )


def weight_layers(module: nn.Module) -> dict[str, nn.Module]:
    """All convolution and linear layers by module path, depthwise ones too, each once, in definition order."""
    return {
        name: layer
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear)
    }


@dataclass(frozen=True)
class AllWeights(Policy):
    """Every convolution and linear layer but the depthwise ones. For the fewest parameters at a given accuracy."""

    def select(self, module: nn.Module) -> dict[str, nn.Module]:
        """The layers by module path."""
        return {name: layer for name, layer in weight_layers(module).items() if not is_depthwise(layer)}


@dataclass(frozen=True)
class Conv1x1(Policy):
    """The 1x1 convolutions that XNNPACK can run as sparse matrix products: stride 1, no padding, no groups.

    For latency: zeros anywhere else cost accuracy and gain no time. The rule is XNNPACK's own
    (`src/subgraph.c`, xnn_check_nchw_compatibility, revision 75db3c0).
    """

    def select(self, module: nn.Module) -> dict[str, nn.Module]:
        """The layers by module path."""
        return {name: layer for name, layer in weight_layers(module).items() if _runs_as_spmm(layer)}


def _runs_as_spmm(layer: nn.Module) -> bool:
    if not isinstance(layer, nn.Conv2d) or layer.groups != 1:
        return False
    unpadded = layer.padding in ("same", "valid") or layer.padding == (0, 0)  # 'same' pads a 1x1 kernel by nothing
    return layer.kernel_size == (1, 1) and layer.stride == (1, 1) and unpadded


@dataclass(frozen=True)
class ByName(Policy):
    """Layers by the name of their module, out of what another policy picks.

    An entry is a module path (which also stands for everything inside that module) or a regular expression that has to
    match a whole path. An entry that matches nothing is an error: a misspelt name must not train a layer dense.
    """

    include: Sequence[str] = ()
    """What to pick; empty: everything that `of` picks."""
    exclude: Sequence[str] = ()
    """What to leave out of that."""
    of: Policy = field(default_factory=AllWeights)
    """The policy whose layers are looked at."""

    def select(self, module: nn.Module) -> dict[str, nn.Module]:
        """The layers by module path."""
        layers = self.of.select(module)
        for key, entries in (("include", self.include), ("exclude", self.exclude)):
            for entry in entries:
                if not any(_names(entry, name, key) for name in layers):
                    near = difflib.get_close_matches(entry, layers, n=3) or list(layers)[:8]
                    raise BadInputError(
                        f"{key}: {entry!r} matches no layer that {self.of} picks; near it: {', '.join(near)}"
                    )
        return {
            name: layer
            for name, layer in layers.items()
            if (not self.include or any(_names(entry, name, "include") for entry in self.include))
            and not any(_names(entry, name, "exclude") for entry in self.exclude)
        }


def _names(entry: str, path: str, key: str) -> bool:
    """Whether an entry of `ByName` means the layer at `path`."""
    if path == entry or path.startswith(entry + "."):
        return True
    try:
        return re.fullmatch(entry, path) is not None
    except re.error as error:
        raise BadInputError(f"{key}: {entry!r} is no regular expression ({error})") from error


@dataclass(frozen=True)
class AllOf(Policy):
    """The layers that every one of several policies picks."""

    policies: Sequence[Policy]
    """At least one."""

    def select(self, module: nn.Module) -> dict[str, nn.Module]:
        """The layers by module path."""
        picked = [policy.select(module) for policy in self.policies]
        return {name: layer for name, layer in weight_layers(module).items() if all(name in one for one in picked)}


@dataclass(frozen=True)
class AnyOf(Policy):
    """The layers that at least one of several policies picks."""

    policies: Sequence[Policy]
    """At least one."""

    def select(self, module: nn.Module) -> dict[str, nn.Module]:
        """The layers by module path."""
        picked = [policy.select(module) for policy in self.policies]
        return {name: layer for name, layer in weight_layers(module).items() if any(name in one for one in picked)}
