"""`SparseTraining` with all else that Lightning does to a step: precision, clipping, averaging, compilation, optimizers."""

import copy
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.callbacks import WeightAveraging
from pytorch_lightning.plugins.precision import MixedPrecision
from torch import nn
from torch.optim.swa_utils import get_ema_avg_fn
from training import Plain, equal, gradual, loader, rigl, trainer, weights

from sparsetorch import ERK, ConstantSparsity, RigL, SparseTraining
from sparsetorch.errors import BadInputError
from sparsetorch.masking import mask_of, masked_layers, permanent_copy
from sparsetorch.masking.masks import original_of


def assert_zeros_are_exact(module: nn.Module) -> None:
    for layer in masked_layers(module).values():
        assert mask_of(layer).dtype == torch.bool
        assert torch.count_nonzero(original_of(layer)[~mask_of(layer)]) == 0


class Recorder(pl.Callback):
    """Keeps the masks after every batch."""

    def __init__(self) -> None:
        self.masks: list[dict[str, torch.Tensor]] = []

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        self.masks.append({name: mask_of(layer).clone() for name, layer in masked_layers(pl_module).items()})


def run(
    tmp_path: Path, start: dict[str, torch.Tensor], sparse: SparseTraining, **options: Any
) -> tuple[Plain, Recorder]:
    module, recorder = Plain(), Recorder()
    module.load_state_dict(start)
    trainer(tmp_path, max_epochs=5, callbacks=[sparse, recorder], **options).fit(module, loader())
    return module, recorder


def test_a_gradient_scaler_does_not_change_what_grows(tmp_path: Path) -> None:
    """float16 autocast with a loss scale of 1024: growth by the unscaled gradient, so that momentum and masks stay usable."""
    seen: list[float] = []

    class Spy(SparseTraining):
        def on_before_optimizer_step(self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Any) -> None:
            super().on_before_optimizer_step(trainer, pl_module, optimizer)
            kept = self._ready().growth._gradients
            seen.extend(float(gradient.abs().max()) for gradient in kept.values())

    schedule = ConstantSparsity(0.8, update_every=5, end_step=10)
    for scale in (1.0, 1024.0):
        pl.seed_everything(0)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        plugin = MixedPrecision(precision="16-mixed", device="cpu", scaler=scaler)
        module = Plain()
        sparse = Spy(RigL(), schedule, distribution=ERK())
        trainer(tmp_path, max_epochs=1, callbacks=[sparse], plugins=[plugin]).fit(module, loader())
        assert_zeros_are_exact(module)
    half = len(seen) // 2
    assert half > 0
    assert seen[:half] == pytest.approx(seen[half:], rel=0.05)


def test_a_step_that_the_scaler_skips_is_no_update_and_is_counted(tmp_path: Path) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=1000)
    plugin = MixedPrecision(precision="16-mixed", device="cpu", scaler=scaler)
    module = Plain()
    sparse = rigl(schedule=ConstantSparsity(0.8, update_every=1, end_step=40))
    with pytest.warns(UserWarning, match="no mask update at step 1: a gradient or weight was not finite"):
        trainer(tmp_path, max_epochs=5, callbacks=[sparse], plugins=[plugin]).fit(module, loader())
    assert sparse.sparsifier is not None
    assert 0 < sparse.sparsifier.skipped_updates < 40  # the scale comes down, and the updates go on
    assert_zeros_are_exact(module)
    assert all(torch.isfinite(value).all() for value in module.state_dict().values())


@pytest.mark.parametrize("make", [rigl, gradual])
@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "64-true"])
def test_zeros_are_exact_in_every_precision(make: Any, precision: str, tmp_path: Path) -> None:
    class Typed(Plain):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            x, y = batch
            return F.cross_entropy(self(x.to(self.net[0].bias.dtype)).float(), y)

    module = Typed()
    trainer(tmp_path, max_epochs=5, callbacks=[make()], precision=precision).fit(module, loader())
    wanted = {"bf16-mixed": torch.float32, "bf16-true": torch.bfloat16, "64-true": torch.float64}[precision]
    assert all(original_of(layer).dtype == wanted for layer in masked_layers(module).values())
    assert_zeros_are_exact(module)


def test_clipping_sees_the_masked_gradient_only(tmp_path: Path) -> None:
    """On an update step the dense gradient is out of the way before Lightning clips by norm."""
    norms = []

    class Norms(Plain):
        def configure_gradient_clipping(self, optimizer: Any, gradient_clip_val: Any = None, **_: Any) -> None:
            for layer in masked_layers(self).values():
                norms.append(float(original_of(layer).grad[~mask_of(layer)].abs().sum()))
            self.clip_gradients(optimizer, gradient_clip_val=gradient_clip_val, gradient_clip_algorithm="norm")

    module = Norms()
    trainer(tmp_path, max_epochs=5, callbacks=[rigl()], gradient_clip_val=0.1).fit(module, loader())
    assert norms == [0.0] * 150
    assert_zeros_are_exact(module)


class TwoOptimizers(Plain):
    """Manual optimization: the first layer has one optimizer, the rest another, both stepped in every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def configure_optimizers(self) -> Any:
        first, rest = self.net[0].parameters(), [p for layer in self.net[1:] for p in layer.parameters()]
        return torch.optim.AdamW(first, lr=0.01), torch.optim.SGD(rest, lr=0.1, momentum=0.9)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        optimizers = self.optimizers()
        for optimizer in optimizers:
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in optimizers:
            optimizer.step()
        return loss


def test_several_optimizers_are_one_step_and_all_their_slots_are_cleared(tmp_path: Path) -> None:
    module, sparse = TwoOptimizers(), rigl()
    fit = trainer(tmp_path, max_epochs=5, callbacks=[sparse])
    fit.fit(module, loader())
    assert (sparse.step, fit.global_step) == (50, 100)
    assert sparse.last_update is not None
    assert_zeros_are_exact(module)
    for layer in masked_layers(module).values():
        states = [
            optimizer.state[original_of(layer)] for optimizer in fit.optimizers if original_of(layer) in optimizer.state
        ]
        assert len(states) == 1
        slots = [slot for slot in states[0].values() if isinstance(slot, torch.Tensor) and slot.ndim]
        assert slots
        assert all(torch.count_nonzero(slot[~mask_of(layer)]) == 0 for slot in slots)


class Twice(torch.optim.SGD):
    """Evaluates the loss twice a step, as line searches do."""

    def step(self, closure: Any = None) -> Any:
        closure()
        loss = closure()
        super().step()
        return loss


def test_an_optimizer_that_calls_its_closure_again_works(tmp_path: Path) -> None:
    class Closures(Plain):
        def configure_optimizers(self) -> Any:
            return Twice(self.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)

    pl.seed_everything(0)
    start = weights(Plain())
    module, once = Closures(), Plain()
    module.load_state_dict(start)
    once.load_state_dict(start)
    for network in (module, once):
        trainer(tmp_path, max_epochs=5, callbacks=[rigl()]).fit(network, loader())
    assert equal(weights(module), weights(once))  # a loss looked at twice is the same loss


@pytest.mark.parametrize("use_buffers", [True, False])
def test_averaged_weights_are_as_sparse_as_the_network(use_buffers: bool, tmp_path: Path) -> None:
    seen = []

    class Validated(Plain):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self(batch[0])
            layers = masked_layers(self).values()
            active = sum(int(mask_of(layer).sum()) for layer in layers)
            seen.append((active, sum(int(torch.count_nonzero(layer.weight[~mask_of(layer)])) for layer in layers)))

    module, sparse = Validated(), rigl()
    average = WeightAveraging(use_buffers=use_buffers, avg_fn=get_ema_avg_fn(0.9))
    checkpoint = pl.callbacks.ModelCheckpoint(tmp_path, filename="last", enable_version_counter=False)
    fit = trainer(tmp_path, max_epochs=5, callbacks=[sparse, average, checkpoint], enable_checkpointing=True)
    fit.fit(module, loader(), loader())
    assert sparse.sparsifier is not None
    inactive = sum(int((~mask_of(layer)).sum()) for layer in sparse.sparsifier.layers.values())
    active = sum(int(mask_of(layer).sum()) for layer in sparse.sparsifier.layers.values())
    assert set(seen) == {(active, 0)}
    assert_zeros_are_exact(module)
    assert sparse.sparsifier.sparsity == pytest.approx(0.8, abs=1e-3)
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)["state_dict"]
    for name in ("net.0", "net.3", "net.5"):
        mask = state[f"{name}.weight_mask"]
        assert torch.equal(mask, mask_of(module.get_submodule(name)))
        assert torch.count_nonzero(state[f"{name}.weight_orig"][~mask]) == 0
    plain = permanent_copy(module)
    zeros = sum(int((plain.net[index].weight == 0).sum()) for index in (0, 3, 5))
    assert zeros == inactive


def test_weight_averaging_before_the_masks_is_refused(tmp_path: Path) -> None:
    callbacks = [WeightAveraging(avg_fn=get_ema_avg_fn(0.9)), rigl()]
    with pytest.raises(BadInputError, match="WeightAveraging comes before SparseTraining"):
        trainer(tmp_path, max_epochs=1, callbacks=callbacks).fit(Plain(), loader())


@pytest.mark.parametrize("when", ["module", "network", "after a first run"])
def test_a_compiled_network_trains_as_an_eager_one(when: str, tmp_path: Path) -> None:
    pl.seed_everything(0)
    start = weights(Plain())
    _, masks = run(tmp_path, start, rigl())
    module, recorder = Plain(), Recorder()
    module.load_state_dict(start)
    compiled: Any = module
    if when == "module":
        compiled = torch.compile(module, backend="aot_eager")
    else:
        module.net.compile(backend="aot_eager")
    if when == "after a first run":  # compiled code without hooks exists already
        module.net(torch.randn(16, 10))
    trainer(tmp_path, max_epochs=5, callbacks=[rigl(), recorder]).fit(compiled, loader())
    assert_zeros_are_exact(module)
    assert len(recorder.masks) == len(masks.masks) == 50
    for one, two in zip(masks.masks, recorder.masks, strict=True):
        assert equal(one, two)


def test_a_module_can_be_copied_after_fit_and_fitted_again(tmp_path: Path) -> None:
    module = Plain()
    trainer(tmp_path, max_epochs=5, callbacks=[rigl()]).fit(module, loader())
    copied = copy.deepcopy(module)
    assert equal(weights(module), weights(copied))
    before = {name: int(mask_of(layer).sum()) for name, layer in masked_layers(copied).items()}
    trainer(tmp_path, max_epochs=5, callbacks=[rigl()]).fit(copied, loader())
    assert {name: int(mask_of(layer).sum()) for name, layer in masked_layers(copied).items()} == before
    assert_zeros_are_exact(copied)


@pytest.mark.parametrize("make", [rigl, gradual])
def test_a_weight_that_two_layers_share_is_masked_once(make: Any, tmp_path: Path) -> None:
    class Tied(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 3))
            self.net[2].weight = self.net[0].weight

    module, sparse = Tied(), make()
    trainer(tmp_path, max_epochs=5, callbacks=[sparse]).fit(module, loader())
    assert sparse.sparsifier is not None
    assert list(sparse.sparsifier.layers) == ["net.0", "net.4"]
    assert original_of(module.net[0]) is original_of(module.net[2])
    assert torch.equal(mask_of(module.net[0]), mask_of(module.net[2]))
    assert 0 < int(mask_of(module.net[0]).sum()) < 100
    assert_zeros_are_exact(module)


def test_gradients_that_are_not_finite_leave_masks_and_weights_alone(tmp_path: Path) -> None:
    class Careful(torch.optim.SGD):
        """Takes no step where a gradient is not finite."""

        def step(self, closure: Any = None) -> Any:
            loss = closure()
            gradients = (p.grad for group in self.param_groups for p in group["params"] if p.grad is not None)
            if all(bool(torch.isfinite(gradient).all()) for gradient in gradients):
                super().step()
            return loss

    class Poisoned(Plain):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = super().training_step(batch, batch_idx)
            return loss * float("nan") if self.global_step == 9 else loss

        def configure_optimizers(self) -> Any:
            return Careful(self.parameters(), lr=0.1, momentum=0.9)

    module, sparse, recorder = Poisoned(), rigl(), Recorder()
    with pytest.warns(UserWarning, match="no mask update at step 10"):
        trainer(tmp_path, max_epochs=5, callbacks=[sparse, recorder]).fit(module, loader())
    assert sparse.sparsifier is not None
    assert sparse.sparsifier.skipped_updates == 1
    assert equal(recorder.masks[8], recorder.masks[9])
    assert_zeros_are_exact(module)
