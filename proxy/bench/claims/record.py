"""What a run of `bench claims` has done and found."""

from __future__ import annotations

from collections import Counter, deque

from agentspec.proxy.bench.claims.world import Order

_KEPT = 60


class Record:
    """Kept by everything that acts in one run.

    Attributes:
        steps: how many operations were taken.
        counts: what happened, by what it was and the kind of tool.
        schedules: hashes of the sequences of operations from each call's start to its end.
        orders: what was ordered ahead, by bet.
        wrong: what was wrong, each with its operation.
        log: the last operations.
        trail: the log as it was when the first thing went wrong.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.counts: Counter[tuple[str, str]] = Counter()
        self.schedules: set[int] = set()
        self.orders: dict[str, Order] = {}
        self.wrong: list[str] = []
        self.log: deque[tuple[int, str, object]] = deque(maxlen=_KEPT)
        self.trail: list[tuple[int, str, object]] = []
        self._codes: dict[tuple[str, str], int] = {}
        self._trace = bytearray()

    def note(self, what: str, detail: object, finer: str = "") -> None:
        """An operation is about to be taken; `what` and `finer` tell schedules apart, `detail` is for reports."""
        self.steps += 1
        self.log.append((self.steps, what, detail))
        self._trace.append(self._codes.setdefault((what, finer), len(self._codes) % 256))

    def found(self, fault: str) -> None:
        """Something is wrong."""
        self.wrong.append(f"operation {self.steps}: {fault}")
        if len(self.wrong) == 1:
            self.trail = list(self.log)

    def over(self, since: int) -> None:
        """A call that began with operation `since` is over."""
        self.schedules.add(hash(bytes(self._trace[since - 1 :])))
