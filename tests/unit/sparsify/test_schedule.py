"""Schedules: the published numbers to the last digit given, and the last update exactly on target."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsetorch import ConstantSparsity, PolynomialDecay, StepList, ThreeStep
from sparsetorch.errors import BadInputError


@pytest.mark.parametrize(
    ("step", "expected"), [(0, 0.0), (1000, 0.2439), (2500, 0.520312), (5000, 0.7875), (7500, 0.885938)]
)
def test_polynomial_decay_gives_the_published_values(step: int, expected: float) -> None:
    schedule = PolynomialDecay(final_sparsity=0.9, end_step=10_000)
    digits = len(f"{expected}".partition(".")[2])
    assert round(schedule.sparsity_at(step), digits) == expected


def test_polynomial_decay_by_hand() -> None:
    # Linear (power 1) from 0.2 at step 10 to 0.8 at step 20: half way, half of the difference.
    schedule = PolynomialDecay(final_sparsity=0.8, initial_sparsity=0.2, power=1.0, begin_step=10, end_step=20)
    assert [round(schedule.sparsity_at(step), 12) for step in (0, 10, 15, 20, 99)] == [0.2, 0.2, 0.5, 0.8, 0.8]


def test_updates_include_both_ends_also_where_the_interval_does_not_divide_the_range() -> None:
    schedule = PolynomialDecay(final_sparsity=0.9, begin_step=5, end_step=31, update_every=10)
    assert [step for step in range(100) if schedule.is_update_step(step)] == [5, 15, 25, 31]
    assert schedule.sparsity_at(31) == 0.9


@given(
    final=st.floats(0, 0.999),
    initial=st.floats(0, 0.999),
    begin=st.integers(0, 500),
    length=st.integers(0, 500),
    every=st.integers(1, 100),
    power=st.floats(0.5, 5),
)
def test_polynomial_decay_ends_exactly_and_never_leaves_its_range(
    final: float, initial: float, begin: int, length: int, every: int, power: float
) -> None:
    schedule = PolynomialDecay(final, initial, power, begin_step=begin, end_step=begin + length, update_every=every)
    updates = [step for step in range(begin + length + every + 1) if schedule.is_update_step(step)]
    assert updates[-1] == begin + length
    assert schedule.sparsity_at(updates[-1]) == final
    values = [schedule.sparsity_at(step) for step in updates]
    low, high = min(initial, final), max(initial, final)
    assert all(low - 1e-12 <= value <= high + 1e-12 for value in values)
    assert values == sorted(values, reverse=initial > final) or max(values) - min(values) < 1e-12


def test_constant_sparsity_may_run_for_ever() -> None:
    schedule = ConstantSparsity(0.8, begin_step=10, end_step=-1, update_every=5)
    assert [step for step in range(30) if schedule.is_update_step(step)] == [10, 15, 20, 25]
    assert schedule.sparsity_at(0) == schedule.sparsity_at(10**9) == 0.8
    assert schedule.resolve(float("inf")) == schedule


def test_shares_of_the_training_become_steps() -> None:
    resolved = PolynomialDecay(0.9, begin_step=0.1, end_step=0.75).resolve(800)
    assert (resolved.begin_step, resolved.end_step) == (80, 600)
    assert ConstantSparsity(0.9).resolve(1000).end_step == 750  # the default
    assert ConstantSparsity(0.9, end_step=-1).resolve(1000).end_step == 1000


def test_whole_numbers_are_steps_however_a_parser_read_them() -> None:
    schedule = PolynomialDecay(0.9, begin_step=1.0, end_step=9000.0)
    assert (schedule.begin_step, schedule.end_step) == (1, 9000)
    assert schedule.resolved
    assert ConstantSparsity(0.9, end_step=-1.0).resolve(1000).end_step == 1000
    assert ConstantSparsity(0.9, end_step=1.0).resolve(1000).end_step == 1000  # a share: all of it


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        (lambda: ConstantSparsity(1.0), r"sparsity: found 1\.0, needed a share of zeros in \[0, 1\)"),
        (lambda: ConstantSparsity(-0.1), r"sparsity: found -0\.1"),
        (lambda: PolynomialDecay(1.0), r"final_sparsity: found 1\.0"),
        (lambda: PolynomialDecay(0.9, initial_sparsity=float("nan")), r"initial_sparsity: found nan"),
        (lambda: PolynomialDecay(0.9, power=0.0), r"power: found 0\.0"),
        (lambda: ConstantSparsity(0.5, update_every=0), r"update_every: found 0"),
        (
            lambda: ConstantSparsity(0.5, begin_step=10, end_step=5),
            r"end_step: found 5, needed at least begin_step \(10\)",
        ),
        (lambda: ConstantSparsity(0.5, end_step=1.5), r"end_step: found 1\.5, needed a step"),
        (lambda: ConstantSparsity(0.5, begin_step=-3), r"begin_step: found -3"),
        (
            lambda: ConstantSparsity(0.5, end_step=900).resolve(800),
            r"end_step: found 900, but the training has only 800",
        ),
        (lambda: ConstantSparsity(0.5).resolve(float("inf")), r"the training has no end"),
        (lambda: ConstantSparsity(0.5).is_update_step(3), r"depends on the length of the training"),
    ],
)
def test_a_bad_schedule_names_the_key_and_the_value(schedule: object, told: str) -> None:
    with pytest.raises(BadInputError, match=told):
        schedule()  # type: ignore[operator]


def test_schedules_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ConstantSparsity(0.5).sparsity = 0.6  # type: ignore[misc]


def test_three_steps_are_three_thirds() -> None:
    schedule = ThreeStep(0.9, update_every=100).resolve(3000)
    assert [schedule.is_update_step(step) for step in (900, 1000, 1100, 2000, 2100)] == [False, True, True, True, False]
    assert (schedule.sparsity_at(0), schedule.sparsity_at(1000), schedule.sparsity_at(2000)) == (0.0, 0.0, 0.9)


def test_a_step_list_holds_each_sparsity_from_its_step_on() -> None:
    schedule = StepList([[10, 0.5], [0.5, 0.8]]).resolve(100)
    assert [schedule.sparsity_at(step) for step in (0, 10, 49, 50, 99)] == [0.0, 0.5, 0.5, 0.8, 0.8]
    assert [step for step in range(100) if schedule.is_update_step(step)] == [10, 50]
    assert schedule.target_sparsity() == 0.8


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        (lambda: StepList([]), "needed pairs of a step and a sparsity"),
        (lambda: StepList([[1, 0.5], [1, 0.6]]), "each later than the one before"),
        (lambda: StepList([[1, 1.0]]), r"steps: found 1\.0, needed a share of zeros"),
        (lambda: StepList([[500, 0.5]]).resolve(100), "found step 500, but the training has only 100"),
        (lambda: StepList([[0.5, 0.5]]).resolve(float("inf")), "training without an end"),
    ],
)
def test_a_bad_step_list_is_refused(schedule: object, told: str) -> None:
    with pytest.raises(BadInputError, match=told):
        schedule()  # type: ignore[operator]
