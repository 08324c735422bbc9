"""`agentspec bench claims`: are results that were run ahead ever wrong?

Calls, writes, orders, cancels, crashes and the clock are interleaved as a seed says. The code under test is the
product's, from `@speculate` down to the claim table and the thread tier, in real threads and on an event loop that take
turns (`fibers`, `loop`). Only the clock, waits, thread starts and chance are stood in for
(`seams`), and the proxy at the other end of each channel (`hosts`). A result counts as wrong when no
plain run of the same call between its start and its end could have returned it (`world`).

An operation is one step of the driver: a call or an order begins, a thread that waits gets its turn, the event loop
makes a round, a message is read, time passes, something is cancelled or breaks. They come in rounds of `ROUND`, each
with the next seed, so that a failure can be replayed from its own seed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from agentspec.proxy.bench.claims.drive import Drive
from agentspec.proxy.bench.claims.record import Record
from agentspec.proxy.bench.claims.seams import driven
from agentspec.proxy.bench.environment import environment
from agentspec.proxy.bench.figures import Figure, Report

Progress = Callable[[str], None]

OPERATIONS = 1_000_000
QUICK_OPERATIONS = 50_000
ROUND = 50_000

OUTCOMES = {
    "hit": "calls that got a result that was there",
    "joined": "calls that waited for a run",
    "miss": "calls that ran plainly",
    "stale": "runs that a write, their age or the proxy voided",
    "unclaimed": "runs that nobody claimed",
    "failed": "runs that raised or took too long",
    "refused": "orders that did not start",
    "interrupted": "calls that were cancelled",
}


@dataclass
class Found:
    """What all rounds have found."""

    operations: int = 0
    seconds: float = 0.0
    wrong: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    schedules: set[int] = field(default_factory=set)

    def add(self, record: Record) -> None:
        """One round is over."""
        self.operations += record.steps
        self.wrong += len(record.wrong)
        self.counts += record.counts
        self.schedules |= record.schedules

    def total(self, what: str, *without: str) -> int:
        """How often something happened, all kinds of tools together but these."""
        return sum(n for (name, kind), n in self.counts.items() if name == what and kind not in without)


def run(
    quick: bool = False, *, operations: int | None = None, seed: int = 1, progress: Progress = lambda line: None
) -> Report:
    """Take at least so many operations, and count what was wrong.

    Args:
        quick: fewer, within a minute.
        operations: instead of what `quick` says.
        seed: decides everything that happens.
        progress: told how far it is, and of what was wrong: the seed and the operations before it.
    """
    wanted = operations if operations is not None else QUICK_OPERATIONS if quick else OPERATIONS
    found, began_s = Found(), time.perf_counter()
    while found.operations < wanted:
        found.add(_round(seed, min(ROUND, wanted - found.operations), progress))
        found.seconds = time.perf_counter() - began_s
        rate = found.operations / found.seconds
        progress(
            f"{found.seconds:5.1f} s, {found.operations} of {wanted} operations, {rate:.0f}/s, seed {seed}:"
            f" {_served_share(found):.0%} served ahead, {found.wrong} wrong"
        )
        seed += 1
    return Report("claims in any order", _figures(found), environment())


def _round(seed: int, operations: int, progress: Progress) -> Record:
    record = play(Drive(seed), operations)
    if record.wrong:
        progress(f"{len(record.wrong)} wrong with --seed {seed} --operations {operations}; the first:")
        progress(record.wrong[0])
        for number, what, detail in record.trail:
            progress(f"  {number} {what} {detail}")
    return record


def play(drive: Drive, operations: int, until: Callable[[Record], bool] = lambda record: False) -> Record:
    """Take so many steps, or fewer if `until` says so, and let what has begun end."""
    record = drive.record
    with driven(drive.fibers):
        try:
            drive.begin()
            while record.steps < operations and not until(record):
                drive.step()
            drive.drain()
        finally:
            drive.close()
    return record


def _served_share(found: Found) -> float:
    """Of the calls that ended and may run ahead at all."""
    ahead, plain = found.total("ahead"), found.total("plain", "write")
    return ahead / max(1, ahead + plain)


def _figures(found: Found) -> tuple[Figure, ...]:
    served = found.total("ahead")
    whole = [
        Figure("wrong_results", found.wrong, n=found.total("ended")),
        Figure("operations", found.operations),
        Figure("operations_per_s", found.operations / found.seconds, "1/s"),
        Figure("calls", found.total("calls")),
        Figure("orders", found.total("orders")),
        Figure("served_share", _served_share(found), "share", n=served + found.total("plain", "write")),
        Figure("schedules", len(found.schedules), "distinct"),
        *(Figure(name, found.total(name), meaning) for name, meaning in OUTCOMES.items()),
    ]
    by_kind = [
        Figure(f"{name}.{kind}", n)
        for name in ("hit", "joined", "miss", "stale")
        for (what, kind), n in sorted(found.counts.items())
        if what == name
    ]
    return (*whole, *by_kind)
