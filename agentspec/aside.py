"""One thread beside the event loop, for work that takes milliseconds and may hang."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

_Job = tuple["Future[Any]", Callable[[], Any]] | None


class Aside:
    """Does one thing after the other in a thread. Unlike an executor's, it keeps no process from ending.

    Attributes:
        refused: things that were not done, because too much was waiting.
    """

    def __init__(self, name: str, most_waiting: int = 16) -> None:
        self._name = name
        self._jobs: queue.Queue[_Job] = queue.Queue(most_waiting)
        self._thread: threading.Thread | None = None
        self.refused = 0

    def do(self, what: Callable[[], T]) -> Future[T] | None:
        """Have it done soon; None where too much is waiting. What is cancelled while it waits is not done."""
        future: Future[T] = Future()
        try:
            self._jobs.put_nowait((future, what))
        except queue.Full:
            self.refused += 1
            return None
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        return future

    def close(self) -> None:
        """End the thread when it has done what waits; does not wait for it."""
        with suppress(queue.Full):  # it hangs, and ends with the process
            self._jobs.put_nowait(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            _do(*job)
            del job  # while it waits for the next one it holds on to nothing


def _do(future: Future[Any], what: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(what())
    except BaseException as error:
        future.set_exception(error)
