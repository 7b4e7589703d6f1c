"""Which weights: a policy picks the layers whose `weight` may become sparse.

Biases and normalisation are never picked. Depthwise kernels stay dense in every policy: they hold a percent of the
weights, and no runtime gains from zeros in them.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import nn


class Policy(ABC):
    """Picks layers by their type, shape or name."""

    @abstractmethod
    def select(self, module: nn.Module) -> dict[str, nn.Module]:
        """The layers to sparsify by module path, in definition order."""


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
