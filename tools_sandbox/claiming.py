"""A real call of a declared tool: hit, joined or miss. Whatever goes wrong here ends in the plain call.

1. Bind and key the arguments (`claim.py`); a call that has no key is a plain call.
2. A tool that writes runs plainly between the two ends of its write.
3. Otherwise reserve a run, ask the proxy for its grant, and wait for the result (`handover.py`).
4. No run, no grant, an exception, a run that failed: the tool runs as if agentspec were not there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from agentspec.tools_sandbox.claim import Claim, open_claim
from agentspec.tools_sandbox.handover import collect, collect_async
from agentspec.tools_sandbox.runtime import Runtime
from agentspec.tools_sandbox.tool import RUNTIMES, DeclaredTool, snapshot

log = logging.getLogger("agentspec.claims")


def call_plainly(tool: DeclaredTool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A real call of a plain function under `@speculate`."""
    claim = open_claim(tool, args, kwargs)
    if claim is None or not tool.spec.effect.may_run_ahead:
        return _serially(tool, args, kwargs, claim)
    try:
        handed = collect(claim)
    except Exception as error:  # nothing of ours may reach the agent
        log.warning("%s: claim failed, running it plainly: %r", tool.name, error)
        handed = None
    return _serially(tool, args, kwargs, claim) if handed is None else handed.value


async def call_async(tool: DeclaredTool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A real call of a coroutine function under `@speculate`."""
    claim = open_claim(tool, args, kwargs)
    if claim is None or not tool.spec.effect.may_run_ahead:
        return await _serially_async(tool, args, kwargs, claim)
    try:
        handed = await collect_async(claim)
    except Exception as error:
        log.warning("%s: claim failed, running it plainly: %r", tool.name, error)
        handed = None
    return await _serially_async(tool, args, kwargs, claim) if handed is None else handed.value


def _serially(tool: DeclaredTool, args: tuple[Any, ...], kwargs: Mapping[str, Any], claim: Claim | None) -> Any:
    writes = _begin_write(tool)
    began = time.monotonic()
    try:
        result = tool.function(*args, **kwargs)
        tool.took(time.monotonic() - began)
        return result
    finally:
        _end_write(writes)
        if claim is not None:
            claim.missed(time.monotonic() - began)


async def _serially_async(
    tool: DeclaredTool, args: tuple[Any, ...], kwargs: Mapping[str, Any], claim: Claim | None
) -> Any:
    writes = _begin_write(tool)
    began = time.monotonic()
    try:
        result = await tool.function(*args, **kwargs)
        tool.took(time.monotonic() - began)
        return result
    finally:
        _end_write(writes)
        if claim is not None:
            claim.missed(time.monotonic() - began)


def _begin_write(tool: DeclaredTool) -> list[tuple[Runtime, int]]:
    if not tool.spec.touched:
        return []
    tickets = []
    for runtime in snapshot(RUNTIMES):
        ticket, void = runtime.table.begin_write(tool.spec.touched)
        runtime.discard_stale(void)
        tickets.append((runtime, ticket))
    return tickets


def _end_write(tickets: list[tuple[Runtime, int]]) -> None:
    for runtime, ticket in tickets:
        runtime.discard_stale(runtime.table.end_write(ticket))
