"""ResNets for small images (He et al., "Deep Residual Learning", CVPR 2016, section 4.2): ResNet-20, 32, 44, 56, 110.

Three stages of n blocks, 16, 32, 64 channels, depth 6n + 2. Shortcuts that change shape are 1x1 convolutions (their option B),
not the padded slices of option A: these couple channels of two stages at fixed places, so that neither could be pruned.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from sparsetorch.errors import BadInputError


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out_channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, out_channels, 1, stride, bias=False), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels, H, W) to (N, out_channels, H / stride, W / stride)."""
        inner = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(inner + self.shortcut(x))


class CifarResNet(nn.Module):
    """ResNet-`depth` for images of about 32x32 pixels.

    Args:
        depth: 6n + 2.
        num_classes: number of logits.
        in_channels: of an image.
        width: channels of the first stage; the second and third have two and four times as many.
        stem_stride: of the first convolution; 2 computes a quarter.
    """

    def __init__(
        self, depth: int = 56, num_classes: int = 10, in_channels: int = 3, width: int = 16, stem_stride: int = 1
    ) -> None:
        super().__init__()
        if depth < 8 or (depth - 2) % 6:
            raise BadInputError(f"depth: found {depth}, needed 6n + 2: 8, 14, 20, 32, 44, 56, 110")
        self.stem = nn.Conv2d(in_channels, width, 3, stem_stride, 1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        blocks: list[Any] = []
        channels = width
        for stage in range(3):
            for block in range((depth - 2) // 6):
                stride = 2 if stage and not block else 1
                blocks.append(BasicBlock(channels, width * 2**stage, stride))
                channels = width * 2**stage
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(channels, num_classes)

    def forward(self, image: Tensor) -> Tensor:
        """Logits (N, num_classes) of images (N, in_channels, H, W)."""
        features = self.blocks(F.relu(self.bn(self.stem(image))))
        logits: Tensor = self.fc(features.mean((2, 3)))
        return logits
