"""`SparsityMonitor`: what the mask updates of a `SparseTraining` do, into every logger and into the run folder.

Per layer (`name/<module path>`) and over all masked layers (`name`), after every mask update:

- `dropped`, `grown`: entries that became inactive, or active; one dropped and regrown in the same update is in neither;
- `churn`: share of the active entries that the update exchanged, min(dropped, grown) / active before. 0 for pruning;
- `exploration`: share of the weights that were ever active. 1 from the start for a training that begins dense.

`sparsity` itself is logged by `SparseTraining`.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from lightning_utilities.core.rank_zero import rank_zero_warn
from torch import Tensor

from sparsetorch.callbacks.channels import AnySparsifier
from sparsetorch.callbacks.sparse_training import SparseTraining
from sparsetorch.errors import BadInputError
from sparsetorch.files import write_atomically
from sparsetorch.masking import mask_of
from sparsetorch.masking.sparsifier import LayerUpdate, Update
from sparsetorch.report.sparsity_history import QUANTITIES, SparsityHistory
from sparsetorch.report.sparsity_plots import write_plots


class SparsityMonitor(pl.Callback):
    """Logs updates, keeps their history over resumed runs, and at the end writes plots and sparsity.csv.

    Goes beside a `SparseTraining`, in any order; without one it says so and does nothing. Costs one byte per masked weight.
    """

    def __init__(self, capacity: int = 1000, plots: bool = True) -> None:
        """Configure.

        Args:
            capacity: most points of the history; beyond, every second one is left out.
            plots: draw plots at the end of `fit`; sparsity.csv is written in any case.

        Raises:
            BadInputError: a capacity below 2.
        """
        if isinstance(capacity, bool) or capacity < 2:
            raise BadInputError(f"capacity: found {capacity!r}, needed at least 2 points")
        self.history = SparsityHistory(capacity=capacity)
        self.plots = plots
        self._training: SparseTraining | None = None
        self._ever_active: dict[str, Tensor] = {}
        self._seen: Update | None = None
        self._pending: list[dict[str, float]] = []

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Find the `SparseTraining`."""
        found = [callback for callback in trainer.callbacks if isinstance(callback, SparseTraining)]  # type: ignore[attr-defined]
        self._training = found[0] if found else None
        if self._training is None and stage == "fit":
            rank_zero_warn(
                "SparsityMonitor: the trainer has no SparseTraining callback, so there is nothing to monitor"
            )

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note the masks that training starts from; a resumed run goes on with its history."""
        sparsifier = self._sparsifier()
        if sparsifier is None or self._training is None:
            return
        self._seen = self._training.last_update  # of an earlier fit, if there is any
        layers = list(sparsifier.layers)
        if self.history.layers != layers or (self.history.steps and self.history.steps[-1] > self._training.step):
            self.history = SparsityHistory(layers, self.history.capacity)
            self._ever_active = {}
        for name, layer in sparsifier.layers.items():
            mask = mask_of(layer)
            earlier = self._ever_active.get(name)
            self._ever_active[name] = mask.clone() if earlier is None else earlier.to(mask.device) | mask
        if not self.history.steps:
            self._add(sparsifier, self._training.step, {name: LayerUpdate(0, 0) for name in layers})

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """An update that followed the last batch, where `SparseTraining` comes after this callback."""
        self._log(trainer)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """An update that followed this batch."""
        self._log(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the plots and sparsity.csv. Here, so that a run that misses its target has them too."""
        self._log(trainer)
        folder = Path(trainer.log_dir or trainer.default_root_dir)  # asks every rank
        if trainer.is_global_zero and self.history.steps and not getattr(trainer, "fast_dev_run", False):
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / "sparsity.csv", self.history.to_csv().encode())
            if self.plots:
                write_plots(self.history, folder)

    def state_dict(self) -> dict[str, Any]:
        """The history and the weights ever active, so that a resumed run's plots are whole."""
        self._record()
        return {"history": self.history.state_dict(), "ever_active": dict(self._ever_active)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.history.load_state_dict(state_dict["history"])
        self._ever_active = dict(state_dict["ever_active"])

    def _sparsifier(self) -> AnySparsifier | None:
        return None if self._training is None else self._training.sparsifier

    def _log(self, trainer: pl.Trainer) -> None:
        self._record()
        for metrics in self._pending:
            for logger in trainer.loggers:
                logger.log_metrics(metrics, step=trainer.global_step)  # where SparseTraining logs
        self._pending.clear()

    def _record(self) -> None:
        """Take in the latest update, once."""
        sparsifier = self._sparsifier()
        update = None if self._training is None else self._training.last_update
        if sparsifier is None or update is None or update is self._seen:
            return
        self._seen = update
        for name, layer in sparsifier.layers.items():
            self._ever_active[name] |= mask_of(layer)
        self._pending.append(self._add(sparsifier, update.step, update.layers))

    def _add(self, sparsifier: AnySparsifier, step: int, updates: Mapping[str, LayerUpdate]) -> dict[str, float]:
        """A point of the history, and the same as metrics."""
        rows, sums = [], _Counts()
        for name, layer in sparsifier.layers.items():
            mask, update = mask_of(layer), updates[name]
            counts = _Counts(
                size=mask.numel(),
                active=int(mask.sum()),
                explored=int(self._ever_active[name].sum()),
                dropped=update.dropped,
                grown=update.grown,
                exchanged=min(update.dropped, update.grown),
            )
            rows.append(counts.row())
            sums = _Counts(*(one + other for one, other in zip(astuple(sums), astuple(counts), strict=True)))
        rows.append(sums.row())
        self.history.add(step, rows)
        names = [*(f"/{name}" for name in sparsifier.layers), ""]
        return {
            f"{quantity}{name}": value
            for name, row in zip(names, rows, strict=True)
            for quantity, value in zip(QUANTITIES, row, strict=True)
            if quantity != "sparsity"  # SparseTraining logs that one
        }


@dataclass(frozen=True)
class _Counts:
    """Entries of one layer, or of all, after an update."""

    size: int = 0
    active: int = 0
    explored: int = 0
    dropped: int = 0
    grown: int = 0
    exchanged: int = 0

    def row(self) -> list[float]:
        """`QUANTITIES`."""
        before = self.active + self.dropped - self.grown
        churn = self.exchanged / before if before else 0.0
        return [1.0 - self.active / self.size, self.dropped, self.grown, churn, self.explored / self.size]
