"""`SparseTraining` inside Lightning's own loop: any LightningModule, resumed runs, accumulation, missed targets."""

import copy
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from training import Plain, equal, gradual, loader, rigl, trainer, weights

from sparsetorch import ERK, SET, ConstantSparsity, Magnitude, PolynomialDecay, RigL, SparseTraining
from sparsetorch.errors import BadInputError, NotEligibleError
from sparsetorch.masking import mask_of, masked_layers
from sparsetorch.masking.masks import original_of
from sparsetorch.models import ImageClassifier
from sparsetorch.sparsify.algorithm import Algorithm


@pytest.mark.parametrize("make", [rigl, gradual])
def test_any_lightning_module_trains_sparse(make: Any, tmp_path: Path) -> None:
    pl.seed_everything(0)
    module = Plain()
    callback = make()
    trainer(tmp_path, max_epochs=5, callbacks=[callback]).fit(module, loader())
    assert callback.sparsifier.sparsity == pytest.approx(0.8, abs=1e-3)
    for layer in masked_layers(module).values():
        assert torch.count_nonzero(original_of(layer)[~mask_of(layer)]) == 0


@pytest.mark.parametrize("make", [rigl, gradual])
@pytest.mark.parametrize("adam", [False, True])
@pytest.mark.parametrize("stop", [1, 3])
def test_an_interrupted_run_ends_bit_identical_to_a_straight_one(
    make: Any, adam: bool, stop: int, tmp_path: Path
) -> None:
    pl.seed_everything(0)
    start = weights(Plain(adam))
    checkpoints = pl.callbacks.ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)

    def module() -> Plain:
        fresh = Plain(adam)
        fresh.load_state_dict(start)
        return fresh

    straight = module()
    options = {"max_epochs": 5, "enable_checkpointing": True}
    trainer(tmp_path, **options, callbacks=[make(), checkpoints]).fit(straight, loader())
    resumed = module()
    torch.manual_seed(12345)  # whatever the process did before
    trainer(tmp_path, **options, callbacks=[make()]).fit(resumed, loader(), ckpt_path=tmp_path / f"epoch={stop}.ckpt")
    assert equal(weights(straight), weights(resumed))


def test_an_update_sees_the_gradient_of_all_accumulated_batches(tmp_path: Path) -> None:
    """Two batches of 8 accumulated are one of 16: same masks after every update, same weights to rounding."""
    pl.seed_everything(0)
    start = weights(Plain())
    found = []
    for batch_size, accumulate in ((16, 1), (8, 2)):
        module = Plain()
        module.load_state_dict(start)
        callback = SparseTraining(RigL(), ConstantSparsity(0.8, update_every=5, end_step=20), distribution=ERK())
        options = {"max_epochs": 2, "accumulate_grad_batches": accumulate}
        run = trainer(tmp_path, **options, callbacks=[callback])
        run.fit(module, loader(batch_size))
        assert run.global_step == 20
        found.append(weights(module))
    for name, value in found[0].items():
        if name.endswith("_mask"):
            assert torch.equal(value, found[1][name])
        else:
            torch.testing.assert_close(value, found[1][name], rtol=1e-4, atol=1e-6)


def test_masks_hold_under_clipping_and_bfloat16(tmp_path: Path) -> None:
    for options in ({"gradient_clip_val": 0.1}, {"precision": "bf16-mixed"}, {"precision": "bf16-true"}):
        module = Plain()
        trainer(tmp_path, max_epochs=5, callbacks=[rigl()], **options).fit(module, loader())
        for layer in masked_layers(module).values():
            assert torch.count_nonzero(original_of(layer)[~mask_of(layer)]) == 0
            assert torch.isfinite(original_of(layer)).all()


@pytest.mark.parametrize("algorithm", [RigL(), SET(), Magnitude()])
def test_a_second_fit_goes_on_with_the_masks_it_has(algorithm: Algorithm, tmp_path: Path) -> None:
    module = Plain()
    make = lambda: SparseTraining(algorithm, ConstantSparsity(0.8, update_every=5, end_step=8))  # noqa: E731
    trainer(tmp_path, max_epochs=1, callbacks=[make()]).fit(module, loader())
    callback = make()
    count = {name: int(mask_of(layer).sum()) for name, layer in masked_layers(module).items()}
    trainer(tmp_path, max_epochs=1, callbacks=[callback]).fit(module, loader())
    assert {name: int(mask_of(layer).sum()) for name, layer in masked_layers(module).items()} == count


def test_a_target_that_cannot_be_reached_is_refused_before_the_first_step(tmp_path: Path) -> None:
    module = Plain()
    before = weights(module)
    callback = gradual(schedule=PolynomialDecay(0.8, end_step=900))
    with pytest.raises(BadInputError, match="end_step: found 900, but the training has only 20 optimizer steps"):
        trainer(tmp_path, max_epochs=2, callbacks=[callback]).fit(module, loader())
    after = weights(module)
    assert all(torch.equal(before[name], after.get(name, after.get(f"{name}_orig"))) for name in before)


def test_a_training_that_ends_early_ends_in_an_error_with_the_cause(tmp_path: Path) -> None:
    class Stop(pl.Callback):
        def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
            trainer.should_stop = trainer.global_step >= 12

    with pytest.raises(NotEligibleError, match=r"reached .*, needed 80\.00% .*training stopped at step 12"):
        trainer(tmp_path, max_epochs=5, min_epochs=0, callbacks=[gradual(), Stop()]).fit(Plain(), loader())


def test_a_lightning_module_of_the_package_trains_sparse_alone(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3))
    module = ImageClassifier(network, num_classes=3, sparsity=rigl())
    images = torch.randn(160, 3, 2, 2)
    data = DataLoader(TensorDataset(images, torch.randint(0, 3, (160,))), 16)
    trainer(tmp_path, max_epochs=5).fit(module, data)
    assert len(masked_layers(module)) == 2


def test_the_bar_and_the_loggers_see_the_sparsity(tmp_path: Path) -> None:
    logger = pl.loggers.CSVLogger(tmp_path, name="", version="")
    run = trainer(tmp_path, max_epochs=5, callbacks=[gradual()], logger=logger)
    run.fit(Plain(), loader())
    assert run.progress_bar_metrics["sparsity"] == pytest.approx(0.8, abs=1e-3)
    text = (tmp_path / "metrics.csv").read_text()
    assert {"sparsity", "sparsity/net.0", "sparsity/net.3", "sparsity/net.5"} <= set(text.splitlines()[0].split(","))


def test_a_callback_can_be_copied_before_it_runs() -> None:
    assert copy.deepcopy(rigl()).algorithm == RigL()
