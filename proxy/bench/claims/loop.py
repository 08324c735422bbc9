"""An event loop that makes one round when it is told to, on a clock that is not its own."""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from agentspec.proxy.bench.claims.fibers import Fiber, Fibers


class SteppedLoop(asyncio.AbstractEventLoop):
    """Enough of a loop for tasks, futures and timers. A round runs in a fiber, as if in a thread of its own."""

    def __init__(self, fibers: Fibers) -> None:
        self._fibers = fibers
        self._ready: deque[asyncio.Handle] = deque()
        self._later: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = 0
        self._round: Fiber | None = None

    @property
    def in_round(self) -> bool:
        """Whether a round is going on."""
        return self._round is not None

    def has_work(self) -> bool:
        """Whether a round would do anything; False while one is going on."""
        if self._round is not None:
            return False
        return bool(self._ready) or (bool(self._later) and self._later[0][0] <= self._fibers.now_s)

    def next_due_s(self) -> float | None:
        """When the next timer goes off."""
        return self._later[0][0] if self._later else None

    def make_round(self) -> None:
        """Begin a round: everything that is ready now, in order."""
        self._round = fiber = self._fibers.start(self._run, "loop")
        self._fibers.resume(fiber)

    def close(self) -> None:
        """Let go of tasks that have not ended."""
        for handle in [*self._ready, *(entry[2] for entry in self._later)]:
            handle.cancel()
        self._ready.clear()
        self._later.clear()

    def _run(self) -> None:
        asyncio._set_running_loop(self)
        try:
            while self._later and self._later[0][0] <= self._fibers.now_s:
                self._ready.append(heapq.heappop(self._later)[2])
            for _ in range(len(self._ready)):
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(None)
            self._round = None

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._fibers.now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._numbers += 1
        heapq.heappush(self._later, (when, self._numbers, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._later = [entry for entry in self._later if entry[2] is not handle]
        heapq.heapify(self._later)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def time(self) -> float:
        return self._fibers.now_s

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        unread = "never retrieved" in context.get("message", "")  # told whenever the garbage collector comes by
        if isinstance(error, Exception) and not unread:
            self._fibers.crashed.append(error)
