"""Fashion-MNIST (Xiao et al. 2017, arXiv 1708.07747): 60 000 training and 10 000 test images of 28x28 gray pixels, ten
classes of clothing. Read from files that are on the machine already; nothing is downloaded.

The files are in idx format: two zero bytes, a type (8 = unsigned byte), the number of dimensions, each dimension as a
big-endian 32-bit number, and the values.
"""

import gzip
import math
import struct
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from sparsetorch.errors import BadInputError

DEBIAN_ROOT = "/usr/share/datasets/fashion-mnist"
"""Where Debian's package `dataset-fashion-mnist` puts the files."""

_FILES = {"train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")}
_FILES["test"] = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_FOLDERS = ("", "FashionMNIST/raw", "raw")
_UNSIGNED_BYTE = 8


def read_idx(path: Path) -> Tensor:
    """The values of an idx file of unsigned bytes, compressed by gzip or not, in the shape that it states.

    Raises:
        BadInputError: where it is not such a file, or ends early.
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise BadInputError(f"{path}: cannot be read ({error})") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTE:
        raise BadInputError(f"{path}: found the first bytes {content[:4].hex()}, needed an idx file of unsigned bytes")
    dimensions = content[3]
    start = 4 + 4 * dimensions
    shape = struct.unpack(f">{dimensions}I", content[4:start]) if len(content) >= start else ()
    if len(shape) != dimensions or len(content) - start != math.prod(shape):
        raise BadInputError(f"{path}: found {len(content)} bytes, which is not what its header says; is it complete?")
    return torch.frombuffer(bytearray(content[start:]), dtype=torch.uint8).reshape(shape)


def find_file(root: Path, name: str) -> Path:
    """The file `name` or `name.gz` under `root`, in Debian's layout or torchvision's.

    Raises:
        BadInputError: where there is none, with the commands that put it there.
    """
    for folder in _FOLDERS:
        for suffix in (".gz", ""):
            path = root / folder / (name + suffix)
            if path.is_file():
                return path
    raise BadInputError(
        f"FashionMNIST: found no file {name} or {name}.gz under root {str(root)!r}; needed Debian's package (it fills "
        f"{DEBIAN_ROOT}):\n    apt-get install dataset-fashion-mnist\nor torchvision's files, with root: DATA:\n"
        "    python -c 'import torchvision; torchvision.datasets.FashionMNIST(\"DATA\", download=True)'"
    )


class GrayImages(Dataset[tuple[Tensor, Tensor]]):
    """Images and labels in memory, fetched a batch at a time: one indexing operation, no collation of single samples.

    Args:
        images: (N, H, W), unsigned bytes.
        labels: (N,), class indices.
        image_size: height and width of what is fetched; bilinear where it is not that of `images`.
        channels: how often the gray channel is repeated.
        flip: mirror each image left to right with probability 1/2.
    """

    def __init__(self, images: Tensor, labels: Tensor, image_size: int, channels: int, flip: bool = False) -> None:
        self.images, self.labels = images, labels
        self.image_size, self.channels, self.flip = image_size, channels, flip

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image, label = self.__getitems__([index])
        return image[0], label[0]

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        """Images (len(indices), channels, image_size, image_size) in [0, 1], and their labels; a DataLoader calls it."""
        index = torch.tensor(indices)
        image = self.images[index].unsqueeze(1).float().div_(255.0)
        if image.shape[-1] != self.image_size:
            image = F.interpolate(image, size=(self.image_size, self.image_size), mode="bilinear", align_corners=False)
        if self.flip:
            image = torch.where(torch.rand(len(index), 1, 1, 1) < 0.5, image.flip(-1), image)
        return image.expand(-1, self.channels, -1, -1), self.labels[index]


def _as_it_is(batch: Any) -> Any:
    """The batch that `GrayImages.__getitems__` has made already."""
    return batch


class FashionMNIST(pl.LightningDataModule):
    """Fashion-MNIST in memory. The validation images are a fixed random draw from the training images."""

    def __init__(
        self,
        root: str = DEBIAN_ROOT,
        batch_size: int = 128,
        image_size: int = 28,
        channels: int = 1,
        val_size: int = 5000,
        flip: bool = False,
    ) -> None:
        """Configure.

        Args:
            root: folder of the four idx files, or the one given to torchvision as `root`.
            batch_size: images per training batch.
            image_size: height and width in pixels; 28 is that of the files.
            channels: 1, or 3 for networks that expect colour.
            val_size: images set aside from the training set for validation.
            flip: mirror training images at random.
        """
        super().__init__()
        if batch_size < 1 or image_size < 1 or channels not in (1, 3) or val_size < 0:
            raise BadInputError(
                f"FashionMNIST: found batch_size {batch_size}, image_size {image_size}, channels {channels}, "
                f"val_size {val_size}; needed at least 1, at least 1, 1 or 3, at least 0"
            )
        self.root = root
        self.batch_size = batch_size
        self.image_size = image_size
        self.channels = channels
        self.val_size = val_size
        self.flip = flip

    def setup(self, stage: str) -> None:
        """Read and split; the same split in every process and on every machine.

        Raises:
            BadInputError: where files are missing or broken.
        """
        images, labels = self._read("train")
        if self.val_size >= len(labels):
            raise BadInputError(f"val_size: found {self.val_size}, needed fewer than the {len(labels)} training images")
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
        val, train = order[: self.val_size], order[self.val_size :]
        self.train = GrayImages(images[train], labels[train], self.image_size, self.channels, self.flip)
        self.val = GrayImages(images[val], labels[val], self.image_size, self.channels)
        self.test = GrayImages(*self._read("test"), self.image_size, self.channels)

    def _read(self, part: str) -> tuple[Tensor, Tensor]:
        paths = [find_file(Path(self.root), name) for name in _FILES[part]]
        images, labels = map(read_idx, paths)
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise BadInputError(
                f"{paths[0]}: found images of the shape {tuple(images.shape)} and labels of {tuple(labels.shape)}, "
                "needed (N, height, width) and (N,)"
            )
        return images, labels.long()

    def train_dataloader(self) -> DataLoader:
        """Shuffled; the last, smaller batch is left out."""
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True, drop_last=True, collate_fn=_as_it_is)

    def val_dataloader(self) -> DataLoader:
        """In order."""
        return DataLoader(self.val, batch_size=500, collate_fn=_as_it_is)

    def test_dataloader(self) -> DataLoader:
        """In order."""
        return DataLoader(self.test, batch_size=500, collate_fn=_as_it_is)

    def predict_dataloader(self) -> DataLoader:
        """The test images."""
        return self.test_dataloader()
