"""Tier T0: a thread of the agent's process, or the event loop that an async tool was last seen on.

For `pure` and trusted `read` tools only: nothing is isolated, and a thread cannot be killed. One that is
cancelled is left to end on its own, and counted.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Sequence
from typing import Any

from agentspec import clock
from agentspec.errors import ToolRefused
from agentspec.runs import Run, Work

_AHEAD = contextvars.ContextVar("agentspec_running_ahead", default=False)


def running_ahead() -> bool:
    """Whether the code that asks is part of a run ahead."""
    return _AHEAD.get()


class ThreadTier:
    """Runs plain functions in daemon threads, at most `max_running` at a time, and coroutines on their own loop."""

    name = "T0"

    def __init__(self, max_running: int = 8) -> None:
        self.max_running = max_running
        self.forget_everything()

    def forget_everything(self) -> None:
        """All slots are free: at start, and in a child process after a fork."""
        self._slots = threading.BoundedSemaphore(self.max_running)

    def prepare(self, tools: Sequence[Any]) -> None:
        """A thread needs nothing."""

    def close(self) -> None:
        """Threads end by themselves."""

    def start(self, work: Work) -> Run:
        """Start the work and return at once.

        Raises:
            ToolRefused: too many runs already, or the loop has closed.
        """
        if not self._slots.acquire(blocking=False):
            raise ToolRefused(f"{self.max_running} runs ahead are going on already")
        try:
            return _LoopRun(work, self._slots) if work.loop is not None else _ThreadRun(work, self._slots)
        except RuntimeError as error:  # the loop closed, or no thread to be had
            self._slots.release()
            raise ToolRefused(f"{work.tool}: cannot start: {error}") from error


class _ThreadRun:
    def __init__(self, work: Work, slots: threading.BoundedSemaphore) -> None:
        self._work = work
        self._slots = slots
        self.started_s = clock.monotonic()
        threading.Thread(target=self._main, name=f"agentspec-ahead-{work.tool}", daemon=True).start()

    def _main(self) -> None:
        try:
            context: contextvars.Context = self._work.context
            context.run(_AHEAD.set, True)
            result = context.run(self._work.call)
            _refuse_streams(result, self._work.tool)
        except BaseException as error:  # SystemExit in a tool ahead of time must not end anything either
            self._slots.release()
            self._work.done(None, error)
        else:
            self._slots.release()
            self._work.done(result, None)

    def cancel(self) -> bool:
        return False

    def differs(self) -> str | None:
        return None

    def commit(self) -> None:
        return


class _LoopRun:
    def __init__(self, work: Work, slots: threading.BoundedSemaphore) -> None:
        self._work = work
        self._slots = slots
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False
        self.started_s = clock.monotonic()
        self._loop: asyncio.AbstractEventLoop = work.loop
        work.context.run(_AHEAD.set, True)
        self._loop.call_soon_threadsafe(self._begin, context=work.context)

    def _begin(self) -> None:
        if self._cancelled:
            self._end(None, asyncio.CancelledError())
            return
        self._task = self._loop.create_task(self._main(), context=self._work.context)

    async def _main(self) -> None:
        try:
            result = await self._work.call()
            _refuse_streams(result, self._work.tool)
        except BaseException as error:
            self._end(None, error)
        else:
            self._end(result, None)

    def _end(self, result: Any, error: BaseException | None) -> None:
        self._slots.release()
        self._work.done(result, error)

    def cancel(self) -> bool:
        self._cancelled = True
        try:
            self._loop.call_soon_threadsafe(self._stop)
        except RuntimeError:  # the loop has closed, and the task with it
            return False
        return True

    def differs(self) -> str | None:
        return None

    def commit(self) -> None:
        return

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _refuse_streams(result: Any, tool: str) -> None:
    """A generator or an awaitable can be used up only once, by whoever made it: never hand one over."""
    if inspect.isgenerator(result) or inspect.isasyncgen(result) or inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise ToolRefused(f"{tool}: returned a {type(result).__name__}, which cannot be handed over")
