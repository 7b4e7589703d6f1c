"""The plain-PyTorch loop: three calls a step, counts exact after every update, new weights at zero with empty slots."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

from sparsetorch import (
    ERK,
    NM,
    SET,
    SNFS,
    AllWeights,
    Block,
    ByName,
    ConstantSparsity,
    Conv1x1,
    Global,
    Magnitude,
    PerLayer,
    PolynomialDecay,
    RigL,
    Static,
    Uniform,
    Unstructured,
)
from sparsetorch.errors import BadInputError
from sparsetorch.masking import mask_of, masks
from sparsetorch.masking.masks import original_of
from sparsetorch.masking.sparsifier import Sparsifier, Update
from sparsetorch.sparsify.algorithm import Algorithm
from sparsetorch.sparsify.distribution import Distribution
from sparsetorch.sparsify.pattern import Pattern
from sparsetorch.sparsify.schedule import Schedule


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 4))


def train(
    module: nn.Module, sparsifier: Sparsifier, optimizer: torch.optim.Optimizer, first: int, last: int
) -> dict[int, Update]:
    """The documented loop; every batch depends on its step alone."""
    updates = {}
    for step in range(first, last + 1):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(32, 20, generator=generator)
        label = (x[:, :4] + 0.1 * x[:, 4:8]).argmax(dim=1)
        sparsifier.before_backward(step)
        F.cross_entropy(module(x), label).backward()
        sparsifier.before_optimizer_step(step)
        optimizer.step()
        optimizer.zero_grad()
        update = sparsifier.after_optimizer_step(step, [optimizer])
        if update is not None:
            updates[step] = update
    return updates


@pytest.mark.parametrize("algorithm", [RigL(), SET(), Static()])
@pytest.mark.parametrize("distribution", [Uniform(), Uniform(first_layer_dense=False), ERK()])
@pytest.mark.parametrize("sparsity", [0.5, 0.9])
def test_the_number_of_non_zeros_of_every_layer_never_changes(
    algorithm: Algorithm, distribution: Uniform | ERK, sparsity: float
) -> None:
    module = network()
    sparsifier = Sparsifier(
        module,
        algorithm=algorithm,
        schedule=ConstantSparsity(sparsity, update_every=5, end_step=40),
        distribution=distribution,
    )
    sparsifier.start()
    wanted = {
        name: original_of(layer).numel() - round(sparsifier.allocation(sparsity)[name] * original_of(layer).numel())
        for name, layer in sparsifier.layers.items()
    }
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    for step in range(1, 51):
        train(module, sparsifier, optimizer, step, step)
        assert {name: int(mask_of(layer).sum()) for name, layer in sparsifier.layers.items()} == wanted
        assert all(
            torch.count_nonzero(original_of(layer)[~mask_of(layer)]) == 0 for layer in sparsifier.layers.values()
        )


def test_gradual_magnitude_follows_its_schedule_to_the_entry_and_learns() -> None:
    module = network()
    schedule = PolynomialDecay(0.9, begin_step=20, end_step=103, update_every=10)
    sparsifier = Sparsifier(module, algorithm=Magnitude(), schedule=schedule, distribution=Uniform(False))
    sparsifier.start()
    assert sparsifier.sparsity == 0.0
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    updates = train(module, sparsifier, optimizer, 1, 150)
    assert list(updates) == [20, 30, 40, 50, 60, 70, 80, 90, 100, 103]
    for layer in sparsifier.layers.values():
        n = mask_of(layer).numel()
        assert int(mask_of(layer).sum()) == n - round(0.9 * n)
    dropped = sum(layer.dropped for update in updates.values() for layer in update.layers.values())
    assert dropped == sum(round(0.9 * mask_of(layer).numel()) for layer in sparsifier.layers.values())


def test_a_grown_weight_is_zero_with_every_slot_empty_and_a_kept_one_keeps_both() -> None:
    module = network()
    sparsifier = Sparsifier(
        module, algorithm=RigL(), schedule=ConstantSparsity(0.8, update_every=10, end_step=100), distribution=ERK()
    )
    sparsifier.start()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01, amsgrad=True)
    train(module, sparsifier, optimizer, 1, 9)
    # Step 10 by hand, to look between the optimizer step and the update that follows it.
    sparsifier.before_backward(10)
    F.cross_entropy(module(torch.randn(32, 20)), torch.randint(0, 4, (32,))).backward()
    sparsifier.before_optimizer_step(10)
    optimizer.step()
    masks = {name: mask_of(layer).clone() for name, layer in sparsifier.layers.items()}
    weights = {name: original_of(layer).detach().clone() for name, layer in sparsifier.layers.items()}
    slots = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
    state = {name: optimizer.state[original_of(layer)] for name, layer in sparsifier.layers.items()}
    before = {(name, slot): state[name][slot].clone() for name in state for slot in slots}
    update = sparsifier.after_optimizer_step(10, [optimizer])
    assert update is not None
    grown_in_all = 0
    for name, layer in sparsifier.layers.items():
        grown, stayed = mask_of(layer) & ~masks[name], mask_of(layer) & masks[name]
        grown_in_all += int(grown.sum())
        assert update.layers[name].grown == int(grown.sum()) == update.layers[name].dropped
        assert torch.equal(original_of(layer), weights[name] * stayed)
        for slot in slots:
            assert torch.equal(state[name][slot], before[name, slot] * stayed)
    assert grown_in_all > 0


def test_rigl_grows_by_the_gradient_of_the_step_it_follows() -> None:
    # One layer, one active weight of four, the loss a known linear function: growth must follow the known gradient.
    module = nn.Linear(4, 1, bias=False)
    sparsifier = Sparsifier(
        module,
        algorithm=RigL(drop_fraction=1.0, annealing="constant"),
        schedule=ConstantSparsity(0.75, update_every=1, end_step=-1),
        distribution=Uniform(False),
    )
    sparsifier.start()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
    for step, largest in enumerate((2, 0, 3), start=1):
        x = torch.ones(1, 4)
        x[0, largest] = 10.0
        sparsifier.before_backward(step)
        module(x).sum().backward()
        sparsifier.before_optimizer_step(step)
        optimizer.step()
        optimizer.zero_grad()
        sparsifier.after_optimizer_step(step, [optimizer])
        assert mask_of(module).nonzero().tolist() == [[0, largest]]


def test_first_masks_are_random_exact_and_equal_for_equal_seeds() -> None:
    def first(seed: int) -> list[torch.Tensor]:
        sparsifier = Sparsifier(
            network(), algorithm=RigL(), schedule=ConstantSparsity(0.9, end_step=10), distribution=ERK(), seed=seed
        )
        sparsifier.start()
        return [mask_of(layer) for layer in sparsifier.layers.values()]

    assert all(torch.equal(a, b) for a, b in zip(first(3), first(3), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first(3), first(4), strict=True))


def test_a_network_that_is_masked_already_keeps_its_masks() -> None:
    module = network()
    arguments = {"algorithm": RigL(), "schedule": ConstantSparsity(0.9, end_step=10), "distribution": ERK()}
    one = Sparsifier(module, **arguments)
    one.start()
    masks = {name: mask_of(layer).clone() for name, layer in one.layers.items()}
    two = Sparsifier(module, **arguments, seed=99)
    two.start()
    assert all(torch.equal(masks[name], mask_of(layer)) for name, layer in two.layers.items())


def test_a_gradient_that_is_not_finite_is_no_update_and_is_counted() -> None:
    module = network()
    sparsifier = Sparsifier(module, algorithm=RigL(), schedule=ConstantSparsity(0.5, update_every=1, end_step=9))
    sparsifier.start()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
    masks = {name: mask_of(layer).clone() for name, layer in sparsifier.layers.items()}
    sparsifier.before_backward(1)
    (module(torch.randn(4, 20)).sum() * float("inf")).backward()
    sparsifier.before_optimizer_step(1)
    assert sparsifier.after_optimizer_step(1, [optimizer]) is None
    assert sparsifier.skipped_updates == 1
    assert all(torch.equal(masks[name], mask_of(layer)) for name, layer in sparsifier.layers.items())


def test_one_shot_pruning_happens_before_the_first_step() -> None:
    module = network()
    schedule: Schedule = ConstantSparsity(0.75, end_step=100)
    sparsifier = Sparsifier(
        module, algorithm=Magnitude(), schedule=schedule, policy=AllWeights(), distribution=Uniform(False)
    )
    largest = module[2].weight.detach().abs().flatten().topk(225).values.min()
    sparsifier.start()
    assert sparsifier.sparsity == pytest.approx(0.75, abs=1e-3)
    assert module[2].weight[mask_of(module[2])].abs().min() == largest


def test_a_policy_that_picks_nothing_says_what_there_is() -> None:
    with pytest.raises(BadInputError, match=r"policy: Conv1x1\(\) picks no layer of Sequential; found 0, 2, 4"):
        Sparsifier(network(), algorithm=RigL(), schedule=ConstantSparsity(0.5, end_step=9), policy=Conv1x1())


@pytest.mark.parametrize(
    ("algorithm", "pattern", "sparsity"),
    [(RigL(), Block(4), 0.75), (Magnitude(), Block(4), 0.75), (RigL(), NM(1, 2), 0.5), (SNFS(), Unstructured(), 0.9)],
    ids=str,
)
def test_patterns_and_snfs_train_to_the_exact_count(algorithm: Algorithm, pattern: Pattern, sparsity: float) -> None:
    module = network()
    schedule: Schedule = ConstantSparsity(sparsity, update_every=5, end_step=40)
    if not algorithm.starts_sparse:
        schedule = PolynomialDecay(sparsity, update_every=5, end_step=40)
    sparsifier = Sparsifier(
        module, algorithm=algorithm, schedule=schedule, distribution=Uniform(False), pattern=pattern
    )
    sparsifier.start()
    updates = train(module, sparsifier, torch.optim.AdamW(module.parameters(), lr=0.01), 1, 50)
    assert sparsifier.shortfall() == {}
    assert sum(layer.grown for update in updates.values() for layer in update.layers.values()) > 0 or isinstance(
        algorithm, Magnitude
    )
    for layer in sparsifier.layers.values():
        units = pattern.pool(mask_of(layer).float()) > 0
        assert int(units.sum()) == units.numel() - round(sparsity * units.numel())
        assert torch.count_nonzero(original_of(layer)[~mask_of(layer)]) == 0


def test_snfs_grows_by_the_momentum_of_the_dense_gradient() -> None:
    # One active weight of three. Entry 1 has a large gradient once, entry 2 a middling one every time: after two steps at
    # momentum 0.9 the first has 0.9 * 0.1 * 5 = 0.45, the second 0.9 * 0.1 * 3 + 0.1 * 3 = 0.57.
    module = nn.Linear(3, 1, bias=False)
    sparsifier = Sparsifier(
        module,
        algorithm=SNFS(drop_fraction=1.0, annealing="constant"),
        schedule=ConstantSparsity(2 / 3, begin_step=2, update_every=2, end_step=10),
        distribution=Uniform(False),
    )
    set_first = torch.tensor([[True, False, False]])
    masks.set_mask(module, set_first)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
    for step, x in enumerate(([0.0, 5.0, 3.0], [0.0, 0.0, 3.0]), start=1):
        sparsifier.before_backward(step)
        module(torch.tensor([x])).sum().backward()
        sparsifier.before_optimizer_step(step)
        optimizer.step()
        optimizer.zero_grad()
        sparsifier.after_optimizer_step(step, [optimizer])
    assert mask_of(module).tolist() == [[False, False, True]]


def test_global_pruning_shares_one_threshold_and_keeps_the_total_exact() -> None:
    module = network()
    with torch.no_grad():
        module[2].weight.mul_(10)  # a layer of large weights keeps more
    sparsifier = Sparsifier(
        module,
        algorithm=Magnitude(),
        schedule=PolynomialDecay(0.9, update_every=5, end_step=20),
        distribution=Global(floor=0.05),
    )
    sparsifier.start()
    train(module, sparsifier, torch.optim.SGD(module.parameters(), lr=0.01), 1, 20)
    total = sum(mask_of(layer).numel() for layer in sparsifier.layers.values())
    assert sum(int(mask_of(layer).sum()) for layer in sparsifier.layers.values()) == total - round(0.9 * total)
    found = sparsifier.layer_sparsity()
    assert found["2"] < found["0"] <= 0.95
    assert sparsifier.shortfall() == {}


def test_what_does_not_go_together_is_refused() -> None:
    schedule = ConstantSparsity(0.5, end_step=10)
    with pytest.raises(BadInputError, match="Global compares magnitudes"):
        Sparsifier(network(), algorithm=RigL(), schedule=schedule, distribution=Global())
    with pytest.raises(BadInputError, match=r"2:4 sparsity is 0\.5"):
        Sparsifier(network(), algorithm=RigL(), schedule=schedule, distribution=ERK(), pattern=NM(2, 4))
    with pytest.raises(BadInputError, match="past the"):
        Sparsifier(network(), algorithm=RigL(), schedule=schedule, distribution=PerLayer({"0": 0.9, "2": 0.9}))


@pytest.mark.parametrize("distribution", [ERK(), Uniform(first_layer_dense=False), Global()])
def test_layers_that_the_policy_leaves_out_are_outside_the_budget(distribution: Distribution) -> None:
    """90 % of layer 2 alone, however many weights layer 0 has."""
    module = network()
    sparsifier = Sparsifier(
        module,
        algorithm=Magnitude(),
        schedule=ConstantSparsity(0.9, end_step=0),
        policy=ByName(include=["2"]),
        distribution=distribution,
    )
    sparsifier.start()
    mask = mask_of(sparsifier.layers["2"])
    assert list(sparsifier.layers) == ["2"]
    assert int(mask.sum()) == mask.numel() - round(0.9 * mask.numel())


def test_a_sparsity_is_a_share_of_the_whole_weight_and_does_not_compound() -> None:
    """Torch's float `amount` takes a share of what is left: 50 % twice is 75 % there."""
    layer = nn.Linear(10, 10)
    prune.l1_unstructured(layer, "weight", amount=0.5)
    module = nn.Sequential(layer)
    for target in (0.5, 0.6):
        schedule = ConstantSparsity(target, end_step=0)
        Sparsifier(module, algorithm=Magnitude(), schedule=schedule, distribution=Uniform(False)).start()
        assert int(mask_of(layer).sum()) == 100 - round(100 * target)
