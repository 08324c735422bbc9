"""From a reserved run to its result: the proxy's grant, the wait, the hedge.

A claim waits until the run's start plus its tool's 90th percentile; then a second run of our own starts beside it, and
whichever is there first is taken. A second run that raises decides nothing: the agent's own call has the last word.
When the budget of second runs is spent the run ahead is dropped and the tool runs plainly: no later, and no more load.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future
from typing import Any, TypeVar

from agentspec import channel, clock
from agentspec.errors import ToolRefused
from agentspec.tools_sandbox.claim import Claim, Handed
from agentspec.tools_sandbox.claim_table import PendingRun
from agentspec.tools_sandbox.runtime import GRANT_LIMIT_S
from agentspec.tools_sandbox.tool import DeclaredTool
from agentspec.tools_sandbox.writing import Writing

T = TypeVar("T")


def collect(claim: Claim) -> Handed | None:
    """What a run ahead gives this claim; None for a miss."""
    claim.recover()
    run = claim.reserve()
    if run is None:
        return None
    try:
        if not claim.still_good(run):
            return claim.refused("stale", _CHANGED)
        grant = _granted(claim, run)
        if not grant.ok:
            return claim.refused("stale", grant.reason)
        was_done = run.done
        run.tool.hedges.earn()
        concurrent.futures.wait([run.future], claim.join_limit_s(run))
        if run.done:
            return _outcome(claim, run, was_done)
        if not _may_hedge(run):
            return claim.refused("failed", _TOO_SLOW)
        return _hedge(claim, run)
    except BaseException:  # Ctrl-C while we waited: the call is over, and so is its run
        claim.give_back("unclaimed", "the claim was interrupted")
        raise


_TOO_SLOW = "the run ahead took too long"
_CHANGED = "another process has written to what it depends on, or cannot be asked"


def _may_hedge(run: PendingRun) -> bool:
    """Whether a second run may start beside it. One that changes something has none: it is killed, and run plainly."""
    return not run.tool.spec.touched and run.tool.hedges.take()


def _granted(claim: Claim, run: PendingRun) -> channel.Grant:
    try:
        return claim.runtime.ask(run).result(GRANT_LIMIT_S)
    except concurrent.futures.TimeoutError:
        return _NO_ANSWER


_NO_ANSWER = channel.Grant(0, False, "the proxy did not answer in time")


def _outcome(claim: Claim, run: PendingRun, was_done: bool) -> Handed | None:
    """The run is over: hand it over, unless it failed, has still to prove itself, or its changes cannot be made."""
    if run.tool.fidelity.wants_a_check():
        claim.keep_for_comparison(run)
        return None
    if run.future.exception() is not None:
        claim.reason = "the run ahead raised; run again"
        return None
    try:
        if run.run is not None:
            with Writing(claim.touches):
                run.run.commit()
    except ToolRefused as error:
        return claim.refused("stale", str(error))
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
    claim.give_back("failed", _TOO_SLOW)
    if own.exception() is not None:
        return None
    claim.missed(clock.monotonic() - claim.began_s)
    return Handed(own.result())


def _call_again(claim: Claim) -> Any:
    if claim.arguments is None:
        raise ToolRefused("a claim without a key has no run to hedge")
    return claim.tool.call(claim.arguments, claim.surroundings)


async def collect_async(claim: Claim) -> Handed | None:
    await off_the_loop(claim.tool, claim.recover)
    run = claim.reserve()
    if run is None:
        return None
    try:
        if run.stamp is not None and not await asyncio.to_thread(claim.still_good, run):
            return claim.refused("stale", _CHANGED)
        grant = await _granted_async(claim, run)
        if not grant.ok:
            return claim.refused("stale", grant.reason)
        was_done = run.done
        run.tool.hedges.earn()
        ahead = asyncio.wrap_future(run.future)
        ahead.add_done_callback(_looked_at)
        await asyncio.wait({ahead}, timeout=claim.join_limit_s(run))
        if run.done:
            return await off_the_loop(claim.tool, _outcome, claim, run, was_done)
        if not _may_hedge(run):
            return claim.refused("failed", _TOO_SLOW)
        return await _hedge_async(claim, run, ahead)
    except BaseException:  # cancelled, most likely
        claim.give_back("unclaimed", "the claim was cancelled")
        raise


def _looked_at(future: asyncio.Future[Any]) -> None:
    """An exception that nobody waits for any more is no news to the user's log."""
    if not future.cancelled():
        future.exception()


async def off_the_loop(tool: DeclaredTool, step: Callable[..., T], *args: Any) -> T:
    """Take a step that may touch a disk or another process without holding up the event loop."""
    return await asyncio.to_thread(step, *args) if tool.spec.sandbox.isolated else step(*args)


async def _granted_async(claim: Claim, run: PendingRun) -> channel.Grant:
    answer = asyncio.wrap_future(claim.runtime.ask(run))
    await asyncio.wait({answer}, timeout=GRANT_LIMIT_S)  # wait_for would swallow a cancellation that comes with it
    return answer.result() if answer.done() else _NO_ANSWER


async def _hedge_async(claim: Claim, run: PendingRun, ahead: asyncio.Future[Any]) -> Handed | None:
    own = asyncio.ensure_future(_call_again(claim))
    own.add_done_callback(_looked_at)
    try:
        await asyncio.wait({ahead, own}, return_when=asyncio.FIRST_COMPLETED)
        if run.done and run.future.exception() is None:
            own.cancel()
            return await off_the_loop(claim.tool, _outcome, claim, run, False)
        await asyncio.wait({own})
    except asyncio.CancelledError:
        own.cancel()
        raise
    return _settle_hedge(claim, own)
