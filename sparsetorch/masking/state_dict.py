"""State dicts with and without masks: `weight_orig` and `weight_mask` against plain `weight`, each into either module."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from sparsetorch.errors import BadInputError

_ORIGINAL, _MASK = "_orig", "_mask"


def load_state_dict(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load a state dict of either layout into a module of either layout, every key accounted for.

    Masked into plain: the weights hold the zeros. Plain into masked: the mask becomes what is not zero. Masked into masked and
    plain into plain are as in torch.

    Args:
        module: with masks of this package, or without.
        state: with masks of this package or of torch prune, or without.

    Raises:
        BadInputError: naming what the state dict and the module have that the other lacks.
    """
    masked = {key.removesuffix(_MASK) for key in module.state_dict() if key.endswith("weight" + _MASK)}
    loadable = {}
    for key, value in plain_state_dict(state).items():
        if key in masked and key not in state:  # masked in both: keep the mask, which may hold active zeros
            loadable[key + _ORIGINAL], loadable[key + _MASK] = state[key + _ORIGINAL], state[key + _MASK]
        else:
            loadable[key] = value
    try:
        module.load_state_dict(loadable)
    except RuntimeError as error:
        own, theirs = plain_state_dict(module.state_dict()), plain_state_dict(state)
        missing, unexpected = [key for key in own if key not in theirs], [key for key in theirs if key not in own]
        shapes = [key for key in own if key in theirs and own[key].shape != theirs[key].shape]
        raise BadInputError(
            f"the state dict does not fit {type(module).__name__}, with masks or without: it lacks {_some(missing)}; the "
            f"module has no {_some(unexpected)}; other shapes for {_some(shapes)}"
        ) from error


def accept_plain_weight(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """A `load_state_dict` pre-hook of masked layers: a plain `weight` loads too, its non-zeros becoming the mask."""
    weight = state.get(f"{prefix}weight")
    if weight is not None and f"{prefix}weight{_MASK}" not in state and hasattr(module, f"weight{_MASK}"):
        state[f"{prefix}weight{_ORIGINAL}"] = state.pop(f"{prefix}weight")
        state[f"{prefix}weight{_MASK}"] = weight != 0


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "") or "nothing"


def plain_state_dict(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict that the plain module loads: masked weights multiplied out, mask keys gone.

    Works on state dicts of this package and of torch prune. A plain state dict comes back as it is. Masked entries are
    exactly +0.0 (a negative weight times 0 would be -0.0, which is stored, compressed and printed as another value).
    """
    plain = {}
    for key, value in state.items():
        base = key.removesuffix(_ORIGINAL)
        if key.endswith(_ORIGINAL) and base + _MASK in state:
            keep = state[base + _MASK].to(value.device).bool()
            plain[base] = value.masked_fill(~keep, 0.0)
        elif not (key.endswith(_MASK) and key.removesuffix(_MASK) + _ORIGINAL in state):
            plain[key] = value
    return plain
