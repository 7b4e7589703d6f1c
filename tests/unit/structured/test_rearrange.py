"""Filter rearrangement: the same network in another order, and full blocks for XNNPACK's kernels."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from ai_edge_litert import schema_py_generated as schema
from channels import Residual, randomise
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from training import trainer

from sparsetorch import Block, ConstantSparsity, Conv1x1, Magnitude, SparseTraining, Uniform, tflite
from sparsetorch.masking import mask_of, masked_layers, masks
from sparsetorch.models import ImageClassifier
from sparsetorch.structured.groups import channel_groups
from sparsetorch.structured.rearrange import block_fill, permute_channels, rearrange_filters
from sparsetorch.xnnpack.layers import layers as file_layers


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "densenet121"])
def test_outputs_are_equal_before_and_after(name: str) -> None:
    torch.manual_seed(0)
    network = randomise(getattr(torchvision.models, name)(weights=None))
    image = torch.randn(2, 3, 64, 64)
    parameters = list(network.parameters())
    with torch.no_grad():
        before = network(image)
        orders = rearrange_filters(network, (3, 32, 32))
        after = network(image)
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)
    assert sum(order != sorted(order) for order in orders.values()) == len(orders) > 8
    assert all(one is other for one, other in zip(network.parameters(), parameters, strict=True))


def test_strong_filters_come_first_and_everything_follows() -> None:
    network = randomise(Residual(4))
    with torch.no_grad():
        for channel, strength in enumerate((1.0, 4.0, 2.0, 3.0)):
            network.conv1.weight[channel] = strength * torch.sign(network.conv1.weight[channel])
    was = {name: value.clone() for name, value in network.state_dict().items()}
    orders = rearrange_filters(network, (3, 8, 8))
    order = [1, 3, 2, 0]
    assert orders["conv1"] == order
    stem = orders["stem"]  # the same layer reads that group
    assert torch.equal(network.conv1.weight, was["conv1.weight"][order][:, stem])
    assert torch.equal(network.bn1.running_var, was["bn1.running_var"][order])
    assert torch.equal(network.bn1.bias, was["bn1.bias"][order])
    assert torch.equal(network.conv2.weight, was["conv2.weight"][stem][:, order])
    assert torch.equal(network.depthwise.weight, was["depthwise.weight"][orders["down"]])


def test_masks_move_with_their_weights() -> None:
    network = randomise(Residual(4))
    mask = torch.rand(network.conv2.weight.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    masks.attach(network.conv2, mask)
    (group,) = [group for group in channel_groups(network, (3, 8, 8)) if group.name == "conv1"]
    image = torch.randn(2, 3, 8, 8)
    before = network(image)
    permute_channels(network, group, torch.tensor([3, 2, 1, 0]))
    assert torch.equal(mask_of(network.conv2), mask.flip(1))
    torch.testing.assert_close(network(image), before, rtol=1e-4, atol=1e-5)


def test_a_flatten_moves_all_inputs_of_a_channel() -> None:
    network = nn.Sequential(nn.Conv2d(2, 3, 1), nn.Flatten(), nn.Linear(12, 2)).eval()
    image = torch.randn(2, 2, 2, 2)
    before = network(image)
    rearrange_filters(network, (2, 2, 2))
    torch.testing.assert_close(network(image), before)


def test_fill_counts_entries_of_blocks_that_hold_any() -> None:
    weight = torch.zeros(6, 2)
    weight[0:4, 0] = 1.0  # a full block
    weight[1, 1] = 1.0  # a quarter of one
    assert block_fill(weight, 4) == 5 / 8
    weight[4:, 1] = 1.0  # no whole block
    assert block_fill(weight, 4) == 5 / 8
    assert block_fill(weight, 2) == 7 / 8
    assert block_fill(torch.zeros(4, 4), 4) == 1.0


def trained() -> ImageClassifier:
    """A MobileNetV2 whose filters differ in strength, as those of a trained one do, in random order."""
    torch.manual_seed(0)
    setting = [[2, 24, 2, 2], [2, 30, 1, 2]]  # 30 is no multiple of 4
    network = torchvision.models.MobileNetV2(num_classes=4, inverted_residual_setting=setting)
    randomise(network)
    with torch.no_grad():
        for layer in Conv1x1().select(network).values():
            layer.weight.mul_(torch.exp(torch.randn(len(layer.weight), 1, 1, 1)))
    return ImageClassifier(network, num_classes=4)


def fit(folder: Path, rearrange: bool) -> ImageClassifier:
    module = trained()
    module.make_optimizer = lambda parameters: torch.optim.SGD(parameters, lr=0.0)
    sparse = SparseTraining(
        Magnitude(),
        ConstantSparsity(0.75, end_step=0),
        policy=Conv1x1(),
        distribution=Uniform(first_layer_dense=False),
        pattern=Block(4, rearrange=rearrange),
    )
    data = DataLoader(TensorDataset(torch.randn(4, 3, 32, 32), torch.arange(4)), 4)
    trainer(folder, max_epochs=1, callbacks=[sparse]).fit(module, data)
    return module


def test_rearranged_1x4_keeps_more_and_xnnpack_takes_its_kernel_for_four(tmp_path: Path) -> None:
    kept = {}
    for rearrange in (False, True):
        module = fit(tmp_path, rearrange)
        kept[rearrange] = sum(
            float(layer.weight.abs().sum()) for name, layer in masked_layers(module).items() if "features" in name
        )
    assert kept[True] > 1.05 * kept[False]
    weights = [layer.weight for name, layer in masked_layers(module).items() if "features" in name]
    assert len(weights) >= 6
    for weight in weights:
        assert block_fill(weight, 4) > 0.9
        assert kernel_block(weight) == 4
    loose = torch.where(torch.rand(weights[-1].shape) < 0.25, 1.0, 0.0)  # as sparse, in no blocks
    assert block_fill(loose, 4) < 0.5
    assert kernel_block(loose) == 1


def kernel_block(weight: torch.Tensor) -> int:
    """What `verify` reports for a 1x1 convolution with this weight."""
    values = np.ascontiguousarray(weight.detach().numpy().transpose(0, 2, 3, 1))
    constant = tflite.Tensor("w", tuple(values.shape), data=np.frombuffer(values.tobytes(), np.uint8))
    image, output = tflite.Tensor("image", ()), tflite.Tensor("output", ())
    operator = tflite.Operator(schema.BuiltinOperator.CONV_2D, [image, constant], [output])
    model = tflite.Model([tflite.Graph([image, constant, output], [image], [output], [operator])])
    tflite.encode(model)
    return file_layers(model)[0].kernel_block
