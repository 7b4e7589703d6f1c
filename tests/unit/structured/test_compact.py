"""Compaction: the network without its pruned channels computes what the masked one computed."""

import copy

import pytest
import torch
import torchvision
from channels import Residual, prune_random, randomise, zero
from torch import nn

from sparsetorch.masking import make_permanent, masked_layers, masks
from sparsetorch.structured.compact import compact, make_compact, pruned_channels
from sparsetorch.structured.groups import channel_groups, prunable

NETWORKS = ["resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "densenet121"]


@pytest.mark.parametrize("name", NETWORKS)
def test_torchvision_networks_lose_half_of_their_channels_and_change_nothing(name: str) -> None:
    torch.manual_seed(0)
    network = randomise(getattr(torchvision.models, name)(weights=None))
    gone = prune_random(network, prunable(channel_groups(network, (3, 32, 32))), 0.5)
    smaller, report = compact(network, (3, 32, 32))
    assert report.removed == {group: int(chosen.sum()) for group, chosen in gone.items() if chosen.any()}
    assert report.kept == {}
    image = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(smaller(image), network(image), rtol=1e-5, atol=1e-5)
    assert report.parameters[1] < 0.45 * report.parameters[0]
    assert sum(parameter.numel() for parameter in smaller.parameters()) == report.parameters[1]


def test_a_small_network_is_cut_to_the_channels_that_stay() -> None:
    network = randomise(Residual(4))
    groups = {group.name: group for group in channel_groups(network, (3, 8, 8))}
    for member in groups["stem"].members:
        zero(network.get_submodule(member.module), member.role, [1, 2])
    before = copy.deepcopy(network)
    assert pruned_channels(network, groups["stem"]).tolist() == [False, True, True, False]
    assert make_compact(network, (3, 8, 8)) is network
    shapes = {name: tuple(value.shape) for name, value in network.named_parameters()}
    assert shapes["stem.weight"] == (2, 3, 3, 3)
    assert shapes["conv1.weight"] == (4, 2, 3, 3)
    assert shapes["conv2.weight"] == (2, 4, 3, 3)
    assert shapes["bn2.bias"] == (2,)
    assert shapes["down.weight"] == (8, 2, 1, 1)
    assert (network.stem.out_channels, network.bn0.num_features, network.down.in_channels) == (2, 2, 2)
    assert torch.equal(network.stem.weight, before.stem.weight[[0, 3]])
    assert torch.equal(network.bn2.running_var, before.bn2.running_var[[0, 3]])
    image = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(network(image), before(image), rtol=1e-5, atol=1e-6)
    network.train()(image).sum().backward()


def test_what_only_consumers_or_only_producers_have_pruned_goes_too() -> None:
    unread, silent, scaled = (randomise(Residual(4)) for _ in range(3))
    zero(unread.conv2, "in", [0])
    zero(silent.conv1, "out", [0])
    zero(silent.bn1, "channel", [0])
    zero(scaled.bn1, "channel", [0])  # gamma and beta alone, as network slimming leaves it
    for network in (unread, silent, scaled):
        assert compact(network, (3, 8, 8))[1].removed == {"conv1": 1}
    network = randomise(Residual(4))
    zero(network.conv1, "out", [0])  # the batch-norm after it still makes a constant of it
    assert compact(network, (3, 8, 8))[1].removed == {}


def test_a_producer_is_not_enough_where_an_activation_makes_something_of_zero() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sigmoid(), nn.Conv2d(4, 2, 1)).eval()
    zero(network[0], "out", [1])
    assert compact(network, (3, 4, 4))[1].removed == {}
    zero(network[2], "in", [1])
    assert compact(network, (3, 4, 4))[1].removed == {"0": 1}


def test_masks_are_cut_too_and_go_where_nothing_is_masked_any_more() -> None:
    network = randomise(Residual(4))
    rows = torch.ones_like(network.conv1.weight, dtype=torch.bool)
    rows[2] = False
    columns = torch.ones_like(network.conv2.weight, dtype=torch.bool)
    columns[:, 2] = False
    columns[0, 0] = False  # single weights may be masked as well
    masks.attach(network.conv1, rows)
    masks.attach(network.conv2, columns)
    image = torch.randn(2, 3, 8, 8)
    expected = network(image)
    smaller, report = compact(network, (3, 8, 8))
    assert report.removed == {"conv1": 1}
    assert list(masked_layers(smaller)) == ["conv2"]
    assert masks.mask_of(smaller.conv2).shape == (4, 3, 3, 3)
    torch.testing.assert_close(smaller(image), expected, rtol=1e-5, atol=1e-6)
    smaller(image).sum().backward()
    assert list(masked_layers(network)) == ["conv1", "conv2"]  # the network itself is as it was
    assert make_permanent(smaller).conv2.weight[0, 0].abs().sum() == 0


def test_a_flatten_and_a_transposed_convolution_lose_their_slices() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(6, 5, 2, stride=2),
        nn.BatchNorm2d(5),
        nn.PReLU(5),
        nn.Flatten(),
        nn.Linear(5 * 64, 3),
    )
    randomise(network)
    gone = prune_random(network, prunable(channel_groups(network, (3, 4, 4))), 0.5)
    smaller, report = compact(network, (3, 4, 4))
    assert report.removed == {name: int(chosen.sum()) for name, chosen in gone.items() if chosen.any()}
    image = torch.randn(2, 3, 4, 4)
    torch.testing.assert_close(smaller(image), network(image), rtol=1e-5, atol=1e-6)


class Fixed(nn.Module):
    """Sizes written into the forward, and a second branch without any."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.fc = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1), nn.Linear(64, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.c(self.b(self.a(x)).relu()).view(-1, 4 * 16))


def test_a_group_that_cannot_be_removed_stays_masked_and_says_why() -> None:
    network = Fixed().eval()
    prune_random(network, prunable(channel_groups(network, (3, 4, 4))), 0.5)
    image = torch.randn(2, 3, 4, 4)
    expected = network(image)
    with pytest.warns(UserWarning, match="channels of c stay masked: without them the network does not run"):
        make_compact(network, (3, 4, 4))
    assert network.a.out_channels < 4
    assert network.b.out_channels < 4
    assert network.c.out_channels == 4
    torch.testing.assert_close(network(image), expected, rtol=1e-5, atol=1e-6)


def test_a_grouped_convolution_stays_masked() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 8, 1, groups=2), nn.Conv2d(8, 2, 1)).eval()
    zero(network[0], "out", [1])
    _, report = compact(network, (3, 4, 4))
    assert report.removed == {}
    assert "1 is a grouped convolution (2 groups)" in report.kept["0"]


def test_a_layer_whose_channels_are_all_pruned_keeps_one() -> None:
    network = randomise(Residual(4))
    for member in next(g for g in channel_groups(network, (3, 8, 8)) if g.name == "conv1").members:
        zero(network.get_submodule(member.module), member.role, [0, 1, 2, 3])
    smaller, report = compact(network, (3, 8, 8))
    assert report.removed == {"conv1": 3}
    assert "a layer needs at least one" in report.kept["conv1"]
    image = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(smaller(image), network(image), rtol=1e-5, atol=1e-6)
