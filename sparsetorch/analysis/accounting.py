"""One counter for the log, the summary and the verifier: non-zero weights, multiply-accumulates, bytes, per layer.

1. A weight counts as zero where it is `== 0` after its mask, -0.0 included: nothing below a threshold.
2. Dense multiply-accumulates (MACs) are half of what torch's `FlopCounterMode` counts in one forward of one input. A
   convolution or linear layer multiplies every weight once per output position, padding included, so it has
   `weights * positions` of them, and its sparse MACs are `non_zero * positions`: what a kernel that skips zeros is left with.
3. Bytes are those of the float32 TFLite file that `export` would write, by the very code that writes and reads it: each
   weight goes through `sparsetorch.tflite.encode` and `sparsetorch.xnnpack.layers`. Layers are sparse-encoded where that is
   smaller (values, index vectors of the smallest type, metadata), and stored dense elsewhere.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from ai_edge_litert import schema_py_generated as schema
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from sparsetorch import tflite
from sparsetorch.errors import BadInputError
from sparsetorch.masking import evaluating, masked_layers
from sparsetorch.masking.masks import weight_parameter
from sparsetorch.sparsify.policy import is_depthwise, weight_layers
from sparsetorch.xnnpack.layers import layers as file_layers

_OP = schema.BuiltinOperator


@dataclass(frozen=True)
class LayerAccount:
    """What one layer's weight costs."""

    module: str
    """Module path, as in `named_modules`."""
    shape: tuple[int, ...]
    """Of the weight, in PyTorch's order: (out, in / groups, height, width), or (out, in)."""
    parameters: int
    """Weights, without the bias."""
    non_zero: int
    """Weights that are not `== 0`."""
    dense_macs: int | None
    """Multiply-accumulates of one input with all weights; None where the forward was not run."""
    dense_bytes: int
    """Weights as float32."""
    bytes: int
    """Weights as the exported file holds them."""
    masked: bool
    """Whether the layer carries a mask."""
    shared_with: str | None = None
    """The earlier layer whose weight this is too (tied weights): counted once in the totals of weights and bytes."""

    @property
    def sparsity(self) -> float:
        """Share of zeros, 0 to 1."""
        return (self.parameters - self.non_zero) / self.parameters if self.parameters else 0.0

    @property
    def sparse_macs(self) -> int | None:
        """Multiply-accumulates of one input with the non-zero weights alone."""
        if self.dense_macs is None or not self.parameters:
            return self.dense_macs
        return self.dense_macs * self.non_zero // self.parameters


@dataclass(frozen=True)
class Account:
    """What a network costs. The totals of MACs and bytes are over `layers`; those of parameters over the whole network."""

    layers: tuple[LayerAccount, ...]
    """Convolution, linear and masked layers, in definition order."""
    parameters: int
    """All parameters: weights, biases, normalisation."""
    non_zero: int
    """Those that are not `== 0`."""

    @property
    def sparsity(self) -> float:
        """Share of zeros in the masked layers' weights, 0 to 1; 0 where there is no mask."""
        masked = [layer for layer in self._owners if layer.masked]
        total = sum(layer.parameters for layer in masked)
        return (total - sum(layer.non_zero for layer in masked)) / total if total else 0.0

    @property
    def dense_macs(self) -> int | None:
        """Multiply-accumulates of one input; None where the forward was not run."""
        return _sum(layer.dense_macs for layer in self.layers)

    @property
    def sparse_macs(self) -> int | None:
        """Multiply-accumulates of one input with the non-zero weights alone."""
        return _sum(layer.sparse_macs for layer in self.layers)

    @property
    def dense_bytes(self) -> int:
        """The layers' weights as float32."""
        return sum(layer.dense_bytes for layer in self._owners)

    @property
    def bytes(self) -> int:
        """The layers' weights as the exported file holds them."""
        return sum(layer.bytes for layer in self._owners)

    @property
    def _owners(self) -> list[LayerAccount]:
        return [layer for layer in self.layers if layer.shared_with is None]

    def totals(self) -> dict[str, int | None]:
        """The totals for JSON: parameters, non_zero, dense_macs, sparse_macs, dense_bytes, bytes."""
        return {
            "parameters": self.parameters,
            "non_zero": self.non_zero,
            "dense_macs": self.dense_macs,
            "sparse_macs": self.sparse_macs,
            "dense_bytes": self.dense_bytes,
            "bytes": self.bytes,
        }


def account(module: nn.Module, input_shape: Sequence[int] | None = None) -> Account:
    """Count what a network costs. Masks may be on; mode, random state, gradients and buffers stay as they are.

    Args:
        module: any network. Its forward runs once in eval mode on zeros, if `input_shape` is given.
        input_shape: of one input, without the batch: (C, H, W) for images. None: no MACs.

    Returns:
        The counts. Work per position outside of weight layers (normalisation, activations, attention scores) is not in it.

    Raises:
        BadInputError: the network does not run on one input of that shape.
    """
    masked = masked_layers(module)
    chosen = weight_layers(module) | masked
    found = {name: layer for name, layer in module.named_modules() if name in chosen}
    macs = None if input_shape is None else _dense_macs(module, found, input_shape)
    owners: dict[int, str] = {}
    counted = []
    for name, layer in found.items():
        weight = effective_weight(layer)
        owner = owners.setdefault(id(weight_parameter(layer)), name)
        dense_bytes, stored = _bytes(name, layer, weight)
        counted.append(
            LayerAccount(
                module=name,
                shape=tuple(weight.shape),
                parameters=weight.numel(),
                non_zero=int(torch.count_nonzero(weight)),
                dense_macs=None if macs is None else macs[name],
                dense_bytes=dense_bytes,
                bytes=stored,
                masked=name in masked,
                shared_with=None if owner == name else owner,
            )
        )
    total, non_zero = _all_parameters(module)
    return Account(tuple(counted), total, non_zero)


def effective_weight(layer: nn.Module) -> Tensor:
    """The weight that a layer computes with, its mask applied; masked entries are +0.0. No part of any graph."""
    mask = getattr(layer, "weight_mask", None)
    weight = weight_parameter(layer).detach()
    return weight if mask is None else weight.masked_fill(~mask.bool(), 0.0)


def _all_parameters(module: nn.Module) -> tuple[int, int]:
    """All parameters of a network, each once, and how many of them are not zero."""
    masks = {
        id(getattr(layer, f"{name}_orig")): getattr(layer, f"{name}_mask").bool()
        for layer in module.modules()
        for name in ("weight", "bias")
        if hasattr(layer, f"{name}_mask")
    }
    total = non_zero = 0
    for parameter in module.parameters():
        value = parameter.detach()
        if id(parameter) in masks:
            value = value.masked_fill(~masks[id(parameter)], 0.0)
        total += value.numel()
        non_zero += int(torch.count_nonzero(value))
    return total, non_zero


def _bytes(name: str, layer: nn.Module, weight: Tensor) -> tuple[int, int]:
    """Bytes of a weight as float32, and in the file: the encoder and the verifier asked about a one-layer model."""
    values = weight.float().cpu().numpy()
    # In TFLite's order: (out, height, width, in), depthwise (1, height, width, channels), fully-connected (out, in).
    code = _OP.FULLY_CONNECTED
    if isinstance(layer, nn.Conv2d):
        code = _OP.DEPTHWISE_CONV_2D if is_depthwise(layer) else _OP.CONV_2D
        values = values.transpose(1, 2, 3, 0) if is_depthwise(layer) else values.transpose(0, 2, 3, 1)
    else:
        values = values.reshape(len(values), -1)
    data = np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)
    constant = tflite.Tensor(f"{name}.weight", tuple(values.shape), data=data)
    image, output = tflite.Tensor("image", ()), tflite.Tensor("output", ())
    operator = tflite.Operator(code, [image, constant], [output])
    model = tflite.Model([tflite.Graph([image, constant, output], [image], [output], [operator])])
    tflite.encode(model)
    (stored,) = file_layers(model)
    return stored.dense_bytes, stored.bytes


def _dense_macs(module: nn.Module, layers: dict[str, nn.Module], input_shape: Sequence[int]) -> dict[str, int]:
    parameter = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
    image = torch.zeros(1, *input_shape, dtype=parameter.dtype, device=parameter.device)
    try:
        with _undisturbed(module, image.device), FlopCounterMode(display=False) as counter:
            module(image)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        raise BadInputError(
            f"input_shape: {type(module).__name__} does not run on one input of shape {tuple(image.shape)} "
            f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}); needed the shape of one input "
            "without the batch, such as (3, 224, 224)"
        ) from error
    counts = counter.get_flop_counts()
    # The counter names a module by the root's class and its path; the root itself is a layer where it is one alone.
    root = type(module).__name__
    flops: dict[int, int] = {}
    for name, inner in module.named_modules(remove_duplicate=False):  # a layer with two names is counted under either
        flops[id(inner)] = flops.get(id(inner), 0) + sum(counts.get(f"{root}.{name}" if name else root, {}).values())
    return {name: flops[id(layer)] // 2 for name, layer in layers.items()}


@contextmanager
def _undisturbed(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Eval mode without gradients inside; every module's own mode and the random state as before afterwards."""
    devices = [device] if device.type == "cuda" else []
    with evaluating(module), torch.no_grad(), torch.random.fork_rng(devices=devices):
        yield


def _sum(numbers: Iterator[int | None]) -> int | None:
    values = list(numbers)
    return None if None in values else sum(value for value in values if value is not None)
