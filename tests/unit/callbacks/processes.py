"""Trainings in processes of their own, for what one process cannot show: several ranks, and a kill.

python processes.py ranks OUT.json ALGORITHM DEVICES ACCUMULATE
python processes.py kill FOLDER ALGORITHM OPTIMIZER
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, Subset
from training import Noisy, Plain, Validated, data, loader, trainer, weights

from sparsetorch import CHEX, ERK, SET, ConstantSparsity, Magnitude, PolynomialDecay, RigL, SparseTraining, Uniform
from sparsetorch.callbacks.ranks import mask_digests

BATCH, STEPS = 16, 10
INSIDE_EPOCHS = [step for step in range(1, 3 * STEPS) if step % STEPS]
"""What comes at an epoch's end is in test_resume.py."""


def sparse(name: str) -> SparseTraining:
    if name == "magnitude":
        schedule = PolynomialDecay(0.8, end_step=16, update_every=2)
        return SparseTraining(Magnitude(), schedule, distribution=Uniform(first_layer_dense=False))
    if name == "chex":  # hidden units are the channels of linear layers
        schedule = ConstantSparsity(0.5, update_every=2, end_step=16)
        return SparseTraining(CHEX(0.4, structure="l1"), schedule)
    algorithm = {"rigl": RigL(), "set": SET()}[name]
    return SparseTraining(algorithm, ConstantSparsity(0.8, update_every=2, end_step=16), distribution=ERK())


class Digests(pl.Callback):
    """The checksums of all masks after every batch."""

    def __init__(self, sparse: SparseTraining) -> None:
        self.sparse = sparse
        self.seen: list[list[int]] = []

    def on_train_batch_end(self, *_: Any) -> None:
        assert self.sparse.sparsifier is not None
        self.seen.append(mask_digests(self.sparse.sparsifier).tolist())


def ranks(out: str, algorithm: str, devices: int, accumulate: int) -> None:
    """Two epochs; with two devices each takes half of every batch of the single one."""
    rank = int(os.environ.get("LOCAL_RANK", 0))
    torch.manual_seed(0)
    start = Plain()
    torch.manual_seed(100 + rank)  # whatever else is drawn differs on every rank
    module = Plain()
    module.load_state_dict(start.state_dict())
    share = BATCH // devices // accumulate
    # Micro-batch k of a step holds the k-th part of the step's BATCH samples; rank r takes the r-th part of that.
    order = [
        step * BATCH + micro * share * devices + rank * share + index
        for step in range(STEPS)
        for micro in range(accumulate)
        for index in range(share)
    ]
    callback = sparse(algorithm)
    digests = Digests(callback)
    options = {"strategy": "ddp", "devices": devices} if devices > 1 else {}
    run = trainer(
        Path(out).parent,
        max_epochs=2,
        callbacks=[callback, digests],
        accumulate_grad_batches=accumulate,
        use_distributed_sampler=False,
        **options,
    )
    run.fit(module, DataLoader(Subset(data(), order), share))
    result = {
        "steps": callback.step,
        "digests": digests.seen,
        "weights": {k: v.tolist() for k, v in weights(module).items()},
    }
    Path(f"{out}.{rank}").write_text(json.dumps(result))


class Kill(pl.Callback):
    """SIGKILL, with no chance to tidy up, before a batch whose predecessor has been checkpointed."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def train(folder: Path, algorithm: str, adam: bool, kill_at: int | None, resume: bool) -> dict[str, torch.Tensor]:
    pl.seed_everything(0)
    module = Validated(adam, dropout=0.3)
    checkpoint = ModelCheckpoint(folder, filename="last", every_n_train_steps=1, enable_version_counter=False)
    callbacks: list[pl.Callback] = [sparse(algorithm), checkpoint]
    if kill_at is not None:
        callbacks.append(Kill(kill_at))
    if resume:
        pl.seed_everything(987)  # a new process has drawn other numbers before
    run = trainer(folder, max_epochs=3, callbacks=callbacks, enable_checkpointing=True)
    batches = DataLoader(Noisy(), BATCH, shuffle=True)
    run.fit(module, batches, loader(BATCH, shuffle=True), ckpt_path=folder / "last.ckpt" if resume else None)
    return weights(module)


def kill(folder: Path, algorithm: str, adam: bool) -> None:
    """A straight run, and five that are killed and resumed, each in a forked child; prints the steps that differ."""
    straight = train(folder / "straight", algorithm, adam, None, resume=False)
    order = torch.randperm(len(INSIDE_EPOCHS), generator=torch.Generator().manual_seed(len(algorithm) + int(adam)))
    for step in torch.tensor(INSIDE_EPOCHS)[order[:5]].tolist():
        place = folder / str(step)
        child = os.fork()
        if child == 0:
            train(place, algorithm, adam, step, resume=False)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status  # noqa: PT018
        assert torch.load(place / "last.ckpt", weights_only=False)["global_step"] == step
        resumed = train(place, algorithm, adam, None, resume=True)
        same = resumed.keys() == straight.keys() and all(
            torch.equal(straight[name], resumed[name]) for name in straight
        )
        print(f"killed at step {step}: {'identical' if same else 'DIFFERENT'}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "ranks":
        ranks(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        kill(Path(sys.argv[2]), sys.argv[3], sys.argv[4] == "adamw")
