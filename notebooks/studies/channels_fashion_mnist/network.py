"""A residual network whose prunable channels all cost the same, so that equal channel sparsity is equal arithmetic."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

INNER = [r"network\.blocks\.\d+\.0"]
"""The layers whose output channels are pruned, by their paths in an `ImageClassifier`."""


class Bottlenecks(nn.Module):
    """A strided stem and residual blocks of one width and resolution: 3x3 to `inner` channels, 3x3 back, add.

    Args:
        blocks: how many.
        width: channels of the stem and of every sum.
        inner: channels inside a block.
    """

    def __init__(self, blocks: int, width: int, inner: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 5, 4, 2, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, inner, 3, 1, 1, bias=False),
                nn.BatchNorm2d(inner),
                nn.ReLU(),
                nn.Conv2d(inner, width, 3, 1, 1, bias=False),
                nn.BatchNorm2d(width),
            )
            for _ in range(blocks)
        )
        self.fc = nn.Linear(width, 10)

    def forward(self, image: Tensor) -> Tensor:
        """Logits (N, 10) of images (N, 1, 28, 28)."""
        x = F.relu(self.bn(self.stem(image)))
        for block in self.blocks:
            x = F.relu(x + block(x))
        logits: Tensor = self.fc(torch.mean(x, (2, 3)))
        return logits
