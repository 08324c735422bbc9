"""The softmaxes over tools that learn online: each with weights, rates and replays of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agentspec.memory import kernels
from agentspec.memory.hashing import Floats, HashedWeights, Places
from agentspec.memory.meeting import MARKS

OWN = 9 + MARKS
"""Features that compare a tool with the context."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Learning rates: features of the last actions, of words, and those that compare (by tool, for any tool)."""

    actions: float
    words: float
    own: float
    any_tool: float
    replays: int


EXPERTS = (Rates(0.04, 0.015, 0.05, 0.05, 4), Rates(0.1, 0.05, 0.2, 0.1, 1), Rates(0.03, 0.02, 0.03, 0.03, 2))


@dataclass(frozen=True, slots=True)
class Example:
    """A point and what came: the likeliest classes, which of them was right, and what the experts gave to it."""

    places: Places
    prior: Floats
    right: int
    few: int
    weight: float
    shares: Floats


class Expert:
    """One online softmax."""

    def __init__(self, rates: Rates, bits: int) -> None:
        self.weights = HashedWeights(bits, 1.0, 0.5)
        self.rates = rates
        self.trust = np.ones(2, np.float64)
        """Weight of the back-off's log-probability, and its AdaGrad sum."""

    def answer(self, places: Places, prior: Floats) -> Floats:
        """Probability of each class."""
        chances = self.weights.scores(places) + np.float32(self.trust[0]) * prior
        kernels.to_chances(chances)
        return chances

    def learn(self, kept: Example) -> None:
        """One step towards the right class."""
        width, weights = kept.places.shape[1], self.weights
        rates = np.full(width, self.rates.words, np.float32)
        rates[: kept.few] = self.rates.actions
        rates[width - OWN :] = self.rates.own
        rates[width - 2 * OWN : width - OWN] = self.rates.any_tool
        kernels.learn_class(
            weights.weights, weights.squares, kept.places, kept.prior, self.trust, kept.right, kept.weight, rates
        )
