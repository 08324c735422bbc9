"""A real call of a declared tool: hit, joined or miss. Whatever goes wrong here ends in the plain call.

1. Bind and key the arguments; a call that has no key is a plain call.
2. A tool that writes runs plainly between the two ends of its write.
3. Otherwise reserve a run, ask the proxy for its grant, and wait for the result: until the run's start plus the
   tool's 90th percentile, then beside a second run of our own (the hedge).
4. No run, no grant, an exception, a run that failed: the tool runs as if agentspec were not there.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import itertools
import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future
from dataclasses import dataclass, field
from typing import Any

from agentspec import channel
from agentspec.errors import ToolRefused
from agentspec.signature import Arguments, Form
from agentspec.tools_sandbox.claims import PendingRun
from agentspec.tools_sandbox.runtime import GRANT_LIMIT_S, Runtime, Seen
from agentspec.tools_sandbox.surroundings import Surroundings
from agentspec.tools_sandbox.tier_thread import running_ahead
from agentspec.tools_sandbox.tool import DeclaredTool

log = logging.getLogger("agentspec.claims")

_MAX_REPORTED_CHARS = 64 * 2**10
"""Longer arguments stay in this process: a report without them is only not attributed to its turn."""

FIRST_RUN_PATIENCE_S = 0.25
"""With no latency measured yet, wait this long plus as long as the run has gone on already, before hedging."""


@dataclass(frozen=True, slots=True)
class Handed:
    """A result that a claim got without a plain call."""

    value: Any


@dataclass(slots=True)
class Claim:
    """One real call of a declared tool in one runtime."""

    tool: DeclaredTool
    runtime: Runtime
    arguments: Arguments | None
    surroundings: Surroundings
    number: int
    began_s: float = field(default_factory=time.monotonic)
    run: PendingRun | None = None
    reason: str = "no run ahead of this call"

    def reserve(self) -> PendingRun | None:
        """Take a fitting run out of the table, so that no other claim gets it."""
        if self.arguments is None or not self.tool.spec.effect.may_run_ahead:
            return None
        owner = self.tool.owner(self.arguments, self.surroundings)
        for runtime in active_runtimes(self.tool):  # one, unless the process has connected to several proxies
            now = time.monotonic()
            self.run, stale = runtime.table.take(self.tool, self.arguments, self.surroundings, owner, now)
            runtime.discard_stale(stale)
            if self.run is not None:
                self.runtime = runtime
                return self.run
            if stale:
                self.reason = "stale"
        return None

    def join_limit_s(self, run: PendingRun) -> float:
        """How long to wait for a run before hedging: until its start + q90 of its tool."""
        elapsed = time.monotonic() - run.started_s
        q90 = self.tool.latency_q90_s()
        return max(0.0, FIRST_RUN_PATIENCE_S + elapsed if q90 is None else q90 - elapsed)

    def missed(self, latency_s: float) -> None:
        """Settle as a miss: the tool ran plainly for `latency_s`."""
        self._settle("miss", latency_s, latency_s)

    def handed_over(self, run: PendingRun, was_done: bool) -> None:
        """Settle as a hit or a join."""
        self.reason = ""
        self._settle("hit" if was_done else "joined", run.latency_s, time.monotonic() - self.began_s)

    def _settle(self, outcome: str, latency_s: float, waited_s: float) -> None:
        report = channel.Claimed(
            self.number,
            self.tool.name,
            self.arguments.key if self.arguments and len(self.arguments.key) <= _MAX_REPORTED_CHARS else None,
            outcome,
            self.run.bet if self.run else None,
            latency_s,
            waited_s,
            self.reason,
        )
        self.runtime.settle(report, Seen(self.tool, self.surroundings))

    def give_back(self, outcome: str, reason: str) -> None:
        """The reserved run will not serve this claim."""
        if self.run is not None:
            self.reason = reason
            self.runtime.void(self.run, outcome, reason)


_numbers = itertools.count(1)


def active_runtimes(tool: DeclaredTool) -> list[Runtime]:
    """The runtimes that hold this tool and have their proxy, the newest first."""
    return sorted((r for r in list(tool.runtimes) if r.active), key=lambda r: r.began_s, reverse=True)


def open_claim(tool: DeclaredTool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Claim | None:
    """Begin a claim; None where there is nobody to claim from or the call does not even fit the signature."""
    if running_ahead():
        return None  # a tool that calls a tool while it runs ahead: the agent has called neither
    try:
        runtimes = active_runtimes(tool)
        if not runtimes:
            return None
        bound = tool.signature.bind(args, kwargs)
        surroundings = tool.surroundings(bound)
        tool.seen_running()
        claim = Claim(tool, runtimes[0], None, surroundings, next(_numbers))
        claim.arguments = tool.signature.of_claim(bound)
        if claim.arguments.form is not Form.PLAIN:
            tool.last_form = claim.arguments.form
        return claim
    except Exception as error:  # a call without a key is a plain call
        log.debug("%s: not claimed: %s", tool.name, error)
        return None


def call_plainly(tool: DeclaredTool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A real call of a plain function under `@speculate`."""
    claim = open_claim(tool, args, kwargs)
    if claim is None or not tool.spec.effect.may_run_ahead:
        return _serially(tool, args, kwargs, claim)
    try:
        handed = _collect(claim)
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
        handed = await _collect_async(claim)
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
    for runtime in list(tool.runtimes):
        ticket, void = runtime.table.begin_write(tool.spec.touched)
        runtime.discard_stale(void)
        tickets.append((runtime, ticket))
    return tickets


def _end_write(tickets: list[tuple[Runtime, int]]) -> None:
    for runtime, ticket in tickets:
        runtime.discard_stale(runtime.table.end_write(ticket))


def _collect(claim: Claim) -> Handed | None:
    """What a run ahead gives this claim; None for a miss."""
    run = claim.reserve()
    if run is None:
        return None
    try:
        grant = claim.runtime.ask(run).result(GRANT_LIMIT_S)
    except concurrent.futures.TimeoutError:
        grant = _NO_ANSWER
    if not grant.ok:
        claim.give_back("stale", grant.reason)
        return None
    was_done = run.done
    concurrent.futures.wait([run.future], claim.join_limit_s(run))
    return _outcome(claim, run, was_done) if run.done else _hedge(claim, run)


_NO_ANSWER = channel.Grant(0, False, "the proxy did not answer in time")


def _outcome(claim: Claim, run: PendingRun, was_done: bool) -> Handed | None:
    if run.future.exception() is not None:
        claim.reason = "the run ahead raised; run again"
        return None
    claim.handed_over(run, was_done)
    return Handed(run.future.result())


def _hedge(claim: Claim, run: PendingRun) -> Handed | None:
    """The run takes longer than it should: start our own beside it and take whichever is there first."""
    own: Future[Any] = Future()
    context = contextvars.copy_context()

    def main() -> None:
        try:
            own.set_result(context.run(_call_again, claim))
        except BaseException as error:
            own.set_exception(error)

    threading.Thread(target=main, name=f"agentspec-hedge-{claim.tool.name}", daemon=True).start()
    concurrent.futures.wait([run.future, own], return_when=FIRST_COMPLETED)
    if run.done and run.future.exception() is None:
        return _outcome(claim, run, False)
    concurrent.futures.wait([own])
    return _settle_hedge(claim, own)


def _settle_hedge(claim: Claim, own: Future[Any] | asyncio.Future[Any]) -> Handed | None:
    """Our second run was there first. Where it raised, the agent's own call has the last word."""
    claim.give_back("failed", "the run ahead took too long")
    if own.exception() is not None:
        return None
    claim.missed(time.monotonic() - claim.began_s)
    return Handed(own.result())


def _call_again(claim: Claim) -> Any:
    if claim.arguments is None:
        raise ToolRefused("a claim without a key has no run to hedge")
    return claim.tool.call(claim.arguments, claim.surroundings)


async def _collect_async(claim: Claim) -> Handed | None:
    run = claim.reserve()
    if run is None:
        return None
    try:
        grant = await _granted_async(claim, run)
        if not grant.ok:
            claim.give_back("stale", grant.reason)
            return None
        was_done = run.done
        ahead = asyncio.wrap_future(run.future)
        await asyncio.wait({ahead}, timeout=claim.join_limit_s(run))
        return _outcome(claim, run, was_done) if run.done else await _hedge_async(claim, run, ahead)
    except asyncio.CancelledError:
        claim.give_back("unclaimed", "the claim was cancelled")
        raise


async def _granted_async(claim: Claim, run: PendingRun) -> channel.Grant:
    try:
        return await asyncio.wait_for(asyncio.wrap_future(claim.runtime.ask(run)), GRANT_LIMIT_S)
    except TimeoutError:
        return _NO_ANSWER


async def _hedge_async(claim: Claim, run: PendingRun, ahead: asyncio.Future[Any]) -> Handed | None:
    own = asyncio.ensure_future(_call_again(claim))
    try:
        await asyncio.wait({ahead, own}, return_when=asyncio.FIRST_COMPLETED)
        if run.done and run.future.exception() is None:
            own.cancel()
            return _outcome(claim, run, False)
        await asyncio.wait({own})
    except asyncio.CancelledError:
        own.cancel()
        raise
    return _settle_hedge(claim, own)
