"""Distributions of what was measured, small enough to decide on in microseconds.

A sketch keeps the last values of one quantity, sorted, and an exponential prior that counts for a fraction of a value.
Everything the gate asks is answered from a few points: values in order, each with its weight.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

POINTS = 12
"""So many values stand for what was measured where it is decided on."""

Points = Sequence[tuple[float, float]]
"""Values in ascending order, each with its weight."""

_PRIOR_POINTS = 6
_RAW = [-math.log(1.0 - (i + 0.5) / _PRIOR_POINTS) for i in range(_PRIOR_POINTS)]
_UNIT = [value * _PRIOR_POINTS / sum(_RAW) for value in _RAW]
"""The mid-quantiles of an exponential distribution, scaled to its mean."""


def exponential(mean: float) -> list[float]:
    """A prior with a long tail: a few equally likely values of an exponential distribution.

    >>> round(sum(exponential(3.0)) / len(exponential(3.0)), 6)
    3.0
    """
    return [value * mean for value in _UNIT]


def thinned(values: Sequence[float], count: int = POINTS) -> list[tuple[float, float]]:
    """At most `count` points that stand for these values, which are in order: each the mean of its share of them."""
    if len(values) <= count:
        return [(value, 1.0) for value in values]
    edges = [len(values) * i // count for i in range(count + 1)]
    return [(sum(values[low:high]) / (high - low), float(high - low)) for low, high in pairwise(edges)]


def weighted(values: Sequence[float], prior: Sequence[float], weight: float) -> Points:
    """Measured values (each counts as one, in order) and a prior that counts for `weight` in all, as points."""
    points = thinned(values)
    points += [(value, weight / len(prior)) for value in prior]
    points.sort()
    return points


def mean_of(points: Points) -> float:
    """The mean; 0.0 of nothing."""
    total = sum(weight for _, weight in points)
    return sum(value * weight for value, weight in points) / total if total else 0.0


def summed(one: Points, other: Points) -> Points:
    """The distribution of A + B for independent A and B, as few points.

    >>> summed([(1.0, 1.0)], [(1.0, 1.0), (3.0, 1.0)])
    [(2.0, 1.0), (4.0, 1.0)]
    """
    every = sorted((a + b, weight_a * weight_b) for a, weight_a in one for b, weight_b in other)
    if len(every) <= POINTS:
        return every
    share, points, held, weight = sum(w for _, w in every) / POINTS, [], 0.0, 0.0
    for value, its in every:
        held, weight = held + value * its, weight + its
        if weight >= share:
            points.append((held / weight, weight))
            held, weight = 0.0, 0.0
    return [*points, (held / weight, weight)] if weight else points


def expected_min(one: Points, other: Points, offset: float = 0.0) -> float:
    """E[min(A, max(0, B - offset))] for independent A and B: the area under P(A > t) * P(B - offset > t).

    >>> expected_min([(1.0, 1.0)], [(3.0, 1.0)])
    1.0
    >>> expected_min([(1.0, 1.0)], [(0.5, 1.0), (3.0, 1.0)], offset=0.25)
    0.625
    """
    left_a, left_b = sum([weight for _, weight in one]), sum([weight for _, weight in other])
    if left_a <= 0 or left_b <= 0:
        return 0.0
    share, area, before = 1.0 / (left_a * left_b), 0.0, 0.0
    rest_a, rest_b = iter(one), iter(other)
    (at_a, weight_a), (at_b, weight_b) = next(rest_a), next(rest_b)
    at_b -= offset
    while True:
        at = at_a if at_a <= at_b else at_b
        if at > before:
            area += (at - before) * left_a * left_b
            before = at
        if at_a <= at_b:
            left_a -= weight_a
            at_a, weight_a = next(rest_a, _OVER)
        else:
            left_b -= weight_b
            at_b, weight_b = next(rest_b, _OVER)
            at_b -= offset
        if weight_a < 0 or weight_b < 0:
            return area * share


_OVER = (math.inf, -1.0)


class Sketch:
    """The last `window` values of a quantity, with a prior that a few of them outweigh. One thread.

    >>> sketch = Sketch(prior=1.0, weight=1.0)
    >>> sketch.add(3.0)
    >>> sketch.value
    2.0
    """

    __slots__ = ("_cached", "_order", "_prior", "_sorted", "_weight", "count")

    def __init__(self, prior: float, weight: float = 0.5, window: int = 128) -> None:
        self._prior = exponential(prior)
        self._weight = weight
        self._order: deque[float] = deque(maxlen=window)
        self._sorted: list[float] = []
        self._cached: Points | None = None
        self.count = 0
        """All values that were ever added."""

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, value: float) -> None:
        """Take one value; the oldest leaves."""
        if not math.isfinite(value):
            return
        if len(self._order) == self._order.maxlen:
            oldest = self._order[0]
            del self._sorted[bisect_right(self._sorted, oldest) - 1]
        self._order.append(value)
        insort(self._sorted, value)
        self._cached = None
        self.count += 1

    @property
    def value(self) -> float:
        """The mean, prior included."""
        return mean_of(self.points())

    def points(self) -> Points:
        """The distribution, prior included."""
        if self._cached is None:
            self._cached = weighted(self._sorted, self._prior, self._weight)
        return self._cached

    def beyond(self, passed: float) -> list[float]:
        """How much longer those went on that were longer than `passed`, in order; measured ones alone."""
        return [value - passed for value in self._sorted[bisect_right(self._sorted, passed) :]]

    def measured_mean(self) -> float:
        """The mean of what was measured; 0.0 of nothing."""
        return sum(self._sorted) / len(self._sorted) if self._sorted else 0.0
