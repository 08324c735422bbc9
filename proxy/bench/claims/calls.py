"""The agent's real calls: each in a thread or a task of its own, judged as soon as it is over."""

from __future__ import annotations

import asyncio
import contextvars
from functools import partial
from random import Random
from typing import Any

from agentspec.proxy.bench.claims.fibers import Fiber, Killed
from agentspec.proxy.bench.claims.loop import SteppedLoop
from agentspec.proxy.bench.claims.record import Record
from agentspec.proxy.bench.claims.stage import NOBODY, THE_TOOL, USER, Stage
from agentspec.proxy.bench.claims.tools import ACCOUNTS, Given, Offer
from agentspec.proxy.bench.claims.world import Call, Result, fault_of

_INTERRUPTIBLE = (THE_TOOL, "an answer", "a run")

Running = Fiber | asyncio.Task[None]


class Calls:
    """The calls that are under way."""

    def __init__(self, stage: Stage, loop: SteppedLoop, record: Record) -> None:
        self._stage = stage
        self._fibers = stage.fibers
        self._loop = loop
        self._record = record
        self._running: dict[Call, Running] = {}
        self._contexts = {user: contextvars.Context() for user in ACCOUNTS}
        for user, context in self._contexts.items():
            if user != NOBODY:
                context.run(USER.set, user)

    def __len__(self) -> int:
        return len(self._running)

    def __str__(self) -> str:
        return ", ".join(map(str, self._running))

    def begin(self, offer: Offer, given: Given, user: str) -> None:
        """The agent calls a tool in this user's context."""
        tool = offer.tool
        call = Call(
            tool=tool.name,
            kind=offer.kind,
            about=given.about,
            who=offer.owner(user, given),
            stable_for_s=tool.spec.stable_for_s,
            step=self._record.steps + 1,
            first=self._stage.world.moment,
            began_s=self._fibers.now_s,
        )
        self._record.counts["calls", offer.kind] += 1
        self._record.note("call", call, offer.kind)
        context = self._contexts[user].copy()
        if tool.is_async:
            self._running[call] = self._loop.create_task(self._awaited(call, offer, given), context=context)
            return
        fiber = self._fibers.start(lambda: context.run(self._called, call, offer, given), call)
        self._running[call] = fiber
        self._fibers.resume(fiber)

    def _called(self, call: Call, offer: Offer, given: Given) -> None:
        try:
            got = offer.function(*given.args, **given.kwargs)
        except Killed:
            raise
        except BaseException as error:
            got = error
        self._ended(call, got)

    async def _awaited(self, call: Call, offer: Offer, given: Given) -> None:
        try:
            got = await offer.function(*given.args, **given.kwargs)
        except (Killed, GeneratorExit):
            raise
        except BaseException as error:
            got = error
        self._ended(call, got)

    def _ended(self, call: Call, got: Any) -> None:
        record = self._record
        del self._running[call]
        call.last = self._stage.world.moment
        record.over(call.step)
        if isinstance(got, (KeyboardInterrupt, asyncio.CancelledError)) and call.interrupted:
            record.counts["interrupted", call.kind] += 1
            return
        record.counts["ended", call.kind] += 1
        fault = fault_of(self._stage.world, call, got, record.orders)
        if fault is not None:
            record.found(f"{call}: {fault}; it got {got!r}")
        if isinstance(got, Result):
            got.handed += 1
            record.counts["ahead" if got.bet is not None else "plain", call.kind] += 1

    def interrupt_one(self, random: Random) -> bool:
        """A call is cancelled, or gets Ctrl-C, where it waits; False if none does."""
        waiting = [(c, r) for c, r in self._running.items() if not isinstance(r, Fiber) or r.where in _INTERRUPTIBLE]
        if not waiting:
            return False
        call, running = random.choice(waiting)
        call.interrupted = True
        self._record.note("interrupt", call)
        if isinstance(running, Fiber):
            self._fibers.resume(running, KeyboardInterrupt())
        else:
            self._loop.call_soon(partial(running.cancel))
        return True
