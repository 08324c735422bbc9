"""What tiers share whose runs have a thread of their own that waits for another process."""

from __future__ import annotations

import threading
from typing import Any

from agentspec import clock
from agentspec.errors import ToolRefused
from agentspec.runs import Order, Work
from agentspec.tools_sandbox.tiers import frames
from agentspec.tools_sandbox.tiers.parcel import unpack


def outcome_of(kind: bytes, payload: bytes) -> tuple[Any, BaseException | None]:
    """A result or an exception, from what a child answered."""
    try:
        if kind == frames.RESULT:
            return unpack(payload), None
        if kind == frames.ERROR:
            return None, unpack(payload)
        return None, ToolRefused(payload.decode("utf-8", "replace"))
    except ToolRefused as error:
        return None, error


class Slots:
    """So many runs at once."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._free = threading.BoundedSemaphore(number)

    def take(self) -> None:
        """Take one.

        Raises:
            ToolRefused: none is free.
        """
        if not self._free.acquire(blocking=False):
            raise ToolRefused(f"{self._number} runs ahead are going on already")

    def give_back(self) -> None:
        """One is free again."""
        self._free.release()


def order_in(work: Work) -> Order:
    """The order of some work.

    Raises:
        ToolRefused: it has none.
    """
    if work.order is None:
        raise ToolRefused(f"{work.tool}: only an importable function can run in another process")
    return work.order


class ApartRun:
    """A run in another process. Its thread lives in `_run`; its end is reported exactly once."""

    def __init__(self, work: Work, slots: Slots) -> None:
        self._work = work
        self._order = order_in(work)
        self._slots = slots
        self._lock = threading.Lock()
        self._cancelled = False
        self.started_s = clock.monotonic()

    def launch(self) -> None:
        """Begin, in a slot and a thread of its own.

        Raises:
            ToolRefused: no slot is free.
        """
        self._slots.take()
        try:
            threading.Thread(target=self._main, name=f"agentspec-ahead-{self._work.tool}", daemon=True).start()
        except BaseException:
            self._slots.give_back()
            raise

    def _main(self) -> None:
        result, error = None, None
        try:
            result, error = outcome_of(*self._run())
        except BaseException as raised:
            error = raised
        finally:
            self._ended()
            self._slots.give_back()
        self._work.done(result, error)

    def _run(self) -> tuple[bytes, bytes]:
        """The life of the run: what the other process answered, as a frame.

        Raises:
            ToolRefused: it cannot run, died, or took too long.
        """
        raise NotImplementedError

    def _ended(self) -> None:
        """It is over, and nobody knows yet."""

    def differs(self) -> str | None:
        return None

    def commit(self) -> None:
        return
