"""Judges how sure a measurement is, so that a test fails if a limit is surely missed, and not if the machine was busy.
Measure two things in turn, so that other work on the machine reaches both; look at the ratios of the pairs.
"""

import math


def median_between(values, doubt=0.01):
    """Bounds of the true median of a sample, wrong one time in 1 / doubt. Only the order of the values counts: of n
    values, as many lie above the median as heads come up in n throws of a coin.
    """
    ordered = sorted(values)
    count = len(ordered)
    below, outside = 0, 0.0
    while (outside := outside + 2 * math.comb(count, below) / 2**count) <= doubt:
        below += 1
    assert below, f"{count} values cannot tell with a doubt of {doubt}"
    return ordered[below - 1], ordered[count - below]


def surely_above(values, limit, doubt=0.01):
    """Whether the median is above the limit, even if the spread is chance."""
    return median_between(values, doubt)[0] > limit


def described(values):
    low, high = median_between(values)
    return f"{sorted(values)[len(values) // 2]:.3f} (median; {low:.3f} to {high:.3f})"
