"""A real write, from its begin to its end: what it makes stale, in this process and in the others of the tenant."""

from __future__ import annotations

import asyncio
from typing import Any

from agentspec.tools_sandbox import tool
from agentspec.tools_sandbox.claim_table import PendingRun
from agentspec.tools_sandbox.runtime import Runtime


class Writing:
    """Around the write of some domains; nothing to do where there are none. For `with` and `async with`."""

    def __init__(self, domains: frozenset[str]) -> None:
        self._domains = domains
        self._tickets: list[tuple[Runtime, int]] = []
        self._shared: list[tuple[Any, str]] = []

    def __enter__(self) -> None:
        if not self._domains:
            return
        with tool.WRITING:
            tool.WRITES.add(self)
            runtimes = tool.snapshot(tool.RUNTIMES)
            void = [(runtime, self.also_in(runtime)) for runtime in runtimes]
        for runtime, runs in void:  # without the lock: to stop a run may take a moment
            runtime.discard_stale(runs)
        for shared in {runtime.shared for runtime in runtimes if runtime.shared is not None}:
            self._shared.append((shared, shared.begin_write(self._domains)))

    def also_in(self, runtime: Runtime) -> list[PendingRun]:
        """The write is going on in this runtime too: nothing that it overlaps starts or is claimed there.

        Returns:
            the runs that it voids.
        """
        ticket, void = runtime.table.begin_write(self._domains)
        self._tickets.append((runtime, ticket))
        return void

    def __exit__(self, *_: object) -> None:
        if not self._domains:
            return
        with tool.WRITING:
            tool.WRITES.discard(self)
        for shared, shared_ticket in self._shared:
            shared.end_write(shared_ticket, self._domains)
        for runtime, ticket in self._tickets:
            runtime.discard_stale(runtime.table.end_write(ticket))

    async def __aenter__(self) -> None:
        """A round trip to Redis must not hold up the event loop."""
        if self._domains and any(runtime.shared is not None for runtime in tool.snapshot(tool.RUNTIMES)):
            await asyncio.to_thread(self.__enter__)
        else:
            self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        if self._shared:
            await asyncio.shield(asyncio.to_thread(self.__exit__))
        else:
            self.__exit__()
