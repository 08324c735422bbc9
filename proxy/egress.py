"""How much a tenant's wrong guesses may tell third parties: a budget of discarded calls in an hour."""

from __future__ import annotations

from collections import OrderedDict, deque

from agentspec import clock

_HOUR_S = 3600.0
_MAX_TENANTS = 10_000


class EgressBudget:
    """Counts calls whose arguments went out and that nobody then made. One event loop, no locks.

    Args:
        per_hour: how many a tenant may have in an hour; those that are still out count as well.
    """

    def __init__(self, per_hour: int) -> None:
        self._per_hour = per_hour
        self._discarded: OrderedDict[str, deque[float]] = OrderedDict()

    def spent(self, tenant: str, still_out: int) -> bool:
        """Whether one more would be too many."""
        return self._recent(tenant) + still_out >= self._per_hour

    def discarded(self, tenant: str) -> None:
        """A call went out that nobody made."""
        times = self._discarded.setdefault(tenant, deque(maxlen=max(1, self._per_hour)))
        times.append(clock.monotonic())
        self._discarded.move_to_end(tenant)
        while len(self._discarded) > _MAX_TENANTS:
            self._discarded.popitem(last=False)

    def _recent(self, tenant: str) -> int:
        times = self._discarded.get(tenant)
        if times is None:
            return 0
        since = clock.monotonic() - _HOUR_S
        while times and times[0] < since:
            times.popleft()
        return len(times)
