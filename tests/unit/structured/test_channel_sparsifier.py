"""The loop of channel pruning: exact sparsity at the end, regrowth on the way, and refusals."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from channels import Residual
from torch import nn

from sparsetorch import (
    CHEX,
    ByName,
    Channel,
    ConstantSparsity,
    Global,
    InEpochs,
    Magnitude,
    PerLayer,
    PolynomialDecay,
    RigL,
    StepList,
    Uniform,
)
from sparsetorch.errors import BadInputError
from sparsetorch.masking.sparsifier import Update
from sparsetorch.sparsify.chex import channel_counts, gram, leverage_scores, regrow_share
from sparsetorch.sparsify.mask import keep_top
from sparsetorch.structured.channel_sparsifier import ChannelSparsifier
from sparsetorch.structured.chex_update import columns_of

SHAPE = Channel((3, 8, 8))


def network(width: int = 8) -> Residual:
    torch.manual_seed(0)
    return Residual(width)


def sparsifier(module: nn.Module | None = None, **options: Any) -> ChannelSparsifier:
    given = {"algorithm": CHEX(0.4), "schedule": ConstantSparsity(0.5, update_every=5, end_step=40), "pattern": SHAPE}
    return ChannelSparsifier(network() if module is None else module, **(given | options))


def train(loop: ChannelSparsifier, last: int, first: int = 1) -> dict[int, Update]:
    optimizer = torch.optim.SGD(loop.module.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    updates = {}
    for step in range(first, last + 1):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(16, 3, 8, 8, generator=generator)
        loop.before_backward(step)
        F.cross_entropy(loop.module(x), x.mean((2, 3)).argmax(dim=1)).backward()
        loop.before_optimizer_step(step)
        optimizer.step()
        optimizer.zero_grad()
        update = loop.after_optimizer_step(step, [optimizer])
        if update is not None:
            updates[step] = update
    return updates


def kept(loop: ChannelSparsifier) -> int:
    return sum(int(keep.sum()) for keep in loop.channels.keep.values())


def test_chex_prunes_and_regrows_and_ends_exactly_at_its_sparsity() -> None:
    loop = sparsifier()
    loop.start()
    total = 8 + 8 + 16
    assert kept(loop) == total - round(total * (0.5 - 0.4))
    counts, masks = {}, {}
    for step in range(1, 51):
        if train(loop, step, step):
            counts[step] = kept(loop)
            masks[step] = torch.cat(list(loop.channels.keep.values()))
        assert all(bool(keep.any()) for keep in loop.channels.keep.values())
    assert list(counts) == [5, 10, 15, 20, 25, 30, 35, 40]
    assert counts == {step: total - round(total * max(0.5 - regrow_share(0.4, step / 40), 0.0)) for step in counts}
    assert kept(loop) == total // 2
    assert loop.sparsity == 0.5
    assert loop.shortfall() == {}
    came_back = sum(int((masks[step] & ~masks[step - 5]).sum()) for step in list(counts)[1:])
    assert came_back > 0
    for name, keep in loop.channels.keep.items():
        bn = {"stem": loop.module.bn2, "conv1": loop.module.bn1, "down": loop.module.bn4}[name]
        assert torch.equal(bn.weight != 0, keep)
        assert torch.equal(bn.bias != 0, keep)


def test_a_later_update_keeps_by_leverage_and_draws_the_rest() -> None:
    loop = sparsifier()
    loop.start()
    train(loop, 4)
    group = loop.groups["conv1"]
    active = loop.channels.keep["conv1"].clone()
    gammas = {
        "stem": (loop.module.bn0.weight.abs() + loop.module.bn2.weight.abs()) / 2,
        "conv1": loop.module.bn1.weight.abs(),
        "down": (loop.module.bn3.weight.abs() + loop.module.bn4.weight.abs()) / 2,
    }
    scores = {name: gamma.detach().masked_fill(~loop.channels.keep[name], -1.0) for name, gamma in gammas.items()}
    at_s = channel_counts(scores, 0.5)["conv1"]
    after = channel_counts(scores, 0.5 - regrow_share(0.4, 5 / 40))["conv1"]
    x = columns_of(loop.channels, group, "conv1")
    leverage = leverage_scores(gram(x)[active][:, active], at_s)
    stays = active.clone()
    stays[active] = keep_top(leverage, at_s)
    loop.update(5, [])
    new = loop.channels.keep["conv1"]
    assert bool((new & stays).sum() == at_s)  # every column of the subset is there
    assert int(new.sum()) == after


def test_pruned_candidates_are_scored_with_the_values_they_last_had() -> None:
    loop = sparsifier()
    before = loop.module.conv1.weight.detach().clone()
    keep = torch.tensor([True] * 4 + [False] * 4)
    loop.channels.set({"conv1": keep})
    torch.testing.assert_close(columns_of(loop.channels, loop.groups["conv1"], "conv1").T, before.double().flatten(1))
    stem = torch.ones(8, dtype=torch.bool)
    stem[0] = False
    loop.channels.set({"stem": stem})  # what nothing produces any more counts for no column
    found = columns_of(loop.channels, loop.groups["conv1"], "conv1").T.reshape(before.shape)
    assert torch.count_nonzero(found[:, 0]) == 0
    torch.testing.assert_close(found[:, 1:], before[:, 1:].double())


def test_without_regrowth_a_channel_never_comes_back() -> None:
    loop = sparsifier(algorithm=CHEX(0.4, regrow="none"))
    loop.start()
    counts = [kept(loop)]
    for step in range(1, 41):
        before = {name: keep.clone() for name, keep in loop.channels.keep.items()}
        if train(loop, step, step):
            counts.append(kept(loop))
            assert all(not bool((keep & ~before[name]).any()) for name, keep in loop.channels.keep.items())
    exploring = [32 - round(32 * max(0.5 - regrow_share(0.4, step / 40), 0.0)) for step in range(0, 41, 5)]
    assert counts == exploring  # as many channels at every step as CHEX has
    assert loop.channels.memory is None


def test_a_layer_of_small_gammas_keeps_a_channel() -> None:
    module = network()
    with torch.no_grad():
        module.bn1.weight.mul_(1e-6)
    loop = sparsifier(module, algorithm=CHEX(0.0), schedule=ConstantSparsity(0.7, end_step=10))
    loop.start()
    assert int(loop.channels.keep["conv1"].sum()) == 1
    assert kept(loop) == 32 - round(0.7 * 32)


def test_a_floor_keeps_its_share_of_a_layer_of_small_gammas() -> None:
    module = network()
    with torch.no_grad():
        module.bn1.weight.mul_(1e-6)
    schedule = ConstantSparsity(0.5, end_step=10)
    loop = sparsifier(module, algorithm=CHEX(0.0, floor=0.25), schedule=schedule)
    loop.start()
    assert int(loop.channels.keep["conv1"].sum()) == 2
    assert kept(loop) == 16
    with pytest.raises(BadInputError, match=r"go below their floor \(16 in all\)"):
        sparsifier(network(), algorithm=CHEX(floor=0.5), schedule=ConstantSparsity(0.6, end_step=10))


def test_fan_in_below_the_number_of_channels_has_a_fallback() -> None:
    # 1x1 from 2 to 12 channels: rank 2, ten channels to keep.
    module = nn.Sequential(nn.Conv2d(2, 12, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 3, 1))
    loop = sparsifier(module, pattern=Channel((2, 4, 4)), schedule=ConstantSparsity(1 / 6, end_step=10))
    for step in (0, 10):
        loop.update(step, [])
    assert kept(loop) == 10


def test_equal_runs_are_equal_and_other_seeds_are_not() -> None:
    def masks(seed: int) -> list[list[bool]]:
        loop = sparsifier(seed=seed)
        loop.start()
        train(loop, 20)
        return [keep.tolist() for keep in loop.channels.keep.values()]

    assert masks(1) == masks(1)
    assert masks(1) != masks(2)


def test_magnitude_prunes_channels_one_shot_or_gradually() -> None:
    module = network()
    with torch.no_grad():
        module.conv1.weight[2] *= 1e-3
    loop = sparsifier(module, algorithm=Magnitude(), schedule=StepList([[0, 0.125]]))
    loop.start()
    assert loop.channels.keep["conv1"].tolist() == [True, True, False, True, True, True, True, True]
    assert bool(loop.channels.keep["stem"].all())  # Uniform keeps the first layer dense
    schedule = PolynomialDecay(0.5, update_every=5, end_step=20)
    gradual = sparsifier(algorithm=Magnitude(), schedule=schedule, distribution=Uniform(first_layer_dense=False))
    train(gradual, 20)
    assert {name: int(keep.sum()) for name, keep in gradual.channels.keep.items()} == {"stem": 4, "conv1": 4, "down": 8}
    assert gradual.shortfall() == {}
    together = sparsifier(algorithm=Magnitude(), schedule=schedule, distribution=Global())
    train(together, 20)
    assert kept(together) == 16
    named = sparsifier(
        algorithm=Magnitude(), schedule=schedule, distribution=PerLayer({"conv1": 0.75, "stem": 0.5, "down": 0.375})
    )
    train(named, 20)
    assert {name: int(keep.sum()) for name, keep in named.channels.keep.items()} == {"stem": 4, "conv1": 2, "down": 10}


def test_a_policy_picks_groups_by_the_layers_that_make_them() -> None:
    loop = sparsifier(policy=ByName(exclude=["stem"]))
    assert list(loop.groups) == ["conv1", "down"]
    with pytest.raises(BadInputError, match="no channel group"):
        sparsifier(policy=ByName(include=["fc"]))


def test_what_does_not_go_together_is_refused() -> None:
    plain = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 4, 1))
    with pytest.raises(BadInputError, match=r'those of 0 pass none\. Use CHEX\(structure="l1"\)'):
        sparsifier(plain)
    loop = sparsifier(plain, algorithm=CHEX(0.4, structure="l1"))
    loop.start()
    assert kept(loop) == 7
    with pytest.raises(BadInputError, match="algorithm: found RigL with the pattern Channel"):
        sparsifier(algorithm=RigL())
    with pytest.raises(BadInputError, match="CHEX shares channels out itself"):
        sparsifier(distribution=Global())
    with pytest.raises(BadInputError, match=r"0\.95 of 32 channels keeps 2, which would empty some of the 3"):
        sparsifier(schedule=ConstantSparsity(0.95, end_step=9))


def test_a_weight_that_is_not_finite_is_no_update() -> None:
    loop = sparsifier()
    with torch.no_grad():
        loop.module.fc.weight_orig[0, 0] = torch.nan
    assert loop.after_optimizer_step(5, []) is None
    assert loop.skipped_updates == 1


def test_epochs_become_steps() -> None:
    inner = ConstantSparsity(0.7, begin_step=1, end_step=180, update_every=2)
    assert InEpochs(inner).in_steps(100) == ConstantSparsity(0.7, begin_step=100, end_step=18000, update_every=200)
    shares = InEpochs(ConstantSparsity(0.7, end_step=0.72, update_every=2)).in_steps(50.5)
    assert shares == ConstantSparsity(0.7, end_step=0.72, update_every=101)
    assert InEpochs(StepList([[0.5, 0.2], [3, 0.4]])).in_steps(10).steps == [(0.5, 0.2), (30, 0.4)]
    assert InEpochs(inner).target_sparsity() == 0.7
    with pytest.raises(BadInputError, match="not known yet"):
        InEpochs(inner).resolve(100)
