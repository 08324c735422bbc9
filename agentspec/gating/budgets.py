"""Budgets: how much may go on at once, and how much in a minute, an hour or a day, by whatever it is counted for."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from agentspec.gating.kept import Kept

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0
_NAMES = {MINUTE_S: "a minute", HOUR_S: "an hour", DAY_S: "a day"}


@dataclass(slots=True)
class Meter:
    """Amounts of the last minute (or `window_s`), and what goes on right now."""

    window_s: float = MINUTE_S
    inflight: int = 0
    _spent: deque[tuple[float, float]] = field(default_factory=deque)
    _sum: float = 0.0

    def spend(self, amount: float, now_s: float) -> None:
        """So much was used."""
        self._spent.append((now_s, amount))
        self._sum += amount

    def spent(self, now_s: float) -> float:
        """What was used in the window."""
        while self._spent and self._spent[0][0] <= now_s - self.window_s:
            self._sum -= self._spent.popleft()[1]
        return self._sum if self._spent else 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The most of one kind of thing; None: no limit. `per_minute`: in the budget's window, where it has another."""

    at_once: int | None = None
    per_minute: float | None = None


class Budget:
    """One kind of thing, counted by key. `what` names it in reasons; keys may have limits of their own."""

    def __init__(self, what: str, limits: Limits, window_s: float = MINUTE_S) -> None:
        self._what = what
        self._limits = limits
        self._window = _NAMES[window_s]
        self._own: dict[Hashable, Limits] = {}
        self._meters: Kept[Hashable, Meter] = Kept(lambda: Meter(window_s))

    def limit(self, key: Hashable, limits: Limits) -> None:
        """Limits of this key's own; what they leave open is as for all others."""
        usual = self._limits
        at_once = usual.at_once if limits.at_once is None else limits.at_once
        self._own[key] = Limits(at_once, usual.per_minute if limits.per_minute is None else limits.per_minute)

    def refuses(self, key: Hashable, now_s: float, limited: Hashable = None) -> str | None:
        """Why no more may begin; None where it may. `limited`: whose limits these are, where that is not the key."""
        meter, limits = self._meters[key], self._own.get(key if limited is None else limited, self._limits)
        if limits.at_once is not None and meter.inflight >= limits.at_once:
            return f"{meter.inflight} {self._what} are under way, the budget says no more"
        if limits.per_minute is not None and meter.spent(now_s) >= limits.per_minute:
            return f"the budget of {limits.per_minute:g} {self._what} {self._window} is spent"
        return None

    def use(self, key: Hashable, now_s: float) -> tuple[int, float]:
        """How many go on now, and what was used in the last minute."""
        meter = self._meters.seen(key)
        return (0, 0.0) if meter is None else (meter.inflight, meter.spent(now_s))

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
