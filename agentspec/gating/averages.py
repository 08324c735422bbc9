"""What has been measured in one process, by the keys that the gate asks for: L, R, P, the slowdown, shares of calls."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from agentspec.gating.kept import Kept
from agentspec.gating.runway import Runway
from agentspec.gating.sketch import Sketch


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
    def measured(self) -> float:
        """The mean without its prior; 0.0 of nothing."""
        return self._sum / self._n if self._n else 0.0

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
class Pace:
    """Seconds a character of one turn's stream, while a probe ran and while none did."""

    alone_s: float = 0.0
    alone_chars: int = 0
    probed_s: float = 0.0
    probed_chars: int = 0

    def add(self, seconds: float, chars: int, *, probed: bool) -> None:
        """So many characters came after so long."""
        if probed:
            self.probed_s += seconds
            self.probed_chars += chars
        else:
            self.alone_s += seconds
            self.alone_chars += chars

    @property
    def s_per_char(self) -> float | None:
        """Over all of it; None while too little has come."""
        chars = self.alone_chars + self.probed_chars
        return (self.alone_s + self.probed_s) / chars if chars >= _ENOUGH_CHARS else None

    @property
    def slowdown(self) -> float | None:
        """delta: by which share it was slower beside a probe; None where one of the two is too short to tell."""
        if min(self.alone_chars, self.probed_chars) < _ENOUGH_CHARS or self.alone_s <= 0.0:
            return None
        return max(0.0, (self.probed_s / self.probed_chars) / (self.alone_s / self.alone_chars) - 1.0)


_ENOUGH_CHARS = 20


class Averages:
    """All that has been measured so far in one process, by the keys that the gate asks for.

    Priors are mild guesses that let a first bet happen; a few observations outweigh them.
    """

    def __init__(self) -> None:
        self._latency: Kept[Hashable, Sketch] = Kept(lambda: Sketch(prior=1.0, weight=1.0))
        self._discarded: Kept[Hashable, Mean] = Kept(lambda: Mean(prior=1.0, weight=2.0))
        self._runway: Kept[Hashable, Runway] = Kept(Runway, most=500)
        self._probe: Kept[Hashable, Sketch] = Kept(lambda: Sketch(prior=0.5), most=500)
        self._slowdown: Kept[Hashable, Mean] = Kept(lambda: Mean(prior=0.25, weight=4.0))
        self._probe_hits: Kept[Hashable, Mean] = Kept(lambda: Mean(prior=0.6, weight=2.0))
        self._probed: Kept[Hashable, Mean] = Kept(lambda: Mean(prior=0.5, weight=2.0))
        self._calls: Kept[Hashable, Mean] = Kept(lambda: Mean(prior=0.8))
        self._pause: Kept[Hashable, Sketch] = Kept(lambda: Sketch(prior=1.0), most=2_000)
        self._more: Kept[Hashable, Mean] = Kept(lambda: Mean(prior=0.5, weight=2.0))

    def tool_latency(self, tool: str, fingerprint: str) -> Sketch:
        """L: seconds that a tool takes."""
        return self._latency[tool, fingerprint]

    def discarded_share(self, tool: str, fingerprint: str) -> Mean:
        """How much of a tool's latency a run takes that is discarded: many are stopped half-way."""
        return self._discarded[tool, fingerprint]

    def runway(self, model: str) -> Runway:
        """R: when a turn's call is claimed."""
        return self._runway[model]

    def pause(self, model: str, waits: int) -> Sketch:
        """From the end of an answer that called tools to the trajectory's next request, by how many of those calls
        had no result yet that was run ahead."""
        return self._pause[model, min(waits, 4)]

    def probe_time(self, predictor: str, model: str) -> Sketch:
        """P: seconds that a probe takes."""
        return self._probe[predictor, model]

    def slowdown(self, model: str) -> Mean:
        """delta: by which share a turn's stream is slower beside a probe."""
        return self._slowdown[model]

    def probe_hits(self, model: str) -> Mean:
        """Share of probed turns with a call whose call a probe had named exactly."""
        return self._probe_hits[model]

    def probed(self, model: str) -> Mean:
        """Share of turns in which a probe named a call in time."""
        return self._probed[model]

    def call_rate(self, tenant: str, model: str, depth: int) -> Mean:
        """Share of turns that call a tool at all, by how many calls came since the user spoke."""
        return self._calls[tenant, model, min(depth, 8)]

    def more_calls(self, tenant: str, model: str) -> Mean:
        """Share of calls that another call of the same answer follows."""
        return self._more[tenant, model]
