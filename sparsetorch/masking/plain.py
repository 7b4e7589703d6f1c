"""For a while as if there were no masks: layers hold their trained parameter as `weight`, and no hook recomputes it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from sparsetorch.masking.masks import WEIGHT, SparsityMask, masked_layers, original_of, refresh


@contextmanager
def plain_weights(module: nn.Module) -> Iterator[None]:
    """Inside, every masked layer is a plain one; afterwards all is as before, the parameter objects too.

    For code that follows parameters through the autograd graph, which a masked product would hide from it. Since a masked entry
    of the trained parameter is 0, what the network computes does not change.
    """
    layers = masked_layers(module).values()
    hooks: list[tuple[nn.Module, dict[int, Any]]] = []
    try:
        for layer in layers:
            hooks.append((layer, dict(layer._forward_pre_hooks)))
            for key, hook in list(layer._forward_pre_hooks.items()):
                if isinstance(hook, SparsityMask):
                    del layer._forward_pre_hooks[key]
            vars(layer).pop(WEIGHT, None)
            layer._parameters[WEIGHT] = layer._parameters.pop(f"{WEIGHT}_orig")
        yield
    finally:
        for layer, before in hooks:
            if WEIGHT in layer._parameters:
                # At the end again, where torch prune puts it: the order of parameters decides an optimizer's state.
                layer._parameters[f"{WEIGHT}_orig"] = layer._parameters.pop(WEIGHT)
            layer._forward_pre_hooks.clear()
            layer._forward_pre_hooks.update(before)
            if original_of(layer) is not None:
                refresh(layer)
