"""What this field's tools get wrong in training, one test per kind. Each runs Lightning's own loop."""

import copy
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint, WeightAveraging
from torch import nn
from torch.nn.utils import prune
from torch.optim.swa_utils import get_ema_avg_fn
from training import Plain, data, equal, gradual, loader, rigl, trainer, weights

from sparsetorch import ERK, ConstantSparsity, Global, Magnitude, PolynomialDecay, RigL, SparseTraining, Uniform
from sparsetorch.errors import BadInputError, NotEligibleError
from sparsetorch.masking import load_state_dict, mask_of, masked_layers, permanent_copy
from sparsetorch.masking.masks import original_of
from sparsetorch.masking.sparsifier import Sparsifier
from sparsetorch.models import ImageClassifier

OPTIMIZERS = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-2),
    "Nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "AMSGrad": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1, amsgrad=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, weight_decay=0.1),
}


class With(Plain):
    """Any optimizer."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = make

    def configure_optimizers(self) -> Any:
        return self.make(self.parameters())


class EveryStep(pl.Callback):
    """Counts entries outside of the masks that are not exactly zero, in weights and in optimizer slots, after every step."""

    def __init__(self) -> None:
        self.strays = 0
        self.looked = 0

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        for layer in masked_layers(pl_module).values():
            parameter, inactive = original_of(layer), ~mask_of(layer)
            slots = [v for v in trainer.optimizers[0].state.get(parameter, {}).values() if v.shape == parameter.shape]
            self.strays += sum(int(torch.count_nonzero(value[inactive])) for value in [parameter, *slots])
            self.looked += len(slots)


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
@pytest.mark.parametrize("make", [rigl, gradual])
def test_pitfall_1_momentum_and_weight_decay_move_no_pruned_weight(make: Any, optimizer: str, tmp_path: Path) -> None:
    watch = EveryStep()
    trainer(tmp_path, max_epochs=5, callbacks=[make(), watch]).fit(With(OPTIMIZERS[optimizer]), loader())
    assert watch.strays == 0
    assert watch.looked > 100


def test_pitfall_2_zeros_at_the_end_are_zeros_not_near_zeros(tmp_path: Path) -> None:
    module = Plain()
    trainer(tmp_path, max_epochs=5, callbacks=[gradual()]).fit(module, loader())
    for layer in permanent_copy(module).modules():
        if isinstance(layer, nn.Linear):
            assert int((layer.weight == 0).sum()) == round(0.8 * layer.weight.numel())
            assert not torch.signbit(layer.weight[layer.weight == 0]).any()  # no -0.0 either


def test_pitfall_3_a_schedule_that_cannot_complete_is_an_error_before_the_first_step(tmp_path: Path) -> None:
    module, steps = Plain(), []

    class Count(pl.Callback):
        def on_train_batch_start(self, *_: Any) -> None:
            steps.append(1)

    # 10 batches, accumulated by 5, are 2 steps an epoch: 10 steps where the schedule needs 40.
    fit = trainer(tmp_path, max_epochs=5, accumulate_grad_batches=5, callbacks=[gradual(), Count()])
    with pytest.raises(BadInputError, match="end_step: found 40, but the training has only 10 optimizer steps"):
        fit.fit(module, loader())
    assert not steps


@pytest.mark.parametrize("why", ["max_time", "should_stop", "max_steps"])
def test_pitfall_3_a_target_missed_at_the_end_is_an_error_with_its_cause(why: str, tmp_path: Path) -> None:
    class Stop(pl.Callback):
        def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
            trainer.should_stop = trainer.global_step == 20

    if why == "max_steps":
        fit = trainer(tmp_path, max_steps=20, callbacks=[gradual()])
        with pytest.raises(BadInputError, match="the training has only 20 optimizer steps"):
            fit.fit(Plain(), loader())
        return
    if why == "max_time":
        fit = trainer(tmp_path, max_epochs=5, max_time={"seconds": 0}, callbacks=[gradual()])
    else:
        fit = trainer(tmp_path, max_epochs=5, callbacks=[gradual(), Stop()])
    with pytest.raises(
        NotEligibleError, match=r"reached \d+\.\d+%, needed 80\.00%.*training stopped at step \d+"
    ) as raised:
        fit.fit(Plain(), loader())
    assert raised.value.exit_code == 3


def test_pitfall_4_growth_sees_the_gradient_that_the_mask_hides(tmp_path: Path) -> None:
    """RigL's grown entries are those of the largest dense gradient, which `weight_orig.grad` alone would not show."""
    module = Plain()
    sparse = rigl(schedule=ConstantSparsity(0.8, update_every=5, end_step=6))
    seen: dict[str, Any] = {}

    class Watch(pl.Callback):
        def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, _: int) -> None:
            if trainer.global_step != 4:
                return
            layer = module.net[3]
            seen["before"] = mask_of(layer).clone()
            # By hand: the same network with a plain leaf in place of the masked product.
            dense = (original_of(layer) * mask_of(layer)).detach().requires_grad_()
            hidden = torch.relu(
                nn.functional.linear(
                    batch[0], module.net[0].weight_orig * module.net[0].weight_mask, module.net[0].bias
                )
            )
            hidden = torch.relu(nn.functional.linear(hidden, dense, layer.bias))
            logits = nn.functional.linear(
                hidden, module.net[5].weight_orig * module.net[5].weight_mask, module.net[5].bias
            )
            nn.functional.cross_entropy(logits, batch[1]).backward()
            seen["gradient"] = dense.grad.abs()
            module.zero_grad()

        def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
            if trainer.global_step == 5:
                seen["after"] = mask_of(module.net[3]).clone()
                seen["weights"] = original_of(module.net[3]).detach().clone()

    trainer(tmp_path, max_epochs=5, callbacks=[Watch(), sparse, Watch()]).fit(module, loader())
    grown = seen["after"] & ~seen["before"]
    assert 0 < int(grown.sum()) <= int(seen["before"].sum()) // 3
    left = ~seen["after"]
    assert float(seen["gradient"][grown].min()) >= float(seen["gradient"][left].max()) - 1e-7
    assert torch.count_nonzero(seen["weights"][grown]) == 0
    assert int(seen["after"].sum()) == int(seen["before"].sum())


@pytest.mark.parametrize("precision", ["bf16-true", "16-true", "64-true"])
def test_pitfall_5_a_mask_changes_no_dtype(precision: Any, tmp_path: Path) -> None:
    wanted = {"bf16-true": torch.bfloat16, "16-true": torch.float16, "64-true": torch.float64}[precision]
    module = Plain()
    trainer(tmp_path, max_epochs=5, callbacks=[rigl()], precision=precision).fit(module, loader())
    for layer in masked_layers(module).values():
        assert original_of(layer).dtype == layer.weight.dtype == wanted
        assert mask_of(layer).dtype == torch.bool


def test_pitfall_6_a_global_threshold_empties_no_layer(tmp_path: Path) -> None:
    module = Plain()
    with torch.no_grad():
        module.net[3].weight.mul_(1e-4)  # without a floor, all of this layer would go first
    schedule = PolynomialDecay(0.9, end_step=40, update_every=5)
    sparse = SparseTraining(Magnitude(), schedule, distribution=Global(floor=0.05))
    frozen = With(lambda p: torch.optim.SGD(p, lr=1e-6))
    frozen.load_state_dict(module.state_dict())
    trainer(tmp_path, max_epochs=5, callbacks=[sparse]).fit(frozen, loader())
    kept = {name: int(mask_of(layer).sum()) for name, layer in masked_layers(frozen).items()}
    assert kept["net.3"] == 80  # 5 % of 1600
    assert sum(kept.values()) == 2120 - round(0.9 * 2120)


def test_pitfall_7_masks_on_a_compiled_network_are_seen(tmp_path: Path) -> None:
    module = Plain()
    module.net.compile(backend="eager")
    module.net(torch.randn(16, 10))  # compiled without masks
    trainer(tmp_path, max_epochs=5, callbacks=[gradual()]).fit(module, loader())
    x = torch.randn(4, 10)
    plain = Plain()
    load_state_dict(plain, module.state_dict())
    torch.testing.assert_close(module.net(x), plain.net(x), rtol=0, atol=1e-6)


def test_pitfall_8_averaged_weights_are_sparse_where_they_are_used(tmp_path: Path) -> None:
    module = Plain()
    average = WeightAveraging(avg_fn=get_ema_avg_fn(0.9))
    saved = ModelCheckpoint(tmp_path, filename="last", enable_version_counter=False)
    run = trainer(tmp_path, max_epochs=5, callbacks=[rigl(), average, saved], enable_checkpointing=True)
    run.fit(module, loader())
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)["state_dict"]
    for name, layer in masked_layers(module).items():
        assert torch.count_nonzero(original_of(layer)[~mask_of(layer)]) == 0
        assert torch.count_nonzero(state[f"{name}.weight_orig"][~state[f"{name}.weight_mask"]]) == 0


def test_pitfall_9_a_masked_module_can_be_copied_and_fitted_again(tmp_path: Path) -> None:
    module = Plain()
    trainer(tmp_path, max_epochs=5, callbacks=[rigl()]).fit(module, loader())
    module(data().tensors[0]).sum().backward()  # `weight` is no leaf now
    copied = permanent_copy(module)
    assert not masked_layers(copied)
    again = copy.deepcopy(permanent_copy(module))
    assert equal(weights(copied), weights(again))
    before = {name: mask_of(layer).sum() for name, layer in masked_layers(module).items()}
    trainer(tmp_path, max_epochs=5, callbacks=[rigl()]).fit(module, loader())
    assert {name: mask_of(layer).sum() for name, layer in masked_layers(module).items()} == before


def test_pitfall_10_saving_changes_nothing_and_a_resumed_run_is_the_straight_one(tmp_path: Path) -> None:
    pl.seed_everything(0)
    start = weights(Plain())
    ends = []
    for every in (1, 50):  # a checkpoint after every step, and one at the end
        module = Plain()
        module.load_state_dict(start)
        saved = ModelCheckpoint(tmp_path / str(every), save_top_k=-1, every_n_train_steps=every)
        run = trainer(tmp_path, max_epochs=5, callbacks=[rigl(), saved], enable_checkpointing=True)
        run.fit(module, loader())
        ends.append(weights(module))
    assert equal(*ends)
    checkpoint = next((tmp_path / "1").glob("*step=23.ckpt"))
    module = Plain()
    trainer(tmp_path, max_epochs=5, callbacks=[rigl()]).fit(module, loader(), ckpt_path=checkpoint)
    assert equal(weights(module), ends[0])


def test_pitfall_11_checkpoints_load_with_and_without_masks_or_say_what_is_missing(tmp_path: Path) -> None:
    masked = Plain()
    trainer(tmp_path, max_epochs=5, callbacks=[rigl()]).fit(masked, loader())
    x = torch.randn(4, 10)
    plain = Plain()
    load_state_dict(plain, masked.state_dict())
    assert torch.equal(plain(x), masked(x))
    back = Plain()
    trainer(tmp_path, max_epochs=5, callbacks=[rigl()]).fit(back, loader())
    load_state_dict(back, plain.state_dict())
    assert torch.equal(back(x), masked(x))
    assert all(torch.equal(mask_of(back.net[i]), original_of(masked.net[i]) != 0) for i in (0, 3, 5))
    back.load_state_dict(plain.state_dict())  # torch's own loader takes the plain layout as well
    assert torch.equal(back(x), masked(x))
    with pytest.raises(BadInputError, match=r"lacks net\.0\.weight.*the module has no 0\."):
        load_state_dict(plain, masked.net.state_dict())


def test_pitfall_11_a_masked_checkpoint_of_the_package_tests_without_the_callback(tmp_path: Path) -> None:
    batches = torch.utils.data.DataLoader(data(), 16)
    network = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 3))
    module = ImageClassifier(network, num_classes=3)
    run = trainer(tmp_path, max_epochs=5, callbacks=[rigl()], enable_checkpointing=True)
    run.fit(module, batches)
    run.save_checkpoint(tmp_path / "masked.ckpt")
    plain = ImageClassifier(copy.deepcopy(permanent_copy(network)), num_classes=3)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.fill_(float("nan"))
    wanted = trainer(tmp_path).test(module, batches, verbose=False)
    assert trainer(tmp_path).test(plain, batches, ckpt_path=tmp_path / "masked.ckpt", verbose=False) == wanted


def test_pitfall_12_first_masks_do_not_depend_on_the_seed_of_a_process() -> None:
    """That all later masks are equal, over two real processes with gradients of their own: test_processes.py."""
    found = []
    for seed in (1, 2):
        pl.seed_everything(seed)
        module = Plain()
        schedule = ConstantSparsity(0.8, end_step=40)
        Sparsifier(module, algorithm=RigL(), schedule=schedule, distribution=ERK()).start()
        found.append({name: mask_of(layer) for name, layer in masked_layers(module).items()})
    assert equal(*found)


def test_pitfall_13_an_optimizer_keeps_its_own_step_and_closure(tmp_path: Path) -> None:
    class TwoLooks(torch.optim.SGD):
        """Evaluates its closure twice, as line-search methods do."""

        looks = 0

        def step(self, closure: Any = None) -> Any:
            closure()
            self.zero_grad()
            loss = closure()
            TwoLooks.looks += 2
            super().step()
            return loss

    module, watch = With(lambda p: TwoLooks(p, lr=0.1, momentum=0.9)), EveryStep()
    trainer(tmp_path, max_epochs=5, callbacks=[rigl(), watch]).fit(module, loader())
    assert TwoLooks.looks == 100
    assert watch.strays == 0
    assert sum(int(mask_of(layer).sum()) for layer in masked_layers(module).values()) == 2120 - round(0.8 * 2120)


def test_a_mask_of_torch_prune_is_taken_over_and_trained_on(tmp_path: Path) -> None:
    module = Plain()
    for index in (0, 3, 5):
        prune.l1_unstructured(module.net[index], "weight", amount=0.5)
    sparse = gradual(distribution=Uniform(first_layer_dense=False))
    trainer(tmp_path, max_epochs=5, callbacks=[sparse]).fit(module, loader())
    assert sparse.sparsifier is not None
    assert sparse.sparsifier.sparsity == pytest.approx(0.8, abs=1e-3)


def test_a_checkpoint_of_another_architecture_is_refused(tmp_path: Path) -> None:
    module = Plain()
    run = trainer(tmp_path, max_epochs=5, callbacks=[rigl()], enable_checkpointing=True)
    run.fit(module, loader())
    run.save_checkpoint(tmp_path / "small.ckpt")
    other = Plain()
    other.net[3] = nn.Linear(40, 41)
    other.net[5] = nn.Linear(41, 3)
    with pytest.raises((BadInputError, RuntimeError), match=r"size mismatch for net\.3"):
        trainer(tmp_path, max_epochs=5, callbacks=[rigl()]).fit(other, loader(), ckpt_path=tmp_path / "small.ckpt")


def test_erk_and_rigl_are_the_defaults_a_paper_would_use() -> None:
    assert RigL().drop_fraction == 0.3
    assert RigL().annealing == "cosine"
    assert ERK().power == 1.0
    assert ConstantSparsity(0.9).update_every == 100
