"""A run that was stopped and resumed is the straight run, bit for bit, wherever its checkpoint was written."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader
from training import Noisy, Validated, equal, loader, rigl, trainer, weights

from sparsetorch import SNFS
from sparsetorch.callbacks.resume import random_state, set_random_state


class Stop(pl.Callback):
    """Ctrl-C before a step."""

    def __init__(self, step: int | None) -> None:
        self.step = step

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            raise KeyboardInterrupt


def fit(
    folder: Path, stop: int | None, resume: bool, saving: dict[str, Any], workers: int, sparse: Any
) -> dict[str, torch.Tensor]:
    pl.seed_everything(987 if resume else 0)  # a new process has drawn other numbers before
    module = Validated(dropout=0.3)
    checkpoint = ModelCheckpoint(folder, filename="last", enable_version_counter=False, **saving)
    run = trainer(folder, max_epochs=5, callbacks=[sparse, checkpoint, Stop(stop)], enable_checkpointing=True)
    batches = DataLoader(Noisy(), 16, shuffle=True, num_workers=workers)
    try:
        run.fit(module, batches, loader(shuffle=True), ckpt_path=folder / "last.ckpt" if resume else None)
    except SystemExit:
        assert stop is not None
    return weights(module)


@pytest.mark.parametrize(
    ("saving", "workers", "stop"),
    [
        pytest.param({}, 0, 12, id="after every epoch"),
        pytest.param({"save_on_train_epoch_end": False}, 0, 22, id="after validation"),
        pytest.param({"every_n_train_steps": 3}, 0, 5, id="inside the first epoch"),
        pytest.param({"every_n_train_steps": 3}, 0, 22, id="inside an epoch"),
        pytest.param({"every_n_train_steps": 3}, 2, 12, id="inside an epoch, with workers"),
    ],
)
@pytest.mark.parametrize("make", [rigl, lambda: rigl(algorithm=SNFS())], ids=["RigL", "SNFS"])
def test_a_stopped_run_resumes_bit_identical(
    make: Any, saving: dict[str, Any], workers: int, stop: int, tmp_path: Path
) -> None:
    straight = fit(tmp_path / "straight", None, False, saving, workers, make())
    fit(tmp_path / "stopped", stop, False, saving, workers, make())
    assert equal(straight, fit(tmp_path / "stopped", None, True, saving, workers, make()))


def test_another_number_of_processes_is_said(tmp_path: Path) -> None:
    sparse = rigl()
    fit(tmp_path, 22, False, {}, 0, sparse)
    file = torch.load(tmp_path / "last.ckpt", weights_only=False)
    state = file["callbacks"]["SparseTraining"]["resume"]
    file["callbacks"]["SparseTraining"]["resume"] = {key: value * 2 for key, value in state.items()}
    torch.save(file, tmp_path / "last.ckpt")
    with pytest.warns(UserWarning, match="checkpoint is of 2 processes and this run has 1"):
        fit(tmp_path, None, True, {}, 0, rigl())


def test_random_states_go_and_come_back() -> None:
    state = random_state()
    drawn = torch.rand(3), np.random.rand(3).tolist(), random.random()
    set_random_state(state)
    assert torch.equal(torch.rand(3), drawn[0])
    assert np.random.rand(3).tolist() == drawn[1]
    assert random.random() == drawn[2]


def test_a_checkpoint_loads_without_pickled_code(tmp_path: Path) -> None:
    fit(tmp_path, 22, False, {}, 0, rigl())
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["callbacks"]["SparseTraining"]["resume"]["now"]
