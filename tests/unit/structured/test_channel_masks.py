"""Masks by channel group: exactly zero after batch-norm, through any optimizer; and back as it was."""

from typing import Any

import pytest
import torch
from channels import Residual, randomise
from torch import nn

from sparsetorch.masking import mask_of
from sparsetorch.structured.channel_masks import ChannelMasks
from sparsetorch.structured.groups import channel_groups, prunable


def masked(remember: bool = True, width: int = 4) -> tuple[Residual, ChannelMasks]:
    torch.manual_seed(0)
    network = Residual(width)
    randomise(network).train()
    return network, ChannelMasks(network, prunable(channel_groups(network, (3, 8, 8))), remember)


def without(size: int, *gone: int) -> torch.Tensor:
    keep = torch.ones(size, dtype=torch.bool)
    keep[list(gone)] = False
    return keep


def outputs(network: nn.Module, names: list[str], image: torch.Tensor) -> dict[str, torch.Tensor]:
    seen: dict[str, torch.Tensor] = {}
    hooks = [
        network.get_submodule(name).register_forward_hook(lambda _m, _i, out, name=name: seen.update({name: out}))
        for name in names
    ]
    network(image)
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
        (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True}),
    ],
)
def test_a_pruned_channel_stays_zero_after_batch_norm_through_training(optimizer: Any, options: dict[str, Any]) -> None:
    network, channels = masked()
    run = optimizer(network.parameters(), **options)

    def step() -> None:
        run.zero_grad()
        network(torch.randn(8, 3, 8, 8)).square().sum().backward()
        run.step()

    step()  # the optimizer has momentum by now
    report = channels.set({"stem": without(4, 1, 2), "conv1": without(4, 0)}, [run])
    assert report["conv1"].dropped == 4 * 36 - 3 * 2 * 9  # rows of 0, columns of 1 and 2
    assert report["depthwise"].dropped == 0
    for index in range(4):
        step()
        if index % 2:  # the masks and empty slots do it alone; `hold` is for optimizers that ignore both
            channels.hold()
        for mode in (True, False):
            network.train(mode)
            seen = outputs(network, ["bn0", "bn1", "bn2"], torch.randn(2, 3, 8, 8))
            assert torch.count_nonzero(seen["bn0"][:, [1, 2]]) == 0
            assert torch.count_nonzero(seen["bn2"][:, [1, 2]]) == 0
            assert torch.count_nonzero(seen["bn1"][:, 0]) == 0
            assert torch.count_nonzero(seen["bn1"][:, 1]) > 0
        network.train()
    assert torch.count_nonzero(network.down.weight[:, [1, 2]]) == 0
    assert channels.sparsity == pytest.approx(3 / 16)


def test_a_channel_comes_back_as_it_was_even_where_two_meet_in_one_weight() -> None:
    network, channels = masked()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    values = lambda: {name: value.clone() for name, value in network.state_dict().items()}  # noqa: E731
    # conv1.weight[0, 1] belongs to channel 0 of conv1 and to channel 1 of the stem: masked by one, then by the other.
    channels.set({"conv1": without(4, 0)})
    channels.set({"stem": without(4, 1)})
    assert mask_of(network.conv1)[0, 1].sum() == 0
    channels.set({"conv1": without(4)})
    assert torch.count_nonzero(network.conv1.weight[0, 1]) == 0  # the stem's channel is still away
    assert torch.equal(network.conv1.weight[0, 0], before["conv1.weight_orig"][0, 0])
    channels.set({"stem": without(4)})
    after = values()
    assert all(torch.equal(after[name], before[name]) for name in before)
    # Several cycles, and the value remembered is that of the last use.
    with torch.no_grad():
        network.bn1.weight[2] = 7.0
    channels.set({"conv1": without(4, 2)})
    assert network.bn1.weight[2] == 0
    channels.set({"conv1": without(4, 2, 3)})
    channels.set({"conv1": without(4, 3)})
    assert network.bn1.weight[2] == 7.0
    assert network.bn1.running_mean[2] == before["bn1.running_mean"][2]
    assert network.bn1.running_var[2] == before["bn1.running_var"][2]
    assert network.bn1.bias[2] == before["bn1.bias"][2]


def test_the_bias_of_a_convolution_goes_and_comes_back_too() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))
    channels = ChannelMasks(network, prunable(channel_groups(network, (3, 4, 4))), remember=True)
    before = network[0].bias.detach().clone()
    channels.set({"0": without(4, 2)})
    assert network[0].bias[2] == 0
    assert torch.equal(network[0].bias[[0, 1, 3]], before[[0, 1, 3]])
    channels.set({"0": without(4)})
    assert torch.equal(network[0].bias, before)


def test_what_comes_back_has_empty_slots_and_what_stays_keeps_them() -> None:
    network, channels = masked()
    run = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    network(torch.randn(8, 3, 8, 8)).square().sum().backward()
    run.step()
    slot = run.state[network.bn1.weight]["momentum_buffer"]
    held = slot.clone()
    channels.set({"conv1": without(4, 0)}, [run])
    channels.set({"conv1": without(4)}, [run])
    assert slot[0] == 0
    assert torch.equal(slot[1:], held[1:])
    filters = run.state[network.conv1.weight_orig]["momentum_buffer"]
    assert torch.count_nonzero(filters[0]) == 0
    assert torch.count_nonzero(filters[1]) > 0


def test_without_memory_a_channel_comes_back_empty() -> None:
    network, channels = masked(remember=False)
    channels.set({"conv1": without(4, 0)})
    channels.set({"conv1": without(4)})
    assert torch.count_nonzero(network.conv1.weight[0]) == 0
    assert bool(mask_of(network.conv1).all())


def test_masks_of_a_loaded_network_are_read() -> None:
    network, channels = masked()
    channels.set({"stem": without(4, 3), "down": without(8, 0, 5)})
    other, read = masked()
    other.load_state_dict(network.state_dict())
    read.read()
    assert {name: kept.tolist() for name, kept in read.keep.items()} == {
        name: kept.tolist() for name, kept in channels.keep.items()
    }


def test_single_weights_masked_for_another_reason_stay_masked() -> None:
    network, channels = masked()
    mask = mask_of(network.conv1)
    mask[1, 1, 1, 1] = False
    channels.set({"conv1": without(4, 1)})
    channels.set({"conv1": without(4)})
    assert (~mask_of(network.conv1)).sum() == 1
    assert not mask_of(network.conv1)[1, 1, 1, 1]
