"""Channel groups: what is coupled to what, and which operators stand against it."""

import pytest
import torch
import torchvision
from channels import Residual
from torch import nn

from sparsetorch.errors import BadInputError
from sparsetorch.masking import masks
from sparsetorch.structured.groups import Group, channel_groups, guess_input_shape, prunable


def roles(group: Group) -> set[tuple[str, str]]:
    return {(member.module, member.role) for member in group.members}


def test_a_residual_add_couples_its_terms_and_everything_that_reads_them() -> None:
    groups = {group.name: group for group in channel_groups(Residual(8), (3, 8, 8))}
    assert list(groups) == ["stem", "conv1", "down", "fc"]
    assert roles(groups["stem"]) == {
        ("stem", "out"),
        ("bn0", "channel"),
        ("conv1", "in"),
        ("conv2", "out"),
        ("bn2", "channel"),
        ("down", "in"),
    }
    assert roles(groups["conv1"]) == {("conv1", "out"), ("bn1", "channel"), ("conv2", "in")}
    assert roles(groups["down"]) == {
        ("down", "out"),
        ("bn3", "channel"),
        ("depthwise", "channel"),
        ("bn4", "channel"),
        ("fc", "in"),
    }
    assert groups["fc"].why_not is not None
    assert "output of the network" in groups["fc"].why_not
    assert [group.name for group in prunable(list(groups.values()))] == ["stem", "conv1", "down"]
    assert groups["stem"].channels == 8
    assert groups["stem"].members[0].indices == tuple((j,) for j in range(8))
    assert [member.normalized for member in groups["stem"].members if member.role == "out"] == [True, True]


class Joined(nn.Module):
    """Two branches concatenated, then flattened into a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 2, 1), nn.Conv2d(3, 4, 1)
        self.norm = nn.BatchNorm2d(6)
        self.fc = nn.Linear(6 * 4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.flatten(self.norm(torch.cat([self.a(x), self.b(x)], dim=1)), 1))


def test_a_concatenation_shifts_and_a_flatten_multiplies() -> None:
    a, b, _ = channel_groups(Joined(), (3, 2, 2))
    assert [member.indices for member in a.members] == [
        ((0,), (1,)),
        ((0,), (1,)),
        ((0, 1, 2, 3), (4, 5, 6, 7)),
    ]
    assert b.name == "b"
    assert b.members[1].indices == ((2,), (3,), (4,), (5,))
    assert b.members[2].indices[0] == (8, 9, 10, 11)
    assert b.members[2].of(torch.tensor([False, True, False, False])) == [12, 13, 14, 15]


def test_every_output_channel_is_in_exactly_one_group() -> None:
    for make in (torchvision.models.resnet18, torchvision.models.mobilenet_v3_small, torchvision.models.densenet121):
        network = make(weights=None)
        seen: dict[str, list[int]] = {}
        for group in channel_groups(network, (3, 64, 64)):
            for member in group.of_role("out"):
                seen.setdefault(member.module, []).extend(i for own in member.indices for i in own)
        for name, layer in network.named_modules():
            depthwise = isinstance(layer, nn.Conv2d) and layer.groups > 1
            if isinstance(layer, nn.Conv2d | nn.Linear) and not depthwise:
                assert sorted(seen[name]) == list(range(layer.weight.shape[0])), name


class Permuted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.fc = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.b(self.a(x)).permute(0, 3, 2, 1).mean((1, 2)))


class Grouped(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 8, 1, groups=2), nn.Conv2d(8, 2, 1))


class OverChannels(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 4, 1), nn.GroupNorm(2, 4), nn.Conv2d(4, 2, 1))


@pytest.mark.parametrize(
    ("network", "name", "reason"),
    [
        (Permuted(), "b", "the operator Permute is not supported"),
        (Grouped(), "0", "1 is a grouped convolution \\(2 groups\\)"),
        (OverChannels(), "0", "1 \\(GroupNorm\\) is not supported"),
    ],
)
def test_what_stands_against_pruning_is_named(network: nn.Module, name: str, reason: str) -> None:
    groups = {group.name: group for group in channel_groups(network, (3, 4, 4))}
    with pytest.raises(BadInputError, match=f"{name}: .*{reason}"):
        prunable([groups[name]])


def test_a_network_that_cannot_be_followed_says_by_which_operators() -> None:
    with pytest.raises(BadInputError, match="not supported: Split, Transpose"):
        channel_groups(torchvision.models.shufflenet_v2_x0_5(weights=None), (3, 64, 64))


def test_an_input_that_does_not_fit_says_so() -> None:
    with pytest.raises(
        BadInputError, match=r"input_shape: Residual does not run on inputs of the shape \(2, 1, 8, 8\)"
    ):
        channel_groups(Residual(), (1, 8, 8))
    with pytest.raises(BadInputError, match="input_shape: Identity runs on none"):
        guess_input_shape(nn.Identity())


def test_the_shape_of_an_input_can_be_left_out() -> None:
    assert guess_input_shape(Residual()) == (3, 32, 32)
    assert guess_input_shape(nn.Linear(7, 2)) == (7,)
    network = Residual()
    network.example_input_array = torch.zeros(1, 3, 12, 10)
    assert guess_input_shape(network) == (3, 12, 10)


def test_masks_do_not_hide_couplings_and_nothing_is_left_behind() -> None:
    network = Residual()
    plain = channel_groups(network, (3, 8, 8))
    network.train()
    network.conv1.weight.requires_grad_(False)
    torch.manual_seed(3)
    mask = torch.rand_like(network.conv2.weight) > 0.5
    masks.attach(network.conv2, mask)
    keys, order = list(network.state_dict()), [name for name, _ in network.named_parameters()]
    parameters, state = list(network.parameters()), torch.get_rng_state()
    assert channel_groups(network, (3, 8, 8)) == plain
    assert torch.equal(torch.get_rng_state(), state)
    assert list(network.state_dict()) == keys
    assert [name for name, _ in network.named_parameters()] == order
    assert all(one is other for one, other in zip(network.parameters(), parameters, strict=True))
    assert network.training
    assert not network.conv1.weight.requires_grad
    assert network.conv1.weight.grad is None
    assert torch.equal(masks.mask_of(network.conv2), mask)
    assert all(not layer._forward_hooks for layer in network.modules())
    network(torch.zeros(1, 3, 8, 8)).sum().backward()
    assert torch.equal(network.conv2.weight != 0, mask)
