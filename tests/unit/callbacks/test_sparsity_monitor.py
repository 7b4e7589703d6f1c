"""`SparsityMonitor` inside Lightning's own loop: what it logs, and that its history survives resumed and second runs."""

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.loggers.logger import Logger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from sparsetorch import ERK, ConstantSparsity, Magnitude, PolynomialDecay, RigL, SparseTraining, Uniform
from sparsetorch.callbacks import SparsityMonitor
from sparsetorch.errors import BadInputError, NotEligibleError
from sparsetorch.masking import mask_of


class Small(pl.LightningModule):
    """Two masked layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 3))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


class Memory(Logger):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics: dict[int, dict[str, float]] = {}

    @property
    def name(self) -> str:
        return "memory"

    @property
    def version(self) -> int:
        return 0

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        return None

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        assert step is not None
        self.metrics.setdefault(step, {}).update(metrics)


def loader() -> DataLoader:
    x = torch.randn(160, 10, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(x, x[:, :3].argmax(dim=1)), 16)


def trainer(folder: Path, callbacks: list[pl.Callback], **options: Any) -> pl.Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False, "accelerator": "cpu"}
    quiet |= {"default_root_dir": folder, "enable_checkpointing": False, "max_epochs": 4}
    return pl.Trainer(callbacks=callbacks, **(quiet | options))


def rigl(**options: Any) -> SparseTraining:
    schedule = ConstantSparsity(0.8, update_every=5, end_step=30)
    return SparseTraining(**({"algorithm": RigL(), "schedule": schedule, "distribution": ERK()} | options))


@pytest.mark.parametrize("monitor_first", [False, True], ids=["behind SparseTraining", "before it"])
def test_every_update_reaches_every_logger(tmp_path: Path, monitor_first: bool) -> None:
    loggers = [Memory(), Memory()]
    training, monitor = rigl(), SparsityMonitor()
    callbacks: list[pl.Callback] = [monitor, training] if monitor_first else [training, monitor]
    trainer(tmp_path, callbacks, logger=loggers).fit(Small(), loader())
    assert loggers[0].metrics == loggers[1].metrics
    logged = {step: values for step, values in loggers[0].metrics.items() if "churn" in values}
    assert list(logged) == [5, 10, 15, 20, 25, 30]
    for values in logged.values():
        for quantity in ("dropped", "grown", "churn", "exploration"):
            assert {quantity, f"{quantity}/net.0", f"{quantity}/net.2"} <= values.keys()
        assert values["dropped"] == values["dropped/net.0"] + values["dropped/net.2"] == values["grown"]
    assert 0 < logged[5]["churn"] <= 0.3
    assert logged[30]["churn"] == 0  # the drop fraction has annealed to 0
    explored = [values["exploration"] for values in logged.values()]
    assert explored == sorted(explored)
    assert explored[0] > 0.2


def test_counts_agree_with_the_masks(tmp_path: Path) -> None:
    """Masks noted before and after every update, independently of the monitor."""
    seen: list[torch.Tensor] = []

    class Watch(pl.Callback):
        def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            seen.append(mask_of(pl_module.net[0]).clone())

        def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *rest: Any) -> None:
            if trainer.global_step % 5 == 0 and trainer.global_step <= 30:
                seen.append(mask_of(pl_module.net[0]).clone())

    monitor = SparsityMonitor(plots=False)
    trainer(tmp_path, [rigl(), monitor, Watch()]).fit(Small(), loader())
    assert monitor.history.steps == [0, 5, 10, 15, 20, 25, 30]
    ever = seen[0].clone()
    for index in range(1, 7):
        before, after = seen[index - 1], seen[index]
        ever |= after
        sparsity, dropped, grown, churn, exploration = monitor.history.points[index][0].tolist()
        assert dropped == (before & ~after).sum()
        assert grown == (after & ~before).sum()
        assert churn == pytest.approx(dropped / int(before.sum()))
        assert exploration == pytest.approx(float(ever.double().mean()))
        assert sparsity == pytest.approx(1 - float(after.double().mean()))


def test_pruning_exchanges_nothing_and_has_explored_everything(tmp_path: Path) -> None:
    schedule = PolynomialDecay(0.8, begin_step=5, end_step=30, update_every=5)
    training = SparseTraining(Magnitude(), schedule, distribution=Uniform(first_layer_dense=False))
    monitor = SparsityMonitor(plots=False)
    trainer(tmp_path, [training, monitor]).fit(Small(), loader())
    assert monitor.history.series("churn").max() == 0
    assert monitor.history.series("grown").max() == 0
    assert monitor.history.series("exploration").min() == 1
    assert monitor.history.series("dropped")[:, -1].sum() == 0.8 * 520


def test_the_run_folder_gets_plots_and_history(tmp_path: Path) -> None:
    trainer(tmp_path, [rigl(), SparsityMonitor()]).fit(Small(), loader())
    for name in ("sparsity_over_time", "sparsity_per_layer"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (tmp_path / f"{name}.svg").read_text()[:1000]
    header, *rows = (tmp_path / "sparsity.csv").read_text().splitlines()
    assert header == "step,layer,sparsity,dropped,grown,churn,exploration"
    assert [row.split(",")[:2] for row in rows[:3]] == [["0", "net.0"], ["0", "net.2"], ["0", "total"]]
    assert len(rows) == 7 * 3


def test_with_a_logger_the_files_lie_in_its_folder(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path, name="x", version="y")
    trainer(tmp_path, [rigl(), SparsityMonitor(plots=False)], logger=logger).fit(Small(), loader())
    assert (tmp_path / "x" / "y" / "sparsity.csv").is_file()
    assert "churn/net.0" in (tmp_path / "x" / "y" / "metrics.csv").read_text()


@pytest.mark.parametrize("monitor_first", [False, True], ids=["behind SparseTraining", "before it"])
def test_a_resumed_run_has_the_whole_history(tmp_path: Path, monitor_first: bool) -> None:
    def callbacks() -> tuple[list[pl.Callback], SparsityMonitor]:
        training, monitor = rigl(), SparsityMonitor(plots=False)
        return ([monitor, training] if monitor_first else [training, monitor]), monitor

    both, straight = callbacks()
    trainer(tmp_path / "straight", both).fit(Small(), loader())

    class Stop(pl.Callback):
        """At the end of an epoch that ends with an update, which the checkpoint must have in its history."""

        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            if trainer.global_step == 20:
                trainer.save_checkpoint(tmp_path / "at20.ckpt")
                trainer.should_stop = True

    both, _ = callbacks()
    trainer(tmp_path / "first", [*both, Stop()]).fit(Small(), loader())
    both, resumed = callbacks()
    trainer(tmp_path / "resumed", both).fit(Small(), loader(), ckpt_path=tmp_path / "at20.ckpt", weights_only=True)
    assert resumed.history.steps == straight.history.steps
    assert torch.equal(torch.stack(resumed.history.points), torch.stack(straight.history.points))
    assert (tmp_path / "resumed" / "sparsity.csv").read_text() == (tmp_path / "straight" / "sparsity.csv").read_text()


def test_a_second_fit_starts_a_new_history(tmp_path: Path) -> None:
    monitor = SparsityMonitor(plots=False)
    module = Small()
    for _ in range(2):
        trainer(tmp_path, [rigl(), monitor]).fit(module, loader())
        assert monitor.history.steps == [0, 5, 10, 15, 20, 25, 30]


def test_the_same_training_fitted_twice_does_not_report_the_last_update_again(tmp_path: Path) -> None:
    training, monitor = rigl(), SparsityMonitor(plots=False)
    module = Small()
    for _ in range(2):
        trainer(tmp_path, [training, monitor]).fit(module, loader())
        assert monitor.history.steps == [0, 5, 10, 15, 20, 25, 30]


def test_a_run_that_misses_its_target_has_its_files(tmp_path: Path) -> None:
    class Stop(pl.Callback):
        def on_train_batch_end(self, trainer: pl.Trainer, *rest: Any) -> None:
            trainer.should_stop = trainer.global_step == 12

    schedule = PolynomialDecay(0.8, begin_step=5, end_step=30, update_every=5)
    callbacks = [SparseTraining(Magnitude(), schedule), SparsityMonitor(plots=False), Stop()]
    with pytest.raises(NotEligibleError, match="training stopped at step 12"):
        trainer(tmp_path, callbacks).fit(Small(), loader())
    assert (tmp_path / "sparsity.csv").read_text().count("total") == 3


def test_without_sparse_training_it_says_so_and_does_nothing(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="no SparseTraining"):
        trainer(tmp_path, [SparsityMonitor()]).fit(Small(), loader())
    assert not list(tmp_path.iterdir())


def test_a_senseless_capacity_is_refused() -> None:
    with pytest.raises(BadInputError, match="capacity: found 1, needed at least 2"):
        SparsityMonitor(capacity=1)
