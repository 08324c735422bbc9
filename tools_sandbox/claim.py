"""One real call of a declared tool, while it looks for a result that is there already."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentspec import channel, clock
from agentspec.keys import Arguments, Form
from agentspec.tools_sandbox.claim_table import PendingRun
from agentspec.tools_sandbox.fidelity import Ended
from agentspec.tools_sandbox.runtime import Runtime
from agentspec.tools_sandbox.sessions import Seen
from agentspec.tools_sandbox.surroundings import Surroundings
from agentspec.tools_sandbox.tiers.thread import running_ahead
from agentspec.tools_sandbox.tool import DeclaredTool, snapshot

log = logging.getLogger("agentspec.claims")

_MAX_REPORTED_CHARS = 64 * 2**10
"""Longer arguments stay in this process: a report without them is only not attributed to its turn."""

FIRST_RUN_PATIENCE_S = 0.25
"""With no latency measured yet, wait this long plus as long as the run has gone on already, before hedging."""


@dataclass(slots=True)
class Claim:
    """One real call of a declared tool in one runtime."""

    tool: DeclaredTool
    runtime: Runtime
    arguments: Arguments | None
    surroundings: Surroundings
    number: int
    began_s: float = field(default_factory=clock.monotonic)
    run: PendingRun | None = None
    reason: str = "no run ahead of this call"
    checked: PendingRun | None = None
    """A run whose result is to be compared with this call's, instead of served."""

    def reserve(self) -> PendingRun | None:
        """Take a fitting run out of the table, so that no other claim gets it."""
        if self.arguments is None or not self.tool.spec.may_run_ahead:
            return None
        owner = self.tool.owner(self.arguments, self.surroundings)
        for runtime in active_runtimes(self.tool):  # one, unless the process has connected to several proxies
            now = clock.monotonic()
            self.run, stale = runtime.table.take(self.tool, self.arguments, self.surroundings, owner, now)
            runtime.discard_stale(stale)
            if self.run is not None:
                self.runtime = runtime
                return self.run
            if stale:
                self.reason = "stale"
        return None

    @property
    def touches(self) -> frozenset[str]:
        """The domains that this call changes."""
        return self.tool.touches(self.arguments)

    def still_good(self, run: PendingRun) -> bool:
        """Whether no other process has written to what the run depends on. A round trip where writes are shared."""
        shared = self.runtime.shared
        return shared is None or run.stamp is None or shared.unchanged(run.depends_on, run.stamp)

    def recover(self) -> None:
        """Before a call that may commit, or that reads what one may have half committed."""
        if self.tool.spec.sandbox.commits:
            self.runtime.tiers.recover(self.tool.spec.sandbox)

    def keep_for_comparison(self, run: PendingRun) -> None:
        """This run has still to prove itself: it is held against the real call instead of served."""
        if run.tool.spec.touched or self.runtime.table.keep_for_comparison(run):
            self.checked = run
        else:
            self.give_back("stale", "a write began before it could be compared")

    def compare(self, real: Ended) -> None:
        """The agent's own call is over: hold the run that was kept for comparison against it."""
        run, self.checked = self.checked, None
        if run is None:
            return
        voided = not run.tool.spec.touched and self.runtime.table.drop(run.bet) is None
        if voided or real.interrupted:
            self.give_back("stale", "a write came between, or the call was interrupted: nothing to compare with")
            return
        try:
            found = compare(run, real)
        except Exception as error:
            found = f"it could not be compared: {error!r}"
        self.give_back("miss", f"checked against the real call: {found or 'equal'}")

    def join_limit_s(self, run: PendingRun) -> float:
        """How long to wait for a run before hedging: until its start + q90 of its tool."""
        elapsed = clock.monotonic() - run.started_s
        q90 = self.tool.latency_q90_s()
        return max(0.0, FIRST_RUN_PATIENCE_S + elapsed if q90 is None else q90 - elapsed)

    def missed(self, latency_s: float) -> None:
        """Settle as a miss: the tool ran plainly for `latency_s`."""
        self._settle("miss", latency_s, latency_s)

    def handed_over(self, run: PendingRun, was_done: bool) -> None:
        """Settle as a hit or a join."""
        self.reason = ""
        self._settle("hit" if was_done else "joined", run.latency_s, clock.monotonic() - self.began_s)

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
        try:
            self.runtime.sessions.seen(report.claim, Seen(self.tool, self.surroundings))
            self.runtime.report(report)
        except Exception as error:  # the tool's result is there: no report of ours may take its place
            log.warning("%s: a claim could not be reported: %r", self.tool.name, error)

    def refused(self, outcome: str, reason: str) -> Handed | None:
        """The same, as what a claim gets from it: nothing."""
        self.give_back(outcome, reason)
        return None

    def give_back(self, outcome: str, reason: str) -> None:
        """The reserved run will not serve this claim."""
        if self.run is not None:
            self.reason = reason
            self.runtime.void(self.run, outcome, reason)


@dataclass(frozen=True, slots=True)
class Handed:
    """A result that a claim got without a plain call."""

    value: Any


_numbers = itertools.count(1)


def compare(run: PendingRun, real: Ended) -> str | None:
    """Hold a finished run against the real call of the same state; what differed, None where nothing did."""
    error = run.future.exception()
    ahead = Ended(error=error) if error is not None else Ended(run.future.result())
    left = run.run.differs() if run.run is not None and error is None and real.error is None else None
    return run.tool.fidelity.compare(ahead, real, left)


def active_runtimes(tool: DeclaredTool) -> list[Runtime]:
    """The runtimes that hold this tool and have their proxy, the newest first."""
    return sorted((r for r in snapshot(tool.runtimes) if r.active), key=lambda r: r.began_s, reverse=True)


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
