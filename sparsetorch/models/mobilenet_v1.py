"""MobileNetV1 (Howard et al. 2017, arXiv 1704.04861): 13 depthwise-separable convolutions. torchvision has none."""

from torch import Tensor, nn

_BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
"""Output channels and stride of each block, at width 1."""


def _convolution(channels: int, out_channels: int, kernel: int, stride: int, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, out_channels, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU6(inplace=True),
    )


class MobileNetV1(nn.Module):
    """A stem, 13 blocks of a depthwise 3x3 and a 1x1 convolution, a global pool, a linear layer.

    Args:
        num_classes: number of logits.
        width: multiplies every number of channels.
        dropout: before the linear layer.
    """

    def __init__(self, num_classes: int = 1000, width: float = 1.0, dropout: float = 0.0) -> None:
        super().__init__()
        channels = max(int(32 * width), 8)
        layers = [_convolution(3, channels, 3, 2)]
        for wide, stride in _BLOCKS:
            out_channels = max(int(wide * width), 8)
            layers += [
                _convolution(channels, channels, 3, stride, groups=channels),
                _convolution(channels, out_channels, 1, 1),
            ]
            channels = out_channels
        self.features = nn.Sequential(*layers)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, image: Tensor) -> Tensor:
        """Logits (N, num_classes) of images (N, 3, H, W)."""
        logits: Tensor = self.classifier(self.dropout(self.features(image).mean((2, 3))))
        return logits
