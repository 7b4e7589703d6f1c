"""LeNet-300-100 (LeCun et al. 1998): two hidden layers of 300 and 100 units, the small network of the sparsity papers."""

import torch.nn.functional as F
from torch import Tensor, nn


class LeNet300100(nn.Module):
    """784-300-100-10 by default: 266 200 weights in the three linear layers `fc1`, `fc2`, `fc3`, ReLU between them.

    Args:
        in_features: pixels of an image, times its channels.
        num_classes: number of logits.
    """

    def __init__(self, in_features: int = 784, num_classes: int = 10) -> None:
        super().__init__()
        self.fc1 = nn.Linear(in_features, 300)
        self.fc2 = nn.Linear(300, 100)
        self.fc3 = nn.Linear(100, num_classes)

    def forward(self, image: Tensor) -> Tensor:
        """Logits (N, num_classes) of images (N, C, H, W) with C * H * W = in_features."""
        hidden = F.relu(self.fc2(F.relu(self.fc1(image.flatten(1)))))
        logits: Tensor = self.fc3(hidden)
        return logits
