"""scikit-learn's digits: 1797 hand-written digits of 8x8 pixels, shipped inside the package, so nothing is downloaded."""

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from sparsetorch.errors import BadInputError


def load_digits_as_images(image_size: int) -> tuple[Tensor, Tensor]:
    """All digits as images (1797, 3, image_size, image_size) in [0, 1] and labels (1797,)."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    gray = torch.from_numpy(digits.images).float().unsqueeze(1) / 16.0
    resized = F.interpolate(gray, size=(image_size, image_size), mode="bilinear", align_corners=False)
    return resized.repeat(1, 3, 1, 1), torch.from_numpy(digits.target).long()


class Digits(pl.LightningDataModule):
    """Digits, resized and replicated to three channels, in a fixed stratified split: 60 % / 20 % / 20 %."""

    def __init__(self, batch_size: int = 64, image_size: int = 32, shift: int = 2) -> None:
        """Configure.

        Args:
            batch_size: images per training batch.
            image_size: height and width in pixels.
            shift: training images are moved by up to this many pixels in each direction, at random.
        """
        super().__init__()
        if batch_size < 1 or image_size < 8 or shift < 0:
            raise BadInputError(
                f"Digits: found batch_size {batch_size}, image_size {image_size}, shift {shift}; "
                "needed at least 1, 8 and 0"
            )
        self.batch_size = batch_size
        self.image_size = image_size
        self.shift = shift

    def setup(self, stage: str) -> None:
        """Split; the same split in every process and on every machine."""
        from sklearn.model_selection import train_test_split

        images, labels = load_digits_as_images(self.image_size)
        index = torch.arange(len(labels)).numpy()
        rest, test = train_test_split(index, test_size=0.2, random_state=0, stratify=labels.numpy())
        train, val = train_test_split(rest, test_size=0.25, random_state=0, stratify=labels.numpy()[rest])
        self.train, self.val, self.test = (TensorDataset(images[part], labels[part]) for part in (train, val, test))

    def train_dataloader(self) -> DataLoader:
        """Shuffled; the last, smaller batch is left out."""
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self) -> DataLoader:
        """In order."""
        return DataLoader(self.val, batch_size=256)

    def test_dataloader(self) -> DataLoader:
        """In order."""
        return DataLoader(self.test, batch_size=256)

    def predict_dataloader(self) -> DataLoader:
        """The test split."""
        return self.test_dataloader()

    def on_after_batch_transfer(self, batch: tuple[Tensor, Tensor], dataloader_idx: int) -> tuple[Tensor, Tensor]:
        """Move every training image by its own random offset, zeros coming in at the border."""
        image, label = batch
        if self.trainer is None or not self.trainer.training or self.shift == 0:
            return image, label
        padded = F.pad(image, [self.shift] * 4)
        n, _, height, width = image.shape
        top, left = torch.randint(0, 2 * self.shift + 1, (2, n, 1, 1), device=image.device)
        rows = top + torch.arange(height, device=image.device).view(1, -1, 1)
        columns = left + torch.arange(width, device=image.device).view(1, 1, -1)
        moved = padded.permute(0, 2, 3, 1)[torch.arange(n, device=image.device).view(-1, 1, 1), rows, columns]
        return moved.permute(0, 3, 1, 2).contiguous(), label
