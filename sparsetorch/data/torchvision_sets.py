"""CIFAR-10 and ImageNet through torchvision, from files that are on the machine already; nothing is downloaded."""

from typing import Any

import pytorch_lightning as pl
from torch.utils.data import DataLoader, Dataset

from sparsetorch.errors import BadInputError


class _TorchvisionData(pl.LightningDataModule):
    def __init__(self, root: str, batch_size: int, num_workers: int) -> None:
        super().__init__()
        if batch_size < 1 or num_workers < 0:
            raise BadInputError(
                f"{type(self).__name__}: found batch_size {batch_size}, num_workers {num_workers}; needed at least 1 and 0"
            )
        self.root, self.batch_size, self.num_workers = root, batch_size, num_workers

    def setup(self, stage: str) -> None:
        """Open the data sets.

        Raises:
            BadInputError: where the files are missing or broken.
        """
        try:
            self.train, self.val = self.open_sets()
        except (OSError, RuntimeError) as error:
            raise BadInputError(
                f"root: {type(self).__name__} finds nothing to read under {self.root!r} ({error})"
            ) from error

    def open_sets(self) -> tuple[Dataset[Any], Dataset[Any]]:
        """Training images with augmentation, and those for validation and test."""
        raise NotImplementedError

    def _loader(self, dataset: Dataset[Any], train: bool) -> DataLoader:
        workers = self.num_workers
        return DataLoader(
            dataset,
            self.batch_size,
            shuffle=train,
            drop_last=train,
            num_workers=workers,
            persistent_workers=workers > 0,
        )

    def train_dataloader(self) -> DataLoader:
        """Shuffled; the last, smaller batch is left out."""
        return self._loader(self.train, True)

    def val_dataloader(self) -> DataLoader:
        """In order."""
        return self._loader(self.val, False)

    def test_dataloader(self) -> DataLoader:
        """The validation images: these data sets have no public labels beyond them, and papers report on them."""
        return self._loader(self.val, False)


class CIFAR10(_TorchvisionData):
    """CIFAR-10 (Krizhevsky 2009): 50 000 training and 10 000 test images of 32x32 pixels, ten classes.

    Training images are padded by 4, cropped and mirrored. The test images validate, as in the papers of `recipes/`.
    """

    def __init__(self, root: str = "data", batch_size: int = 128, num_workers: int = 4) -> None:
        """Configure.

        Args:
            root: the folder given to torchvision.
            batch_size: images per batch.
            num_workers: loading processes.
        """
        super().__init__(root, batch_size, num_workers)

    def open_sets(self) -> tuple[Dataset[Any], Dataset[Any]]:
        """Training and test images."""
        from torchvision import datasets, transforms

        normal = [transforms.ToTensor(), transforms.Normalize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))]
        moved = [transforms.RandomCrop(32, 4), transforms.RandomHorizontalFlip()]
        train = datasets.CIFAR10(self.root, True, transforms.Compose([*moved, *normal]))
        return train, datasets.CIFAR10(self.root, False, transforms.Compose(normal))


class ImageNet(_TorchvisionData):
    """ImageNet-1k (Russakovsky et al. 2015) as folders of images: `root/train/<class>` and `root/val/<class>`."""

    def __init__(
        self, root: str = "data/imagenet", batch_size: int = 256, image_size: int = 224, num_workers: int = 8
    ) -> None:
        """Configure.

        Args:
            root: the folder that holds `train` and `val`.
            batch_size: images per batch and process.
            image_size: height and width in pixels; for validation, the centre of an image 8/7 of that.
            num_workers: loading processes.
        """
        super().__init__(root, batch_size, num_workers)
        self.image_size = image_size

    def open_sets(self) -> tuple[Dataset[Any], Dataset[Any]]:
        """Training and validation images."""
        from torchvision import datasets, transforms

        normal = [transforms.ToTensor(), transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
        cropped = [transforms.RandomResizedCrop(self.image_size), transforms.RandomHorizontalFlip()]
        centred = [transforms.Resize(self.image_size * 8 // 7), transforms.CenterCrop(self.image_size)]
        train = datasets.ImageFolder(f"{self.root}/train", transforms.Compose([*cropped, *normal]))
        return train, datasets.ImageFolder(f"{self.root}/val", transforms.Compose([*centred, *normal]))
