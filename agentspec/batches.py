"""One thread that takes what others hand it, in batches. Its queue is bounded: what does not fit is dropped, counted.

Nobody who hands something over ever waits, whatever the thread is waiting for.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

log = logging.getLogger("agentspec.batches")

T = TypeVar("T")

_GATHER_S = 0.2
_MAX_BATCH = 2000
_CLOSE_S = 10.0


def _never() -> float | None:
    return None


class Batches(Generic[T]):
    """Hands items to `write` in its own thread, in order, as many at a time as have come in a fifth of a second.

    `write` counts what it loses itself; what it raises is logged and its batch is counted as dropped. `rest` is asked
    after each batch, and again when as many seconds have passed as it answered (None: after the next batch). One
    thread may put.

    Attributes:
        refused: items that did not fit.
        failed: items that `write` raised for.
        taken: items that it got.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[Sequence[T]], None],
        *,
        rest: Callable[[], float | None] = _never,
        max_queued: int = 10_000,
    ) -> None:
        self._write, self._rest = write, rest
        self._queue: queue.SimpleQueue[tuple[T, int] | None] = queue.SimpleQueue()
        self._max_queued = max_queued
        self._put_weight = self._got_weight = 0  # each is one thread's
        self._closing = threading.Event()
        self.refused = self.failed = self.taken = 0
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def put(self, item: T, weight: int = 1) -> None:
        """Hand an item over, as heavy as so many. Never blocks, never raises."""
        if self.waiting >= self._max_queued:
            self.refused += 1
        else:
            self._put_weight += weight
            self._queue.put((item, weight))

    @property
    def waiting(self) -> int:
        """The weight of the items that wait."""
        return self._put_weight - self._got_weight

    async def close(self) -> None:
        """Write what is queued, and end the thread."""
        try:
            await asyncio.to_thread(self.finish)
        except RuntimeError:  # the interpreter is ending and starts no more threads
            self.finish()

    def finish(self) -> None:
        """The same for those without an event loop."""
        self._closing.set()
        self._queue.put(None)
        self.thread.join(timeout=_CLOSE_S)

    @property
    def dropped(self) -> int:
        """Items that were not written."""
        return self.refused + self.failed

    def _run(self) -> None:
        pause_s = self._rested()
        open_ = True
        while open_:
            batch = self._next(pause_s)
            open_ = None not in batch
            pairs = [pair for pair in batch if pair is not None]
            if pairs:
                self._got_weight += sum(weight for _, weight in pairs)
                self._hand_on([item for item, _ in pairs])
            pause_s = self._rested() if open_ else None

    def _next(self, pause_s: float | None) -> list[tuple[T, int] | None]:
        try:
            batch = [self._queue.get(timeout=pause_s)]
        except queue.Empty:
            return []
        self._closing.wait(_GATHER_S)  # one transaction for what comes in a row
        while len(batch) < _MAX_BATCH and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        return batch

    def _hand_on(self, items: list[T]) -> None:
        try:
            self._write(items)
        except Exception as error:
            self.failed += len(items)
            log.warning("%s lost %d items: %r", self.thread.name, len(items), error)
        else:
            self.taken += len(items)

    def _rested(self) -> float | None:
        try:
            return self._rest()
        except Exception as error:
            log.warning("%s: %r", self.thread.name, error)
            return None
