"""All the evidence weighed together: candidates re-ranked by a softmax that learns online which evidence to trust.

The evidence: the name's and the arguments' log-probabilities (weight 1 from the start), what followed the same calls
before, what similar trajectories did, what was made already, and habitual confusions (weight 0 from the start, so a
part keeps quiet until it has proved itself). One more candidate stands for "none of these": its share makes the
others' probabilities honest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentspec.calls import ToolCall
from agentspec.memory import kernels
from agentspec.memory.hashing import Floats, HashedWeights, Places, blend, code, codes, credit, softmax
from agentspec.memory.replay import Replay

_ANY = np.uint64(code("any candidate"))
DENSE = 3
REPLAYS = 2
MAX_KEPT = 2_000
_FIXED = np.array([[1.0, 1.0, 1.0], [1.0, 0.3, 1.0]], np.float32)
"""Experts that learn nothing: the product of the probabilities, and one that follows the name."""


@dataclass(slots=True)
class Evidence:
    """One candidate and all that speaks for or against it; `marks`: features in words."""

    call: ToolCall
    key: str
    name_chance: float
    argument_chance: float
    marks: list[str]
    made: bool = False
    """Whether this very call was made in the trajectory."""
    support: int = 0
    sources: tuple[tuple[str, str], ...] = ()
    """Where each argument came from: its name, and the place in words."""

    @property
    def why(self) -> str:
        """Where the arguments came from, in words."""
        return "; ".join(f"{name}: {place}" for name, place in self.sources) or "as in past trajectories"


@dataclass(slots=True)
class Weighed:
    """Candidates with their probabilities; the last one is "none of these"."""

    candidates: list[Evidence]
    chances: Floats
    answers: list[Floats]
    places: Places
    dense: Floats


class Weighing:
    """Weighs candidates, and learns from which one was right.

    Four experts: the product of the two probabilities, the same with the name before all, and two softmaxes that learn
    slowly and fast; mixed by how well each has done lately.
    """

    def __init__(self, bits: int = 15, rates: tuple[float, ...] = (0.04, 0.2)) -> None:
        self.experts = [Expert(HashedWeights(bits, rate, 1.0)) for rate in rates]
        self._kept = Replay[tuple[Example, float]](MAX_KEPT)
        self.merits = np.zeros(len(rates) + len(_FIXED), np.float32)

    def weigh(self, candidates: Sequence[Evidence]) -> Weighed:
        """Probabilities of the candidates."""
        rows = [[_log(one.name_chance), _log(one.argument_chance), -1.5 * one.made] for one in candidates]
        dense = np.array([*rows, [_log(0.2), _log(0.2), 0.0]], np.float32)
        places = self._places(candidates)
        answers = [expert.answer(places, dense) for expert in self.experts]
        answers += [softmax(dense @ fixed) for fixed in _FIXED]
        return Weighed(list(candidates), blend(answers, self.merits), answers, places, dense)

    def _places(self, candidates: Sequence[Evidence]) -> Places:
        best = max((one.name_chance * one.argument_chance for one in candidates), default=0.0)
        tool = candidates[0].call.name if candidates else ""
        rows = [
            *((one.call.name, one.marks) for one in candidates),
            (tool, [f"none {_band(best)}", f"none of {min(len(candidates), 3)}"]),
        ]
        width = max(len(marks) for _, marks in rows) + 1
        own = np.stack([codes([*marks, *["-"] * (width - len(marks))]) for _, marks in rows])
        tools = codes(["tool " + name for name, _ in rows])
        return kernels.row_places(own, tools, _ANY, self.experts[0].weights.shift)

    def example(self, weighed: Weighed, right: int | None) -> Example:
        """This candidate was right (None: none of them): what is to be learnt from that."""
        place = len(weighed.candidates) if right is None else right
        shares = np.array([answer[place] for answer in weighed.answers], np.float32)
        return Example(weighed.places, weighed.dense, place, shares)

    def learn(self, example: Example, weight: float = 1.0) -> None:
        """Learn from it."""
        credit(self.merits, example.shares, weight, least=1e-3)
        for expert in self.experts:
            expert.learn(example, weight)
            for past, counts in self._kept.some(REPLAYS):
                expert.learn(past, counts)
        self._kept.keep((example, weight))


@dataclass(frozen=True, slots=True)
class Example:
    """Candidates, and the place of the right one; `shares`: what each expert gave to it."""

    places: Places
    dense: Floats
    place: int
    shares: Floats


class Expert:
    """One online softmax over candidates."""

    def __init__(self, weights: HashedWeights) -> None:
        self.weights = weights
        self.trust = np.array([1.0, 0.6, 1.0], np.float32)
        self.squares = np.full(DENSE, 20.0, np.float32)

    def answer(self, places: Places, dense: Floats) -> Floats:
        return softmax(self.weights.scores(places) + dense @ self.trust)

    def learn(self, example: Example, weight: float) -> None:
        errors = self.answer(example.places, example.dense)
        errors[example.place] -= 1.0
        errors *= np.float32(weight)
        self.weights.learn(example.places, errors)
        slopes = errors @ example.dense
        self.squares += slopes * slopes
        self.trust[:] = np.clip(self.trust - 0.05 * slopes / np.sqrt(self.squares), 0.1, 3.0)


def _log(chance: float) -> float:
    return max(math.log(max(chance, 1e-9)), -9.0)


def _band(chance: float) -> int:
    return int(min(-math.log2(max(chance, 1e-3)), 9) * 2)
