"""Tier T1: a child of a zygote, shut in so that it can change nothing. Spare ones wait, shut in already."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Mapping, Sequence

from agentspec.errors import ToolRefused
from agentspec.runs import Order, Run, Work
from agentspec.tools_sandbox.environment import place_here
from agentspec.tools_sandbox.kernel import landlock
from agentspec.tools_sandbox.tiers import frames
from agentspec.tools_sandbox.tiers.child import Child, ask, wait_ready
from agentspec.tools_sandbox.tiers.launching import ApartRun, Slots, order_in
from agentspec.tools_sandbox.tiers.zygote_client import Tool, ZygoteClient
from agentspec.tools_sandbox.tool import DeclaredTool

SETUP_LIMIT_S = 10.0


class ProcessTier:
    """Runs calls in forked children, at most `max_running` at a time.

    Args:
        max_running: children at work at once.
        spares: children that wait, shut in, for the next call of their kind.
        landlock_version: to act as an older kernel; default: what this one has.
    """

    name = "T1"

    def __init__(self, max_running: int = 8, spares: int = 2, landlock_version: int | None = None) -> None:
        self._max_running = max_running
        self._wanted_spares = spares
        self._landlock = landlock.version() if landlock_version is None else landlock_version
        self.missing: str | None = None
        """Why this machine cannot have the tier, once that is known."""
        self.forget_everything()

    def forget_everything(self) -> None:
        """In a child process after a fork: the zygotes are the parent's."""
        self._slots = Slots(self._max_running)
        self._lock = threading.Lock()
        self._closed = False
        self._zygotes: dict[tuple[tuple[str, str], ...], ZygoteClient] = {}
        self._spares: dict[tuple[ZygoteClient, frames.Plan], deque[Child]] = {}

    def prepare(self, tools: Sequence[DeclaredTool]) -> None:
        """Have these tools imported, each with its declared environment, before the first of them runs.

        Raises:
            ToolRefused: a zygote cannot be started.
        """
        wanted: dict[ZygoteClient, list[Tool]] = {}
        for tool in tools:
            zygote = self.zygote(place_here(tool.spec.sandbox.env).declared)
            wanted.setdefault(zygote, []).append((tool.function.__module__, tool.function.__qualname__, tool.seal))
        for zygote, group in wanted.items():
            zygote.prepare(group)

    def zygote(self, env: Mapping[str, str]) -> ZygoteClient:
        """The zygote whose tools see this declared environment.

        Raises:
            ToolRefused: the tier is closed.
        """
        key = tuple(sorted(env.items()))
        with self._lock:
            if self._closed:
                raise ToolRefused("this tier is closed")
            if key not in self._zygotes:
                self._zygotes[key] = ZygoteClient(env)
            return self._zygotes[key]

    def zygote_for(self, order: Order) -> ZygoteClient:
        """The zygote for a call, which holds its tool.

        Raises:
            ToolRefused: the tool cannot run in a child, or the tier is closed.
        """
        zygote = self.zygote(order.place.declared)
        zygote.check((order.module, order.qualname, order.seal))
        return zygote

    def start(self, work: Work) -> Run:
        """Start the work and return at once.

        Raises:
            ToolRefused: too many runs already, the tool cannot run in a child, or this machine cannot shut one in.
        """
        self.refuse_weak_kernels(order_in(work))
        run = _ProcessRun(self, work, self._slots)
        run.launch()
        return run

    def refuse_weak_kernels(self, order: Order) -> None:
        """Refuse what this machine cannot shut in.

        Raises:
            ToolRefused: and why.
        """
        if self.missing is not None:
            raise ToolRefused(self.missing)
        if self._landlock < landlock.FLOOR:
            raise ToolRefused(f"Landlock {self._landlock} is too old here ({landlock.FLOOR} is needed: Linux 6.2)")
        if order.sandbox.subprocesses and not order.sandbox.commits and self._landlock < landlock.SIGNALS_SINCE:
            raise ToolRefused(f"subprocesses need Landlock {landlock.SIGNALS_SINCE} (Linux 6.12), or an overlay")

    def run(self, order: Order, run: _ProcessRun) -> tuple[bytes, bytes]:
        """The life of one run, in a thread of its own: a child, the job, what came of it.

        Raises:
            ToolRefused: it cannot run, died, or took too long.
        """
        zygote = self.zygote_for(order)
        plan = self.plan(order)
        child = self._spare(zygote, plan)
        keep = False
        try:
            run.has(zygote, child)
            answer = ask(child, zygote.job(order), order.timeout_s)
            keep = bool(plan.warm_for) and answer[0] == frames.RESULT and run.lets_go()
            return answer
        finally:
            if keep:
                with self._lock:
                    self._spares.setdefault((zygote, plan), deque()).appendleft(child)
            else:
                zygote.kill(child)
                if child.sock is not None:
                    child.sock.close()
            self._refill(zygote, plan)

    def plan(self, order: Order) -> frames.Plan:
        place = order.sandbox
        warm_for = f"{order.module}:{order.qualname}" if place.warm else ""
        return frames.Plan(
            "process", place.network, place.subprocesses, place.memory_bytes, self._landlock, warm_for=warm_for
        )

    def _spare(self, zygote: ZygoteClient, plan: frames.Plan) -> Child:
        """A child that is shut in: one that waits, else a new one."""
        while True:
            with self._lock:
                waiting = self._spares.get((zygote, plan))
                child = waiting.popleft() if waiting else None
            if child is None:
                child = zygote.spawn(plan)
                wait_ready(child, SETUP_LIMIT_S)
                return child
            if child.generation != zygote.generation:
                zygote.kill(child)
            elif child.born.wait(SETUP_LIMIT_S):
                with contextlib.suppress(ToolRefused):  # it died while it waited
                    wait_ready(child, SETUP_LIMIT_S)
                    return child

    def _refill(self, zygote: ZygoteClient, plan: frames.Plan) -> None:
        with self._lock:
            waiting = self._spares.setdefault((zygote, plan), deque())
            try:
                while len(waiting) < self._wanted_spares:
                    waiting.append(zygote.order(plan))
            except ToolRefused:
                return

    def close(self) -> None:
        """End the zygotes and everything that they forked."""
        with self._lock:
            self._closed = True
            zygotes, self._zygotes = list(self._zygotes.values()), {}
            self._spares.clear()
        for zygote in zygotes:
            zygote.close()


class ChildRun(ApartRun):
    """A run in a zygote's child, which is killed when the run is cancelled."""

    def __init__(self, work: Work, slots: Slots) -> None:
        super().__init__(work, slots)
        self._zygote: ZygoteClient | None = None
        self.child: Child | None = None

    def has(self, zygote: ZygoteClient, child: Child) -> None:
        """The run has a child now.

        Raises:
            ToolRefused: it was cancelled before.
        """
        with self._lock:
            self._zygote, self.child = zygote, child
            if self._cancelled:
                raise ToolRefused("it was cancelled")

    def cancel(self) -> bool:
        with self._lock:
            self._cancelled = True
            if self._zygote is not None and self.child is not None:
                self._zygote.kill(self.child)
        return True


class _ProcessRun(ChildRun):
    def __init__(self, tier: ProcessTier, work: Work, slots: Slots) -> None:
        super().__init__(work, slots)
        self._tier = tier

    def _run(self) -> tuple[bytes, bytes]:
        return self._tier.run(self._order, self)

    def lets_go(self) -> bool:
        """The child is the next run's; False where this one was cancelled."""
        with self._lock:
            self.child = None
            return not self._cancelled
