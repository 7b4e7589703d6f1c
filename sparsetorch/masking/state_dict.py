"""State dicts with and without masks: `weight_orig` and `weight_mask` against plain `weight`."""

from collections.abc import Mapping

from torch import Tensor

_ORIGINAL, _MASK = "_orig", "_mask"


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
