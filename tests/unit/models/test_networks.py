"""The networks of the recipes, and trainings that start from a checkpoint."""

from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from channels import Residual
from torch.utils.data import DataLoader, TensorDataset
from training import trainer

from sparsetorch import Channel, ConstantSparsity, Magnitude, SparseTraining
from sparsetorch.errors import BadInputError
from sparsetorch.models import CifarResNet, ImageClassifier, MobileNetV1


def test_sizes_are_those_of_the_papers() -> None:
    assert sum(parameter.numel() for parameter in MobileNetV1().parameters()) == 4_231_976
    # He et al. give .85 M for ResNet-56 with parameter-free shortcuts; the two 1x1 convolutions add 2 752 with batch-norm.
    parameters = sum(parameter.numel() for parameter in CifarResNet(56).parameters())
    assert parameters == 855_770
    assert MobileNetV1(num_classes=7, width=0.25)(torch.zeros(2, 3, 32, 32)).shape == (2, 7)
    assert CifarResNet(8, 5, 1, 4, 2)(torch.zeros(2, 1, 28, 28)).shape == (2, 5)
    with pytest.raises(BadInputError, match="depth: found 18, needed 6n"):
        CifarResNet(18)


def fit(folder: Path, sparse: SparseTraining | None = None, **options: object) -> ImageClassifier:
    pl.seed_everything(0)
    module = ImageClassifier(
        Residual(8),
        num_classes=4,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0),
        sparsity=sparse,
        **options,  # type: ignore[arg-type]
    )
    data = DataLoader(TensorDataset(torch.randn(8, 3, 8, 8), torch.arange(8) % 4), 8)
    trainer(folder, max_epochs=1, enable_checkpointing=True).fit(module, data)
    return module


def test_a_training_starts_from_a_checkpoint_dense_or_masked(tmp_path: Path) -> None:
    dense = fit(tmp_path)
    with torch.no_grad():
        dense.network.conv1.weight.add_(1.0)
    torch.save({"state_dict": dense.state_dict()}, tmp_path / "dense.ckpt")
    sparse = SparseTraining(Magnitude(), ConstantSparsity(0.5, end_step=0), pattern=Channel())
    pruned = fit(tmp_path, sparse, weights=str(tmp_path / "dense.ckpt"))
    rows = pruned.network.conv1.weight_mask.flatten(1).any(dim=1)
    assert int(rows.sum()) == 4
    assert torch.equal(pruned.network.conv1.weight[rows][:, :1], dense.network.conv1.weight[rows][:, :1])
    torch.save({"state_dict": pruned.state_dict()}, tmp_path / "pruned.ckpt")
    again = fit(tmp_path, weights=str(tmp_path / "pruned.ckpt"))
    assert torch.equal(again.network.conv1.weight, pruned.network.conv1.weight)


def test_weights_that_do_not_fit_are_one_message(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"none\.ckpt: no such file; needed a checkpoint"):
        fit(tmp_path, weights=str(tmp_path / "none.ckpt"))
    torch.save({"state_dict": {"network.other": torch.zeros(1)}}, tmp_path / "other.ckpt")
    with pytest.raises(BadInputError, match=r"it lacks network\.stem\.weight.*no network\.other"):
        fit(tmp_path, weights=str(tmp_path / "other.ckpt"))
