"""Prune, train again, repeat: to a sparsity, or to a loss of accuracy that is taken back."""

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from channels import Residual
from torch.utils.data import DataLoader, TensorDataset
from training import Plain, loader, trainer, weights

from sparsetorch import Channel, IterativePruning, Magnitude, RigL, Uniform
from sparsetorch.errors import BadInputError
from sparsetorch.models import ImageClassifier


class Scripted(Plain):
    """Validates to what it is told, one value per epoch."""

    def __init__(self, metrics: list[float]) -> None:
        super().__init__()
        self.metrics = metrics
        self.seen: list[dict[str, torch.Tensor]] = []

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_acc", self.metrics[self.current_epoch])

    def on_validation_epoch_start(self) -> None:
        self.seen.append(weights(self))


def pruning(**options: Any) -> IterativePruning:
    given = {"target_sparsity": 0.5, "step_sparsity": 0.2, "max_drop": 0.02, "distribution": Uniform(False)}
    return IterativePruning(Magnitude(), **(given | options))


def fit(folder: Path, metrics: list[float], sparse: IterativePruning, epochs: int = 8, **options: Any) -> Scripted:
    pl.seed_everything(0)
    module = Scripted(metrics)
    run = trainer(folder, max_epochs=epochs, callbacks=[sparse], num_sanity_val_steps=0, **options)
    run.fit(module, loader(), loader(80))
    return module


def test_it_prunes_in_rounds_to_the_target_and_stops(tmp_path: Path) -> None:
    sparse = pruning()
    module = fit(tmp_path, [0.9, 0.91, 0.9, 0.89, 0.9], sparse)
    assert sparse.baseline == pytest.approx(0.9)
    assert [sparsity for sparsity, _ in sparse.rounds] == [0.0, 0.2, 0.4, 0.5]
    assert module.trainer.current_epoch == 4
    assert sparse.sparsifier is not None
    assert sparse.sparsifier.sparsity == pytest.approx(0.5, abs=1e-3)


def test_a_round_that_costs_too_much_is_taken_back(tmp_path: Path) -> None:
    sparse = pruning()
    module = fit(tmp_path, [0.9, 0.9, 0.8], sparse)
    assert [sparsity for sparsity, _ in sparse.rounds] == [0.0, 0.2]
    assert sparse.sparsifier is not None
    assert sparse.sparsifier.sparsity == pytest.approx(0.2, abs=1e-3)
    kept, now = module.seen[1], weights(module)
    assert all(torch.equal(kept[name], now[name]) for name in kept)


def test_rounds_may_take_several_epochs(tmp_path: Path) -> None:
    sparse = pruning(retrain_epochs=2, target_sparsity=0.2)
    module = fit(tmp_path, [0.1, 0.9, 0.1, 0.9], sparse)
    assert sparse.rounds == [(0.0, pytest.approx(0.9)), (0.2, pytest.approx(0.9))]
    assert module.trainer.current_epoch == 4


def test_a_run_that_was_stopped_goes_on_with_its_rounds(tmp_path: Path) -> None:
    straight = pruning()
    expected = weights(fit(tmp_path, [0.9, 0.9, 0.8], straight))
    save = {"enable_checkpointing": True}
    first = pruning()
    module = Scripted([0.9, 0.9, 0.8])
    pl.seed_everything(0)
    module = Scripted([0.9, 0.9, 0.8])
    checkpoint = pl.callbacks.ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    run = trainer(tmp_path, max_epochs=2, callbacks=[first, checkpoint], num_sanity_val_steps=0, **save)
    run.fit(module, loader(), loader(80))
    second = pruning()
    module = Scripted([0.9, 0.9, 0.8])
    run = trainer(tmp_path, max_epochs=8, callbacks=[second], num_sanity_val_steps=0, **save)
    run.fit(module, loader(), loader(80), ckpt_path=tmp_path / "epoch=1.ckpt")
    assert second.rounds == straight.rounds
    assert all(torch.equal(value, expected[name]) for name, value in weights(module).items())


def test_whole_channels_go_in_rounds_too(tmp_path: Path) -> None:
    pl.seed_everything(0)
    data = TensorDataset(torch.randn(16, 3, 8, 8), torch.arange(16) % 4)
    sparse = pruning(pattern=Channel(), max_drop=1.0)
    run = trainer(tmp_path, max_epochs=8, callbacks=[sparse], num_sanity_val_steps=0)
    run.fit(ImageClassifier(Residual(10), num_classes=4), DataLoader(data, 8), DataLoader(data, 16))
    assert sparse.sparsifier is not None
    assert sparse.sparsifier.sparsity == 0.5
    assert len(sparse.rounds) == 4


def test_settings_out_of_range_name_the_key(tmp_path: Path) -> None:
    for options, message in (
        ({"target_sparsity": 1.0}, "target_sparsity: found 1"),
        ({"step_sparsity": 0.0}, "step_sparsity: found 0"),
        ({"retrain_epochs": 0}, "retrain_epochs: found 0"),
        ({"max_drop": -0.1}, "max_drop: found -0"),
    ):
        with pytest.raises(BadInputError, match=message):
            pruning(**options)
    with pytest.raises(BadInputError, match="algorithm: found RigL"):
        IterativePruning(RigL())
    with pytest.raises(BadInputError, match="monitor: found no metric 'iou'"):
        fit(tmp_path, [0.9], pruning(monitor="iou"))
