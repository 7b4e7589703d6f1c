"""Channels inside Lightning's loop: the shape of the data, epochs, a stop inside a period of CHEX, compaction at the end."""

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from channels import Residual
from pytorch_lightning.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset
from training import Plain, equal, loader, trainer, weights

from sparsetorch import CHEX, NM, Channel, ConstantSparsity, InEpochs, Magnitude, SparseTraining, SparsityMonitor
from sparsetorch.callbacks.input_shape import input_shape_of
from sparsetorch.errors import BadInputError
from sparsetorch.masking import mask_of
from sparsetorch.models import ImageClassifier
from sparsetorch.structured.channel_sparsifier import ChannelSparsifier
from sparsetorch.structured.compact import compact

DATA = TensorDataset(torch.randn(80, 3, 10, 10, generator=torch.Generator().manual_seed(0)), torch.arange(80) % 4)


def images(shuffle: bool = False) -> DataLoader:
    return DataLoader(DATA, 8, shuffle=shuffle)


def chex(**options: Any) -> SparseTraining:
    given = {"algorithm": CHEX(0.4), "schedule": ConstantSparsity(0.5, update_every=4, end_step=24)}
    return SparseTraining(**(given | options))


def module() -> ImageClassifier:
    pl.seed_everything(0)
    optimizer = lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9)  # noqa: E731
    return ImageClassifier(Residual(8), num_classes=4, optimizer=optimizer)


def test_chex_trains_any_module_and_the_result_compacts(tmp_path: Path) -> None:
    trained, sparse = module(), chex()
    fit = trainer(tmp_path, max_epochs=3, callbacks=[sparse, SparsityMonitor(plots=False)])
    fit.fit(trained, images())
    assert isinstance(sparse.sparsifier, ChannelSparsifier)
    assert sparse.sparsifier.sparsity == 0.5
    smaller, report = compact(trained.network, (3, 10, 10))
    assert report.kept == {}
    assert sum(report.removed.values()) == 16
    image = torch.randn(4, 3, 10, 10)
    with torch.no_grad():
        torch.testing.assert_close(smaller.eval()(image), trained.network.eval()(image), rtol=1e-5, atol=1e-6)
    assert (tmp_path / "sparsity.csv").is_file()


class Noisy(TensorDataset):
    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return {"image": image + torch.rand(1), "label": label}


def test_the_shape_of_an_input_is_that_of_the_data_and_costs_no_random_number(tmp_path: Path) -> None:
    run, own = trainer(tmp_path, max_epochs=1), module()
    assert input_shape_of(run, own) is None
    run.fit_loop._data_source.instance = DataLoader(Noisy(*DATA.tensors), 8)
    state = torch.get_rng_state()
    assert input_shape_of(run, own) == (3, 10, 10)
    assert torch.equal(torch.get_rng_state(), state)


class Stop(pl.Callback):
    def __init__(self, step: int | None) -> None:
        self.step = step

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize("stop", [6, 17])
def test_a_stop_inside_a_period_of_chex_resumes_bit_identical(stop: int, tmp_path: Path) -> None:
    def fit(folder: Path, stop: int | None, resume: bool) -> dict[str, torch.Tensor]:
        trained, sparse = module(), chex()
        pl.seed_everything(99 if resume else 1)
        save = ModelCheckpoint(folder, filename="last", every_n_train_steps=1, enable_version_counter=False)
        run = trainer(folder, max_epochs=3, callbacks=[sparse, save, Stop(stop)], enable_checkpointing=True)
        try:
            run.fit(trained, images(shuffle=True), ckpt_path=folder / "last.ckpt" if resume else None)
        except SystemExit:
            assert stop is not None
        if stop is None:
            assert isinstance(sparse.sparsifier, ChannelSparsifier)
            memory = sparse.sparsifier.channels.memory
            assert memory is not None
            return weights(trained) | {f"memory {key}": value for key, value in memory.items()}
        return {}

    straight = fit(tmp_path / "straight", None, False)
    fit(tmp_path / "stopped", stop, False)
    assert torch.load(tmp_path / "stopped" / "last.ckpt", weights_only=True)["global_step"] == stop
    assert equal(straight, fit(tmp_path / "stopped", None, True))


def test_a_schedule_may_count_epochs(tmp_path: Path) -> None:
    schedule = InEpochs(ConstantSparsity(0.5, begin_step=1, end_step=3, update_every=1))
    sparse = chex(schedule=schedule)
    trainer(tmp_path, max_epochs=4, callbacks=[sparse]).fit(module(), images())
    assert sparse.plan is not None
    assert (sparse.plan.first_update, sparse.plan.last_update, sparse.plan.updates) == (10, 30, 3)
    by_steps = chex(schedule=schedule)
    trainer(tmp_path, max_steps=30, callbacks=[by_steps]).fit(module(), images())
    assert by_steps.plan is not None
    assert by_steps.plan.last_update == 30


def test_magnitude_takes_whole_channels_too(tmp_path: Path) -> None:
    sparse = SparseTraining(Magnitude(), ConstantSparsity(0.5, end_step=8), pattern=Channel())
    trained = module()
    trainer(tmp_path, max_epochs=1, callbacks=[sparse]).fit(trained, images())
    rows = mask_of(trained.network.conv1).flatten(1)
    assert int(rows.any(dim=1).sum()) == 4


def test_patterns_of_weights_do_not_go_with_chex(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"pattern: found NM.* with CHEX, needed Channel"):
        trainer(tmp_path, max_epochs=1, callbacks=[chex(pattern=NM())]).fit(module(), images())


def test_hidden_units_are_channels_of_linear_layers(tmp_path: Path) -> None:
    sparse = chex(algorithm=CHEX(0.4, structure="l1"))
    trainer(tmp_path, max_epochs=3, callbacks=[sparse]).fit(Plain(), loader())
    assert isinstance(sparse.sparsifier, ChannelSparsifier)
    assert list(sparse.sparsifier.groups) == ["net.0", "net.3"]
    assert sparse.sparsifier.sparsity == 0.5
