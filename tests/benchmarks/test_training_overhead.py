"""Overhead of sparse training as assertions. Bounds here are wider than the goals: CI machines are shared and noisy, and
a test must fail for a reason. The figures held against the goals are in `overhead.md`, written by `overhead.py` on a quiet
machine. Run with `-s` to see what was measured here.
"""

import logging
from collections.abc import Iterator

import pytest
import torch
from benchmarks.measure import mobilenet
from benchmarks.overhead import (
    extra_bytes_per_weight,
    lightning_pruning_overhead,
    magnitude_seconds,
    resnet_update,
    step_overhead,
    update_nanoseconds,
)


@pytest.fixture(autouse=True)
def _one_quiet_thread() -> Iterator[None]:
    threads, logger = torch.get_num_threads(), logging.getLogger("pytorch_lightning")
    level = logger.level
    torch.set_num_threads(1)
    logger.setLevel(logging.ERROR)
    yield
    torch.set_num_threads(threads)
    logger.setLevel(level)


@pytest.mark.slow
def test_a_step_takes_hardly_longer_than_without_the_callback() -> None:
    """Goals: 1.03 without an update, 1.05 amortised over 100 steps."""
    found = step_overhead(steps=31)
    print(f"\n{found}")
    assert found["between"] < 1.15
    assert found["amortised"] < 1.15


def test_between_updates_a_weight_costs_a_mask_byte_and_a_value() -> None:
    for when, size in extra_bytes_per_weight(mobilenet, 32).items():
        print(f"\n{when}: {size:.3f} bytes per prunable weight")
        assert size <= 5.0 + 0.01


@pytest.mark.slow
def test_an_update_takes_linear_time() -> None:
    small = update_nanoseconds(1000, 1000, updates=5)
    large = update_nanoseconds(10_000, 10_000, updates=1)
    print(f"\n{small:.1f} ns per weight of 1 M, {large:.1f} of 100 M")
    assert large < 2.5 * small  # a layer of 1 M fits into the cache


@pytest.mark.slow
def test_an_update_of_resnet_50_takes_less_than_two_plain_steps() -> None:
    update, step = resnet_update(batch_size=8, updates=1)
    print(f"\nupdate {update:.2f} s, plain step {step:.2f} s")
    assert update < 2 * step


@pytest.mark.slow
def test_a_step_takes_no_longer_than_with_lightning_model_pruning() -> None:
    ours, theirs = lightning_pruning_overhead(steps=21)
    print(f"\nagainst no callback: ours {ours:.3f}, ModelPruning {theirs:.3f}")
    assert ours < theirs + 0.15


def test_pruning_each_layer_by_magnitude_is_not_slower_than_lightning_model_pruning() -> None:
    ours, theirs = magnitude_seconds(use_global=False, repeats=9)
    print(f"\nours {1e3 * ours:.1f} ms, ModelPruning {1e3 * theirs:.1f} ms")
    assert ours < 1.5 * theirs


def test_pruning_by_one_threshold_stays_within_a_few_times_lightning_model_pruning() -> None:
    """ModelPruning is faster here, one selection for all: ours selects a floor per layer, then all, then in each layer."""
    ours, theirs = magnitude_seconds(use_global=True, repeats=9)
    print(f"\nours {1e3 * ours:.1f} ms, ModelPruning {1e3 * theirs:.1f} ms")
    assert ours < 4 * theirs
