"""Ranks of channels inside a network: where maps are seen, what they cost, and pruning by them."""

import pytest
import torch
from channels import Residual
from torch import nn

from sparsetorch import Channel, Global, HRank, PolynomialDecay, StepList, Uniform
from sparsetorch.errors import BadInputError
from sparsetorch.sparsify.hrank import feature_map_ranks
from sparsetorch.structured.channel_sparsifier import ChannelSparsifier
from sparsetorch.structured.feature_ranks import hrank_scores
from sparsetorch.structured.groups import channel_groups, prunable


def test_a_map_is_what_its_readers_see() -> None:
    torch.manual_seed(0)
    network = Residual(4).eval()
    groups = prunable(channel_groups(network, (3, 8, 8)))
    images = torch.randn(6, 3, 8, 8)
    inputs: dict[str, torch.Tensor] = {}
    for name in ("conv1", "conv2", "down"):
        network.get_submodule(name).register_forward_pre_hook(lambda _m, x, name=name: inputs.update({name: x[0]}))
    outputs = {}
    for name in ("bn3", "bn4"):
        network.get_submodule(name).register_forward_hook(lambda _m, _x, y, name=name: outputs.update({name: y}))
    scores = hrank_scores(network, groups, [images])
    assert scores["conv1"].tolist() == feature_map_ranks(inputs["conv2"]).tolist()
    stem = (feature_map_ranks(inputs["conv1"]) + feature_map_ranks(inputs["down"])) / 2
    assert scores["stem"].tolist() == pytest.approx(stem.tolist())
    down = (feature_map_ranks(outputs["bn3"]) + feature_map_ranks(outputs["bn4"])) / 2  # only a linear layer reads it
    assert scores["down"].tolist() == pytest.approx(down.tolist())
    halves = hrank_scores(network, groups, [images[:2], images[2:]])
    for name, score in halves.items():
        assert score.tolist() == pytest.approx(scores[name].tolist())


class Concatenated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(1, 2, 1), nn.Conv2d(1, 2, 1), nn.Conv2d(4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(torch.cat([self.a(x), 0 * self.b(x)], dim=1))


def test_a_concatenation_gives_every_group_its_own_maps() -> None:
    groups = prunable(channel_groups(Concatenated(), (1, 4, 4)))
    scores = hrank_scores(Concatenated(), groups, [torch.randn(2, 1, 4, 4)])
    assert scores["a"].tolist() == [4.0, 4.0]
    assert scores["b"].tolist() == [0.0, 0.0]


def loop(**options: object) -> ChannelSparsifier:
    torch.manual_seed(0)
    given = {
        "algorithm": HRank(batches=2),
        "schedule": StepList([[4, 0.5]]),
        "pattern": Channel((3, 8, 8)),
        "distribution": Uniform(first_layer_dense=False),
    }
    return ChannelSparsifier(Residual(8), **(given | options))  # type: ignore[arg-type]


def train(sparsifier: ChannelSparsifier, last: int, first: int = 1) -> None:
    for step in range(first, last + 1):
        sparsifier.before_backward(step)
        sparsifier.module(torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(step)))
        sparsifier.before_optimizer_step(step)
        sparsifier.after_optimizer_step(step, [])


def test_hrank_plus_prunes_the_lowest_ranks_of_all_layers_at_once() -> None:
    sparsifier = loop()
    train(sparsifier, 3)
    assert sparsifier.ranks is not None
    assert sparsifier.ranks.attached
    assert sparsifier.sparsity == 0.0
    train(sparsifier, 4, 4)
    scores = sparsifier.ranks.scores()
    for name, keep in sparsifier.channels.keep.items():
        assert int(keep.sum()) == keep.numel() // 2
        assert scores[name][keep].min() >= scores[name][~keep].max()
    assert not sparsifier.ranks.attached
    train(sparsifier, 6, 5)
    assert sparsifier.shortfall() == {}
    assert not any(layer._forward_pre_hooks for layer in (sparsifier.module.bn1, sparsifier.module.bn3))


def test_hrank_goes_layer_by_layer() -> None:
    schedule = PolynomialDecay(0.5, power=1.0, begin_step=4, update_every=4, end_step=12)
    sparsifier = loop(algorithm=HRank(batches=1, one_by_one=True), schedule=schedule)
    reached = []
    for step in range(1, 13):
        train(sparsifier, step, step)
        if step % 4 == 0:
            reached.append([int(keep.sum()) for keep in sparsifier.channels.keep.values()])
    assert reached == [[4, 8, 16], [4, 4, 16], [4, 4, 8]]


def test_a_stop_while_maps_are_looked_at_loses_nothing() -> None:
    straight, stopped, resumed = loop(), loop(), loop()
    train(straight, 4)
    train(stopped, 3)
    resumed.module.load_state_dict(stopped.module.state_dict())
    resumed.load_state_dict(stopped.state_dict())
    train(resumed, 4, 4)
    assert {name: keep.tolist() for name, keep in resumed.channels.keep.items()} == {
        name: keep.tolist() for name, keep in straight.channels.keep.items()
    }


def test_an_update_before_any_batch_and_ranks_over_layers_are_refused() -> None:
    with pytest.raises(BadInputError, match=r"update at step 0, before any batch .* first update at step 2"):
        loop(schedule=StepList([[0, 0.5]])).start()
    with pytest.raises(BadInputError, match="feature maps of different sizes"):
        loop(distribution=Global())
