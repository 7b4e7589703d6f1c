"""`SparseTraining`: any LightningModule trains sparse by adding this callback."""

import math
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
from lightning_utilities.core.rank_zero import rank_zero_info, rank_zero_warn
from torch.optim import Optimizer

from sparsetorch.errors import BadInputError, NotEligibleError
from sparsetorch.masking.sparsifier import Sparsifier
from sparsetorch.sparsify.algorithm import Algorithm
from sparsetorch.sparsify.distribution import Distribution, Uniform
from sparsetorch.sparsify.pattern import Pattern, Unstructured
from sparsetorch.sparsify.policy import AllWeights, Policy
from sparsetorch.sparsify.schedule import Schedule

_ALL_WEIGHTS, _UNIFORM, _UNSTRUCTURED = AllWeights(), Uniform(), Unstructured()


class SparseTraining(pl.Callback):
    """Trains a LightningModule sparse: masks from `setup` on, changed along the schedule after optimizer steps.

    Checkpoints hold the masks; a resumed run continues with them. Evaluation runs with the masks on. A training that
    ends short of its target sparsity (stopped early, or updates skipped) ends in an error that says so.

    Raises:
        BadInputError: before the first step, where the schedule does not fit into the training.
        NotEligibleError: at the end of `fit`, where the target sparsity was not reached.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        schedule: Schedule,
        policy: Policy = _ALL_WEIGHTS,
        distribution: Distribution = _UNIFORM,
        pattern: Pattern = _UNSTRUCTURED,
        seed: int = 0,
    ) -> None:
        """Configure; nothing is touched before `setup`.

        Args:
            algorithm: which entries: Magnitude, RigL, SET, Static.
            schedule: when and how sparse: PolynomialDecay, ConstantSparsity.
            policy: which layers: AllWeights, Conv1x1.
            distribution: how much of each layer: Uniform, ERK, ER.
            pattern: in which shape: Unstructured.
            seed: of the first masks and of random growth; the same on every rank.
        """
        self.algorithm = algorithm
        self.schedule = schedule
        self.policy = policy
        self.distribution = distribution
        self.pattern = pattern
        self.seed = seed
        self.sparsifier: Sparsifier | None = None
        self._last_step = 0
        self._restored: Mapping[str, Any] = {}

    # -- before training ---------------------------------------------------------------------------------------------

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Attach the masks, so that a masked checkpoint finds its keys and the optimizer its parameters."""
        self.sparsifier = Sparsifier(
            pl_module,
            algorithm=self.algorithm,
            schedule=self.schedule,
            policy=self.policy,
            distribution=self.distribution,
            pattern=self.pattern,
            seed=self.seed,
        )

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check the plan against the length of the training, then start; a resumed run keeps the masks it restored."""
        sparsifier = self._ready()
        total = trainer.estimated_stepping_batches
        sparsifier.schedule = self.schedule.resolve(math.inf if total == -1 else total)
        sparsifier.load_state_dict(self._restored)
        self._last_step = trainer.global_step
        if trainer.ckpt_path is None or trainer.global_step == 0:
            sparsifier.start()
        rank_zero_info(
            f"SparseTraining: {type(self.algorithm).__name__} on {len(sparsifier.layers)} layers, "
            f"target sparsity {self.schedule.target_sparsity():.2%}, {sparsifier.schedule}"
        )

    # -- a step ------------------------------------------------------------------------------------------------------

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Ask for dense gradients in every micro-batch of a step that an update follows."""
        self._ready().before_backward(trainer.global_step + 1)

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        """Gradients are accumulated, all-reduced and unscaled here, and not yet clipped."""
        parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
        self._ready().before_optimizer_step(trainer.global_step + 1, parameters)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Update the masks if this batch completed an optimizer step that an update follows."""
        step = trainer.global_step
        if step == self._last_step:
            return  # a micro-batch of an accumulation that goes on
        first = self._last_step == 0
        self._last_step = step
        sparsifier = self._ready()
        skipped = sparsifier.skipped_updates
        update = sparsifier.after_optimizer_step(step, trainer.optimizers)
        if sparsifier.skipped_updates > skipped:
            rank_zero_warn(f"SparseTraining: no mask update at step {step}: a gradient or weight was not finite")
        if update is not None or first:
            self._log(trainer, pl_module, sparsifier, step)

    def _log(self, trainer: pl.Trainer, pl_module: pl.LightningModule, sparsifier: Sparsifier, step: int) -> None:
        """The total into the progress bar and the loggers, each layer into the loggers."""
        pl_module.log("sparsity", sparsifier.sparsity, prog_bar=True, logger=False, on_step=True, on_epoch=False)
        metrics = {"sparsity": sparsifier.sparsity}
        metrics |= {f"sparsity/{name}": value for name, value in sparsifier.layer_sparsity().items()}
        for logger in trainer.loggers:
            logger.log_metrics(metrics, step=step)

    # -- the end -----------------------------------------------------------------------------------------------------

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare what was reached with the target, layer by layer."""
        sparsifier = self._ready()
        sparsifier.before_backward(-1)
        missed = sparsifier.shortfall()
        if not missed:
            return
        name, (found, wanted) = next(iter(missed.items()))
        cause = f"training stopped at step {trainer.global_step}; the schedule is {sparsifier.schedule}"
        if sparsifier.skipped_updates:
            cause += f"; {sparsifier.skipped_updates} updates were skipped because a gradient or weight was not finite"
        raise NotEligibleError(
            f"sparsity: reached {sparsifier.sparsity:.2%}, needed {self.schedule.target_sparsity():.2%} "
            f"({len(missed)} layers short, first {name}: {found:.2%} of {wanted:.2%}). {cause}. "
            "Train to the schedule's end_step, or lower it."
        )

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run cannot know from the module: the masks themselves are in its state dict."""
        return {} if self.sparsifier is None else self.sparsifier.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the restored state for `on_fit_start`."""
        self._restored = dict(state_dict)

    def _ready(self) -> Sparsifier:
        if self.sparsifier is None:
            raise BadInputError("SparseTraining: setup has not run; add the callback to the Trainer before fit")
        return self.sparsifier
