"""Running averages that the gate decides on: tool latency L, runway R, probe time P, shares of hits and of calls."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Mean:
    """Mean with a prior that counts for `weight` observations and exponential forgetting after that.

    >>> mean = Mean(prior=1.0, weight=1.0)
    >>> mean.add(3.0)
    >>> mean.value
    2.0
    """

    prior: float
    weight: float = 1.0
    memory: float = 50.0
    """After this many observations the old ones fade."""
    count: int = 0
    _sum: float = field(default=0.0, init=False)
    _n: float = field(default=0.0, init=False)

    def add(self, value: float) -> None:
        """Take one observation."""
        fade = min(1.0, self.memory / (self._n + 1.0))
        self._sum = self._sum * fade + value
        self._n = self._n * fade + 1.0
        self.count += 1

    @property
    def value(self) -> float:
        """The mean as it stands."""
        return (self._sum + self.prior * self.weight) / (self._n + self.weight)


class Quantile:
    """A quantile over the last `window` observations (exact; small windows only). Safe from several threads.

    >>> q = Quantile()
    >>> [q.add(float(i)) for i in range(1, 11)] and q.at(0.9)
    9.0
    """

    def __init__(self, window: int = 64) -> None:
        self._seen: deque[float] = deque(maxlen=window)

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, value: float) -> None:
        """Take one observation."""
        self._seen.append(value)

    def at(self, q: float) -> float | None:
        """The value at quantile q (0..1, nearest rank), None before the first observation."""
        if not self._seen:
            return None
        ordered = sorted(list(self._seen))
        return ordered[max(0, min(len(ordered) - 1, math.ceil(q * len(ordered)) - 1))]


@dataclass(slots=True)
class Trust:
    """What a calibrated predictor's probabilities are worth: how much of what they promised came; no more than all."""

    right: Mean = field(default_factory=lambda: Mean(prior=0.5, weight=4.0, memory=200.0))
    promised: Mean = field(default_factory=lambda: Mean(prior=0.5, weight=4.0, memory=200.0))

    def add(self, probability: float, right: bool) -> None:
        """A guess of this probability was right or wrong."""
        self.promised.add(probability)
        self.right.add(float(right))

    @property
    def value(self) -> float:
        """What a probability of its is to be multiplied by."""
        return min(1.0, self.right.value / self.promised.value) if self.promised.value else 1.0


class Averages:
    """All that has been measured so far in one process, by the keys that the gate asks for.

    Priors are mild guesses that let a first bet happen; a few observations outweigh them.
    """

    def __init__(self) -> None:
        self._latency: defaultdict[Hashable, Mean] = defaultdict(lambda: Mean(prior=1.0, weight=0.5))
        self._call_at: defaultdict[Hashable, Mean] = defaultdict(lambda: Mean(prior=3.0, weight=0.5))
        self._probe: defaultdict[Hashable, Mean] = defaultdict(lambda: Mean(prior=0.5, weight=0.5))
        self._hits: defaultdict[Hashable, Mean] = defaultdict(lambda: Mean(prior=0.6, weight=2.0))
        self._again: defaultdict[Hashable, Mean] = defaultdict(lambda: Mean(prior=0.2, weight=2.0))
        self._trust: defaultdict[Hashable, Trust] = defaultdict(Trust)
        self._calls: defaultdict[Hashable, Mean] = defaultdict(lambda: Mean(prior=0.8, weight=1.0))

    def tool_latency(self, tool: str, fingerprint: str) -> Mean:
        """L: seconds that a tool takes."""
        return self._latency[tool, fingerprint]

    def call_at(self, model: str) -> Mean:
        """Seconds from a turn's start until the agent claims its call; the runway follows from it."""
        return self._call_at[model]

    def probe_time(self, model: str) -> Mean:
        """P: seconds that a probe takes."""
        return self._probe[model]

    def hit_rate(self, predictor: str, tool: str) -> Mean:
        """Share of a predictor's guesses of a tool that were made exactly."""
        return self._hits[predictor, tool]

    def again_rate(self, predictor: str, tool: str) -> Mean:
        """The same for guesses of a call that was made already since the user spoke: agents seldom repeat one."""
        return self._again[predictor, tool]

    def trust(self, predictor: str) -> Trust:
        """What the probabilities of a predictor are worth that says they are ones."""
        return self._trust[predictor]

    def call_rate(self, tenant: str, model: str, depth: int) -> Mean:
        """Share of turns that call a tool at all, by how many calls came since the user spoke."""
        return self._calls[tenant, model, min(depth, 8)]
