"""What structured sparsity costs: CHEX's selection on ResNet-50, HRank's scores on ResNet-56, compaction of ResNet-50.

python tests/benchmarks/structured.py [IMAGES [chex|rest]]    prints JSON; in a process of its own, for its peak of memory
"""

import json
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torchvision
from channels import prune_random, randomise
from torch import nn

from sparsetorch import CHEX, Channel, ConstantSparsity
from sparsetorch.models import CifarResNet
from sparsetorch.structured.channel_sparsifier import ChannelSparsifier
from sparsetorch.structured.compact import compact
from sparsetorch.structured.feature_ranks import hrank_scores
from sparsetorch.structured.groups import channel_groups, prunable


def peak_mib() -> float:
    """Most memory that this process has held, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def resnet50() -> nn.Module:
    torch.manual_seed(0)
    return randomise(torchvision.models.resnet50(weights=None))


def chex_update() -> tuple[float, float]:
    """Seconds of the longest of two updates (the second restores channels), and MiB at the peak above network and inputs."""
    network = resnet50()
    before = peak_mib()
    schedule = ConstantSparsity(0.7, end_step=100, update_every=10)
    loop = ChannelSparsifier(network, algorithm=CHEX(0.3), schedule=schedule, pattern=Channel((3, 64, 64)))
    seconds = []
    for step in (0, 10):
        started = time.perf_counter()
        loop.update(step, [])
        seconds.append(time.perf_counter() - started)
    return max(seconds), peak_mib() - before


def hrank(images: int) -> float:
    """Seconds for one batch of so many CIFAR-sized images through ResNet-56."""
    network = CifarResNet(56)
    groups = prunable(channel_groups(network, (3, 32, 32)))
    batch = torch.randn(images, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    started = time.perf_counter()
    hrank_scores(network, groups, [batch])
    return time.perf_counter() - started


def compaction() -> float:
    """Seconds to compact ResNet-50 with half of its channels pruned, the proof included."""
    network = resnet50()
    prune_random(network, prunable(channel_groups(network, (3, 64, 64))), 0.5)
    started = time.perf_counter()
    compact(network, (3, 64, 64))
    return time.perf_counter() - started


def main() -> None:
    images = int(sys.argv[1]) if len(sys.argv) > 1 else 128
    part = sys.argv[2] if len(sys.argv) > 2 else ""
    found: dict[str, float] = {"threads": torch.get_num_threads()}
    if part != "rest":
        found["chex_update_s"], found["chex_memory_mib"] = chex_update()
    if part != "chex":
        found |= {"compaction_s": compaction(), "hrank_s": hrank(images), "hrank_images": images}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
