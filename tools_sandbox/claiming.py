"""A real call of a declared tool: hit, joined or miss. Whatever goes wrong here ends in the plain call.

1. Bind and key the arguments (`claim.py`); a call that has no key is a plain call.
2. A tool that writes runs plainly between the two ends of its write.
3. Otherwise reserve a run, ask the proxy for its grant, and wait for the result (`handover.py`).
4. No run, no grant, an exception, a run that failed: the tool runs as if agentspec were not there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from agentspec import clock
from agentspec.tools_sandbox.claim import Claim, open_claim
from agentspec.tools_sandbox.fidelity import Ended
from agentspec.tools_sandbox.handover import collect, collect_async, off_the_loop
from agentspec.tools_sandbox.shadow import open_shadow
from agentspec.tools_sandbox.tool import DeclaredTool
from agentspec.tools_sandbox.writing import Writing

log = logging.getLogger("agentspec.claims")


def call_plainly(tool: DeclaredTool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A real call of a plain function under `@speculate`."""
    claim = open_claim(tool, args, kwargs)
    handed = None
    if claim is not None and tool.spec.may_run_ahead:
        try:
            handed = collect(claim)
        except Exception as error:  # nothing of ours may reach the agent
            log.warning("%s: claim failed, running it plainly: %r", tool.name, error)
    return _serially(tool, args, kwargs, claim) if handed is None else handed.value


async def call_async(tool: DeclaredTool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A real call of a coroutine function under `@speculate`."""
    claim = open_claim(tool, args, kwargs)
    handed = None
    if claim is not None and tool.spec.may_run_ahead:
        try:
            handed = await collect_async(claim)
        except Exception as error:
            log.warning("%s: claim failed, running it plainly: %r", tool.name, error)
    return await _serially_async(tool, args, kwargs, claim) if handed is None else handed.value


def _serially(tool: DeclaredTool, args: tuple[Any, ...], kwargs: Mapping[str, Any], claim: Claim | None) -> Any:
    call = _PlainCall(tool, claim)
    with Writing(call.touches):
        call.begin()
        try:
            result = tool.function(*args, **kwargs)
        except BaseException as error:
            call.end(Ended(error=error))
            raise
        call.end(Ended(result))
        return result


async def _serially_async(
    tool: DeclaredTool, args: tuple[Any, ...], kwargs: Mapping[str, Any], claim: Claim | None
) -> Any:
    call = _PlainCall(tool, claim)
    async with Writing(call.touches):
        await off_the_loop(tool, call.begin)
        try:
            result = await tool.function(*args, **kwargs)
        except BaseException as error:
            call.end(Ended(error=error))
            raise
        await off_the_loop(tool, call.end, Ended(result))
        return result


class _PlainCall:
    """The tool runs as if agentspec were not there; what is around that."""

    def __init__(self, tool: DeclaredTool, claim: Claim | None) -> None:
        self._tool = tool
        self._claim = claim
        self.touches = tool.touches(claim.arguments if claim is not None else None)

    def begin(self) -> None:
        """Just before the function."""
        self._shadow = None
        if self._claim is not None and self._tool.spec.sandbox.isolated:
            try:
                self._claim.recover()
                self._shadow = open_shadow(self._claim)
            except Exception as error:
                log.warning("%s: %r", self._tool.name, error)
        self._began_s = clock.monotonic()

    def end(self, real: Ended) -> None:
        """Just after it."""
        latency_s = clock.monotonic() - self._began_s
        if real.error is None:
            self._tool.took(latency_s)
        claim = self._claim
        if claim is None:
            return
        claim.compare(real)
        if self._shadow is not None:
            self._shadow.hold_against(real)
        claim.missed(latency_s)
