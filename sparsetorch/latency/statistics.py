"""What can be said from run times: order statistics, and the ratio of two medians with its confidence interval.

Pure functions of numbers. Medians and percentiles, since run times have a long tail that is the machine's, not the model's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
"""Confidence level of intervals."""


@dataclass(frozen=True)
class Summary:
    """Run times of one model."""

    median: float
    p10: float
    p90: float
    count: int


@dataclass(frozen=True)
class Ratio:
    """How many times as fast as the reference: its median over this one's."""

    value: float
    low: float
    high: float
    """Ends of the confidence interval."""

    @property
    def is_difference(self) -> bool:
        """Whether the interval leaves out 1."""
        return not self.low <= 1.0 <= self.high


def summary(times: Sequence[float]) -> Summary:
    """Median, 10th and 90th percentile, in the unit of `times`, with linear interpolation between neighbours.

    Raises:
        ValueError: no times.
    """
    if not times:
        raise ValueError("no run times")
    p10, median, p90 = np.percentile(np.asarray(times, np.float64), [10, 50, 90])
    return Summary(float(median), float(p10), float(p90), len(times))


def ratio(reference: Sequence[float], times: Sequence[float], resamples: int = 2000, seed: int = 0) -> Ratio:
    """Ratio of the medians of two models that were run in turns, with its confidence interval.

    Rounds are drawn, not times: entry i of both was measured side by side, and a busy spell hits both. Spells last longer than a
    round, so whole blocks of rounds are drawn, about n^(1/3) long (circular block bootstrap: Politis and Romano, 1992, "A
    circular block-resampling procedure for stationary data"; percentile interval).

    Args:
        reference: run times of the model that is compared with, one a round.
        times: of the other, in the same rounds.
        resamples: bootstrap samples.
        seed: of the draws: the same times give the same interval.

    Raises:
        ValueError: different lengths, or none.
    """
    first, second = np.asarray(reference, np.float64), np.asarray(times, np.float64)
    if first.shape != second.shape or first.size == 0:
        raise ValueError(
            f"found {first.size} and {second.size} run times, needed the same rounds of both, at least one"
        )
    rounds = first.size
    length = max(1, round(rounds ** (1 / 3)))
    starts = np.random.default_rng(seed).integers(0, rounds, (resamples, -(-rounds // length)))
    drawn = ((starts[:, :, None] + np.arange(length)) % rounds).reshape(resamples, -1)[:, :rounds]
    ratios = np.median(first[drawn], axis=1) / np.median(second[drawn], axis=1)
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Ratio(float(np.median(first) / np.median(second)), float(low), float(high))


def in_words(found: Ratio) -> str:
    """`2.35 times as fast (2.28 to 2.41)`; nothing is claimed where chance could have done it."""
    interval = f"({found.low:.2f} to {found.high:.2f})"
    if not found.is_difference:
        return f"no difference measured {interval}"
    if found.value >= 1:
        return f"{found.value:.2f} times as fast {interval}"
    return f"{1 / found.value:.2f} times as slow ({1 / found.high:.2f} to {1 / found.low:.2f})"
