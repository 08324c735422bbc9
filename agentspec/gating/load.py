"""When an endpoint is under load its spare time is gone: probes wait until it has some again."""

from __future__ import annotations

from dataclasses import dataclass, field

QUEUE_METRICS = ("vllm:num_requests_waiting", "sglang:num_queue_reqs")
"""Requests that wait in the engine, as vLLM and SGLang count them."""

_FRESH_S = 15.0
"""An older figure says nothing of now, so that what was stopped is tried again."""

_SEEN, _QUICK, _SLOW = 10, 0.3, 0.02
_PRESSED, _RELIEVED = 2.5, 1.5


def queue_depth(metrics: str) -> float | None:
    """Requests that wait, summed over models, from a page of Prometheus metrics; None where it tells none.

    >>> queue_depth('# TYPE x gauge\\nvllm:num_requests_waiting{model_name="m"} 3.0\\n')
    3.0
    """
    found: float | None = None
    for line in metrics.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in QUEUE_METRICS:
            told = line.rpartition("}")[2].removeprefix(name).split()
            try:
                found = (found or 0.0) + float(told[0])
            except (ValueError, IndexError):
                continue
    return found


@dataclass(slots=True)
class Drift:
    """One quantity now against what it usually is: two running means, one quick, one slow."""

    quick: float = 0.0
    usual: float = 0.0
    count: int = 0
    seen_at_s: float = 0.0
    pressed: bool = False

    def add(self, value: float, now_s: float) -> None:
        """Take one value."""
        self.count += 1
        self.seen_at_s = now_s
        first = self.count <= _SEEN
        self.quick += (value - self.quick) * (1.0 / self.count if first else _QUICK)
        self.usual += (value - self.usual) * (1.0 / self.count if first else _SLOW)
        if self.count > _SEEN:
            self.pressed = self.quick > self.usual * (_RELIEVED if self.pressed else _PRESSED)

    def is_pressed(self, now_s: float) -> bool:
        """Whether it is far above its usual, as far as is known."""
        return self.pressed and now_s - self.seen_at_s <= _FRESH_S


@dataclass(slots=True)
class Load:
    """One endpoint: how long probes take, how long its tokens take, and how many requests it keeps waiting."""

    probe_s: Drift = field(default_factory=Drift)
    s_per_char: Drift = field(default_factory=Drift)
    queued: float = 0.0
    queued_at_s: float | None = None
    wanted_at_s: float | None = None

    def wanted(self, now_s: float) -> bool:
        """Whether anybody has asked lately: an engine that is not probed is not asked how it is either."""
        return self.wanted_at_s is not None and now_s - self.wanted_at_s <= _FRESH_S

    def queue(self, depth: float, now_s: float) -> None:
        """The engine told how many requests wait."""
        self.queued, self.queued_at_s = depth, now_s

    def refuses(self, most_queued: float, now_s: float) -> str | None:
        """Why it should not be probed now; None where it may."""
        self.wanted_at_s = now_s
        fresh = self.queued_at_s is not None and now_s - self.queued_at_s <= _FRESH_S
        if fresh and self.queued > most_queued:
            return f"{self.queued:.0f} requests wait at the endpoint"
        if self.probe_s.is_pressed(now_s):
            return f"probes take {self.probe_s.quick:.2f} s, usually {self.probe_s.usual:.2f} s"
        if self.s_per_char.is_pressed(now_s):
            slower = self.s_per_char.quick / self.s_per_char.usual
            return f"the endpoint writes {slower:.1f} times slower than usual"
        return None
