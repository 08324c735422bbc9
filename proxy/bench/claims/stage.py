"""What the tools of `bench claims` stand on: how they rest, how they fail, and where they run ahead."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Hashable, Sequence
from typing import Any

from agentspec.errors import ToolRefused
from agentspec.proxy.bench.claims.fibers import Fibers
from agentspec.proxy.bench.claims.world import FILES, Result, ToolFailed, World
from agentspec.runs import Run, Tier, Work
from agentspec.sandbox import Sandbox
from agentspec.tools_sandbox.tiers.registry import Tiers
from agentspec.tools_sandbox.tiers.thread import ThreadTier

NOBODY = "nobody"
"""The user of a process that knows of no users: nothing about them in any context."""

USER: contextvars.ContextVar[str] = contextvars.ContextVar("claims_user", default=NOBODY)
BET: contextvars.ContextVar[str | None] = contextvars.ContextVar("claims_bet", default=None)
"""The order that the running code runs ahead for."""

ANYBODY = "anybody"
"""Whose a sandboxed run is: it sees nothing of its caller."""

THE_TOOL = "the tool"
Steps = Sequence[tuple[str, bool]]
"""Domains in the order in which a tool comes to them, and whether it changes them."""


class Stage:
    """The world, and who acts in it one after the other."""

    def __init__(self, fibers: Fibers) -> None:
        self.fibers = fibers
        self.world = World()
        self.failing_share = 0.015

    def act(self, tool: str, about: Hashable, steps: Steps, who: str | None = None) -> Result:
        """The body of a plain tool: its steps, with rests between them."""
        began_s, seen = self.fibers.now_s, []
        self._rest()
        for step in steps:
            if step[1]:
                self._wait()  # a write is long enough for runs to start and end in it
            seen.append(self._take(step))
            self._rest()
        return self._result(tool, about, who, seen, began_s)

    async def act_async(self, tool: str, about: Hashable, steps: Steps, who: str | None = None) -> Result:
        """The body of an async tool."""
        began_s, seen = self.fibers.now_s, []
        await self._rest_async()
        for step in steps:
            seen.append(self._take(step))
            await self._rest_async()
        return self._result(tool, about, who, seen, began_s)

    def act_sandboxed(self, tool: str, about: Hashable) -> Result:
        """The body of a tool that changes `FILES`; ahead of time it changes them in its sandbox only."""
        ahead, began_s = BET.get() is not None, self.fibers.now_s
        self._wait()
        seen = [(FILES, self.world.version(FILES) + 1)] if ahead else [self._take((FILES, True))]
        self._wait()
        result = self._result(tool, about, ANYBODY, seen, began_s)
        result.commits = 0 if ahead else None
        return result

    def _take(self, step: tuple[str, bool]) -> tuple[str, int]:
        domain, changes = step
        return domain, self.world.change(domain) if changes else self.world.version(domain)

    def _result(
        self, tool: str, about: Hashable, who: str | None, seen: list[tuple[str, int]], began_s: float
    ) -> Result:
        return Result(tool, about, USER.get() if who is None else who, tuple(seen), began_s, BET.get())

    def _rest(self) -> None:
        self._may_fail()
        self._wait()

    def _wait(self) -> None:
        how = self.fibers.random.random()
        if how < 0.4:
            self.fibers.park(THE_TOOL)
        elif how < 0.6:
            self.fibers.park(THE_TOOL, lambda: False, self.fibers.now_s + how / 10)

    async def _rest_async(self) -> None:
        self._may_fail()
        how = self.fibers.random.random()
        if how < 0.6:
            await asyncio.sleep(0.0 if how < 0.4 else how / 10)

    def _may_fail(self) -> None:
        if self.fibers.random.random() < self.failing_share:
            raise ToolFailed(BET.get())


class StageTiers(Tiers):
    """The thread tier as it is, and in place of the overlay one without files."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._thread = _KnowsItsOrder(stage.fibers)
        self._overlay = _Overlay(stage)

    def of(self, sandbox: Sandbox) -> Tier:
        return self._overlay if sandbox.isolated else self._thread

    def forget_everything(self) -> None:
        self._thread.forget_everything()

    def close(self) -> None:
        """Nothing to end."""


class _KnowsItsOrder(ThreadTier):
    """Tells the tool which order it runs for, so that its result can be traced."""

    def __init__(self, fibers: Fibers) -> None:
        super().__init__()
        self._fibers = fibers

    def start(self, work: Work) -> Run:
        work.context.run(BET.set, _order_of(self._fibers))
        return super().start(work)


def _order_of(fibers: Fibers) -> str | None:
    return fibers.current.bet if fibers.current is not None else None


class _Overlay:
    """A sandbox of one workspace, `FILES`: what ran in it is committed only if nothing else has changed them since.

    Its tool never fails: a failure in one of the first runs would bar it for good.
    """

    name = "T2"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def start(self, work: Work) -> Run:
        return _OverlayRun(self._stage, work)

    def forget_everything(self) -> None:
        """Nothing is kept."""

    def prepare(self, tools: Sequence[Any]) -> None:
        """Nothing is needed."""

    def close(self) -> None:
        """Nothing to end."""

    def recover(self, sandbox: Sandbox) -> None:
        """Nothing is left half committed."""


class _OverlayRun:
    def __init__(self, stage: Stage, work: Work) -> None:
        self._world = stage.world
        self._work = work
        self._base = stage.world.version(FILES)
        self._result: Result | None = None
        self._cancelled = False
        self.started_s = stage.fibers.now_s
        self._context = contextvars.copy_context()
        self._context.run(BET.set, _order_of(stage.fibers))
        stage.fibers.start(self._main, "sandbox")

    def _main(self) -> None:
        try:
            result = self._context.run(self._work.call)
        except BaseException as error:
            self._work.done(None, error)
            return
        if self._cancelled:
            self._work.done(None, ToolRefused("killed"))
            return
        self._result = result
        self._work.done(result, None)

    def cancel(self) -> bool:
        self._cancelled = True
        return True

    def differs(self) -> str | None:
        return None

    def commit(self) -> None:
        if self._cancelled or self._result is None or self._world.version(FILES) != self._base:
            raise ToolRefused("the workspace has changed")
        self._world.change(FILES)
        self._result.commits = (self._result.commits or 0) + 1
