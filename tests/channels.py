"""Small networks with coupled channels, and pruning of random channels; for the tests of structured sparsity."""

from collections.abc import Sequence

import torch
from torch import nn

from sparsetorch.structured.groups import Group


class Residual(nn.Module):
    """A stem, one residual block, a strided block with a projection, a depthwise convolution, a classifier."""

    def __init__(self, width: int = 8, channels: int = 3, classes: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn0 = nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.down = nn.Conv2d(width, 2 * width, 1, stride=2, bias=False)
        self.bn3 = nn.BatchNorm2d(2 * width)
        self.depthwise = nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width, bias=False)
        self.bn4 = nn.BatchNorm2d(2 * width)
        self.fc = nn.Linear(2 * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bn0(self.stem(x)).relu()
        x = (x + self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))).relu()
        x = self.bn4(self.depthwise(self.bn3(self.down(x)).relu())).relu()
        return self.fc(x.mean((2, 3)))


def randomise(module: nn.Module, seed: int = 0) -> nn.Module:
    """Batch-norms as if trained, so that a channel that should be zero and is not shows; in eval mode."""
    generator = torch.Generator().manual_seed(seed)
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.affine:
            with torch.no_grad():
                layer.weight.uniform_(0.5, 1.5, generator=generator)
                layer.bias.normal_(0.0, 0.1, generator=generator)
            layer.running_mean.normal_(0.0, 0.1, generator=generator)
            layer.running_var.uniform_(0.5, 1.5, generator=generator)
    return module.eval()


def prune_random(module: nn.Module, groups: Sequence[Group], share: float, seed: int = 0) -> dict[str, torch.Tensor]:
    """Zero random channels in every member of every group, at least one staying. Returns what went, by group."""
    generator = torch.Generator().manual_seed(seed)
    gone = {}
    for group in groups:
        chosen = torch.rand(group.channels, generator=generator) < share
        chosen[int(torch.randint(group.channels, (1,), generator=generator))] = False
        gone[group.name] = chosen
        for member in group.members:
            zero(module.get_submodule(member.module), member.role, member.of(chosen))
    return gone


def zero(layer: nn.Module, role: str, indices: list[int]) -> None:
    """Zero one role of a layer."""
    with torch.no_grad():
        if role == "in":
            layer.weight.movedim(0 if getattr(layer, "transposed", False) else 1, 0)[indices] = 0.0
            return
        layer.weight.movedim(1 if getattr(layer, "transposed", False) else 0, 0)[indices] = 0.0
        if layer.bias is not None:
            layer.bias[indices] = 0.0
