"""From a reserved run to its result: the proxy's grant, the wait, the hedge.

A claim waits until the run's start plus its tool's 90th percentile; then a second run of our own starts beside it, and
whichever is there first is taken. A second run that raises decides nothing: the agent's own call has the last word.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future
from dataclasses import dataclass
from typing import Any

from agentspec import channel
from agentspec.errors import ToolRefused
from agentspec.tools_sandbox.claim import Claim
from agentspec.tools_sandbox.claim_table import PendingRun
from agentspec.tools_sandbox.runtime import GRANT_LIMIT_S


@dataclass(frozen=True, slots=True)
class Handed:
    """A result that a claim got without a plain call."""

    value: Any


def collect(claim: Claim) -> Handed | None:
    """What a run ahead gives this claim; None for a miss."""
    run = claim.reserve()
    if run is None:
        return None
    try:
        grant = _granted(claim, run)
        if not grant.ok:
            claim.give_back("stale", grant.reason)
            return None
        was_done = run.done
        concurrent.futures.wait([run.future], claim.join_limit_s(run))
        return _outcome(claim, run, was_done) if run.done else _hedge(claim, run)
    except BaseException:  # Ctrl-C while we waited: the call is over, and so is its run
        claim.give_back("unclaimed", "the claim was interrupted")
        raise


def _granted(claim: Claim, run: PendingRun) -> channel.Grant:
    try:
        return claim.runtime.ask(run).result(GRANT_LIMIT_S)
    except concurrent.futures.TimeoutError:
        return _NO_ANSWER


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


async def collect_async(claim: Claim) -> Handed | None:
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
    except BaseException:  # cancelled, most likely
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
