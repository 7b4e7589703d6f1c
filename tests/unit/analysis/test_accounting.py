"""`account`: worked by hand, against the verifier, and against the FLOP shares that RigL's paper gives for ResNet-50."""

import pytest
import torch
import torchvision
from torch import nn
from torch.nn.utils import prune

from sparsetorch import ERK, Uniform
from sparsetorch.analysis import account
from sparsetorch.errors import BadInputError
from sparsetorch.masking import attach, mask_of, masked_layers
from sparsetorch.sparsify.distribution import Distribution
from sparsetorch.sparsify.policy import weight_layers


class Net(nn.Module):
    """A convolution, a depthwise and a 1x1 convolution, and a linear layer, of known costs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm = nn.BatchNorm2d(8)
        self.pointwise = nn.Conv2d(8, 16, 1)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(16, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.pointwise(self.norm(self.depthwise(self.conv(image))))
        logits: torch.Tensor = self.fc(self.drop(x.mean(dim=(2, 3))))
        return logits


def test_macs_worked_by_hand() -> None:
    counted = account(Net(), (3, 16, 16))
    # 16x16 at stride 2 is 8x8 = 64 positions; a weight is used once at each.
    assert {layer.module: layer.dense_macs for layer in counted.layers} == {
        "conv": 8 * 3 * 3 * 3 * 64,
        "depthwise": 8 * 1 * 3 * 3 * 64,
        "pointwise": 16 * 8 * 64,
        "fc": 160,
    }
    assert counted.dense_macs == counted.sparse_macs == 13_824 + 4_608 + 8_192 + 160
    assert counted.parameters == (216 + 8) + (72 + 8) + (8 + 8) + (128 + 16) + (160 + 10)
    assert counted.dense_bytes == 4 * (216 + 72 + 128 + 160)
    assert counted.sparsity == 0.0


def test_zeros_worked_by_hand_with_a_mask_on() -> None:
    net = Net()
    nn.init.constant_(net.pointwise.weight, 0.5)
    mask = torch.zeros(16, 8, 1, 1, dtype=torch.bool)
    mask[:, 0] = True
    attach(net.pointwise, mask)
    layer = account(net, (3, 16, 16)).layers[2]
    assert (layer.parameters, layer.non_zero, layer.sparsity) == (128, 16, 0.875)
    assert layer.sparse_macs == 16 * 64
    assert account(net).sparsity == 0.875


def test_a_weight_behind_a_mask_is_zero_whatever_it_holds_and_small_ones_are_not() -> None:
    layer = nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, -0.0, 1e-30, 3.0]]))
    prune.custom_from_mask(layer, "weight", torch.tensor([[0.0, 1.0, 1.0, 1.0]]))
    counted = account(layer, (4,))
    assert counted.layers[0].non_zero == counted.non_zero == 2
    assert counted.layers[0].sparse_macs == 2


def test_a_pruned_bias_is_zero_too() -> None:
    layer = nn.Linear(4, 2)
    nn.init.ones_(layer.weight)
    nn.init.ones_(layer.bias)
    prune.custom_from_mask(layer, "bias", torch.tensor([0.0, 1.0]))
    assert (account(layer).parameters, account(layer).non_zero) == (10, 9)


def test_tied_weights_are_counted_once_and_multiplied_twice() -> None:
    net = nn.Sequential(nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False))
    net[1].weight = net[0].weight
    counted = account(net, (6,))
    assert counted.layers[1].shared_with == "0"
    assert (counted.parameters, counted.dense_bytes, counted.dense_macs) == (36, 144, 72)


def test_a_layer_called_twice_works_twice() -> None:
    shared = nn.Linear(6, 6, bias=False)
    counted = account(nn.Sequential(shared, nn.ReLU(), shared), (6,))
    assert [(layer.module, layer.dense_macs) for layer in counted.layers] == [("0", 72)]


def test_counting_leaves_mode_random_state_gradients_and_buffers_alone() -> None:
    net = Net()
    attach(net.pointwise, torch.rand(16, 8, 1, 1) > 0.5)
    net.norm.eval()
    net(torch.rand(2, 3, 16, 16)).sum().backward()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    gradients = {name: parameter.grad.clone() for name, parameter in net.named_parameters()}
    modes = [module.training for module in net.modules()]
    random_state = torch.get_rng_state()
    account(net, (3, 16, 16))
    assert [module.training for module in net.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(torch.equal(parameter.grad, gradients[name]) for name, parameter in net.named_parameters())
    assert masked_layers(net).keys() == {"pointwise"}
    net(torch.rand(2, 3, 16, 16)).sum().backward()  # and training goes on


def test_a_layer_that_is_not_encoded_takes_its_dense_bytes() -> None:
    net = Net()
    with torch.no_grad():
        net.conv.weight[0] = 0.0  # 27 of 216, less than what an index costs
        net.pointwise.weight[:, 1:] = 0.0  # 16 of 128 left, but the metadata outweigh what is saved
    counted = {layer.module: layer for layer in account(net).layers}
    assert counted["conv"].sparsity == 0.125
    assert counted["conv"].bytes == counted["conv"].dense_bytes == 864
    assert counted["pointwise"].bytes <= counted["pointwise"].dense_bytes == 512


def test_half_precision_is_counted_too() -> None:
    assert account(Net().bfloat16(), (3, 16, 16)).dense_macs == account(Net(), (3, 16, 16)).dense_macs


def test_without_a_shape_there_are_no_macs() -> None:
    counted = account(Net())
    assert counted.dense_macs is counted.sparse_macs is counted.layers[0].sparse_macs is None
    assert counted.totals()["dense_macs"] is None


def test_a_shape_that_does_not_fit_is_named() -> None:
    with pytest.raises(BadInputError, match=r"input_shape: Net does not run on one input of shape \(1, 1, 16, 16\)"):
        account(Net(), (1, 16, 16))


ORACLE = [
    (ERK(), {0.8: 0.414, 0.9: 0.242, 0.95: 0.122}),
    (Uniform(), {0.8: 0.223, 0.9: 0.126, 0.95: 0.077}),
]


@pytest.mark.parametrize(("distribution", "shares"), ORACLE, ids=["erk", "uniform"])
def test_resnet50_share_of_dense_flops(distribution: Distribution, shares: dict[float, float]) -> None:
    """Evci et al. 2020, ResNet-50 on 224x224: share of the dense FLOPs.

    They come out to the third decimal under these assumptions: torchvision's resnet50 (stride on the 3x3 convolution); every
    convolution and the last linear layer sparse; with Uniform the first convolution dense, with ERK not; FLOPs of
    convolutions and linear layers alone. Without the linear layer in the budget ERK gives .407, .237, .119; without the
    first convolution .418, .259, .145.
    """
    net = torchvision.models.resnet50()
    layers = weight_layers(net)
    shapes = {name: tuple(layer.weight.shape) for name, layer in layers.items()}
    assert account(net, (3, 224, 224)).dense_macs == 4_089_184_256
    for layer in layers.values():
        attach(layer)
    for sparsity, share in shares.items():
        for name, wanted in distribution.allocate(shapes, sparsity).items():
            mask = mask_of(layers[name])
            mask.view(-1).fill_(True)[: round(wanted * mask.numel())] = False
        counted = account(net, (3, 224, 224))
        assert counted.dense_macs is not None
        assert counted.sparse_macs is not None
        assert counted.sparse_macs / counted.dense_macs == pytest.approx(share, abs=5e-4)
