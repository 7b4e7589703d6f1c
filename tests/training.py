"""A LightningModule that knows nothing of sparsity, its data, and Trainers that keep quiet; for the tests of callbacks."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from sparsetorch import ERK, ConstantSparsity, Magnitude, PolynomialDecay, RigL, SparseTraining, Uniform


class Plain(pl.LightningModule):
    """Ten inputs, three classes, two hidden layers with dropout."""

    def __init__(self, adam: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(10, 40), nn.ReLU(), nn.Dropout(dropout), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 3)
        )
        self.adam = adam

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        return F.cross_entropy(self(x).float(), y)

    def configure_optimizers(self) -> Any:
        if self.adam:
            return torch.optim.AdamW(self.parameters(), lr=0.01)
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


class Noisy(Dataset):
    """Draws from all three random states in the training process, as augmentations do."""

    def __len__(self) -> int:
        return len(data())

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = data()[index]
        return x + 0.1 * torch.rand(10) + 0.1 * random.random() + 0.1 * np.random.rand(), y


class Validated(Plain):
    """Validates on shuffled data, so that validation draws random numbers too."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("loss", self.training_step(batch, batch_idx))


def data(n: int = 160) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 10, generator=generator)
    return TensorDataset(x, x[:, :3].argmax(dim=1))


def loader(batch_size: int = 16, shuffle: bool = False) -> DataLoader:
    return DataLoader(data(), batch_size, shuffle=shuffle)


def trainer(folder: Path, **options: Any) -> pl.Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "accelerator": "cpu"}
    return pl.Trainer(**(quiet | {"default_root_dir": folder, "enable_checkpointing": False} | options))


def rigl(**options: Any) -> SparseTraining:
    schedule = ConstantSparsity(0.8, update_every=5, end_step=40)
    return SparseTraining(**({"algorithm": RigL(), "schedule": schedule, "distribution": ERK()} | options))


def gradual(**options: Any) -> SparseTraining:
    schedule = PolynomialDecay(0.8, begin_step=5, end_step=40, update_every=5)
    distribution = Uniform(first_layer_dense=False)
    return SparseTraining(**({"algorithm": Magnitude(), "schedule": schedule, "distribution": distribution} | options))


def weights(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def equal(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
