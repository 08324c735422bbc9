"""From a predictor's confidence to a probability, learnt from every prediction that was offered, run or not.

Confidences fall into bins. In each bin the predictor's promises are held against what came: the mean residual, shrunk
to nothing by a pseudo-count, is added to the base. Bins of a (predictor, tool) start from the predictor's, those of
the predictor from a fixed rule: one that calls its probabilities calibrated is believed, any other is held to be right
six times in ten that it is certain, and twice in ten when it repeats a call that was made since the user spoke.

Chosen among twelve ways (Platt's scaling online, flat bins, multipliers) by the expected calibration error on recorded
trajectories; the residual form keeps the order within a bin, and the tool's own bins need thirty predictions to count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentspec.gating.conformal import DiscardBound
from agentspec.gating.kept import Kept

BINS = 10
_HIGHEST = 0.99
"""Nothing guessed is certain."""

_MEMORY = 200.0
"""After so many predictions in a bin the old ones fade."""

_FIRST_TRUST, _AGAIN_TRUST = 0.6, 0.2


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a predictor says of one call, before it is known whether it is right.

    Attributes:
        calibrated: the predictor holds its confidences against what comes itself.
        again: the same call was made already since the user spoke; agents seldom repeat one.
    """

    predictor: str
    tool: str
    confidence: float
    calibrated: bool = False
    again: bool = False

    @property
    def bin(self) -> int:
        """Which bin its confidence falls into."""
        return min(BINS - 1, max(0, int(self.confidence * BINS)))

    @property
    def believed(self) -> float:
        """The probability before anything is measured."""
        if self.calibrated:
            return self.confidence
        return self.confidence * (_AGAIN_TRUST if self.again else _FIRST_TRUST)


@dataclass(slots=True)
class Bin:
    """Predictions of about one confidence: how many, and how much more came true than was promised."""

    count: float = 0.0
    surplus: float = 0.0

    def add(self, promised: float, right: bool) -> None:
        """A prediction was right or wrong."""
        fade = min(1.0, _MEMORY / (self.count + 1.0))
        self.count = self.count * fade + 1.0
        self.surplus = self.surplus * fade + float(right) - promised

    def corrected(self, promised: float, weight: float) -> float:
        """The probability that such a promise is worth; `weight`: predictions that speak for the promise itself."""
        return min(_HIGHEST, max(0.0, promised + self.surplus / (self.count + weight)))


class Calibration:
    """What confidences of each predictor were worth, by tool, and the threshold that bounds discarded runs."""

    def __init__(self, max_discarded_share: float = 1.0, window: int = 500) -> None:
        self._bins: Kept[tuple[str, str, bool, int], Bin] = Kept(Bin)
        self._told: Kept[str, deque[tuple[float, bool]]] = Kept(lambda: deque(maxlen=window), most=200)
        self._bounds: Kept[str, DiscardBound] = Kept(lambda: DiscardBound(max_discarded_share, window), most=200)

    def probability(self, claimed: Claimed) -> float:
        """The probability that this very call is made."""
        return self._by_tool(claimed).corrected(self._by_predictor(claimed), 30.0 if claimed.calibrated else 8.0)

    def add(self, claimed: Claimed, probability: float, right: bool) -> None:
        """What was predicted with this probability was right or wrong. Once for each prediction."""
        base = self._by_predictor(claimed)
        self._told[claimed.predictor].append((probability, right))
        self._by_tool(claimed).add(base, right)
        self._bins[claimed.predictor, "", claimed.again, claimed.bin].add(claimed.believed, right)

    def bound(self, predictor: str) -> DiscardBound:
        """The bound on discarded runs of a predictor; told of each call once a turn, however often it was offered."""
        return self._bounds[predictor]

    def error(self, predictor: str) -> float | None:
        """Expected calibration error over the last predictions; None before the first."""
        told = self._told.seen(predictor)
        return expected_calibration_error(told) if told else None

    def predictors(self) -> list[str]:
        """Those that have predicted anything."""
        return [name for name, _ in self._told.items()]

    def _by_predictor(self, claimed: Claimed) -> float:
        found = self._bins[claimed.predictor, "", claimed.again, claimed.bin]
        return found.corrected(claimed.believed, 10.0 if claimed.calibrated else 4.0)

    def _by_tool(self, claimed: Claimed) -> Bin:
        return self._bins[claimed.predictor, claimed.tool, claimed.again, claimed.bin]


def expected_calibration_error(told: Iterable[tuple[float, bool]], bins: int = BINS) -> float:
    """How far probabilities are from what came, bin by bin, weighted by how often; 0.0 of nothing.

    >>> expected_calibration_error([(0.5, True), (0.5, False)])
    0.0
    >>> expected_calibration_error([(1.0, False)])
    1.0
    """
    gaps, count = [0.0] * bins, 0
    for probability, right in told:
        gaps[min(bins - 1, max(0, int(probability * bins)))] += probability - float(right)
        count += 1
    return sum(map(abs, gaps)) / count if count else 0.0


def reliability(told: Sequence[tuple[float, bool]], bins: int = BINS) -> list[tuple[float, float, int]]:
    """For a plot: mean probability, share that came true and number of predictions of each bin that has any."""
    found: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for probability, right in told:
        found[min(bins - 1, max(0, int(probability * bins)))].append((probability, right))
    return [
        (sum(p for p, _ in held) / len(held), sum(right for _, right in held) / len(held), len(held))
        for held in found
        if held
    ]
