"""1x4 blocks with filters rearranged, from a network to what `verify` says of its file."""

import json
from pathlib import Path

import torch
import torchvision
from channels import randomise

import sparsetorch
from sparsetorch import Block, ConstantSparsity, Conv1x1, Magnitude, Uniform
from sparsetorch.cli import main
from sparsetorch.masking.sparsifier import Sparsifier
from sparsetorch.structured.rearrange import block_fill, rearrange_filters


def test_verify_reports_the_kernel_of_four_channels_for_rearranged_blocks(tmp_path: Path) -> None:
    torch.manual_seed(0)
    setting = [[2, 24, 2, 2], [2, 32, 1, 2]]
    network = randomise(torchvision.models.MobileNetV2(num_classes=4, inverted_residual_setting=setting))
    with torch.no_grad():  # filters differ in strength, as those of a trained network do
        for layer in Conv1x1().select(network).values():
            layer.weight.mul_(torch.exp(torch.randn(len(layer.weight), 1, 1, 1)))
        image = torch.randn(2, 3, 32, 32)
        before = network(image)
        rearrange_filters(network, (3, 32, 32))
        torch.testing.assert_close(network(image), before, rtol=1e-4, atol=1e-5)
    blocks = Sparsifier(
        network,
        algorithm=Magnitude(),
        schedule=ConstantSparsity(0.75, end_step=0),
        policy=Conv1x1(),
        distribution=Uniform(first_layer_dense=False),
        pattern=Block(4),
    )
    blocks.start()
    assert all(block_fill(layer.weight, 4) > 0.9 for layer in blocks.layers.values())
    sparsetorch.export(network, tmp_path / "blocks.tflite", (3, 32, 32))
    assert main(["verify", str(tmp_path / "blocks.tflite"), "--quiet", "--json", str(tmp_path / "verdict.json")]) == 0
    layers = json.loads((tmp_path / "verdict.json").read_text())["layers"]
    kernels = {layer["module"]: layer["kernel_block"] for layer in layers if layer["module"] in blocks.layers}
    assert len(kernels) == len(blocks.layers) == 7
    assert set(kernels.values()) == {4}
