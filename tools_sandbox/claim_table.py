"""The claim table: runs ahead that wait for the real call, and who may have them. Thread-safe, no I/O, no clock.

Rules:

1. A run serves one claim, of the same tool, form, key, owner and surroundings; each real call gets its own run.
2. Age counts from the start of the run. A run older than its tool's `stable_for` is stale.
3. A write that overlaps voids every unclaimed read that started before the write ended; while it lasts, no
   overlapping read starts or is claimed.
4. Pending results are capped in number and in bytes; the oldest go first.
"""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from agentspec.effects import overlap
from agentspec.keys import Arguments
from agentspec.runs import Run
from agentspec.tools_sandbox.shared import Stamp
from agentspec.tools_sandbox.surroundings import Surroundings
from agentspec.tools_sandbox.tool import DeclaredTool


@dataclass(slots=True, eq=False)
class PendingRun:
    """A call that runs, or ran, ahead of time. Times on the monotonic clock, in seconds."""

    bet: str
    trajectory: str
    tool: DeclaredTool
    arguments: Arguments
    surroundings: Surroundings
    owner: Any
    depends_on: frozenset[str]
    """Domains whose change makes it stale."""
    started_s: float
    expires_s: float
    stamp: Stamp | None = None
    """What other processes had written to these domains when it started; None where nothing is shared."""
    claimable: bool = True
    """Whether it may serve a claim; one that is run for comparison may not."""
    dropped: bool = False
    """Nobody will claim it; one that is about to start should not."""
    tell: bool = False
    """A copy of its result goes to the proxy."""
    future: Future[Any] = field(default_factory=Future)
    run: Run | None = None
    latency_s: float = 0.0
    bytes: int = 0

    @property
    def done(self) -> bool:
        """Whether it is over, well or not."""
        return self.future.done()

    def serves(self, tool: DeclaredTool, arguments: Arguments, surroundings: Surroundings, owner: Any) -> bool:
        """Rule 1."""
        if not self.claimable or self.tool is not tool or self.arguments.form is not arguments.form:
            return False
        return (
            self._same_arguments(arguments)
            and _equal(self.owner, owner)
            and tool.same_surroundings(self.surroundings, surroundings)
        )

    def _same_arguments(self, other: Arguments) -> bool:
        mine = self.arguments
        if mine.key == other.key and _equal(mine.validated, other.validated):
            return True
        loosely = self.tool.word.same_call
        return loosely is not None and bool(loosely(mine.validated, other.validated))

    def stale_at(self, now: float) -> bool:
        """Rule 2."""
        stable_for = self.tool.spec.stable_for_s
        return stable_for is not None and now - self.started_s > stable_for


_tickets = itertools.count()
"""Of writes; no two tables give the same one, also not a table that took another's place."""


class ClaimTable:
    """Runs by bet, and the writes that are going on."""

    def __init__(self, max_runs: int = 64, max_bytes: int = 64 * 2**20) -> None:
        self._max_runs = max_runs
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._runs: dict[str, PendingRun] = {}
        self._writes: dict[int, frozenset[str]] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: PendingRun) -> tuple[bool, list[PendingRun]]:
        """Let a run in; returns whether it may start (no overlapping write goes on) and what had to make room."""
        with self._lock:
            if self._writing(run.depends_on):
                return False, []
            self._runs[run.bet] = run
            return True, self._make_room()

    def finished(self, run: PendingRun, size: int) -> list[PendingRun]:
        """Note the size of a result in bytes; returns what had to make room for it."""
        with self._lock:
            if size > self._max_bytes:
                return [self._runs.pop(run.bet)] if run.bet in self._runs else []
            run.bytes = size
            return self._make_room()

    def _make_room(self) -> list[PendingRun]:
        dropped = []
        total = sum(run.bytes for run in self._runs.values())
        while len(self._runs) > self._max_runs or total > self._max_bytes:
            run = next((r for r in self._runs.values() if r.done), next(iter(self._runs.values())))
            total -= run.bytes
            dropped.append(self._runs.pop(run.bet))
        return dropped

    def take(
        self, tool: DeclaredTool, arguments: Arguments, surroundings: Surroundings, owner: Any, now: float
    ) -> tuple[PendingRun | None, list[PendingRun]]:
        """Take the best run for a claim out of the table, finished ones first, then the oldest.

        Returns:
            the run or None, and the runs that turned out to be stale or too old on the way.
        """
        with self._lock:
            fitting = [r for r in self._runs.values() if r.serves(tool, arguments, surroundings, owner)]
            if any(self._writing(run.depends_on) for run in fitting):
                return None, []
            stale = [r for r in fitting if r.stale_at(now) or now > r.expires_s]
            fresh = sorted((r for r in fitting if r not in stale), key=lambda r: (not r.done, r.started_s))
            taken = fresh[:1]
            for run in [*stale, *taken]:
                del self._runs[run.bet]
            return (taken[0] if taken else None), stale

    def keep_for_comparison(self, run: PendingRun) -> bool:
        """Put back a run that was taken: no claim gets it any more, but a write still voids it.

        Returns:
            whether it is still good: no overlapping write has begun meanwhile.
        """
        with self._lock:
            run.claimable = False
            if self._writing(run.depends_on):
                return False
            self._runs[run.bet] = run
            return True

    def drop(self, bet: str) -> PendingRun | None:
        """Take a run out of the table without claiming it."""
        with self._lock:
            return self._runs.pop(bet, None)

    def drop_all(self) -> list[PendingRun]:
        """Empty the table."""
        with self._lock:
            runs = list(self._runs.values())
            self._runs.clear()
            return runs

    def expired(self, now: float) -> list[PendingRun]:
        """Take out what nobody claimed in time."""
        with self._lock:
            old = [run for run in self._runs.values() if now > run.expires_s]
            for run in old:
                del self._runs[run.bet]
            return old

    def begin_write(self, domains: frozenset[str]) -> tuple[int, list[PendingRun]]:
        """A write begins; returns its ticket and the reads that it voids."""
        with self._lock:
            ticket = next(_tickets)
            self._writes[ticket] = domains
            return ticket, self._void(domains)

    def end_write(self, ticket: int) -> list[PendingRun]:
        """A write ended; returns the reads that it voids."""
        with self._lock:
            return self._void(self._writes.pop(ticket, frozenset()))

    def _void(self, domains: frozenset[str]) -> list[PendingRun]:
        void = [run for run in self._runs.values() if overlap(run.depends_on, domains)]
        for run in void:
            del self._runs[run.bet]
        return void

    def _writing(self, domains: frozenset[str]) -> bool:
        return any(overlap(domains, written) for written in self._writes.values())


def approximate_bytes(value: Any, limit: int = 10_000) -> int:
    """A cheap estimate of a result's size: `limit` nodes are looked at, what is left is held to be like them."""
    total, seen, stack = 0, 0, [value]
    while stack and seen < limit:
        seen += 1
        item = stack.pop()
        try:
            size, children = _size(item)
        except Exception:  # an object of the user's that does not want to be looked at
            size, children = 64, []
        total += size
        stack.extend(children)
    return total * (seen + len(stack)) // seen


def _size(item: Any) -> tuple[int, list[Any]]:
    """Bytes of one object without what it holds, and what it holds."""
    if isinstance(item, (str, bytes, bytearray)):
        return len(item) + 50, []
    if isinstance(item, dict):
        return 64, [*item.keys(), *item.values()]
    if isinstance(item, (list, tuple, set, frozenset)):
        return 64, list(item)
    held = list(getattr(item, "__dict__", {}).values())
    for cls in type(item).__mro__:
        names = getattr(cls, "__slots__", ())
        held += [getattr(item, name, None) for name in ([names] if isinstance(names, str) else names)]
    buffer = getattr(item, "nbytes", 0)
    return 64 + (buffer if isinstance(buffer, int) else 0), held


def _equal(one: Any, other: Any) -> bool:
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:
        return False
