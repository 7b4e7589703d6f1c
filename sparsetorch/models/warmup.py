"""Learning rates that papers on large data use and torch does not ship as one scheduler."""

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from sparsetorch.errors import BadInputError


class WarmupCosine(LambdaLR):
    """Up along a line for `warmup` epochs, then down to 0 along a cosine.

    Epoch e (from 0) has `lr * (e + 1) / warmup` while `e < warmup`, then
    `lr / 2 * (1 + cos(pi * (e - warmup) / (total - warmup)))`, as in NVIDIA's DeepLearningExamples, which CHEX trains with.

    Raises:
        BadInputError: where `warmup` is not below `total`.
    """

    def __init__(self, optimizer: Optimizer, total: int, warmup: int) -> None:
        """Configure.

        Args:
            optimizer: whose learning rate is the highest one.
            total: epochs of the training, as `trainer.max_epochs`.
            warmup: epochs of these on the way up; 0 for none.
        """
        if not 0 <= warmup < total:
            raise BadInputError(f"warmup: found {warmup!r}, needed 0 to {total - 1}, fewer than the epochs in total")

        def factor(epoch: int) -> float:
            if epoch < warmup:
                return (epoch + 1) / warmup
            return (1 + math.cos(math.pi * (epoch - warmup) / (total - warmup))) / 2

        super().__init__(optimizer, factor)
