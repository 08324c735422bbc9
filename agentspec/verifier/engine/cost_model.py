"""What a forward costs on this device, by its rows: measured at start, corrected while running."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence

_ROWS = (1, 16, 4, 64, 8, 2, 32)  # in the order in which they are measured: a slow device stops early
_BUDGET_S = 1.8
_FOLLOW, _FOLLOW_ALL = 0.1, 0.01  # weight of one more observation, on the points beside it and on all


class CostModel:
    """Seconds of a forward: linear between measured numbers of rows, and beyond the last two.

    Args:
        seconds: for each of `rows` (ascending, two or more). It is made to grow with the rows.
    """

    def __init__(self, rows: Sequence[int], seconds: Sequence[float]) -> None:
        if len(rows) < 2 or len(rows) != len(seconds):
            raise ValueError("a cost model needs two points or more")
        self._rows = list(rows)
        self._seconds = [max(seconds[: index + 1]) for index in range(len(seconds))]

    def seconds(self, rows: int) -> float:
        """Expected time of a forward of so many rows."""
        at, share = self._between(rows)
        low, high = self._seconds[at - 1], max(self._seconds[at - 1 : at + 1])
        return low + share * (high - low)

    def spare(self, rows: int, slowdown: float) -> int:
        """How many rows more make a forward at most `slowdown` times as long (1.15: by 15%)."""
        bound = self.seconds(rows) * slowdown
        more = 0
        while more < 4096 and self.seconds(rows + more + 1) <= bound:
            more += 1
        return more

    def observe(self, rows: int, seconds: float) -> None:
        """A forward of `rows` rows took so long: the curve follows, slowly, most where it was measured."""
        expected = self.seconds(rows)
        if expected <= 0:
            return
        surprise = min(max(seconds / expected, 0.5), 2.0) - 1.0
        at, share = self._between(rows)
        share = min(share, 1.0)
        weights = {at - 1: 1.0 - share, at: share}
        for index in range(len(self._seconds)):
            self._seconds[index] *= 1.0 + surprise * max(_FOLLOW_ALL, _FOLLOW * weights.get(index, 0.0))

    def _between(self, rows: int) -> tuple[int, float]:
        """The upper one of the two points around `rows`, and how far on the way to it."""
        at = min(max(bisect_left(self._rows, rows), 1), len(self._rows) - 1)
        low, high = self._rows[at - 1], self._rows[at]
        return at, (rows - low) / (high - low)


def profiled(forward: Callable[[int], object], clock: Callable[[], float] = time.perf_counter) -> CostModel:
    """Measure forwards of 1 to 64 rows, in two rounds, for less than two seconds in all (but two points at least).

    Args:
        forward: runs so many rows.
    """
    deadline = clock() + _BUDGET_S
    forward(_ROWS[0])
    best: dict[int, float] = {}
    for _ in range(2):
        for rows in _ROWS:
            if len(best) >= 2 and clock() > deadline:
                break
            start = clock()
            forward(rows)
            best[rows] = min(clock() - start, best.get(rows, float("inf")))
    known = sorted(best)
    return CostModel(known, [best[rows] for rows in known])
