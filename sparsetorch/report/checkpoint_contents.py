"""The contents of a PyTorch checkpoint as plain values."""

from collections import Counter
from pathlib import Path
from typing import Any

import torch

from sparsetorch.exporter.source import read_checkpoint
from sparsetorch.files import gzipped_size
from sparsetorch.masking import plain_state_dict
from sparsetorch.report.file_contents import totals


def checkpoint_contents(path: Path) -> dict[str, Any]:
    """Sizes and weights of a checkpoint or a state dict, masks multiplied out.

    Every parameter of two or more dimensions counts as a layer's weight.

    Raises:
        BadInputError: no checkpoint, or one that holds no tensors.
    """
    checkpoint = read_checkpoint(path)
    state = checkpoint.get("state_dict", checkpoint)
    plain = plain_state_dict({name: value for name, value in state.items() if isinstance(value, torch.Tensor)})
    found = [_layer(name, value, f"{name}_mask" in state) for name, value in plain.items() if value.ndim >= 2]
    content = path.read_bytes()
    return {
        "file": str(path),
        "kind": "checkpoint",
        "size": {"raw": len(content), "gzip": gzipped_size(content)},
        "operators": dict(Counter(name for layer in found for name in layer["operators"])),
        "layers": found,
        "totals": totals(found),
    }


def _layer(name: str, value: torch.Tensor, masked: bool) -> dict[str, Any]:
    size = value.numel()
    zeros = size - int(torch.count_nonzero(value))
    return {
        "tensor": name,
        "module": name.removesuffix(".weight"),
        "shape": list(value.shape),
        "sparsity": zeros / size if size else 0.0,
        "encoding": "masked" if masked else "dense",
        "values": str(value.dtype).removeprefix("torch."),
        "bytes": size * value.element_size(),
        "dense_bytes": size * value.element_size(),
        "parameters": size,
        "zeros": zeros,
        "operators": [_operator(value)],
    }


def _operator(value: torch.Tensor) -> str:
    """What a weight of this shape belongs to; a checkpoint holds no operators."""
    if value.ndim == 2:
        return "linear"
    if value.ndim == 4:
        kind = "1x1 " if tuple(value.shape[2:]) == (1, 1) else "depthwise " if value.shape[1] == 1 else ""
        return f"{kind}convolution"
    return f"{value.ndim}-D weight"
