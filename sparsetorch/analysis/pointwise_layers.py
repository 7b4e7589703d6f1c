"""The 1x1 convolutions of a PyTorch network, with what they are run on."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from sparsetorch.analysis.layer_costs import LayerShape
from sparsetorch.errors import BadInputError
from sparsetorch.masking import evaluating
from sparsetorch.sparsify.policy import Conv1x1


def pointwise_layers(module: nn.Module, input_shape: Sequence[int]) -> dict[str, LayerShape]:
    """Shapes of the layers that `Conv1x1` picks and that see more than one pixel, from one forward.

    Args:
        module: the network; its mode and its statistics are left as they are.
        input_shape: of one input, (C, H, W).

    Raises:
        BadInputError: an input that the network does not take.
    """
    found: dict[str, LayerShape] = {}
    layers = Conv1x1().select(module)

    def record(name: str, output: Any) -> None:
        height, width = output.shape[-2:]
        layer = layers[name]
        assert isinstance(layer, nn.Conv2d)
        if height * width > 1:  # a gate of squeeze-excite, behind the pool: too small to time
            found[name] = LayerShape(layer.in_channels, layer.out_channels, int(height), int(width))

    hooks = [
        layer.register_forward_hook(lambda _layer, _inputs, output, name=name: record(name, output))
        for name, layer in layers.items()
    ]
    try:
        with evaluating(module), torch.no_grad():
            module(torch.zeros(1, *input_shape))
    except RuntimeError as error:
        raise BadInputError(
            f"--input-shape: the network does not take {tuple(input_shape)}: {str(error).splitlines()[0]}"
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    return {name: found[name] for name in layers if name in found}
