"""Statistics of run times against numbers worked out by hand, and what chance may not do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsetorch.latency.statistics import Ratio, Summary, in_words, ratio, summary


def test_a_summary_by_hand() -> None:
    # Sorted 1 .. 11: the 10th percentile lies at place 0.1 * 10 = 1, the 90th at 9.
    assert summary([11, 3, 1, 2, 10, 4, 9, 5, 8, 7, 6]) == Summary(median=6, p10=2, p90=10, count=11)
    # Of two values: 1 + 0.1 * 2 and 1 + 0.9 * 2.
    assert summary([1, 3]) == Summary(median=2, p10=pytest.approx(1.2), p90=pytest.approx(2.8), count=2)
    assert summary([5]) == Summary(5, 5, 5, 1)
    with pytest.raises(ValueError, match="no run times"):
        summary([])


def test_a_slow_outlier_does_not_move_the_median() -> None:
    assert summary([10.0] * 59 + [1000.0]).median == 10


def test_a_ratio_by_hand() -> None:
    assert ratio([10, 10, 10], [5, 5, 5]) == Ratio(2, 2, 2)
    # One round each: every resample is that round.
    assert ratio([9], [6]) == Ratio(1.5, 1.5, 1.5)
    # Two rounds: resamples are (4, 1), (2, 1) and both; medians of the first 4, 2 or 3, of the second 1.
    found = ratio([4, 2], [1, 1])
    assert (found.value, found.low, found.high) == (3, 2, 4)


def test_rounds_stay_together() -> None:
    # A busy spell makes both ten times as slow. Drawn apart, the interval would run from 0.2 to 20; drawn as rounds it is one.
    busy = np.where(np.arange(60) % 20 < 10, 1.0, 10.0)
    assert ratio(2 * busy, busy) == Ratio(2, 2, 2)


@pytest.mark.parametrize(("first", "second"), [([], []), ([1, 2], [1])])
def test_rounds_have_to_match(first: list[float], second: list[float]) -> None:
    with pytest.raises(ValueError, match="the same rounds of both"):
        ratio(first, second)


@given(st.lists(st.tuples(st.floats(0.1, 100), st.floats(0.1, 100)), min_size=1, max_size=40))
def test_a_ratio_has_no_unit_and_turns_over(rounds: list[tuple[float, float]]) -> None:
    first, second = [one for one, _ in rounds], [other for _, other in rounds]
    found = ratio(first, second, resamples=200)
    assert found == ratio(first, second, resamples=200)
    assert found.low <= found.high
    assert min(first) / max(second) * (1 - 1e-9) <= found.low
    assert found.high <= max(first) / min(second) * (1 + 1e-9)
    scaled = ratio([8 * one for one in first], [8 * other for other in second], resamples=200)
    assert (scaled.value, scaled.low, scaled.high) == pytest.approx((found.value, found.low, found.high))
    turned = ratio(second, first, resamples=200)
    assert turned.value == pytest.approx(1 / found.value)


def test_chance_is_rarely_taken_for_a_difference() -> None:
    """One model against itself, with noise that lasts for several rounds: an interval of 95 % should be wrong in 5 of 100."""
    random = np.random.default_rng(1)
    wrong = 0
    for _ in range(200):
        spells = np.repeat(random.lognormal(0, 0.2, 12), 5)
        first, second = (10 * spells * random.lognormal(0, 0.05, 60) for _ in range(2))
        wrong += ratio(first, second, resamples=400).is_difference
    assert wrong <= 24  # 12 %


def test_a_real_difference_is_found() -> None:
    random = np.random.default_rng(2)
    spells = np.repeat(random.lognormal(0, 0.2, 12), 5)
    found = ratio(24 * spells * random.lognormal(0, 0.05, 60), 10 * spells * random.lognormal(0, 0.05, 60))
    assert 2.2 < found.low < 2.4 < found.high < 2.6


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Ratio(2.351, 2.281, 2.412), "2.35 times as fast (2.28 to 2.41)"),
        (Ratio(1.02, 0.98, 1.05), "no difference measured (0.98 to 1.05)"),
        (Ratio(1.5, 1.0, 2.0), "no difference measured (1.00 to 2.00)"),
        (Ratio(0.5, 0.4, 0.8), "2.00 times as slow (1.25 to 2.50)"),
    ],
)
def test_in_words(found: Ratio, words: str) -> None:
    assert in_words(found) == words
