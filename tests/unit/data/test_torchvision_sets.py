"""CIFAR-10 and ImageNet from files, and what is said where there are none."""

from pathlib import Path

import pytest
import torch
from torchvision.io import write_png

from sparsetorch.data import CIFAR10, ImageNet
from sparsetorch.errors import BadInputError


def test_imagenet_is_read_from_folders(tmp_path: Path) -> None:
    for part in ("train", "val"):
        for name in ("n01440764", "n01443537"):
            (tmp_path / part / name).mkdir(parents=True)
            for index in range(2):
                image = torch.randint(0, 256, (3, 40, 50), dtype=torch.uint8)
                write_png(image, str(tmp_path / part / name / f"{index}.png"))
    data = ImageNet(str(tmp_path), batch_size=2, image_size=28, num_workers=0)
    data.setup("fit")
    image, label = next(iter(data.val_dataloader()))
    assert image.shape == (2, 3, 28, 28)
    assert label.tolist() == [0, 0]
    assert next(iter(data.train_dataloader()))[0].shape == (2, 3, 28, 28)
    assert len(data.test_dataloader()) == 2


@pytest.mark.parametrize("make", [CIFAR10, ImageNet])
def test_missing_files_name_the_key(make: type[CIFAR10 | ImageNet], tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=f"root: {make.__name__} finds nothing to read under"):
        make(str(tmp_path)).setup("fit")
    with pytest.raises(BadInputError, match="found batch_size 0"):
        make(str(tmp_path), batch_size=0)
