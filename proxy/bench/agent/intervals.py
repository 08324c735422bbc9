"""What ratios say of several cells at once: medians, and intervals by bootstrap over the pairs. Seeded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
_DRAWS = 2_000


def median_interval(ratios: Sequence[float], seed: int = 1) -> tuple[float | None, float | None]:
    """The interval in which the median of the pairs' ratios lies; none of fewer than two pairs."""
    if len(ratios) < 2:
        return None, None
    drawn = _drawn_medians(ratios, np.random.default_rng(seed))
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def highest(cells: Sequence[Sequence[float]], seed: int = 1) -> float | None:
    """The upper end of a simultaneous interval for the largest of the cells' medians.

    In each draw the pairs of every cell are drawn anew; how far the cell's median falls, in units of its own spread, is
    noted for the worst cell. All medians together lie below their estimates plus that many spreads with probability
    `LEVEL`, and so does the largest. None where a cell has fewer than two pairs.
    """
    if not cells or min(map(len, cells)) < 2:
        return None
    rng = np.random.default_rng(seed)
    medians = np.array([np.median(ratios) for ratios in cells])
    drawn = np.array([_drawn_medians(ratios, rng) for ratios in cells])
    spread = np.maximum(drawn.std(axis=1), 1e-9)
    worst = ((medians[:, None] - drawn) / spread[:, None]).max(axis=0)
    return float((medians + np.quantile(worst, LEVEL) * spread).max())


def total_interval(
    with_s: Sequence[float], without_s: Sequence[float], seed: int = 1
) -> tuple[float | None, float | None]:
    """The interval of the ratio of two totals, the pairs drawn anew together."""
    if len(with_s) < 2:
        return None, None
    chosen = np.random.default_rng(seed).integers(len(with_s), size=(_DRAWS, len(with_s)))
    ratios = np.asarray(with_s)[chosen].sum(axis=1) / np.asarray(without_s)[chosen].sum(axis=1)
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _drawn_medians(ratios: Sequence[float], rng: np.random.Generator) -> NDArray[np.float64]:
    found = np.asarray(ratios, dtype=np.float64)
    medians: NDArray[np.float64] = np.median(found[rng.integers(len(found), size=(_DRAWS, len(found)))], axis=1)
    return medians
