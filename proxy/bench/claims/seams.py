"""Where the claiming code meets time, threads and chance: for the length of a run these are the driver's.

Nothing that decides is replaced: only the clock, thread starts, waits and the random number generator.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from functools import partial
from threading import BoundedSemaphore
from types import ModuleType, SimpleNamespace

from agentspec.proxy.bench.claims.fibers import Answer, Fibers, Lock, Ordered, Thread, Timer, wait
from agentspec.tools_sandbox import claim, claiming, fidelity, handover, limits, runtime, tool
from agentspec.tools_sandbox.tiers import thread

_LOGGERS = ("agentspec.claims", "agentspec.runtime", "agentspec.tiers", "agentspec.fidelity")


@contextmanager
def driven(fibers: Fibers) -> Iterator[None]:
    """The claiming code runs on this clock and in these fibers, and says nothing."""

    def monotonic() -> float:
        fibers.may_preempt("the clock")
        return fibers.now_s

    clock = SimpleNamespace(monotonic=monotonic)
    steady = SimpleNamespace(monotonic=lambda: fibers.now_s)  # asked under a lock: nobody is preempted there
    threads = SimpleNamespace(
        Thread=partial(Thread, fibers), Timer=partial(Timer, fibers), BoundedSemaphore=BoundedSemaphore
    )
    waits = SimpleNamespace(futures=SimpleNamespace(wait=partial(wait, fibers), TimeoutError=FutureTimeout))
    seams: list[tuple[ModuleType, str, object]] = [
        *((module, "clock", clock) for module in (claim, claiming, handover, runtime, thread)),
        (limits, "clock", steady),
        *((module, "threading", threads) for module in (handover, runtime, thread)),
        (handover, "concurrent", waits),
        (runtime, "Future", partial(Answer, fibers)),
        (fidelity, "random", fibers.random),
        (tool, "WRITING", Lock(fibers)),
        (tool, "WRITES", Ordered()),
        (tool, "RUNTIMES", Ordered()),
    ]
    before = [getattr(module, name) for module, name, _ in seams]
    quiet = [(log, log.level) for log in map(logging.getLogger, _LOGGERS)]
    try:
        for module, name, stand_in in seams:
            setattr(module, name, stand_in)
        for log, _ in quiet:
            log.setLevel(logging.CRITICAL)
        yield
    finally:
        for (module, name, _), original in zip(seams, before, strict=True):
            setattr(module, name, original)
        for log, level in quiet:
            log.setLevel(level)
