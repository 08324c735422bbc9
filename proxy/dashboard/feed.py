"""The live list of runs as server-sent events: first all that fit, then whatever has changed.

What this process writes down is noticed at once; what other proxies write into the same database, within five seconds.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool

_GATHER_S = 0.3
"""Batches that come in a row are looked at together."""
_LOOK_S = 5.0

List = Callable[[], list[dict[str, Any]]]


class Bell:
    """Rung in one thread, heard by event loops in others. `over`: it is rung for the last time, the proxy ends."""

    def __init__(self) -> None:
        self.over = False
        self._lock = threading.Lock()
        self._listening: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def ring(self) -> None:
        """Tell everybody who listens."""
        with self._lock:
            listening = list(self._listening.items())
        for event, loop in listening:
            with suppress(RuntimeError):  # its loop has ended
                loop.call_soon_threadsafe(event.set)

    @contextmanager
    def heard(self) -> Iterator[asyncio.Event]:
        """An event that is set when the bell is rung from now on."""
        event = asyncio.Event()
        with self._lock:
            self._listening[event] = asyncio.get_running_loop()
        try:
            yield event
        finally:
            with self._lock:
                del self._listening[event]


async def live(listed: List, written: Bell) -> AsyncIterator[bytes]:
    """Events `runs` with the runs that are new or have changed, newest first, and the ids of all that are listed.

    Args:
        listed: reads the runs that fit; may block.
        written: is rung when there is something new.
    """
    before: dict[str, dict[str, Any]] | None = None
    while not written.over:
        with written.heard() as something_new:
            now = {row["trajectory"]: row for row in await run_in_threadpool(listed)}
            if before is None or now != before:
                changed = [row for name, row in now.items() if before is None or before.get(name) != row]
                yield event_of("runs", {"changed": changed, "order": list(now)})
            else:
                yield b": nothing new\n\n"  # a browser that left is noticed by this
            before = now
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await something_new.wait()
        await asyncio.sleep(_GATHER_S)


def event_of(name: str, data: Any) -> bytes:
    """A server-sent event; JSON holds no line ends."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"
