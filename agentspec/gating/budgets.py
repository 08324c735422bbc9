"""Budgets: how much may go on at once, and how much in a minute, by whatever it is counted for."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from agentspec.gating.kept import Kept

WINDOW_S = 60.0


@dataclass(slots=True)
class Meter:
    """Amounts of the last minute, and what goes on right now."""

    inflight: int = 0
    _spent: deque[tuple[float, float]] = field(default_factory=deque)
    _sum: float = 0.0

    def spend(self, amount: float, now_s: float) -> None:
        """So much was used."""
        self._spent.append((now_s, amount))
        self._sum += amount

    def spent(self, now_s: float) -> float:
        """What was used in the last minute."""
        while self._spent and self._spent[0][0] <= now_s - WINDOW_S:
            self._sum -= self._spent.popleft()[1]
        return self._sum if self._spent else 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The most of one kind of thing; None: no limit."""

    at_once: int | None = None
    per_minute: float | None = None


class Budget:
    """One kind of thing, counted by key. `what` names it in reasons."""

    def __init__(self, what: str, limits: Limits) -> None:
        self._what = what
        self._limits = limits
        self._meters: Kept[Hashable, Meter] = Kept(Meter)

    def refuses(self, key: Hashable, now_s: float) -> str | None:
        """Why no more may begin; None where it may."""
        meter, limits = self._meters[key], self._limits
        if limits.at_once is not None and meter.inflight >= limits.at_once:
            return f"{meter.inflight} {self._what} are under way, the budget says no more"
        if limits.per_minute is not None and meter.spent(now_s) >= limits.per_minute:
            return f"the budget of {limits.per_minute:g} {self._what} a minute is spent"
        return None

    def began(self, key: Hashable, now_s: float, amount: float = 1.0) -> None:
        """One has begun; `over` must follow."""
        meter = self._meters[key]
        meter.inflight += 1
        meter.spend(amount, now_s)

    def over(self, key: Hashable) -> None:
        """One has ended."""
        meter = self._meters[key]
        meter.inflight = max(0, meter.inflight - 1)

    def spend(self, key: Hashable, amount: float, now_s: float) -> None:
        """So much was used by something that is counted elsewhere."""
        self._meters[key].spend(amount, now_s)
