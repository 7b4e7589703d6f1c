"""`IterativePruning`: prune a little, train again, repeat, until a sparsity or a loss of accuracy is reached.

Han et al., "Learning both Weights and Connections for Efficient Neural Networks" (2015), arXiv 1506.02626, as one training: a
round is `retrain_epochs` epochs, and ends with a look at the validation metric.
"""

from typing import Any

import pytorch_lightning as pl
from lightning_utilities.core.rank_zero import rank_zero_info
from torch import Tensor

from sparsetorch.callbacks.ranks import check_ranks_agree
from sparsetorch.callbacks.sparse_training import SparseTraining
from sparsetorch.errors import BadInputError
from sparsetorch.masking.state_dict import load_state_dict
from sparsetorch.sparsify.algorithm import Algorithm
from sparsetorch.sparsify.distribution import Distribution, Uniform
from sparsetorch.sparsify.mask import check_sparsity
from sparsetorch.sparsify.pattern import Pattern, Unstructured
from sparsetorch.sparsify.policy import AllWeights, Policy
from sparsetorch.sparsify.schedule import StepList

_ALL_WEIGHTS, _UNIFORM, _UNSTRUCTURED = AllWeights(), Uniform(), Unstructured()


class IterativePruning(SparseTraining):
    """Prunes in rounds. Takes the place of `SparseTraining` in a recipe's `sparsity:` section.

    The first round trains dense and its metric is the baseline. Every later one begins by pruning to the next sparsity. A round
    whose metric is more than `max_drop` below the baseline is taken back: the network is again what it was at the end of the
    round before, and the training stops. It also stops after the round at `target_sparsity`.

    Works with `Magnitude`, on weights, blocks or whole channels, and without accumulated gradients across epochs. Give the
    training epochs enough: `retrain_epochs * (1 + number of rounds)`.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        target_sparsity: float = 0.9,
        step_sparsity: float = 0.1,
        retrain_epochs: int = 1,
        max_drop: float = 0.01,
        monitor: str = "val_acc",
        policy: Policy = _ALL_WEIGHTS,
        distribution: Distribution = _UNIFORM,
        pattern: Pattern = _UNSTRUCTURED,
        seed: int = 0,
    ) -> None:
        """Configure.

        Args:
            algorithm: Magnitude.
            target_sparsity: where to stop, in [0, 1).
            step_sparsity: added in every round; the last one lands on the target.
            retrain_epochs: epochs of a round.
            max_drop: most that the metric may lose against the dense network, absolute.
            monitor: validation metric, higher is better.
            policy: which layers.
            distribution: how much of each layer.
            pattern: in which shape.
            seed: kept for algorithms that draw.
        """
        check_sparsity(target_sparsity, "target_sparsity")
        if not 0.0 < step_sparsity < 1.0:
            raise BadInputError(f"step_sparsity: found {step_sparsity!r}, needed a share above 0 and below 1")
        if isinstance(retrain_epochs, bool) or retrain_epochs < 1:
            raise BadInputError(f"retrain_epochs: found {retrain_epochs!r}, needed at least 1 epoch")
        if max_drop < 0:
            raise BadInputError(f"max_drop: found {max_drop!r}, needed at least 0")
        if algorithm.starts_sparse or algorithm.growth is not None:
            raise BadInputError(
                f"algorithm: found {type(algorithm).__name__}, needed one that prunes, such as Magnitude"
            )
        # No step of the training is an update by itself; rounds decide. A sparsity of 0 is always reached.
        super().__init__(algorithm, StepList([[0, 0.0]]), policy, distribution, pattern, seed)
        self.target_sparsity = target_sparsity
        self.step_sparsity = step_sparsity
        self.retrain_epochs = retrain_epochs
        self.max_drop = max_drop
        self.monitor = monitor
        self.baseline: float | None = None
        """The metric of the dense network."""
        self.rounds: list[tuple[float, float]] = []
        """(sparsity, metric) of every round that was kept, the dense one first."""
        self._good: dict[str, Tensor] = {}
        self._level = 0.0
        self._done = False

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """At the end of a round, keep it and prune further, or take it back."""
        if trainer.sanity_checking or self._done or trainer.state.fn != "fit":
            return
        if (trainer.current_epoch + 1) % self.retrain_epochs:
            return
        if self.monitor not in trainer.callback_metrics:
            raise BadInputError(
                f"monitor: found no metric {self.monitor!r}, only {', '.join(sorted(trainer.callback_metrics)) or 'none'}"
            )
        metric = float(trainer.callback_metrics[self.monitor])
        sparsifier = self._ready()
        self.baseline = metric if self.baseline is None else self.baseline
        if metric < self.baseline - self.max_drop:
            load_state_dict(pl_module, self._good)
            sparsifier.load_state_dict({})
            self._stop(trainer, f"a {self.monitor} of {metric:.4f} at {self._level:.2%} is taken back")
            return
        self.rounds.append((self._level, metric))
        if self._level >= self.target_sparsity:
            self._stop(trainer, "the target is reached")
            return
        self._good = {name: value.detach().clone() for name, value in pl_module.state_dict().items()}
        self._level = min(round(self._level + self.step_sparsity, 10), self.target_sparsity)
        sparsifier.schedule = StepList([[0, self._level]])
        self.last_update = sparsifier.update(self.step, trainer.optimizers)
        check_ranks_agree(trainer, sparsifier, self.step)
        for logger in trainer.loggers:
            logger.log_metrics({"sparsity": sparsifier.sparsity}, step=trainer.global_step)
        rank_zero_info(f"IterativePruning: {self.monitor} {metric:.4f}, now pruned to {self._level:.2%}")

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A training that ran out of epochs inside a round ends with that round as it is."""
        sparsifier = self._ready()
        sparsifier.schedule = StepList([[0, self.rounds[-1][0] if self.rounds else 0.0]])
        super().on_fit_end(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """Beside that of `SparseTraining`, the rounds and the network to go back to."""
        own = {
            "baseline": self.baseline,
            "rounds": [list(pair) for pair in self.rounds],
            "level": self._level,
            "good": self._good,
            "done": self._done,
        }
        return super().state_dict() | {"iterative": own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the rounds."""
        super().load_state_dict(state_dict)
        own = state_dict.get("iterative")
        if own:
            self.baseline = own["baseline"]
            self.rounds = [(sparsity, metric) for sparsity, metric in own["rounds"]]
            self._level, self._good, self._done = own["level"], own["good"], own["done"]

    def _stop(self, trainer: pl.Trainer, why: str) -> None:
        self._done = True
        trainer.should_stop = True
        sparsity, metric = self.rounds[-1]
        rank_zero_info(f"IterativePruning: {why}; kept {sparsity:.2%} sparsity with {self.monitor} {metric:.4f}")
