"""`SparseTraining`: any LightningModule trains sparse by adding this callback."""

import math
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
from lightning_utilities.core.rank_zero import rank_zero_info, rank_zero_warn
from torch.optim import Optimizer

from sparsetorch.callbacks.averaging import check_order, mask_averages
from sparsetorch.callbacks.channel_search import search_structure
from sparsetorch.callbacks.channels import AnySparsifier, in_steps, make_sparsifier
from sparsetorch.callbacks.input_shape import input_shape_of
from sparsetorch.callbacks.ranks import check_ranks_agree
from sparsetorch.callbacks.resume import ResumePoint
from sparsetorch.errors import BadInputError, NotEligibleError
from sparsetorch.masking.sparsifier import Update
from sparsetorch.sparsify.abcpruner import ABCPruner
from sparsetorch.sparsify.algorithm import Algorithm
from sparsetorch.sparsify.distribution import Distribution, Uniform
from sparsetorch.sparsify.pattern import Block, Pattern, Unstructured
from sparsetorch.sparsify.plan import Plan, make_plan
from sparsetorch.sparsify.policy import AllWeights, Policy
from sparsetorch.sparsify.schedule import Schedule
from sparsetorch.structured.channel_sparsifier import ChannelSparsifier
from sparsetorch.structured.rearrange import rearrange_filters

_ALL_WEIGHTS, _UNIFORM, _UNSTRUCTURED = AllWeights(), Uniform(), Unstructured()


class SparseTraining(pl.Callback):
    """Trains a LightningModule sparse: masks from `setup` on, changed along the schedule after optimizer steps.

    A step is a training batch after which an optimizer has stepped: with automatic optimization Lightning's `global_step`;
    with several optimizers stepped by hand, one step however many of them.

    Checkpoints hold the masks; a resumed run continues with them, bit for bit. Evaluation runs with the masks on. A training
    that ends short of its target sparsity (stopped early, or updates skipped) ends in an error that says so.

    Raises:
        BadInputError: before the first step, where the schedule does not fit into the training.
        NotEligibleError: at the end of `fit`, where the target sparsity was not reached.
        WrongNumbersError: where the masks of two processes differ.
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
            algorithm: which entries: Magnitude, RigL, SET, SNFS, Static; or which channels: CHEX, HRank, ABCPruner.
            schedule: when and how sparse: PolynomialDecay, ConstantSparsity, StepList, ThreeStep, InEpochs around them.
            policy: which layers: AllWeights, Conv1x1, ByName, and compositions of them.
            distribution: how much of each layer: Uniform, ERK, ER, Global, PerLayer.
            pattern: in which shape: Unstructured, Block, NM, Channel.
            seed: of the first masks and of random growth; the same on every rank.
        """
        self.algorithm = algorithm
        self.schedule = schedule
        self.policy = policy
        self.distribution = distribution
        self.pattern = pattern
        self.seed = seed
        self.sparsifier: AnySparsifier | None = None
        self.plan: Plan | None = None
        """What will happen when; there from the start of `fit` on."""
        self.last_update: Update | None = None
        """The latest mask update, for callbacks that look on."""
        self.step = 0
        """Steps taken."""
        self._global_step = 0
        self._restored: Mapping[str, Any] = {}
        self._resume = ResumePoint()

    # -- before training ---------------------------------------------------------------------------------------------

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Attach the masks, so that a masked checkpoint finds its keys and the optimizer its parameters."""
        check_order(trainer, self)
        self.sparsifier = make_sparsifier(
            trainer,
            pl_module,
            self.algorithm,
            self.pattern,
            schedule=self.schedule,
            policy=self.policy,
            distribution=self.distribution,
            seed=self.seed,
        )

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check the plan against the length of the training, then start; a resumed run keeps the masks it restored."""
        sparsifier = self._ready()
        self._resume.before_data(trainer)
        total = math.inf if trainer.estimated_stepping_batches == -1 else trainer.estimated_stepping_batches
        self.plan = make_plan(in_steps(self.schedule, trainer, total), self.algorithm, total)
        sparsifier.schedule = self.plan.schedule
        sparsifier.load_state_dict(self._restored)
        self.step = int(self._restored.get("step", 0))
        if not self._restored:
            if isinstance(self.algorithm, ABCPruner) and isinstance(sparsifier, ChannelSparsifier):
                search_structure(trainer, pl_module, sparsifier)
            if isinstance(self.pattern, Block) and self.pattern.rearrange:
                rearrange_filters(pl_module, input_shape_of(trainer, pl_module), self.policy)
            sparsifier.start()
        self._restored = {}
        rank_zero_info(f"SparseTraining: {self.algorithm} on {len(sparsifier.layers)} layers; {self.plan}")

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Lightning has restored its own counters by now."""
        self._global_step = trainer.global_step
        self._resume.before_training(trainer)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The order of the epoch's data is about to be drawn."""
        self._resume.begin_epoch()

    # -- a step ------------------------------------------------------------------------------------------------------

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Ask for dense gradients in every micro-batch of a step that an update follows."""
        self._ready().before_backward(self.step + 1)

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        """Gradients are accumulated, all-reduced and unscaled here, and not yet clipped."""
        parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
        self._ready().before_optimizer_step(self.step + 1, parameters)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Update the masks if this batch completed a step that an update follows."""
        if trainer.global_step == self._global_step:
            return  # a micro-batch of an accumulation that goes on
        self._global_step = trainer.global_step
        self.step += 1
        sparsifier = self._ready()
        skipped = sparsifier.skipped_updates
        update = sparsifier.after_optimizer_step(self.step, trainer.optimizers)
        if sparsifier.skipped_updates > skipped:
            rank_zero_warn(f"SparseTraining: no mask update at step {self.step}: a gradient or weight was not finite")
        if update is not None:
            self.last_update = update
            check_ranks_agree(trainer, sparsifier, self.step)
        if update is not None or self.step == 1:
            self._log(trainer, pl_module, sparsifier)

    def _log(self, trainer: pl.Trainer, pl_module: pl.LightningModule, sparsifier: AnySparsifier) -> None:
        """The total into the progress bar and the loggers, each layer into the loggers."""
        pl_module.log("sparsity", sparsifier.sparsity, prog_bar=True, logger=False, on_step=True, on_epoch=False)
        metrics = {"sparsity": sparsifier.sparsity}
        metrics |= {f"sparsity/{name}": value for name, value in sparsifier.layer_sparsity().items()}
        for logger in trainer.loggers:
            logger.log_metrics(metrics, step=trainer.global_step)

    # -- averaged weights: masked where they are used ----------------------------------------------------------------

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Before weight averaging swaps its weights in."""
        mask_averages(trainer, self._ready())

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Before weight averaging puts its weights into the checkpoint."""
        if self.sparsifier is not None:
            mask_averages(trainer, self.sparsifier)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Before weight averaging makes its weights those of the module."""
        mask_averages(trainer, self._ready())

    # -- the end -----------------------------------------------------------------------------------------------------

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare what was reached with the target, layer by layer."""
        sparsifier = self._ready()
        sparsifier.rest()
        missed = sparsifier.shortfall()
        if not missed:
            return
        name, (found, wanted) = next(iter(missed.items()))
        cause = f"training stopped at step {self.step}; the schedule is {sparsifier.schedule}"
        if sparsifier.skipped_updates:
            cause += f"; {sparsifier.skipped_updates} updates were skipped because a gradient or weight was not finite"
        raise NotEligibleError(
            f"sparsity: reached {sparsifier.sparsity:.2%}, needed {self.schedule.target_sparsity():.2%} "
            f"({len(missed)} layers short, first {name}: {found:.2%} of {wanted:.2%}). {cause}. "
            "Train to the schedule's end_step, or lower it."
        )

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run cannot know from the module: the masks themselves are in its state dict."""
        if self.sparsifier is None:
            return {}
        return {"step": self.step, "resume": self._resume.state_dict(), **self.sparsifier.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the restored state for `on_fit_start`."""
        self._restored = dict(state_dict)
        self._resume.load_state_dict(state_dict.get("resume", {}))

    def _ready(self) -> AnySparsifier:
        if self.sparsifier is None:
            raise BadInputError("SparseTraining: setup has not run; add the callback to the Trainer before fit")
        return self.sparsifier
