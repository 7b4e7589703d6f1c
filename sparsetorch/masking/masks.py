"""Torch prune masks with two changes: the mask is boolean, and a layer can be asked for its dense gradient.

`torch.nn.utils.prune` keeps the trained values in the parameter `weight_orig`, the mask in the buffer `weight_mask`, and
recomputes `weight = weight_orig * weight_mask` before every forward. Its own mask has the weight's dtype: four bytes an
entry, and a float32 mask turns a bfloat16 weight into float32. A boolean one takes one byte and follows any dtype.

The invariant everything here keeps: where the mask is False, `weight_orig` is exactly 0. With masked gradients and empty
optimizer slots, momentum, weight decay and Adam then leave it at 0 by themselves, with no work per step.

The dense gradient is dL/d(weight), of which the masked product passes on only the active part to `weight_orig.grad`.
While `wants_dense_gradient` is set, the product passes all of it on. It arrives in `weight_orig.grad`, so accumulation,
gradient scaling and DDP's all-reduce treat it as any other gradient; `take_dense_gradient` then reads it and masks it.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from sparsetorch.errors import BadInputError
from sparsetorch.masking.state_dict import accept_plain_weight

WEIGHT = "weight"


class _MaskedProductWithDenseGradient(torch.autograd.Function):
    """weight * mask forwards; the identity backwards."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, mask: Tensor) -> Tensor:
        return weight * mask

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        return grad_outputs[0], None


class SparsityMask(prune.BasePruningMethod):
    """The prune method behind every mask of this package."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask
        self.wants_dense_gradient = False

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask given at construction, as torch prune asks for it."""
        return self.mask.to(device=default_mask.device, dtype=default_mask.dtype)

    def apply_mask(self, module: nn.Module) -> Tensor:
        """`weight_orig * weight_mask`, in the dtype of `weight_orig`."""
        original: Tensor = getattr(module, f"{WEIGHT}_orig")
        mask: Tensor = getattr(module, f"{WEIGHT}_mask")
        if self.wants_dense_gradient:
            product: Tensor = _MaskedProductWithDenseGradient.apply(original, mask)
            return product
        return original * mask


def _method_of(module: nn.Module) -> SparsityMask | None:
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, SparsityMask):
            return hook
    return None


def _masked_method(module: nn.Module) -> SparsityMask:
    method = _method_of(module)
    if method is None:
        raise BadInputError(f"{type(module).__name__} has no sparsity mask; call attach(module, mask) first")
    return method


def is_masked(module: nn.Module) -> bool:
    """Whether `attach` has put a mask on this very module."""
    return _method_of(module) is not None


def masked_layers(module: nn.Module) -> dict[str, nn.Module]:
    """The masked layers inside `module` by module path, in definition order."""
    return {name: layer for name, layer in module.named_modules() if is_masked(layer)}


def attach(module: nn.Module, mask: Tensor | None = None) -> None:
    """Put a mask on `module.weight`; a mask that torch prune has put there before is taken over.

    The parameter object stays the same, so an optimizer that holds it already needs no change.

    Args:
        module: a layer with a parameter `weight`.
        mask: boolean, of the weight's shape, True = keep; None keeps everything.

    Raises:
        BadInputError: no such parameter, or a mask of another shape.
    """
    if is_masked(module):
        if mask is not None:
            set_mask(module, mask)
        return
    earlier: Tensor | None = None
    if hasattr(module, f"{WEIGHT}_mask"):
        earlier = getattr(module, f"{WEIGHT}_mask").bool()
        _detach_foreign_hooks(module)
    weight = getattr(module, WEIGHT, None)
    if not isinstance(weight, nn.Parameter):
        raise BadInputError(f"{type(module).__name__} has no parameter `weight` to put a mask on")
    keep = torch.ones_like(weight, dtype=torch.bool) if mask is None else mask
    keep = keep if earlier is None or mask is not None else earlier
    _check_shape(keep, weight)
    SparsityMask.apply(module, WEIGHT, mask=keep)
    module.register_load_state_dict_pre_hook(accept_plain_weight)
    # torch prune has stored the mask in the weight's dtype; `compute_mask` holds no reference that is still needed.
    setattr(module, f"{WEIGHT}_mask", keep.to(device=weight.device, dtype=torch.bool).clone())
    _masked_method(module).mask = torch.empty(0)
    set_mask(module, keep)


def _detach_foreign_hooks(module: nn.Module) -> None:
    """Undo torch's own pruning of `weight`, keeping the parameter object (prune.remove does) and its zeros."""
    prune.remove(module, WEIGHT)


def _check_shape(mask: Tensor, weight: Tensor) -> None:
    if mask.shape != weight.shape:
        raise BadInputError(
            f"mask: found the shape {tuple(mask.shape)}, needed that of the weight, {tuple(weight.shape)}"
        )


def mask_of(module: nn.Module) -> Tensor:
    """The mask of a masked layer: boolean, the shape of its weight, True = keep. The live buffer, not a copy."""
    _masked_method(module)
    mask: Tensor = getattr(module, f"{WEIGHT}_mask")
    return mask


def original_of(module: nn.Module) -> nn.Parameter:
    """The trained parameter behind a masked layer's weight: what the optimizer holds."""
    _masked_method(module)
    parameter: nn.Parameter = getattr(module, f"{WEIGHT}_orig")
    return parameter


def weight_parameter(module: nn.Module) -> nn.Parameter:
    """The trained parameter of a layer's weight, behind a mask of this package, of torch prune, or of none.

    Raises:
        BadInputError: where the layer has none: `weight` is computed from something else (a parametrization, say).
    """
    name = f"{WEIGHT}_orig" if hasattr(module, f"{WEIGHT}_mask") else WEIGHT
    parameter = getattr(module, name, None)
    if not isinstance(parameter, nn.Parameter):
        raise BadInputError(f"{type(module).__name__} has no parameter `{name}` to put a mask on")
    return parameter


def set_mask(module: nn.Module, mask: Tensor) -> None:
    """Give a masked layer another mask, in place, and set its weights to 0 wherever they were or become inactive.

    A newly active entry therefore starts at exactly 0, and one that stays active keeps its value.
    """
    current, original = mask_of(module), original_of(module)
    _check_shape(mask, original)
    mask = mask.to(device=original.device, dtype=torch.bool)
    with torch.no_grad():
        original.masked_fill_(~(mask & current), 0.0)
        current.copy_(mask)
    refresh(module)


def refresh(module: nn.Module) -> None:
    """Recompute `weight` from `weight_orig` and the mask, as the forward hook would, outside the autograd graph.

    Afterwards the module can be deep-copied: the `weight` of the last forward is not a leaf, and those cannot.
    """
    with torch.no_grad():
        setattr(module, WEIGHT, original_of(module) * mask_of(module))


def want_dense_gradient(module: nn.Module, wanted: bool) -> None:
    """Ask for the dense gradient of a masked layer in the backward passes to come, or stop asking."""
    _masked_method(module).wants_dense_gradient = wanted


def take_dense_gradient(module: nn.Module) -> Tensor | None:
    """A copy of the dense gradient; what stays in `weight_orig.grad` is masked, as the optimizer must see it.

    Call between the last backward and the optimizer step. None where the layer took no part in the loss.
    """
    grad = original_of(module).grad
    if grad is None:
        return None
    dense = grad.detach().clone()
    grad.mul_(mask_of(module))
    return dense
