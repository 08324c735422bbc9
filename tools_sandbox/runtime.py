"""The runtime: the agent's process as the proxy sees it. Runs calls ahead on order, hands results to real calls.

Life of a run here: ordered (`RunAhead`) -> checked -> started on a tier -> over (`Ran`) -> reserved by a real call ->
granted by the proxy -> handed over (`Claimed`). Every exit on the way is reported with its reason.
"""

from __future__ import annotations

import contextvars
import itertools
import logging
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from agentspec import channel, clock
from agentspec.errors import SpeculationError, ToolRefused
from agentspec.runs import Work
from agentspec.tools_sandbox.claim_table import ClaimTable, PendingRun, approximate_bytes
from agentspec.tools_sandbox.copies import copy_of
from agentspec.tools_sandbox.sessions import Sessions
from agentspec.tools_sandbox.shared import SharedDomains
from agentspec.tools_sandbox.tiers.orders import order_of
from agentspec.tools_sandbox.tiers.registry import Tiers
from agentspec.tools_sandbox.tool import DECLARED, DeclaredTool, enter, leave, snapshot

log = logging.getLogger("agentspec.runtime")

GRANT_LIMIT_S = 0.25
"""Longest wait for the proxy's word on a reserved run; after that the call is a miss."""


class Link(Protocol):
    """The way to the proxy."""

    @property
    def connected(self) -> bool:
        """Whether the proxy has answered our introduction and is there."""
        ...

    def send(self, message: channel.FromRuntime) -> None:
        """Queue a message; never blocks, drops what cannot be sent."""
        ...

    def introduce(self) -> None:
        """Say `Hello` again: the tools have changed."""
        ...


class Runtime:
    """Holds the tools, the claim table and what each session's calls looked like."""

    prefixed = False
    """Whether requests may call its tools by longer names."""
    tells_results = False
    """Whether the proxy gets copies of results."""

    def __init__(
        self, tiers: Tiers, tools: Iterable[DeclaredTool] | None = None, shared: SharedDomains | None = None
    ) -> None:
        self.began_s = clock.monotonic()
        self.tiers = tiers
        self.shared = shared
        self._fixed = None if tools is None else list(tools)
        self._base = contextvars.copy_context()
        self._link: Link | None = None
        self._reset()
        enter(self, follows=tools is None)

    def _reset(self) -> None:
        """Fresh tables and locks: at start, and in a child process after a fork."""
        self.table = ClaimTable()
        self.left_running = 0
        self._tickets = itertools.count(1)
        self._asked: dict[int, Future[channel.Grant]] = {}
        self.sessions = Sessions()

    def forget_everything(self) -> None:
        """After a fork: nothing of the parent's is ours."""
        self._link = None
        self.tiers.forget_everything()
        self._reset()

    def close(self) -> None:
        """End what the tiers have started, and let go of Redis."""
        for run in self.table.drop_all():
            self._cancel(run)
        leave(self)
        self.tiers.close()
        if self.shared is not None:
            self.shared.close()

    def attach(self, link: Link) -> None:
        """Use this way to the proxy."""
        self._link = link

    @property
    def active(self) -> bool:
        """Whether runs could be handed over at all right now."""
        return self._link is not None and self._link.connected

    def tools(self) -> dict[str, DeclaredTool]:
        """The tools on offer by name; a name that two tools share is offered by neither."""
        found: dict[str, DeclaredTool] = {}
        twice: set[str] = set()
        for tool in snapshot(DECLARED) if self._fixed is None else self._fixed:
            tool.held_by(self)
            if tool.name in found:
                twice.add(tool.name)
            found[tool.name] = tool
        return {name: tool for name, tool in found.items() if name not in twice}

    def offer(self, tools: list[DeclaredTool]) -> None:
        """Hold these tools and no others from now on."""
        for gone in set(self.tools().values()).difference(tools):
            gone.released_by(self)
        self._fixed = tools
        self.tools_changed()

    def hello(self, identity: str) -> channel.Hello:
        """The introduction that the proxy gets."""
        tools = self.tools().values()
        self.tiers.prepare(tools)
        infos = [channel.ToolInfo.of(tool.spec, tool.word.same_call is not None) for tool in tools]
        return channel.Hello(identity, infos, prefixed=self.prefixed, tells=self.tells_results)

    def tools_changed(self) -> None:
        """A tool was declared after we introduced ourselves."""
        if self._link is not None:
            self._link.introduce()

    # What the proxy says

    def receive(self, message: channel.FromProxy) -> None:
        """Act on a message of the proxy's."""
        if isinstance(message, channel.RunAhead):
            self._run_ahead(message)
        elif isinstance(message, channel.Cancel):
            self._cancel(self.table.drop(message.bet))
        elif isinstance(message, channel.Grant):
            self._answer(message)
        elif isinstance(message, channel.Session):
            self.sessions.learn(message)

    def lost(self) -> None:
        """The channel is gone: nothing can be granted any more."""
        for run in self.table.drop_all():
            self._cancel(run)
        for ticket in list(self._asked):
            self._answer(channel.Grant(ticket, False, "the proxy is gone"))

    def _answer(self, grant: channel.Grant) -> None:
        answer = self._asked.pop(grant.ask, None)
        if answer is not None and answer.set_running_or_notify_cancel():
            answer.set_result(grant)

    def _run_ahead(self, order: channel.RunAhead) -> None:
        try:
            self._start(order)
        except SpeculationError as error:
            self.report(channel.Refused(order.bet, str(error)))
        except BaseException as error:  # the root of a bet: nothing it raises goes further
            log.warning("bet %s could not start: %r", order.bet, error)
            self.report(channel.Refused(order.bet, f"could not start: {error!r}"))

    def _start(self, order: channel.RunAhead) -> None:
        tool = self.tools().get(order.tool)
        if tool is None or not tool.spec.may_run_ahead:
            raise ToolRefused(f"{order.tool} is not declared as one that may run ahead here")
        if tool.fidelity.barred is not None:
            raise ToolRefused(f"{tool.name} is barred from {tool.spec.sandbox.tier}: {tool.fidelity.barred}")
        surroundings = self.sessions.surroundings(tool, order.trajectory, self._base)
        arguments = tool.signature.of_prediction(order.arguments, tool.last_form)
        depends_on = tool.depends_on(arguments)
        now = clock.monotonic()
        run = PendingRun(
            bet=order.bet,
            trajectory=order.trajectory,
            tool=tool,
            arguments=arguments,
            surroundings=surroundings,
            owner=tool.owner(arguments, surroundings),
            depends_on=depends_on,
            started_s=now,
            expires_s=now + order.limit_s,
            stamp=self.shared.stamp(depends_on) if self.shared is not None else None,
            tell=order.tell and self.tells_results and tool.spec.effect.changes_nothing,
        )
        started, dropped = self.table.add(run)
        self._discard(dropped, "unclaimed", "made room for newer results")
        if not started:
            raise ToolRefused(f"a write that {tool.name} depends on is going on")
        try:
            self.start_run(run, order.arguments)
        except SpeculationError:
            self.table.drop(order.bet)
            raise

    def start_run(self, run: PendingRun, given: Mapping[str, Any]) -> None:
        """Start a run that stands in the table, with the arguments as JSON.

        Raises:
            ToolRefused: its tier is missing, too many runs go on, or its loop is not there.
        """
        tool, surroundings = run.tool, run.surroundings
        isolated = tool.spec.sandbox.isolated
        loop = None if isolated else tool.running_loop()
        if tool.is_async and not isolated and loop is None:
            raise ToolRefused(f"{tool.name} is async and was not seen running on a loop yet")
        for_the_run = tool.signature.of_prediction(given, run.arguments.form)  # its own copy of the values
        work = Work(
            tool.name,
            lambda: tool.call(for_the_run, surroundings),
            lambda result, error: self._over(run, result, error),
            order_of(tool, given, run.arguments.form, surroundings.place) if surroundings.place else None,
            loop if tool.is_async else None,
            surroundings.variables.copy(),
        )
        tier = self.tiers.of(tool.spec.sandbox)
        tool.limits.enter()
        try:
            run.run = tier.start(work)
        except BaseException:
            tool.limits.leave()
            raise
        if run.dropped:  # while it was starting, or it failed at once
            self._cancel(run)
        elif tool.spec.timeout_s is not None and not isolated:
            give_up = threading.Timer(tool.spec.timeout_s, self._give_up, [run])
            give_up.daemon = True
            give_up.start()
            run.future.add_done_callback(lambda _: give_up.cancel())

    def _give_up(self, run: PendingRun) -> None:
        """It has taken longer than its timeout_s. One that a claim waits for already is left to that claim."""
        if not run.done and self.table.drop(run.bet) is not None:
            self._discard([run], "failed", f"took longer than timeout_s={run.tool.spec.timeout_s:g}")

    def _over(self, run: PendingRun, result: Any, error: BaseException | None) -> None:
        run.latency_s = latency_s = clock.monotonic() - run.started_s
        run.tool.limits.leave()
        if not run.future.set_running_or_notify_cancel():
            return
        if error is not None:
            run.future.set_exception(error if isinstance(error, Exception) else ToolRefused(repr(error)))
            self.table.drop(run.bet)
            self._cancel(run)
            self.report(channel.Ran(run.bet, latency_s, f"{type(error).__name__}: {error}"[:500]))
            return
        run.tool.took(latency_s)
        ran = channel.Ran(run.bet, latency_s, result=copy_of(result) if run.tell else None)
        run.future.set_result(result)  # from now on a claimant may own the object
        self.report(ran)
        self._discard(self.table.finished(run, approximate_bytes(result)), "unclaimed", "made room for newer results")

    # What claims need

    def ask(self, run: PendingRun) -> Future[channel.Grant]:
        """Ask the proxy whether a reserved run may be handed over; the answer comes within `GRANT_LIMIT_S` or never."""
        ticket = next(self._tickets)
        answer: Future[channel.Grant] = Future()
        self._asked[ticket] = answer
        self.report(channel.Ask(ticket, run.bet))
        if not self.active:
            self._answer(channel.Grant(ticket, False, "the proxy is gone"))
        return answer

    def void(self, run: PendingRun, outcome: str, reason: str) -> None:
        """A run that was taken out of the table will not be handed over."""
        self._discard([run], outcome, reason)

    def discard_stale(self, runs: list[PendingRun]) -> None:
        """Runs that a write or their age has made stale."""
        self._discard(runs, "stale", "older than stable_for, or a write came between")

    def _discard(self, runs: list[PendingRun], outcome: str, reason: str) -> None:
        for run in runs:
            self._cancel(run)
        if runs:
            self.report(channel.Voided([run.bet for run in runs], outcome, reason))

    def _cancel(self, run: PendingRun | None) -> None:
        if run is None or (run.done and not run.tool.spec.sandbox.commits):
            return
        run.dropped = True
        if run.run is not None and not run.run.cancel() and not run.done:
            self.left_running += 1  # a thread cannot be killed; it ends on its own and nobody sees its result

    def sweep(self) -> None:
        """Drop what nobody claimed in time, and tell other processes of writes that they have missed."""
        if self.shared is not None:
            self.shared.pay()
        self._discard(self.table.expired(clock.monotonic()), "unclaimed", "not claimed in time")

    def report(self, message: channel.FromRuntime) -> None:
        """Tell the proxy, if it is there."""
        link = self._link
        if link is not None:
            link.send(message)
