"""A threshold on probabilities that keeps the share of discarded runs below what the operator tolerates.

Split conformal, in its learn-then-test form: the share of wrong ones among those above a threshold does not fall
steadily as the threshold rises, so the simpler rules of conformal risk control do not hold for it. Thresholds are
tested from the highest down; each is kept while a binomial tail says that, were the true share above the tolerated one,
so few wrong ones would be seen by chance at most once in fifty times. On independent data exchangeable with what is
coming, the share of discarded runs is then within the bound with that certainty, whatever the predictor.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence

DOUBT = 0.02
"""How often the bound may be missed, over sets of past predictions that are independent of each other. Those of one
trajectory are not: on recorded ones it is missed about one time in ten (`tests/bench/test_gate_on_recordings.py`)."""

STARTS = (20, 40, 80, 160, 320)
"""Tests go down from the so many likeliest; each of these sequences has its share of the doubt."""

STEP = 10

UNLIKELY = 0.1
"""What is less likely is never worth a run, so it is not counted: it would only push out what is."""

NEVER = math.inf


def threshold(told: Sequence[tuple[float, bool]], share: float, doubt: float = DOUBT) -> float:
    """The lowest probability at which running keeps discarded runs below `share`; NEVER where none is.

    Args:
        told: past predictions as (probability, right), in ascending order of probability.
        share: of runs that may be discarded.
        doubt: how often the answer may be too low, over sets of past predictions.
    """
    if share >= 1.0:
        return 0.0
    found, wrong, due, going, starts = NEVER, 0, 0, False, False
    for count, (probability, right) in enumerate(reversed(told), 1):
        wrong += not right
        starts = starts or count in STARTS
        last_of_equals = count == len(told) or told[-count - 1][0] < probability
        if not last_of_equals or not (starts or (going and count >= due)):
            continue
        going, starts = binomial_tail(wrong, count, share) <= doubt / len(STARTS), False
        found, due = (probability if going else found), count + STEP
    return found


def binomial_tail(most: int, count: int, share: float) -> float:
    """The chance of at most `most` among `count`, each with probability `share`.

    >>> binomial_tail(1, 2, 0.5)
    0.75
    """
    if share <= 0.0:
        return 1.0
    if share >= 1.0:
        return float(most >= count)
    term = math.exp(count * math.log1p(-share))
    total, odds = term, share / (1.0 - share)
    for k in range(1, most + 1):
        term *= (count - k + 1) / k * odds
        total += term
    return min(1.0, total)


class DiscardBound:
    """The bound over the last predictions of one predictor, told of each call that it offered in a turn once.

    While there are too few to test, a predictor that calls itself calibrated is taken at its word, and of another the
    gate's break-even alone decides. So is what is likelier than the bound asks for, as long as no threshold passes and
    fewer of that height were seen than a test needs: a memory that has just become good need not wait for twenty.
    """

    def __init__(self, share: float, window: int = 500) -> None:
        self._share = share
        self._order: deque[tuple[float, bool]] = deque(maxlen=window)
        self._sorted: list[tuple[float, bool]] = []
        self._threshold = 0.0
        self._fresh = 0

    def add(self, probability: float, right: bool) -> None:
        """A call was predicted with this probability, at its highest in its turn, and came or did not."""
        if probability < UNLIKELY:
            return
        if len(self._order) == self._order.maxlen:
            self._sorted.remove(self._order[0])
        self._order.append((probability, right))
        insort(self._sorted, (probability, right))
        self._fresh += 1
        if len(self._order) >= STARTS[0] and self._fresh >= STEP:
            self._threshold, self._fresh = self._tested(), 0

    def _tested(self) -> float:
        found, sure = threshold(self._sorted, self._share), 1.0 - self._share
        untested = len(self._sorted) - bisect_left(self._sorted, (sure, False)) < STARTS[0]
        return sure if found is NEVER and untested else found

    def least(self, *, calibrated: bool) -> float:
        """The lowest probability that may run."""
        if self._share >= 1.0:
            return 0.0
        if len(self._order) >= STARTS[0]:
            return self._threshold
        return 1.0 - self._share if calibrated else 0.0
