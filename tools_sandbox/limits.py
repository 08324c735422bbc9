"""How much of a tool may run ahead: so many at once, so many in a second."""

from __future__ import annotations

import threading

from agentspec import clock
from agentspec.effects import ToolSpec
from agentspec.errors import ToolRefused


class Hedges:
    """Second runs of one tool beside a run ahead that takes too long: one in ten claims that meet a run. Thread-safe.

    By its name a 90th percentile is passed one time in ten; more often means that the tool is in trouble, and twice the
    load is the last thing that it needs.
    """

    MOST = 3.0
    EACH = 0.1

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = self.MOST

    def earn(self) -> None:
        """A claim has met a run ahead."""
        with self._lock:
            self._left = min(self.MOST, self._left + self.EACH)

    def take(self) -> bool:
        """Whether one more may be started; if so it counts."""
        with self._lock:
            if self._left < 1.0:
                return False
            self._left -= 1.0
            return True


class Limits:
    """One tool's runs ahead, counted. A token bucket of one second for the rate. Thread-safe."""

    def __init__(self, spec: ToolSpec) -> None:
        self._spec = spec
        self._lock = threading.Lock()
        self._inflight = 0
        self._tokens = max(1.0, spec.rate_per_s or 1.0)
        self._filled_s = clock.monotonic()

    def enter(self) -> None:
        """One more run is about to start; `leave` must follow.

        Raises:
            ToolRefused: that would be too many.
        """
        spec = self._spec
        with self._lock:
            if spec.max_inflight is not None and self._inflight >= spec.max_inflight:
                raise ToolRefused(f"{spec.name}: {self._inflight} runs ahead are going on, max_inflight says no more")
            if spec.rate_per_s is not None:
                self._take_token(spec.rate_per_s)
            self._inflight += 1

    def _take_token(self, rate_per_s: float) -> None:
        now = clock.monotonic()
        full = max(1.0, rate_per_s)
        self._tokens = min(full, self._tokens + (now - self._filled_s) * rate_per_s)
        self._filled_s = now
        if self._tokens < 1.0:
            raise ToolRefused(f"{self._spec.name}: rate allows {rate_per_s:g} runs ahead a second")
        self._tokens -= 1.0

    def leave(self) -> None:
        """A run that had entered is over."""
        with self._lock:
            self._inflight -= 1
