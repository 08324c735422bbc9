"""One measured number of the verifier's benches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure.

    Attributes:
        low, high: the spread or interval that was measured, or None.
        n: how many observations it rests on.
    """

    name: str
    value: float | int | bool | None
    unit: str = ""
    low: float | None = None
    high: float | None = None
    n: int | None = None


def spread(name: str, values: list[float], unit: str = "ratio") -> Measured:
    """The median of paired ratios, with the least and the largest of them."""
    return Measured(name, median(values), unit, min(values), max(values), len(values))
