"""Sparse training without Lightning: three calls a step around your own loop.

    python recipes/digits/plain_pytorch.py [STEPS]

Prints the sparsity, which is exact at every step, and the accuracy on held-out digits.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

from sparsetorch import ERK, ConstantSparsity, RigL
from sparsetorch.data.digits import load_digits_as_images
from sparsetorch.masking import make_permanent
from sparsetorch.masking.sparsifier import Sparsifier


def main(steps: int) -> tuple[float, float]:
    """Train 300-100 on digits at 90 % sparsity. Returns the sparsity and the test accuracy."""
    torch.manual_seed(0)
    images, labels = load_digits_as_images(8)
    images = images[:, 0].flatten(1)
    order = torch.randperm(len(labels))
    train, test = order[:1400], order[1400:]
    network = nn.Sequential(nn.Linear(64, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)

    schedule = ConstantSparsity(0.9, update_every=50).resolve(steps)  # updates until 75 % of the training
    sparsifier = Sparsifier(network, algorithm=RigL(), schedule=schedule, distribution=ERK())
    sparsifier.start()
    for step in range(1, steps + 1):
        batch = train[torch.randint(len(train), (64,))]
        sparsifier.before_backward(step)  # 1: does an update follow this step? Then its dense gradient is needed
        loss = F.cross_entropy(network(images[batch]), labels[batch])
        loss.backward()
        sparsifier.before_optimizer_step(step)  # 2: keep the dense gradient, and hide it from the optimizer
        optimizer.step()
        optimizer.zero_grad()
        sparsifier.after_optimizer_step(step, [optimizer])  # 3: the update, where one is due

    accuracy = (network(images[test]).argmax(1) == labels[test]).float().mean().item()
    plain = make_permanent(network)  # an ordinary network again, its weights holding the zeros
    weights = [layer.weight for layer in plain if isinstance(layer, nn.Linear)]
    zeros = sum(int((weight == 0).sum()) for weight in weights) / sum(weight.numel() for weight in weights)
    return zeros, accuracy


if __name__ == "__main__":
    sparsity, accuracy = main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
    print(f"sparsity {sparsity:.2%}, test accuracy {accuracy:.2%}")
