"""An asyncio event loop whose time is its own: when nothing is ready it jumps to the next timer.

Rules:

1. Time moves only in the jump, never while code runs; so a run takes as long as its code, and gives the same each time.
2. Timers fire in the order of their times, equal ones in the order in which they were set.
3. There are no sockets and no threads. A loop that waits for something that no timer brings raises `Deadlock`.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from agentspec import clock

T = TypeVar("T")

RESOLUTION_S = 1e-6
"""Timers that are due within this time fire now."""


class Deadlock(RuntimeError):
    """Everything waits, and nothing will ever come."""


class _Jump(selectors.BaseSelector):
    """A selector to which nothing ever happens: where it would wait, it lets the time pass at once."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = selectors.SelectorKey(fileobj, number, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("everything waits for something that no timer brings")
        self.now_s += max(0.0, timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop. `time()` begins at 0."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)
        self._clock_resolution = RESOLUTION_S  # asyncio's own is less than what a float can tell late in a long run

    def time(self) -> float:
        return self._jump.now_s

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector here, so nobody is woken."""


@contextmanager
def virtual_loop() -> Iterator[VirtualLoop]:
    """A loop of its own time, which is agentspec's clock as well within the block."""
    loop = VirtualLoop()
    try:
        with clock.replaced(loop.time):
            yield loop
    finally:
        loop.close()


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time, and cancel what it leaves behind.

    Raises:
        Deadlock: it waits for what never comes.
    """
    with virtual_loop() as loop:
        try:
            return loop.run_until_complete(main)
        finally:
            loop.run_until_complete(_cancel_the_rest())


async def _cancel_the_rest() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
