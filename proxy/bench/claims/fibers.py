"""Threads that take turns: one runs at a time, until it comes to a point where it waits or might be preempted.

Who goes on is the driver's choice, so that a seed decides the interleaving. The clock is the driver's, too: to wait for
a time limit takes no time. The code under test runs in real threads and notices nothing of this.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ALL_COMPLETED, Future
from functools import partial
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

_STACK_BYTES = 256 * 1024


class Killed(BaseException):
    """Raised in a fiber whose thread is gone: the process that it ran in has forked, or the run is over."""


class Fiber:
    """Something that runs in a thread of its own, in turns.

    Attributes:
        where: what it waits for, for reports.
        due_s: it goes on at this time at the latest.
        ready: whether it could go on now; None: always.
        tag: whatever its owner wants to know it by.
    """

    __slots__ = ("_main", "bet", "due_s", "error", "over", "ready", "tag", "where", "worker")

    def __init__(self, main: Callable[[], None], tag: Any, bet: str | None) -> None:
        self._main = main
        self.tag = tag
        self.bet = bet
        """The order that is being carried out."""
        self.where = "start"
        self.due_s: float | None = None
        self.ready: Callable[[], bool] | None = None
        self.error: BaseException | None = None
        self.over = False
        self.worker: _Worker | None = None

    def main(self) -> None:
        """All of it; a fiber that is killed just ends."""
        try:
            if self.error is None:
                self._main()
        except Killed:
            pass
        finally:
            self.over = True


class _Worker:
    """A thread that is used again for one fiber after the other."""

    def __init__(self, fibers: Fibers) -> None:
        self._fibers = fibers
        self.fiber: Fiber | None = None
        self.baton = _thread.allocate_lock()
        self.baton.acquire()
        self.thread = threading.Thread(target=self._main, name="claims-fiber", daemon=True)
        self.thread.start()

    def _main(self) -> None:
        while True:
            self.baton.acquire()
            if self.fiber is None:
                return
            try:
                self.fiber.main()
            except BaseException as error:
                self._fibers.crashed.append(error)
            self._fibers.driver.release()


class Fibers:
    """All fibers of one run, its clock and its chances. `now_s` is what the code under test takes for the time."""

    def __init__(self, random: Random, now_s: float = 1000.0) -> None:
        self.random = random
        self.now_s = now_s
        self.current: Fiber | None = None
        self.alive: list[Fiber] = []
        self.timers: list[Timer] = []
        self.crashed: list[BaseException] = []
        """What came out of a fiber that should have ended well."""
        self.preempted_share = 0.03
        self.driver = _thread.allocate_lock()
        self.driver.acquire()
        self._idle: list[_Worker] = []

    def start(self, main: Callable[[], None], tag: Any = None) -> Fiber:
        """A fiber that has not begun yet."""
        current = self.current
        fiber = Fiber(main, tag, current.bet if current is not None else None)
        self.alive.append(fiber)
        return fiber

    def resume(self, fiber: Fiber, error: BaseException | None = None) -> None:
        """Let it run to its next point; with `error`, that is raised where it waits. Only the driver may."""
        if fiber.worker is None:
            fiber.worker = self._idle.pop() if self._idle else _Worker(self)
            fiber.worker.fiber = fiber
        worker, fiber.error = fiber.worker, error
        self.current = fiber
        worker.baton.release()
        self.driver.acquire()
        self.current = None
        if fiber.over:
            self.alive.remove(fiber)
            self._idle.append(worker)

    def park(self, where: str, ready: Callable[[], bool] | None = None, due_s: float | None = None) -> None:
        """In a fiber: wait until ready, or due, or (neither given) until the driver chooses this one."""
        fiber = self.current
        if fiber is None or fiber.worker is None:
            raise RuntimeError(f"{where}: only a fiber can wait")
        fiber.where, fiber.ready, fiber.due_s = where, ready, due_s
        self.driver.release()
        fiber.worker.baton.acquire()
        if fiber.error is not None:
            raise fiber.error

    def may_preempt(self, where: str) -> None:
        """A point where another thread might get its turn."""
        if self.current is not None and self.random.random() < self.preempted_share:
            self.park(where)

    def runnable(self) -> list[Fiber]:
        """The fibers that could go on now."""
        now = self.now_s
        return [f for f in self.alive if f.ready is None or f.ready() or (f.due_s is not None and f.due_s <= now)]

    def next_due_s(self) -> float | None:
        """When the next one that waits for a time goes on."""
        due = [f.due_s for f in self.alive if f.due_s is not None] + [timer.due_s for timer in self.timers]
        return min(due, default=None)

    def begin_timers(self) -> None:
        """Start what is due by now."""
        due = [timer for timer in self.timers if timer.due_s <= self.now_s]
        for timer in due:
            self.timers.remove(timer)
            self.start(timer.act, "timer")

    def kill_all(self) -> None:
        """No fiber goes on, and no timer goes off."""
        self.timers.clear()
        share, self.preempted_share = self.preempted_share, 0.0
        while self.alive:
            self.resume(self.alive[0], Killed())
        self.preempted_share = share

    def close(self) -> None:
        """End all threads."""
        self.kill_all()
        for worker in self._idle:
            worker.fiber = None
            worker.baton.release()
            worker.thread.join()
        self._idle.clear()


class Lock:
    """Stands in for a `threading.Lock` under which a fiber may lose its turn."""

    def __init__(self, fibers: Fibers) -> None:
        self._fibers = fibers
        self._held = False

    def __enter__(self) -> None:
        while self._held:
            self._fibers.park("a lock", lambda: not self._held)
        self._held = True

    def __exit__(self, *_: object) -> None:
        self._held = False


class Ordered(dict[Any, None]):
    """Stands in for a set, whose order would depend on where things lie in memory."""

    def add(self, item: Any) -> None:
        self[item] = None

    def discard(self, item: Any) -> None:
        self.pop(item, None)


class Timer:
    """Stands in for `threading.Timer`."""

    daemon = True

    def __init__(self, fibers: Fibers, seconds: float, function: Callable[..., Any], args: Sequence[Any] = ()) -> None:
        self._fibers = fibers
        self.due_s = fibers.now_s + seconds
        self.act = partial(function, *args)

    def start(self) -> None:
        self._fibers.timers.append(self)

    def cancel(self) -> None:
        if self in self._fibers.timers:
            self._fibers.timers.remove(self)


class Thread:
    """Stands in for `threading.Thread`: a fiber, and now and then none to be had."""

    failing_share = 0.003

    def __init__(self, fibers: Fibers, target: Callable[..., Any], args: Sequence[Any] = (), **_: object) -> None:
        self._fibers = fibers
        self._main = partial(target, *args)

    def start(self) -> None:
        """Raises: RuntimeError: as threads do."""
        if self._fibers.random.random() < self.failing_share:
            raise RuntimeError("can't start new thread")
        self._fibers.start(self._main, "thread")


class Answer(Future[T]):
    """Stands in for a future on whose result a thread waits."""

    def __init__(self, fibers: Fibers) -> None:
        super().__init__()
        self._fibers = fibers

    def result(self, timeout: float | None = None) -> T:
        if not self.done() and timeout is not None:
            self._fibers.park("an answer", self.done, self._fibers.now_s + timeout)
        return super().result(0)


def wait(
    fibers: Fibers, futures: Collection[Future[Any]], timeout: float | None = None, return_when: str = ALL_COMPLETED
) -> None:
    """Stands in for `concurrent.futures.wait`; its callers look at the futures themselves."""
    enough = all if return_when == ALL_COMPLETED else any

    def ready() -> bool:
        return enough(future.done() for future in futures)

    if not ready():
        fibers.park("a run", ready, None if timeout is None else fibers.now_s + timeout)
