"""Fashion-MNIST from idx files: read right, split once and for all, refused with the way out where something is missing."""

import gzip
import os
import re
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import torchvision
from idx_files import write_fashion_mnist, write_idx
from torch.utils.data import DataLoader

from sparsetorch.data import FashionMNIST
from sparsetorch.data.fashion_mnist import DEBIAN_ROOT, GrayImages, read_idx
from sparsetorch.errors import BadInputError
from sparsetorch.models import ImageClassifier, LeNet300100


def _ready(root: Path, **settings: object) -> FashionMNIST:
    data = FashionMNIST(root=str(root), **{"val_size": 20, "batch_size": 8, **settings})  # type: ignore[arg-type]
    data.setup("fit")
    return data


@pytest.mark.parametrize("name", ["file", "file.gz"])
def test_an_idx_file_is_read_in_the_shape_it_states(tmp_path: Path, name: str) -> None:
    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    write_idx(tmp_path / name, values)
    assert torch.equal(read_idx(tmp_path / name), torch.from_numpy(values))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "needed an idx file of unsigned bytes"),
        (b"\0\0\x0d\1\0\0\0\1\0\0\0\0", "found the first bytes 00000d01"),
        (b"\0\0\x08\1\0\0\0\2\0", "is it complete?"),
        (b"\0\0\x08\3\0\0", "is it complete?"),
    ],
    ids=["empty", "floats", "cut short", "cut in the header"],
)
def test_a_file_that_is_no_idx_file_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(BadInputError, match=re.escape(why)):
        read_idx(tmp_path / "file")


def test_a_gzip_file_cut_short_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file.gz").write_bytes(gzip.compress(bytes(1000))[:15])
    with pytest.raises(BadInputError, match="cannot be read"):
        read_idx(tmp_path / "file.gz")


@pytest.mark.parametrize(("folder", "suffix"), [(".", ".gz"), ("FashionMNIST/raw", ".gz"), ("FashionMNIST/raw", "")])
def test_debians_and_torchvisions_layouts_are_found(tmp_path: Path, folder: str, suffix: str) -> None:
    write_fashion_mnist(tmp_path / folder, suffix=suffix)
    data = _ready(tmp_path)
    assert (len(data.train), len(data.val), len(data.test)) == (40, 20, 20)


def test_torchvision_reads_the_same_images(tmp_path: Path) -> None:
    write_fashion_mnist(tmp_path / "FashionMNIST" / "raw", suffix="")
    theirs = torchvision.datasets.FashionMNIST(str(tmp_path), train=False)
    ours = _ready(tmp_path).test
    assert torch.equal(ours.images, theirs.data)
    assert torch.equal(ours.labels, theirs.targets)


def test_missing_files_are_an_error_that_says_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"apt-get install dataset-fashion-mnist\n(.*\n)+.*download=True"):
        _ready(tmp_path)


def test_settings_out_of_range_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="channels 2"):
        FashionMNIST(channels=2)
    write_fashion_mnist(tmp_path)
    with pytest.raises(BadInputError, match="val_size: found 60, needed fewer than the 60"):
        _ready(tmp_path, val_size=60)


def test_images_and_labels_that_do_not_match_are_refused(tmp_path: Path) -> None:
    write_fashion_mnist(tmp_path)
    write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.zeros(59, dtype=np.uint8))
    with pytest.raises(BadInputError, match=re.escape("found images of the shape (60, 28, 28) and labels of (59,)")):
        _ready(tmp_path)


def test_the_split_is_fixed_and_disjoint(tmp_path: Path) -> None:
    write_fashion_mnist(tmp_path)
    torch.manual_seed(1)
    first = _ready(tmp_path)
    torch.manual_seed(2)
    second = _ready(tmp_path)
    assert torch.equal(first.val.images, second.val.images)
    both = torch.cat([first.train.images, first.val.images]).flatten(1)
    assert len(both.unique(dim=0)) == 60


def test_batches_hold_images_in_0_to_1_with_their_own_labels(tmp_path: Path) -> None:
    write_fashion_mnist(tmp_path)
    batches = list(_ready(tmp_path).train_dataloader())
    assert [tuple(image.shape) for image, _ in batches] == [(8, 1, 28, 28)] * 5
    for image, label in batches:
        assert image.dtype == torch.float32
        assert torch.equal((image[:, 0, 0, 0] * 255).round().long(), label)
    assert min(float(image.min()) for image, _ in batches) >= 0.0
    assert 0.9 < max(float(image.max()) for image, _ in batches) <= 1.0


def test_the_order_follows_the_seed(tmp_path: Path) -> None:
    write_fashion_mnist(tmp_path)
    data = _ready(tmp_path)

    def order(seed: int) -> list[int]:
        torch.manual_seed(seed)
        return [int(label) for _, labels in data.train_dataloader() for label in labels]

    assert order(1) == order(1) != order(2)


def test_a_batch_is_fetched_at_once_and_equals_its_samples() -> None:
    class Counted(GrayImages):
        calls = 0

        def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
            self.calls += 1
            return super().__getitems__(indices)

    images = torch.randint(0, 256, (12, 28, 28), dtype=torch.uint8)
    counted = Counted(images, torch.arange(12), 28, 1)
    batches = list(DataLoader(counted, 4, collate_fn=lambda batch: batch))
    assert counted.calls == 3
    assert torch.equal(batches[1][0][2], counted[6][0])
    assert int(counted[6][1]) == 6


def test_three_channels_and_another_size() -> None:
    images = torch.randint(0, 256, (3, 28, 28), dtype=torch.uint8)
    image, _ = GrayImages(images, torch.arange(3), image_size=32, channels=3).__getitems__([0, 2])
    assert tuple(image.shape) == (2, 3, 32, 32)
    assert torch.equal(image[:, 0], image[:, 2])


def test_flip_mirrors_about_half_of_the_training_images_and_no_other() -> None:
    images = torch.arange(28, dtype=torch.uint8).expand(400, 28, 28)
    torch.manual_seed(0)
    image, _ = GrayImages(images, torch.zeros(400), 28, 1, flip=True).__getitems__(list(range(400)))
    mirrored = image[:, 0, 0, 0] > 0
    assert 160 < int(mirrored.sum()) < 240
    assert torch.equal(image[mirrored][0].flip(-1), image[~mirrored][0])


def test_flip_leaves_evaluation_alone(tmp_path: Path) -> None:
    write_fashion_mnist(tmp_path)
    data = _ready(tmp_path, flip=True)
    assert data.train.flip
    assert not data.val.flip
    assert not data.test.flip


def test_lenet_trains_evaluates_and_predicts_on_it(tmp_path: Path) -> None:
    write_fashion_mnist(tmp_path)
    data = FashionMNIST(root=str(tmp_path), batch_size=8, val_size=20)
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    module = ImageClassifier(LeNet300100(), num_classes=10)
    trainer.fit(module, data)
    assert trainer.global_step == 5
    assert "test_acc" in trainer.test(module, data, verbose=False)[0]
    predicted = trainer.predict(module, data)
    assert predicted is not None
    assert sum(len(part) for part in predicted) == 20


def test_the_files_of_debians_package() -> None:
    """On a machine without the package, the error is what is tested; in CI the package has to be there."""
    if "CI" not in os.environ and not Path(DEBIAN_ROOT).is_dir():
        with pytest.raises(BadInputError, match="apt-get install dataset-fashion-mnist"):
            FashionMNIST().setup("fit")
        return
    data = FashionMNIST()
    data.setup("fit")
    assert (len(data.train), len(data.val), len(data.test)) == (55_000, 5_000, 10_000)
    assert torch.bincount(data.test.labels).tolist() == [1000] * 10
    assert torch.bincount(torch.cat([data.train.labels, data.val.labels])).tolist() == [6000] * 10
    assert data.test.labels[:5].tolist() == [9, 2, 1, 1, 6]
    assert 72.9 < float(data.train.images.float().mean()) < 73.0  # 0.286 of 255, the figure everyone normalises with
