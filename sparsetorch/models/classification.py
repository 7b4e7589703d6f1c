"""Image classification: any network, optimizer and schedule from YAML."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy

from sparsetorch.callbacks.sparse_training import SparseTraining
from sparsetorch.exporter.source import read_checkpoint
from sparsetorch.masking import load_state_dict, masked_layers, plain_state_dict

_DEFAULT_OPTIMIZER = partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)


class ImageClassifier(pl.LightningModule):
    """Cross-entropy training of `network`, which maps images (N, C, H, W) to logits (N, num_classes)."""

    def __init__(
        self,
        network: nn.Module,
        num_classes: int,
        optimizer: OptimizerCallable = _DEFAULT_OPTIMIZER,
        lr_scheduler: LRSchedulerCallable | None = None,
        lr_interval: str = "epoch",
        label_smoothing: float = 0.0,
        sparsity: SparseTraining | None = None,
        weights: str | None = None,
    ) -> None:
        """Configure.

        Args:
            network: any module; what `export` converts.
            num_classes: number of logits, for the metrics.
            optimizer: makes the optimizer from the parameters; SGD with Nesterov momentum by default.
            lr_scheduler: makes the learning-rate schedule from the optimizer; constant by default.
            lr_interval: what a step of the schedule is, `epoch` or `step`.
            label_smoothing: share of the target spread over all classes, in [0, 1).
            sparsity: trains sparse, in plain Python; recipes use their own `sparsity:` section instead.
            weights: checkpoint that a training starts from, of the same network; read when `fit` begins and at no other time.
        """
        super().__init__()
        self.network = network
        self.make_optimizer = optimizer
        self.make_lr_scheduler = lr_scheduler
        self.lr_interval = lr_interval
        self.label_smoothing = label_smoothing
        self.sparsity = sparsity
        self.weights = weights
        self.train_acc = MulticlassAccuracy(num_classes, average="micro")
        self.val_acc = MulticlassAccuracy(num_classes, average="micro")
        self.test_acc = MulticlassAccuracy(num_classes, average="micro")

    def forward(self, image: Tensor) -> Tensor:
        """Logits (N, num_classes) of images (N, C, H, W)."""
        logits: Tensor = self.network(image)
        return logits

    def setup(self, stage: str) -> None:
        """Start from `weights`, where there are any; a run that is resumed is restored after this.

        Raises:
            BadInputError: a file that is missing or does not fit.
        """
        if stage != "fit" or self.weights is None:
            return
        content = read_checkpoint(Path(self.weights))
        state = content.get("state_dict", content)
        own = {key: value for key, value in self.state_dict().items() if "_acc." in key}  # metrics of other classes
        load_state_dict(self, {**own, **{key: value for key, value in state.items() if "_acc." not in key}})

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Load a masked checkpoint without masks too: to test, predict or go on dense."""
        if not masked_layers(self):
            checkpoint["state_dict"] = plain_state_dict(checkpoint["state_dict"])

    def configure_callbacks(self) -> Sequence[pl.Callback]:
        """The `sparsity` given to the constructor."""
        return [] if self.sparsity is None else [self.sparsity]

    def configure_optimizers(self) -> Any:
        """One optimizer over all parameters, and its schedule."""
        optimizer = self.make_optimizer(self.parameters())
        if self.make_lr_scheduler is None:
            return optimizer
        schedule = {"scheduler": self.make_lr_scheduler(optimizer), "interval": self.lr_interval}
        return {"optimizer": optimizer, "lr_scheduler": schedule}

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """The loss of a batch of images and class indices."""
        image, label = batch
        logits = self(image)
        loss = F.cross_entropy(logits, label, label_smoothing=self.label_smoothing)
        self.train_acc(logits, label)
        self.log("train_loss", loss, prog_bar=True)
        self.log("train_acc", self.train_acc, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """`val_loss` and `val_acc`."""
        self._evaluate("val", self.val_acc, batch)

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """`test_loss` and `test_acc`."""
        self._evaluate("test", self.test_acc, batch)

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Class probabilities (N, num_classes)."""
        image = batch[0] if isinstance(batch, list | tuple) else batch
        return self(image).softmax(dim=-1)

    def _evaluate(self, stage: str, accuracy: MulticlassAccuracy, batch: tuple[Tensor, Tensor]) -> None:
        image, label = batch
        logits = self(image)
        accuracy(logits, label)
        self.log(f"{stage}_loss", F.cross_entropy(logits, label))
        self.log(f"{stage}_acc", accuracy, prog_bar=True)
