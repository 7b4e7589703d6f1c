"""The masks of all processes are the same: by construction, and checked after every update."""

import zlib

import numpy as np
import pytorch_lightning as pl
import torch

from sparsetorch.callbacks.channels import AnySparsifier
from sparsetorch.errors import WrongNumbersError
from sparsetorch.masking import masks


def mask_digests(sparsifier: AnySparsifier) -> torch.Tensor:
    """A 32-bit checksum of every layer's mask, int64, in the order of the layers."""
    packed = (np.packbits(masks.mask_of(layer).cpu().numpy()) for layer in sparsifier.layers.values())
    return torch.tensor([zlib.crc32(bits.tobytes()) for bits in packed], dtype=torch.int64)


def check_ranks_agree(trainer: pl.Trainer, sparsifier: AnySparsifier, step: int) -> None:
    """Compare the masks of all ranks; nothing to do with one.

    Raises:
        WrongNumbersError: naming the first layer and the ranks that differ from rank 0.
    """
    if trainer.world_size == 1:
        return
    own = mask_digests(sparsifier).to(trainer.strategy.root_device)
    everyone = torch.as_tensor(trainer.strategy.all_gather(own)).reshape(trainer.world_size, -1)
    differs = everyone != everyone[0]
    if bool(differs.any()):
        ranks = differs.any(dim=1).nonzero().reshape(-1).tolist()
        name = list(sparsifier.layers)[int(differs.any(dim=0).nonzero()[0])]
        raise WrongNumbersError(
            f"masks: after the update at step {step}, {name} differs on rank {', '.join(map(str, ranks))} from rank 0; "
            "the processes no longer train one network. Is a weight, a gradient or a mask changed on one rank alone?"
        )
