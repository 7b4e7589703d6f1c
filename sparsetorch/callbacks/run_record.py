"""What a run leaves behind beside Lightning's own files: a summary, and a checkpoint that can stand alone."""

import json
import platform
import shutil
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_utilities.core.rank_zero import rank_zero_warn

from sparsetorch.analysis import Account, account
from sparsetorch.callbacks.input_shape import first_tensor
from sparsetorch.errors import BadInputError
from sparsetorch.files import write_atomically

CHECKPOINT_KEY = "sparsetorch"
"""Where a checkpoint keeps its record: {version, config, input_shape}, plain Python types only."""


class RunRecord(pl.Callback):
    """Writes the configuration and the input's shape into every checkpoint, and summary.json at the end."""

    def __init__(self, run_dir: Path, config: dict[str, Any], lines: bool = False) -> None:
        """Configure.

        Args:
            run_dir: folder of the run.
            config: the parsed recipe, plain Python types.
            lines: print a line ten times in a run, for output that is no terminal and shows no progress bar.
        """
        self.run_dir = run_dir
        self.config = config
        self.lines = lines
        self.input_shape: list[int] | None = None
        self.summary: dict[str, Any] = {}
        self.account: Account | None = None
        """What the trained network costs; there once `fit` has ended."""
        self._started = time.monotonic()

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock."""
        self._started = time.monotonic()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Note the shape of one input, from the first batch."""
        if self.input_shape is None:
            image = first_tensor(batch)
            self.input_shape = None if image is None else list(image.shape[1:])

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """One line of progress where there is no bar."""
        epochs = trainer.max_epochs or 0
        epoch = trainer.current_epoch + 1
        if self.lines and trainer.is_global_zero and (epochs < 10 or epoch % max(epochs // 10, 1) == 0):
            metrics = {key: float(value) for key, value in trainer.callback_metrics.items()}
            shown = "  ".join(f"{key} {value:.4f}" for key, value in sorted(metrics.items()))
            print(f"epoch {epoch}/{epochs}  step {trainer.global_step}  {shown}", file=sys.stderr, flush=True)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Make the checkpoint stand alone."""
        checkpoint[CHECKPOINT_KEY] = {
            "version": version("sparsetorch"),
            "config": self.config,
            "input_shape": self.input_shape,
        }

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Count what there is and write summary.json."""
        if not trainer.is_global_zero:
            return
        checkpoint = getattr(trainer.checkpoint_callback, "best_model_path", "") or None
        self.account = _account(pl_module, self.input_shape)
        self.summary = {
            "run_dir": str(self.run_dir),
            "checkpoint": checkpoint,
            "epochs": trainer.current_epoch,
            "steps": trainer.global_step,
            "seconds": round(time.monotonic() - self._started, 1),
            "metrics": {key: float(value) for key, value in sorted(trainer.callback_metrics.items())},
            **zeros_of(self.account),
            "accounting": self.account.totals(),
            "input_shape": self.input_shape,
            "versions": {
                "sparsetorch": version("sparsetorch"),
                "torch": torch.__version__,
                "pytorch-lightning": version("pytorch-lightning"),
                "python": platform.python_version(),
            },
        }
        self.run_dir.mkdir(parents=True, exist_ok=True)
        write_atomically(self.run_dir / "summary.json", (json.dumps(self.summary, indent=2) + "\n").encode())

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """A run refused before its first step leaves no folder behind."""
        if trainer.global_step == 0 and trainer.is_global_zero and not (self.run_dir / "checkpoints").exists():
            shutil.rmtree(self.run_dir, ignore_errors=True)


def zeros_of(account: Account) -> dict[str, Any]:
    """`parameters` {total, non_zero} and `sparsity` {total, layers}, the latter over the masked layers' weights alone."""
    return {
        "parameters": {"total": account.parameters, "non_zero": account.non_zero},
        "sparsity": {
            "total": account.sparsity,
            "layers": {layer.module: layer.sparsity for layer in account.layers if layer.masked},
        },
    }


def _account(module: torch.nn.Module, input_shape: list[int] | None) -> Account:
    """The account, without MACs where the module's forward does not take one image: a run's summary never fails on that."""
    try:
        return account(module, input_shape)
    except BadInputError as error:
        rank_zero_warn(f"summary: multiply-accumulates are not counted. {error}")
        return account(module)
