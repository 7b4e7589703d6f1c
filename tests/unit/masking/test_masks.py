"""Masks on modules: torch prune underneath, exact zeros, dense gradients by hand, plain and masked state dicts."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

from sparsetorch.errors import BadInputError
from sparsetorch.masking import (
    attach,
    clear_slots,
    make_permanent,
    mask_of,
    masked_layers,
    permanent_copy,
    plain_state_dict,
    set_mask,
)
from sparsetorch.masking.masks import original_of, take_dense_gradient, want_dense_gradient

MASK = torch.tensor([[True, False], [False, True]])


def layer() -> nn.Linear:
    module = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, -2.0], [3.0, 4.0]]))
    return module


def test_a_mask_is_a_torch_prune_mask_of_one_byte_an_entry() -> None:
    module = layer()
    parameter = module.weight
    attach(module, MASK)
    assert prune.is_pruned(module)
    assert original_of(module) is parameter
    assert mask_of(module).dtype == torch.bool
    assert set(module.state_dict()) == {"weight_orig", "weight_mask"}
    assert torch.equal(module(torch.eye(2)), torch.tensor([[1.0, 0.0], [0.0, 4.0]]))


def test_the_dense_gradient_by_hand() -> None:
    # y = W x with x = (1, 10) and loss = sum(y * (1, 100)): dL/dW = outer((1, 100), (1, 10)), wherever the mask is.
    module = layer()
    attach(module, MASK)
    x, weights = torch.tensor([[1.0, 10.0]]), torch.tensor([[1.0, 100.0]])
    dense = torch.tensor([[1.0, 10.0], [100.0, 1000.0]])

    (module(x) * weights).sum().backward()
    assert torch.equal(original_of(module).grad, dense * MASK)  # what the product passes on by itself

    module.zero_grad()
    want_dense_gradient(module, True)
    (module(x) * weights).sum().backward()
    (module(x) * weights).sum().backward()  # accumulated like any gradient
    assert torch.equal(take_dense_gradient(module), 2 * dense)
    assert torch.equal(original_of(module).grad, 2 * dense * MASK)  # the optimizer sees the active part alone


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_a_mask_follows_the_dtype_of_the_weight(dtype: torch.dtype) -> None:
    module = layer().to(dtype)
    attach(module, MASK)
    assert module(torch.ones(1, 2, dtype=dtype)).dtype == dtype
    module.to(torch.float64)
    assert module(torch.ones(1, 2, dtype=torch.float64)).dtype == torch.float64
    assert mask_of(module).dtype == torch.bool


def test_a_newly_active_entry_is_zero_and_a_staying_one_keeps_its_value() -> None:
    module = layer()
    attach(module, MASK)
    set_mask(module, torch.tensor([[True, True], [False, False]]))
    assert original_of(module).tolist() == [[1.0, 0.0], [0.0, 0.0]]
    assert module.weight.tolist() == [[1.0, 0.0], [0.0, 0.0]]


OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.9, centered=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_zeros_stay_exact_and_slots_stay_empty_through_any_optimizer(name: str) -> None:
    torch.manual_seed(0)
    module = nn.Linear(6, 5)
    attach(module)
    optimizer = OPTIMIZERS[name](list(module.parameters()))

    def step() -> None:
        optimizer.zero_grad()
        F.mse_loss(module(torch.randn(8, 6)), torch.randn(8, 5)).backward()
        optimizer.step()

    for _ in range(3):
        step()
    keep = torch.rand(5, 6) > 0.5
    set_mask(module, keep)
    clear_slots(optimizer, original_of(module), keep)
    for _ in range(5):
        step()
        assert torch.count_nonzero(original_of(module)[~keep]) == 0
        slots = [
            slot
            for slot in optimizer.state[original_of(module)].values()
            if isinstance(slot, torch.Tensor) and slot.ndim
        ]
        assert slots
        assert all(torch.count_nonzero(slot[~keep]) == 0 for slot in slots)
        assert all(torch.count_nonzero(slot[keep]) > 0 for slot in slots)


def test_a_mask_that_torch_prune_has_put_on_is_taken_over() -> None:
    module = layer()
    parameter = module.weight
    prune.custom_from_mask(module, "weight", MASK.float())
    attach(module)
    assert original_of(module) is parameter
    assert torch.equal(mask_of(module), MASK)
    assert original_of(module).tolist() == [[1.0, 0.0], [0.0, 4.0]]


def test_a_masked_module_can_be_copied_after_a_forward_with_gradients() -> None:
    network = nn.Sequential(layer(), nn.ReLU(), layer())
    attach(network[0], MASK)
    network(torch.ones(1, 2)).sum().backward()
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(network)
    plain = permanent_copy(network)
    assert masked_layers(plain) == {}
    assert plain[0].weight.tolist() == [[1.0, 0.0], [0.0, 4.0]]
    assert list(masked_layers(network)) == ["0"]  # the original keeps its mask
    assert torch.equal(plain(torch.ones(1, 2)), network(torch.ones(1, 2)))


def test_a_permanent_zero_is_a_positive_one() -> None:
    module = layer()  # holds -2 where the mask is False: -2 * 0 is -0.0
    attach(module, MASK)
    with torch.no_grad():
        original_of(module)[0, 1] = -2.0  # as a foreign checkpoint may hold
    for zero in (plain_state_dict(module.state_dict())["weight"][0, 1], make_permanent(module).weight[0, 1]):
        assert zero == 0
        assert not torch.signbit(zero)


def test_state_dicts_with_masks_become_plain_ones() -> None:
    network = nn.Sequential(layer(), nn.BatchNorm1d(2), layer())
    plain_keys = list(network.state_dict())
    attach(network[0], MASK)
    prune.l1_unstructured(network[2], "weight", amount=2)  # torch's own layout, with a float mask
    plain = plain_state_dict(network.state_dict())
    assert sorted(plain) == sorted(plain_keys)
    fresh = nn.Sequential(layer(), nn.BatchNorm1d(2), layer())
    fresh.load_state_dict(plain)
    network.eval(), fresh.eval()
    x = torch.randn(4, 2)
    assert torch.equal(fresh(x), network(x))
    assert plain_state_dict(plain) == plain


def test_names_that_merely_look_like_masks_are_kept() -> None:
    state = {"a_orig": torch.ones(1), "attention_mask": torch.ones(1)}
    assert plain_state_dict(state) == state


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: attach(layer(), torch.ones(3, 3, dtype=torch.bool)), r"found the shape \(3, 3\), needed .* \(2, 2\)"),
        (lambda: attach(nn.ReLU()), "ReLU has no parameter `weight`"),
        (lambda: mask_of(layer()), "Linear has no sparsity mask"),
    ],
)
def test_misuse_is_told(call: Callable[[], object], told: str) -> None:
    with pytest.raises(BadInputError, match=told):
        call()
