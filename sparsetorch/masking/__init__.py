"""Masks on modules: the only code that touches `torch.nn.utils.prune`."""

from sparsetorch.masking.masks import attach, is_masked, mask_of, masked_layers, set_mask
from sparsetorch.masking.modes import evaluating
from sparsetorch.masking.optimizer_slots import clear_slots
from sparsetorch.masking.permanent import make_permanent, own_copy, permanent_copy
from sparsetorch.masking.state_dict import load_state_dict, plain_state_dict

__all__ = [
    "attach",
    "clear_slots",
    "evaluating",
    "is_masked",
    "load_state_dict",
    "make_permanent",
    "mask_of",
    "masked_layers",
    "own_copy",
    "permanent_copy",
    "plain_state_dict",
    "set_mask",
]
